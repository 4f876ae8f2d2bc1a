#include "base/status.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ringpipe {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kMismatch:
      return "mismatch";
    case StatusCode::kTimeout:
      return "timeout";
    case StatusCode::kPeerLost:
      return "peer lost";
    case StatusCode::kAborted:
      return "aborted";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kResourceExhausted:
      return "resource exhausted";
    case StatusCode::kPermissionDenied:
      return "permission denied";
    case StatusCode::kDeviceError:
      return "device error";
    case StatusCode::kInternal:
      return "internal error";
    case StatusCode::kMemoryHeld:
      return "memory held";
  }
  return "unknown status";
}

std::string Status::ToString() const {
  if (ok()) {
    return "ok";
  }
  return std::string(StatusCodeName(code_)) + ": " + message_;
}

Status Status::WithContext(const std::string& context) const {
  return ok() ? *this : Status(code_, context + ": " + message_);
}

// Short enough for a std::string to hold in itself.
Status OutOfMemory() {
  return {StatusCode::kResourceExhausted, "out of memory"};
}

void AbortOnMissingValue(const Status& status) {
  std::fprintf(stderr,
               "ringpipe: the value of a Result was read though there is none; "
               "look at ok() first: %s\n",
               status.ToString().c_str());
  std::abort();
}

Status ErrnoStatus(StatusCode code, const std::string& what, int error) {
  // Some drivers return -EINVAL where EINVAL is meant.
  const int number = std::abs(error);
  const char* name = strerrorname_np(number);
  const char* description = strerrordesc_np(number);
  return {code, what + ": " +
                    (description != nullptr ? description : "unknown error") +
                    " (" + (name != nullptr ? name : std::to_string(error)) +
                    ")" + (number == EMFILE ? "; raise 'ulimit -n'" : "")};
}

}  // namespace ringpipe
