// Asynchronous events: their names, which of them are errors, how they are
// taken.
#ifndef RINGPIPE_VERBS_ASYNC_EVENT_H_
#define RINGPIPE_VERBS_ASYNC_EVENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "verbs/device.h"
#include "verbs/library.h"

namespace ringpipe::verbs {

// Whether `event` ends communication on `port`, whatever the port's state is
// now. Not errors by themselves: that a port came up, that an address changed
// (it may be another entry's), and what happens to another port.
bool IsFatal(const ibv_async_event& event, int port);

// "IBV_EVENT_QP_FATAL on queue pair 17 (...)": the event's name, the object
// that it happened to and, in words, what it means and what to do.
std::string DescribeAsyncEvent(const ibv_async_event& event);

// Device::CheckAsyncEvents for the open `context` of `info`.
Status TakeAsyncEvents(const Library& library, ibv_context* context,
                       const DeviceInfo& info,
                       std::vector<std::string>* notices,
                       std::uint32_t* qp_number = nullptr);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_ASYNC_EVENT_H_
