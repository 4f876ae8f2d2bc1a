// Names, weight and taking of asynchronous events.
#ifndef RINGPIPE_VERBS_ASYNC_EVENT_H_
#define RINGPIPE_VERBS_ASYNC_EVENT_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "verbs/device.h"
#include "verbs/library.h"

namespace ringpipe::verbs {

// Whether communication on `port` cannot go on after `event`, whatever the port
// says now. That a port came up, or that an address changed, which may be
// another's, is no error as such; nor is what happens to another port.
bool IsFatal(const ibv_async_event& event, int port);

// "IBV_EVENT_QP_FATAL on queue pair 17 (...)": the event by name, what it
// befell and, in words, what it means and what to do.
std::string DescribeAsyncEvent(const ibv_async_event& event);

// Device::CheckAsyncEvents for the open `context` of `info`.
Status TakeAsyncEvents(const Library& library, ibv_context* context,
                       const DeviceInfo& info,
                       std::vector<std::string>* notices);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_ASYNC_EVENT_H_
