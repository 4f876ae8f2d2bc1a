#include <algorithm>
#include <cmath>
#include <vector>

#include "validate/measure_phases.h"
#include "validate/measure_run.h"
#include "validate/partners.h"
#include "validate/prediction.h"

namespace ringpipe::validate {
namespace {

struct NamedPattern {
  const char* kind;
  const char* name;
  std::vector<Pairing> pairings;
};

std::vector<NamedPattern> PatternsOfAll(int size) {
  std::vector<NamedPattern> patterns = {
      {"bisection", "lower and upper half", Bisection(InOrder(size))},
      {"ring", "in the order of the ranks", NaturalRing(size)}};
  if (size > 2) {
    patterns.push_back(
        {"bisection", "even and odd ranks", Bisection(EvenThenOdd(size))});
    patterns.push_back(
        {"bisection", "random halves", Bisection(RandomOrder(size, kSeed))});
    patterns.push_back({"bisection", "other random halves",
                        Bisection(RandomOrder(size, kSeed + 1))});
    patterns.push_back({"ring", "random", RandomRing(size, kSeed)});
    patterns.push_back({"ring", "another random", RandomRing(size, kSeed + 1)});
  }
  return patterns;
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
            slowest, run.into.planes.front().bytes_per_s.MedianOf(rank, to));
        ++senders;
      }
    }
    run.into.patterns.push_back({pattern.kind, pattern.name,
                                 bytes / std::max(seconds, 1e-9),
                                 senders == 0 ? 0 : senders * slowest});
  }
  return Status::Ok();
}

Status MeasureAllReduces(MeasureRun& run) {
  for (const std::uint64_t bytes : run.plan.allreduce_bytes) {
    run.ShowProgress(0, std::to_string(bytes) + " bytes");
    std::vector<double> times;
    for (int turn = 0; turn <= kAllReduces; ++turn) {
      RINGPIPE_RETURN_IF_ERROR(run.communicator.Barrier());
      const Clock::time_point start = Clock::now();
      RINGPIPE_RETURN_IF_ERROR(run.communicator.AllReduce(
          run.buffers.send(), run.buffers.receive(), bytes / sizeof(float),
          DataType::kFloat32, ReduceOp::kMax));
      if (turn > 0) {
        times.push_back(SecondsSince(start));
      }
    }
    RINGPIPE_ASSIGN_OR_RETURN(const double seconds,
                              run.LargestOfRanks(Median(times)));
    const Prediction prediction = PredictAllReduce(run.into, bytes);
    run.into.collectives.push_back(
        {bytes, seconds, prediction.seconds, prediction.simulated});
  }
  return Status::Ok();
}

}  // namespace ringpipe::validate
