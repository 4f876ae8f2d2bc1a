#include "verbs/process_limits.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

namespace ringpipe::verbs {

namespace {

// Of descriptors that this process has; nullopt, with errno, where /proc does
// not tell.
std::optional<std::int64_t> OpenDescriptors() {
  DIR* const descriptors = opendir("/proc/self/fd");
  if (descriptors == nullptr) {
    return std::nullopt;
  }
  // Of the entries, "." and ".." are none, and one is this directory's.
  std::int64_t open = -3;
  while (readdir(descriptors) != nullptr) {
    ++open;
  }
  closedir(descriptors);
  return open;
}

}  // namespace

bool RaiseDescriptorLimit(int count, std::string* notice) {
  rlimit limit;
  const std::optional<std::int64_t> open = OpenDescriptors();
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      limit.rlim_cur >= limit.rlim_max ||
      static_cast<std::int64_t>(limit.rlim_cur) - open.value_or(0) >= count) {
    return false;
  }
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return false;
  }
  *notice = "the limit of descriptors ('ulimit -n') was raised from " +
            std::to_string(before) + " to the hard limit of " +
            std::to_string(limit.rlim_max) + ": up to " +
            std::to_string(count) + " more are needed";
  return true;
}

Status CheckDescriptors(int count) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return Status::Ok();
  }
  const auto most = static_cast<std::int64_t>(limit.rlim_cur);
  const std::optional<std::int64_t> open = OpenDescriptors();
  if (!open && errno != EMFILE) {
    return Status::Ok();
  }
  const std::string left =
      open ? std::to_string(most - *open) + " of " + std::to_string(most) +
                 " are left"
           : std::string("not one is left to count them (") +
                 std::strerror(EMFILE) + ")";
  const std::int64_t needed = open.value_or(most) + count;
  return needed <= most ? Status::Ok()
                        : Status(StatusCode::kResourceExhausted,
                                 std::to_string(count) +
                                     " more descriptors are needed and " +
                                     left + "; raise 'ulimit -n' to at least " +
                                     std::to_string(needed));
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
