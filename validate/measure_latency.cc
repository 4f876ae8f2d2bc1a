#include <algorithm>
#include <utility>
#include <vector>

#include "validate/measure_phases.h"
#include "validate/measure_run.h"
#include "validate/partners.h"

namespace ringpipe::validate {
namespace {

constexpr int kWarmups = 20;

}  // namespace

// Both ranks of a pair send at once and wait for the other: each turn is half
// a round trip.
Status MeasureLatencies(MeasureRun& run) {
  const int rounds = TournamentRounds(run.size);
  Latencies latencies = {LinkSamples(run.size, 1), LinkSamples(run.size, 1)};
  std::vector<float> own;
  for (int round = 0; round < rounds; ++round) {
    run.ShowProgress(static_cast<double>(round) / rounds, "");
    RINGPIPE_RETURN_IF_ERROR(run.communicator.Barrier());
    const int partner = TournamentPartner(run.size, round, run.rank);
    std::vector<double> times;
    for (int turn = 0; turn < kWarmups + run.plan.latency_messages; ++turn) {
      const Clock::time_point start = Clock::now();
      RINGPIPE_RETURN_IF_ERROR(run.communicator.SendReceive(
          run.buffers.send(), partner, run.buffers.receive(), partner, 1,
          DataType::kInt64));
      if (turn >= kWarmups) {
        times.push_back(SecondsSince(start));
      }
    }
    std::sort(times.begin(), times.end());
    own.push_back(static_cast<float>(Median(times)));
    own.push_back(static_cast<float>(times[(times.size() - 1) * 99 / 100]));
  }
  RINGPIPE_ASSIGN_OR_RETURN(const auto all, run.Share(own));
  for (int rank = 0; rank < run.size; ++rank) {
    for (int round = 0; round < rounds; ++round) {
      const int partner = TournamentPartner(run.size, round, rank);
      if (partner > rank && all[rank].size() == own.size()) {
        for (const auto& [a, b] :
             {std::pair(rank, partner), std::pair(partner, rank)}) {
          latencies.median_s.at(a, b, 0) = all[rank][2 * round];
          latencies.p99_s.at(a, b, 0) = all[rank][2 * round + 1];
        }
      }
    }
  }
  run.into.latencies = std::move(latencies);
  return Status::Ok();
}

}  // namespace ringpipe::validate
