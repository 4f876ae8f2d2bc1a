// Whether the limits of this process let it start so many ranks of a host.
#ifndef RINGPIPE_BENCH_RANK_LIMITS_H_
#define RINGPIPE_BENCH_RANK_LIMITS_H_

#include <cstdint>
#include <limits>

#include "base/status.h"

namespace ringpipe {

struct RankLimits {
  static constexpr std::uint64_t kNone =
      std::numeric_limits<std::uint64_t>::max();

  std::uint64_t descriptors = kNone;  // of a process: ulimit -Hn
  std::uint64_t processes = kNone;    // of the user, threads too: ulimit -u

  // Those of this process, which the ranks inherit.
  static RankLimits Own();

  // kResourceExhausted, with both figures and what to do, where `ranks` ranks
  // need more.
  Status Check(int ranks) const;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_RANK_LIMITS_H_
