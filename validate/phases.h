// What a validation measures, in what order, and what that costs. Pure.
#ifndef RINGPIPE_VALIDATE_PHASES_H_
#define RINGPIPE_VALIDATE_PHASES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ringpipe::validate {

// Timed, of each pattern; one goes before them.
inline constexpr int kPatternMessages = 4;

// What somebody asked for.
struct RunOptions {
  bool isolate_all = false;
  bool links = true;  // their bandwidths, and those of patterns
  bool latency = true;
  bool patterns = true;
  double stress_seconds = 2;  // 0: none
  std::optional<std::uint64_t> message_bytes;
  double tolerance = 0.10;
};

// What a short look at the job has shown, before anything is measured.
struct Probe {
  int ranks = 1;
  int rails = 1;  // to be measured one by one where there are several
  double bytes_per_s = 1e9;  // of one link
  double latency_s = 1e-5;   // of a message of 8 bytes
  double barrier_s = 1e-4;
};

enum class Phase {
  kBandwidth,
  kIsolated,
  kLatency,
  kPatterns,
  kStress,
  kRails,
};
// "the bandwidth of each link"
const char* PhaseName(Phase phase);

struct PhaseCost {
  Phase phase = Phase::kBandwidth;
  double seconds = 0;
};

struct RunPlan {
  std::uint64_t message_bytes = 0;
  std::size_t most_suspects = 0;  // links that are measured alone
  int latency_messages = 0;       // timed, of each pair
  int exchange_every = 1;  // steps: then all ranks learn what was measured
  double stress_seconds = 0;
  bool isolate_all = false;
  std::vector<PhaseCost> phases;   // in their order
  std::uint64_t memory_bytes = 0;  // of each rank

  double seconds() const;
};

// Bounded: without isolate_all and a longer stress, the measurement of 512
// ranks on 100 Gbit/s takes less than 5 minutes.
RunPlan MakePlan(const Probe& probe, const RunOptions& options);

// "about 40 s and 33 MB in each rank: the bandwidth of each link 20 s, ..."
std::string DescribeCost(const RunPlan& plan);

// How far a run is, while it is in a phase.
class Progress {
 public:
  explicit Progress(const RunPlan& plan) : plan_(plan) {}
  // From 0 to 1, of the whole run, when `part` of the phase is done.
  double Of(Phase phase, double part) const;

 private:
  const RunPlan plan_;
};

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_PHASES_H_
