// How a call becomes an operation of the pipeline: by which algorithm, in which
// sub-chunks, over which memory.
#ifndef RINGPIPE_ENGINE_PLANNER_H_
#define RINGPIPE_ENGINE_PLANNER_H_

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "cuda/accelerator.h"
#include "engine/algorithms.h"
#include "engine/checked_call.h"
#include "pipeline/operation.h"
#include "pipeline/plan.h"
#include "pipeline/transports.h"

namespace ringpipe {

// A call that can be made: its buffers, and whose memory they are.
struct CheckedCall {
  Call call;  // whose lists may be gone
  CallBuffers buffers;
  Accelerator* device = nullptr;  // null where all buffers are host memory
  std::shared_ptr<StreamMark> after = {};  // what it waits for; may be null
};

// How many numbers it takes: where pairs have counts of their own, one for
// comparing these.
inline int Numbers(const CheckedCall& checked) {
  return checked.buffers.receive_borders == nullptr ? 1 : 2;
}

// When it is run.
struct Timing {
  std::uint64_t sequence = 0;
  Deadline deadline = Deadline::Infinite();
  // Of it and of the calls behind it, as Operation's.
  const std::atomic<Clock::time_point>* earliest_deadline = nullptr;
};

// One thread at a time.
class Planner {
 public:
  // Of a communicator, on one rank; what is pointed to outlives the planner.
  struct Job {
    int rank = 0;
    int size = 1;
    CommonHost common_host = {};
    AlgorithmChoice algorithms = {};
    std::span<const int> hosts = {};  // by rank, as in Member
    int ranks_here = 1;               // on this rank's host
    std::uint64_t subchunk_bytes = 0;
    int depth = 1;
    const Transports* transports = nullptr;
    Accelerator* host = nullptr;
    std::optional<Owner> reducer = {};  // of calls with memory of a device
  };

  explicit Planner(const Job& job)
      : job_(job), peers_(job.transports->Peers({}, {})) {}

  // Until the next call.
  Result<const Operation*> Prepare(const CheckedCall& checked,
                                   const Timing& timing);
  // The same at once for a short call that was made before, not long ago; else
  // nullptr.
  const Operation* PrepareAgain(const CheckedCall& checked,
                                const Timing& timing);

 private:
  const AlgorithmInfo& AlgorithmFor(const CheckedCall& checked) const;
  // All but the memory and the plan.
  Operation Describe(const CheckedCall& checked, const AlgorithmInfo& algorithm,
                     const Shape& shape) const;
  const Shape& FindShape(const AlgorithmInfo& algorithm);
  // Asks the transports.
  Status FindReach(const CheckedCall& checked, Operation& operation) const;
  bool CopiesOutNonTemporal(const CheckedCall& checked) const;
  std::uint32_t EagerLimit(const Operation& operation,
                           const Shape& shape) const;
  // Of a plan: what it depends on, beside the job.
  struct PlanKey {
    const AlgorithmInfo* algorithm = nullptr;
    int root = 0;
    bool split = false;  // into messages of one chunk
    bool in_place = false;
    bool in_pieces = false;
    bool scales_input = false;
    Owner input_owner = Owner::kHost;
    Owner output_owner = Owner::kHost;
    std::uint32_t message_bytes = 0;
    // By transport.
    std::array<Reach, kMostTransports> input = {};
    std::array<Reach, kMostTransports> output = {};

    auto operator<=>(const PlanKey&) const = default;
  };
  // `key` without the reach, which is the operation's.
  Result<const Plan*> FindPlan(PlanKey key, const Operation& operation);

  // An operation and the call for which it may be used again.
  struct Recent {
    std::optional<Call> call;
    Operation operation;
  };
  Recent& RecentOf(const Call& call);
  static const Operation* In(const Timing& timing, Operation& operation);

  const Job job_;
  // By rank: what connections can do with buffers that they do not reach.
  const std::vector<PlanOptions::Peer> peers_;

  std::map<const AlgorithmInfo*, Shape> shapes_;
  std::map<PlanKey, Plan> plans_;

  // The latest short call of those that share a place, and no other's.
  static constexpr int kRecentBits = 6;
  std::array<Recent, 1 << kRecentBits> recent_;
  Operation operation_;  // of a call that is not short
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_PLANNER_H_
