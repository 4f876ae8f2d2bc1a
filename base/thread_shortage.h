#ifndef RINGPIPE_BASE_THREAD_SHORTAGE_H_
#define RINGPIPE_BASE_THREAD_SHORTAGE_H_

#include <string>

#include "base/status.h"

namespace ringpipe {

// kResourceExhausted: `what` could not start a thread, for errno value `error`.
// One errno (EAGAIN) stands for want of memory and for want of threads: looks
// for which it is, and says what to raise.
Status ThreadShortage(const std::string& what, int error);

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_THREAD_SHORTAGE_H_
