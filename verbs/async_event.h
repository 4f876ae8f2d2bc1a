// Names and weight of asynchronous events.
#ifndef RINGPIPE_VERBS_ASYNC_EVENT_H_
#define RINGPIPE_VERBS_ASYNC_EVENT_H_

#include <string>

#include "verbs/library.h"

namespace ringpipe::verbs {

// Whether communication on `port` cannot go on after `event`. That a port came
// up, or that its table of addresses changed, is no error; nor is what happens
// to another port.
bool IsFatal(const ibv_async_event& event, int port);

// "IBV_EVENT_QP_FATAL on queue pair 17".
std::string DescribeAsyncEvent(const ibv_async_event& event);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_ASYNC_EVENT_H_
