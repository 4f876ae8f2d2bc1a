#include "verbs/process_limits.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace ringpipe::verbs {

Status CheckDescriptors(int count) {
  namespace fs = std::filesystem;
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return Status::Ok();
  }
  std::error_code error;
  fs::directory_iterator descriptor("/proc/self/fd", error);
  if (error && error != std::errc::too_many_files_open) {
    return Status::Ok();
  }
  // One of them is the iterator's.
  std::int64_t left = error ? 0 : static_cast<std::int64_t>(limit.rlim_cur) + 1;
  for (; !error && descriptor != fs::directory_iterator();
       descriptor.increment(error)) {
    --left;
  }
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
