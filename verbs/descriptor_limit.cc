#include "verbs/descriptor_limit.h"

#include <sys/resource.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>

namespace ringpipe::verbs {

Status CheckDescriptors(int count) {
  namespace fs = std::filesystem;
  rlimit limit;
  std::error_code error;
  const fs::directory_iterator all("/proc/self/fd", error);
  if (error || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return Status::Ok();
  }
  // One of them is the iterator's.
  const auto open = std::distance(fs::begin(all), fs::end(all)) - 1;
  const auto left = static_cast<std::ptrdiff_t>(limit.rlim_cur) - open;
  return left >= count
             ? Status::Ok()
             : Status(
                   StatusCode::kResourceExhausted,
                   std::to_string(count) + " more descriptors are needed and " +
                       std::to_string(left) + " are left; raise 'ulimit -n'");
}

}  // namespace ringpipe::verbs
