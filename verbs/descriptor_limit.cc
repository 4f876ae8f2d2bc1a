#include "verbs/descriptor_limit.h"

#include <sys/resource.h>

#include <cstdint>
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

}  // namespace ringpipe::verbs
