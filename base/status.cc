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
    case StatusCode::kWaitOver:
      return "wait over";
    case StatusCode::kInterrupted:
      return "interrupted";
  }
  return "unknown status";
}

std::string Status::ToString() const {
  if (ok()) {
    return "ok";
  }
  return std::string(StatusCodeName(code())) + ": " + message();
}

const std::string& Status::message() const {
  static const auto* const nothing = new std::string;  // outlives all threads
  return ok() ? *nothing : failure_->message;
}

Status Status::WithContext(const std::string& context) const {
  return ok() ? *this : Status(code(), context + ": " + message());
}

Status OutOfMemory() {
  // Nobody owns it: it is there before memory runs out, and to the end of the
  // process. Its message is short enough for a std::string to hold in itself.
  union Lasting {
    Lasting() : failure(StatusCode::kResourceExhausted, "out of memory") {}
    ~Lasting() {}  // NOLINT(modernize-use-equals-default): of a union
    Status::Failure failure;
  };
  static const Lasting lasting;
  Status status;
  status.failure_ = std::shared_ptr<const Status::Failure>(
      std::shared_ptr<void>(), &lasting.failure);
  return status;
}

void AbortOnMissingValue(const Status& status) {
  std::fprintf(stderr,
               "ringpipe: the value of a Result was read though there is none; "
               "look at ok() first: %s\n",
               status.ToString().c_str());
  std::abort();
}

namespace {

// Whether an errno value says that the system refuses the call itself, however
// much there is of what it asks for: EPERM or ENOSYS where a container's
// seccomp profile forbids it, EACCES by other rules.
bool IsForbidden(int error) {
  return error == EPERM || error == ENOSYS || error == EACCES;
}

}  // namespace

Status ErrnoStatus(StatusCode code, const std::string& what, int error) {
  // Some drivers return -EINVAL where EINVAL is meant.
  const int number = std::abs(error);
  const bool is_forbidden =
      code == StatusCode::kResourceExhausted && IsForbidden(number);
  if (is_forbidden) {
    code = StatusCode::kPermissionDenied;
  }
  const char* name = strerrorname_np(number);
  const char* description = strerrordesc_np(number);
  return {
      code,
      what + ": " + (description != nullptr ? description : "unknown error") +
          " (" + (name != nullptr ? name : std::to_string(error)) + ")" +
          (number == EMFILE ? "; raise 'ulimit -n'"
           : number == ETOOMANYREFS
               ? "; raise 'ulimit -n', or run fewer ranks on this "
                 "host"
           : is_forbidden ? "; the system forbids this call to the process, as "
                            "a container's seccomp profile may: allow it"
                          : "")};
}

}  // namespace ringpipe
