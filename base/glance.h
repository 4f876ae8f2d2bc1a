#ifndef RINGPIPE_BASE_GLANCE_H_
#define RINGPIPE_BASE_GLANCE_H_

#include <chrono>

namespace ringpipe {

// The longest that a thread of ringpipe's sleeps before it looks whether its
// descriptors are still there. Nothing wakes it when somebody closes them.
inline constexpr std::chrono::milliseconds kGlance(500);

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_GLANCE_H_
