#ifndef RINGPIPE_BASE_EXCEPTION_STATUS_H_
#define RINGPIPE_BASE_EXCEPTION_STATUS_H_

#include <exception>

#include "base/status.h"

namespace ringpipe {

// For the public interface, which lets nothing out but a status: OutOfMemory
// for std::bad_alloc, else kInternal with what the exception says.
Status ExceptionStatus(const std::exception& exception) noexcept;

// Runs `f`, which returns a Status or a Result; what it throws becomes that.
template <typename F>
auto WithoutExceptions(F f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::exception& exception) {
    return ExceptionStatus(exception);
  }
}

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_EXCEPTION_STATUS_H_
