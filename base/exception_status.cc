#include "base/exception_status.h"

#include <new>
#include <string>

namespace ringpipe {

Status ExceptionStatus(const std::exception& exception) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) {
    return OutOfMemory();
  }
  try {
    return {StatusCode::kInternal,
            std::string("an exception that ringpipe did not expect: ") +
                exception.what()};
  } catch (const std::exception&) {
    return OutOfMemory();
  }
}

}  // namespace ringpipe
