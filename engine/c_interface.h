// What the files of the C interface have in common.
#ifndef RINGPIPE_ENGINE_C_INTERFACE_H_
#define RINGPIPE_ENGINE_C_INTERFACE_H_

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "base/status.h"
#include "engine/communicator.h"
#include "engine/ringpipe.h"

struct ringpipe_communicator {
  ringpipe_communicator() = default;
  ~ringpipe_communicator();
  ringpipe_communicator(const ringpipe_communicator&) = delete;
  ringpipe_communicator& operator=(const ringpipe_communicator&) = delete;

  // Once; what is thrown leaves it as it was.
  void Own(std::unique_ptr<ringpipe::Communicator> created);

  // ringpipe_allocate's, which stays after ringpipe_leave. Not the child's of a
  // fork.
  std::unique_ptr<std::shared_ptr<ringpipe::RegisteredMemory>> memory;
  const pid_t process = getpid();
  // Null after ringpipe_leave. Ends before the memory does.
  std::unique_ptr<ringpipe::Communicator> communicator;

  // A call that cannot be made for want of memory fails the communicator: peers
  // may wait for it, or take the next one for it.
  ringpipe::Status OutOfMemory() {
    return communicator->Fail(ringpipe::OutOfMemory());
  }
};

struct ringpipe_request {
  std::optional<ringpipe::Request> request;
};

namespace ringpipe::c_interface {

// The status's code; its message is ringpipe_error_message() from now on. The
// code holds also where there is no memory for the message.
ringpipe_status ToC(const Status& status);

// The same without a status: a message that lives for ever.
ringpipe_status Say(ringpipe_status code, const char* message);

// ringpipe_error_message()'s.
const char* LastMessage();

// Runs `f` so that nothing but a status leaves the C interface.
template <typename F>
ringpipe_status Guarded(F f) noexcept {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return Say(RINGPIPE_RESOURCE_EXHAUSTED,
               "resource exhausted: out of memory");
  } catch (...) {
    return Say(RINGPIPE_INTERNAL,
               "internal error: an exception that ringpipe did not expect");
  }
}

inline Status Invalid(const std::string& why) {
  return {StatusCode::kInvalidArgument, why};
}

inline ringpipe_status NullArgument(const char* what) {
  return ToC(Invalid(std::string(what) + " is NULL"));
}

// kInvalidArgument if the size that a caller has written into its structure is
// none.
template <typename T>
Status CheckSize(const T* structure, const char* name) {
  const std::size_t size = structure->struct_size;
  return size >= sizeof structure->struct_size
             ? Status::Ok()
             : Invalid(std::string(name) + "::struct_size is " +
                       std::to_string(size) + "; set it to sizeof(" + name +
                       ")");
}

// Whether calls may be made of it.
inline bool IsOpen(const ringpipe_communicator* communicator) {
  return communicator != nullptr && communicator->communicator != nullptr;
}

// Why they may not.
inline Status WhyNotOpen(const ringpipe_communicator* communicator) {
  return Invalid(communicator == nullptr
                     ? "communicator is NULL"
                     : "the communicator has been left (ringpipe_leave); its "
                       "memory may be freed, and it may be destroyed");
}

// Of a structure whose size a caller has written into it: what the caller's
// lacks is 0.
template <typename T>
Result<T> Read(const T* from, const char* name) {
  RINGPIPE_RETURN_IF_ERROR(CheckSize(from, name));
  const std::size_t size = from->struct_size;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return Invalid(std::string(name) +
                     " has members that this version of libringpipe, " +
                     Version() +
                     ", does not know: it is older than the header with which "
                     "the program was compiled");
    }
  }
  T whole = {};
  std::memcpy(&whole, from, std::min(size, sizeof whole));
  return whole;
}

// The other way round: what the caller's has no room for it does not get, and
// what this version does not know stays as it is.
template <typename T>
Status Write(const T& from, T* to, const char* name) {
  RINGPIPE_RETURN_IF_ERROR(CheckSize(to, name));
  const std::uint32_t size = to->struct_size;
  std::memcpy(to, &from, std::min<std::size_t>(size, sizeof from));
  to->struct_size = size;
  return Status::Ok();
}

// What `options` (NULL: nothing) and the process's environment say.
Result<CommunicatorOptions> ToOptions(const ringpipe_options* options);

}  // namespace ringpipe::c_interface

#endif  // RINGPIPE_ENGINE_C_INTERFACE_H_
