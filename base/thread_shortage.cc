#include "base/thread_shortage.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstddef>

namespace ringpipe {
namespace {

std::size_t StackBytes() {
  std::size_t bytes = 0;
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) == 0) {
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
  }
  return bytes;
}

bool HasRoomForStack(std::size_t bytes) {
  void* const stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  return stack != MAP_FAILED && munmap(stack, bytes) == 0;
}

}  // namespace

Status ThreadShortage(const std::string& what, int error) {
  const std::size_t bytes = StackBytes();
  Status status = ErrnoStatus(StatusCode::kResourceExhausted,
                              what + " (pthread_create)", error);
  if (status.code() != StatusCode::kResourceExhausted) {
    return status;  // no limit: it is forbidden
  }
  return {status.code(),
          status.message() +
              (HasRoomForStack(bytes)
                   ? "; no more threads may be started: raise 'ulimit -u', or "
                     "the container's limit of processes"
                   : "; there is no address space or memory for its stack of " +
                         std::to_string(bytes >> 10) +
                         " KiB: raise 'ulimit -v', or lower 'ulimit -s'")};
}

}  // namespace ringpipe
