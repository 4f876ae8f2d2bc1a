#include "bench/rank_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <string>

namespace ringpipe {
namespace {

// What rank 0, which has most, has open itself and for each peer.
constexpr std::uint64_t kDescriptors = 22;
constexpr std::uint64_t kDescriptorsOfPeer = 3;
// Of a rank: the one that calls, the bootstrap's, the one that waits for
// signals.
constexpr std::uint64_t kThreads = 3;

std::uint64_t LimitOf(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0) {
    return RankLimits::kNone;
  }
  // Ranks raise the limit of descriptors themselves.
  const rlim_t counts =
      resource == RLIMIT_NOFILE ? limit.rlim_max : limit.rlim_cur;
  return counts == RLIM_INFINITY ? RankLimits::kNone : counts;
}

Status TooFew(int ranks, const std::string& what, std::uint64_t needed,
              std::uint64_t limit, const std::string& option) {
  return {StatusCode::kResourceExhausted,
          std::to_string(ranks) + " ranks on this host need " +
              std::to_string(needed) + " " + what + ", and the limit is " +
              std::to_string(limit) + "; raise '" + option +
              "', or use fewer ranks"};
}

}  // namespace

RankLimits RankLimits::Own() {
  // The kernel does not count root's processes.
  return {.descriptors = LimitOf(RLIMIT_NOFILE),
          .processes = getuid() == 0 ? kNone : LimitOf(RLIMIT_NPROC)};
}

Status RankLimits::Check(int ranks) const {
  const auto count = static_cast<std::uint64_t>(ranks);
  const std::uint64_t open = kDescriptors + kDescriptorsOfPeer * count;
  if (open > descriptors) {
    return TooFew(ranks, "open files each", open, descriptors, "ulimit -n");
  }
  const std::uint64_t threads = 1 + kThreads * count;
  if (threads > processes) {
    return TooFew(ranks, "processes and threads", threads, processes,
                  "ulimit -u");
  }
  return {};
}

}  // namespace ringpipe
