// Errors as values: a code for programs and a message for people.
#ifndef RINGPIPE_BASE_STATUS_H_
#define RINGPIPE_BASE_STATUS_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace ringpipe {

// The numbers are part of the C interface (engine/ringpipe.h): append only.
enum class StatusCode : int {
  kOk = 0,
  // An argument of the call, or a variable, is wrong; nothing was started.
  kInvalidArgument = 1,
  // The ranks disagree: different counts, types, roots, versions, devices.
  kMismatch = 2,
  // A deadline expired.
  kTimeout = 3,
  // A peer's process died, or it can no longer be reached.
  kPeerLost = 4,
  // A rank called Abort, or destroyed its communicator during a call.
  kAborted = 5,
  // No such device, address or library on this machine.
  kUnavailable = 6,
  // A limit was reached: memory, locked memory, queue entries, descriptors.
  kResourceExhausted = 7,
  // The system forbids it.
  kPermissionDenied = 8,
  // The RDMA device or accelerator reported an error.
  kDeviceError = 9,
  // A fault of ringpipe's, or memory that somebody else overwrote.
  kInternal = 10,
  // The call has failed, for the reason in the message, and a device or a
  // stopped peer may still write its buffers: they must be neither used again
  // nor freed.
  kMemoryHeld = 11,
  // The time of a wait is over; the call runs on. Of waits for asynchronous
  // calls alone: a call that its own deadline has ended has kTimeout.
  kWaitOver = 12,
  // CommunicatorOptions::while_waiting has ended a wait; the call runs on. Of
  // waits for asynchronous calls alone.
  kInterrupted = 13,
};

// "timeout" for kTimeout, and so on.
const char* StatusCodeName(StatusCode code);

// What a call that can fail returns. The message says what failed, on which
// device or peer, and what the user can do. A Status is a value: copies do not
// allocate, and a Status that is ok costs next to nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message)
      : failure_(code == StatusCode::kOk ? nullptr
                                         : std::make_shared<const Failure>(
                                               code, std::move(message))) {}

  static Status Ok() { return {}; }

  bool ok() const { return failure_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : failure_->code; }
  const std::string& message() const;

  // "peer lost: rank 3 ..."; "ok" for success.
  std::string ToString() const;

  // The same code, with `context` and ": " before the message.
  Status WithContext(const std::string& context) const;

 private:
  struct Failure {
    Failure(StatusCode its_code, std::string its_message)
        : code(its_code), message(std::move(its_message)) {}
    StatusCode code;
    std::string message;
  };
  friend Status OutOfMemory();

  std::shared_ptr<const Failure> failure_;  // null: ok
};

// A Status of `code` with the name of the errno value `error` in its message:
// "WHAT: No such device (ENODEV)". `error` may be negative, or no errno value.
// If descriptors have run out, or too many are on their way between processes,
// the message says what to raise. If `error` says that the system forbids the
// call (EPERM, EACCES, ENOSYS), kResourceExhausted becomes kPermissionDenied:
// more of the resource would not help.
Status ErrnoStatus(StatusCode code, const std::string& what, int error);

// kResourceExhausted: "out of memory". Allocates nothing.
Status OutOfMemory();

// Prints `status` to stderr and aborts the process. Result calls it if its
// value is read but there is none.
[[noreturn]] void AbortOnMissingValue(const Status& status);

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT
  Result(Status status) : status_(std::move(status)) {}  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Only if ok(); otherwise the process aborts, with the status on stderr.
  T& value() & {
    Require();
    return *value_;
  }
  const T& value() const& {
    Require();
    return *value_;
  }
  T&& value() && {
    Require();
    return *std::move(value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  void Require() const {
    if (!value_.has_value()) [[unlikely]] {
      AbortOnMissingValue(status_);
    }
  }

  std::optional<T> value_;
  Status status_;
};

// Returns the status of `expression` from the enclosing function if it failed.
#define RINGPIPE_RETURN_IF_ERROR(expression)                \
  do {                                                      \
    if (::ringpipe::Status ringpipe_status_ = (expression); \
        !ringpipe_status_.ok()) {                           \
      return ringpipe_status_;                              \
    }                                                       \
  } while (false)

// Declares or assigns `target` from a Result, or returns its status.
#define RINGPIPE_ASSIGN_OR_RETURN(target, expression) \
  RINGPIPE_ASSIGN_OR_RETURN_(target, expression,      \
                             RINGPIPE_CONCAT_(ringpipe_result_, __LINE__))
#define RINGPIPE_ASSIGN_OR_RETURN_(target, expression, result) \
  auto result = (expression);                                  \
  if (!result.ok()) {                                          \
    return result.status();                                    \
  }                                                            \
  target = std::move(result).value()
#define RINGPIPE_CONCAT_(a, b) RINGPIPE_CONCAT2_(a, b)
#define RINGPIPE_CONCAT2_(a, b) a##b

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_STATUS_H_
