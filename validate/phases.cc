#include "validate/phases.h"

#include <algorithm>
#include <cmath>

#include "validate/format.h"
#include "validate/isolated.h"
#include "validate/partners.h"

namespace ringpipe::validate {
namespace {

// A message takes so long, or less where there are many links; noise of the
// clock and of the scheduler is small beside it.
constexpr double kMessageSeconds = 0.05;
constexpr double kLeastMessageSeconds = 0.002;
constexpr double kMatrixSeconds = 20;
constexpr std::uint64_t kMostMessageBytes = 16 << 20;
constexpr std::uint64_t kLeastMessageBytes = 128 << 10;
constexpr std::uint64_t kStep = 4096;

constexpr int kLatencyMessages = 200;
constexpr double kLatencySeconds = 20;
constexpr int kPatterns = 3;
constexpr double kAloneSeconds = 10;
constexpr int kMostExchanges = 40;

int ShiftStepsOfAll(int ranks) {
  int steps = 0;
  for (int distance = 1; distance < ranks; ++distance) {
    steps += ShiftSteps(ranks, distance);
  }
  return steps;
}

std::uint64_t MessageBytes(const Probe& probe, const RunOptions& options,
                           int steps) {
  if (options.message_bytes) {
    return *options.message_bytes;
  }
  const double each = std::clamp(kMatrixSeconds / (steps * (kPassMessages + 1)),
                                 kLeastMessageSeconds, kMessageSeconds);
  const auto bytes = static_cast<std::uint64_t>(each * probe.bytes_per_s);
  return std::clamp(bytes / kStep * kStep, kLeastMessageBytes,
                    kMostMessageBytes);
}

// Over links alone at most, where one is as long as any.
double PassesAlone(int ranks, double links, bool all) {
  const bool are_few = ranks <= kMostRanksOfAll;
  const double most =
      2 * kAlonePasses *
      (kMostControls +
       (are_few ? links : std::min<double>(links, kMostSuspects)));
  const double of_all =
      LeastPasses(ranks, static_cast<std::size_t>(links)) * links;
  return !all ? most : are_few ? std::max(most, of_all) : of_all;
}

}  // namespace

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kBandwidth:
      return "the bandwidth of each link";
    case Phase::kIsolated:
      return "links alone";
    case Phase::kLatency:
      return "latencies";
    case Phase::kPatterns:
      return "bisection and rings";
    case Phase::kStress:
      return "stress";
    case Phase::kRails:
      return "each rail by itself";
  }
  return "";
}

double RunPlan::seconds() const {
  double all = 0;
  for (const PhaseCost& cost : phases) {
    all += cost.seconds;
  }
  return all;
}

RunPlan MakePlan(const Probe& probe, const RunOptions& options) {
  const int steps = std::max(1, ShiftStepsOfAll(probe.ranks));
  const double links = static_cast<double>(probe.ranks) * (probe.ranks - 1);
  RunPlan plan;
  plan.isolate_all = options.isolate_all;
  plan.stress_seconds = options.stress_seconds;
  plan.message_bytes = MessageBytes(probe, options, steps);
  plan.exchange_every = steps / kMostExchanges + 1;
  const double message =
      static_cast<double>(plan.message_bytes) / probe.bytes_per_s;
  const double step = (kPassMessages + 1) * message + probe.barrier_s;
  // As many suspects as there is time for.
  plan.most_suspects = static_cast<std::size_t>(std::min(
      links,
      std::max<double>(kMostSuspects, kAloneSeconds / (kAlonePasses * step))));
  // In three ways, once each, unless links are noisy.
  plan.phases.push_back({Phase::kBandwidth, 2 * kMostPasses * steps * step});
  plan.phases.push_back(
      {Phase::kIsolated,
       step * PassesAlone(probe.ranks, links, options.isolate_all)});
  if (options.latency) {
    const int rounds = std::max(1, TournamentRounds(probe.ranks));
    plan.latency_messages =
        std::clamp(static_cast<int>(kLatencySeconds / rounds / probe.latency_s),
                   20, kLatencyMessages);
    plan.phases.push_back(
        {Phase::kLatency,
         rounds * (1.2 * plan.latency_messages * probe.latency_s +
                   probe.barrier_s)});
  }
  if (options.patterns) {
    plan.phases.push_back(
        {Phase::kPatterns,
         kPatterns * ((1 + kPatternMessages) * 2 * message + probe.barrier_s)});
  }
  if (options.stress_seconds > 0) {
    plan.phases.push_back({Phase::kStress, options.stress_seconds});
  }
  if (probe.rails > 1) {
    plan.phases.push_back({Phase::kRails, probe.rails * steps * step});
  }
  // Both buffers; all samples of all links and what is made of them.
  plan.memory_bytes =
      2 * plan.message_bytes +
      static_cast<std::uint64_t>(links) *
          (sizeof(float) * (kMostPasses * kPassMessages + 2) + 64);
  return plan;
}

std::string DescribeCost(const RunPlan& plan) {
  std::string text = "about " + FormatTime(plan.seconds()) + " and " +
                     WithCommas((plan.memory_bytes + 999'999) / 1'000'000) +
                     " MB in each rank:";
  for (const PhaseCost& cost : plan.phases) {
    text += (text.ends_with(':') ? " " : ", ") +
            std::string(PhaseName(cost.phase)) + " " +
            (cost.phase == Phase::kBandwidth ||
                     (cost.phase == Phase::kIsolated && !plan.isolate_all)
                 ? "at most "
                 : "") +
            FormatTime(cost.seconds);
  }
  return text;
}

double Progress::Of(Phase phase, double part) const {
  double done = 0;
  for (const PhaseCost& cost : plan_.phases) {
    if (cost.phase == phase) {
      done += std::clamp(part, 0.0, 1.0) * cost.seconds;
      break;
    }
    done += cost.seconds;
  }
  return done / std::max(plan_.seconds(), 1e-9);
}

}  // namespace ringpipe::validate
