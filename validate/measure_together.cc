#include <algorithm>
#include <cmath>
#include <vector>

#include "validate/measure_phases.h"
#include "validate/measure_run.h"
#include "validate/partners.h"

namespace ringpipe::validate {
namespace {

struct NamedPattern {
  const char* kind;
  const char* name;
  std::vector<Pairing> pairings;
};

std::vector<NamedPattern> PatternsOfAll(int size) {
  return {{"bisection", "lower and upper half", Bisection(InOrder(size))},
          {"bisection", "random halves", Bisection(RandomOrder(size, kSeed))},
          {"ring", "in the order of the ranks", NaturalRing(size)}};
}

}  // namespace

Status MeasurePatterns(MeasureRun& run) {
  const std::vector<NamedPattern> patterns = PatternsOfAll(run.size);
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const NamedPattern& pattern = patterns[i];
    run.ShowProgress(
        static_cast<double>(i) / static_cast<double>(patterns.size()),
        std::string(pattern.kind) + ", " + pattern.name);
    RINGPIPE_RETURN_IF_ERROR(run.communicator.Barrier());
    // The first message is not timed.
    Clock::time_point start;
    for (int turn = 0; turn <= kPatternMessages; ++turn) {
      start = turn == 1 ? Clock::now() : start;
      RINGPIPE_RETURN_IF_ERROR(
          run.SendOnce(pattern.pairings[run.rank], run.plan.message_bytes));
    }
    RINGPIPE_ASSIGN_OR_RETURN(const double seconds,
                              run.LargestOfRanks(SecondsSince(start)));
    double slowest = INFINITY, bytes = 0;
    int senders = 0;
    for (int rank = 0; rank < run.size; ++rank) {
      if (const int to = pattern.pairings[rank].to; to >= 0) {
        bytes += kPatternMessages * static_cast<double>(run.plan.message_bytes);
        slowest = std::min(
            slowest, run.into.planes.front().bytes_per_s.RateOf(rank, to));
        ++senders;
      }
    }
    run.into.patterns.push_back({pattern.kind, pattern.name,
                                 bytes / std::max(seconds, 1e-9),
                                 senders == 0 ? 0 : senders * slowest});
  }
  return Status::Ok();
}

}  // namespace ringpipe::validate
