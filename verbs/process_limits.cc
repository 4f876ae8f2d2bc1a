#include "verbs/process_limits.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

namespace ringpipe::verbs {

Status CheckDescriptors(int count) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return Status::Ok();
  }
  DIR* const descriptors = opendir("/proc/self/fd");
  if (descriptors == nullptr) {
    return errno == EMFILE ? ErrnoStatus(StatusCode::kResourceExhausted,
                                         std::to_string(count) +
                                             " more descriptors are needed",
                                         EMFILE)
                           : Status::Ok();
  }
  // Of the entries, "." and ".." are none, and one is this directory's.
  std::int64_t left = static_cast<std::int64_t>(limit.rlim_cur) + 3;
  while (readdir(descriptors) != nullptr) {
    --left;
  }
  closedir(descriptors);
  return left >= count
             ? Status::Ok()
             : Status(
                   StatusCode::kResourceExhausted,
                   std::to_string(count) + " more descriptors are needed and " +
                       std::to_string(left) + " are left; raise 'ulimit -n'");
}

Status CheckAddressSpace(std::uint64_t bytes) {
  rlimit limit;
  if (bytes == 0 || getrlimit(RLIMIT_AS, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return Status::Ok();
  }
  void* const trial = mmap(nullptr, bytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (trial != MAP_FAILED) {
    munmap(trial, bytes);
    return Status::Ok();
  }
  return {StatusCode::kResourceExhausted,
          std::to_string(bytes >> 30) +
              " GiB more of address space are needed; raise 'ulimit -v'"};
}

}  // namespace ringpipe::verbs
