// How a call becomes an operation of the pipeline: by which algorithm, in which
// sub-chunks, over which memory.
#ifndef RINGPIPE_ENGINE_PLANNER_H_
#define RINGPIPE_ENGINE_PLANNER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "base/deadline.h"
#include "base/status.h"
#include "cuda/accelerator.h"
#include "engine/algorithms.h"
#include "engine/call.h"
#include "engine/trial.h"
#include "memory_pool/registered_memory.h"
#include "memory_pool/registration.h"
#include "pipeline/abilities.h"
#include "pipeline/host/region.h"
#include "pipeline/operation.h"
#include "pipeline/plan.h"

namespace ringpipe {

// A call that can be made: its buffers, and whose memory they are.
struct CheckedCall {
  Call call;
  CallBuffers buffers;
  Accelerator* accelerator = nullptr;
};

// When it is run.
struct Turn {
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
    bool one_host = false;
    int ranks_here = 1;  // on this rank's host
    std::uint64_t subchunk_bytes = 0;
    int depth = 1;
    std::span<const Abilities> abilities = {};  // by rank
    Accelerator* host = nullptr;                // for host memory

    Rails rails = {};
    const RegisteredMemory* memory = nullptr;
    const Region* region = nullptr;  // null: none
    // Whether registering costs next to nothing, because no rail pins memory.
    bool registers_for_nothing = false;
    // A send from memory that is not registered registers its sub-chunk for
    // itself, if the sub-chunk has at least so many bytes.
    std::uint64_t registered_sends_from = 0;
    // Whether peers may reach long private memory by the kernel, and have to.
    bool reaches_private = false;
    bool always_reaches_private = false;
    bool crowded = false;  // a host's ranks have fewer processors
  };

  explicit Planner(const Job& job) : job_(job) {}

  // Until the next call. `temporary` is of the call's memory, where the devices
  // register for nothing: it is to last as long as the operation.
  Result<const Operation*> Prepare(const CheckedCall& checked, const Turn& turn,
                                   Registration* temporary);
  // What was prepared has run, without an error, and taken so long.
  void Ran(std::chrono::nanoseconds time);
  // The same at once for a short call that was made before, not long ago; else
  // nullptr.
  const Operation* PrepareAgain(const CheckedCall& checked, const Turn& turn);

 private:
  // All but the memory and the plan.
  Operation Describe(const CheckedCall& checked,
                     const AlgorithmInfo& algorithm) const;
  bool RegistersSends(const CheckedCall& checked) const;
  bool StreamsOut(const CheckedCall& checked) const;
  std::uint32_t EagerLimit(const Operation& operation) const;
  // How private memory gets to peers of this host: through slots; through slots
  // that are written past the caches, for peers that are far from here; or the
  // kernel copies it.
  enum PrivateWay : std::size_t { kBySlots, kPastCaches, kByKernel };
  // And trial_ of such calls, where there are several.
  std::size_t WayOf(const CheckedCall& checked);
  // Whether it is memory that the ranks share.
  bool InRegion(const void* begin, std::size_t bytes) const;
  // Memory that is to be `written` counts as registered only where that is
  // allowed.
  Result<UserBuffer> FindMemory(std::uintptr_t base, const void* begin,
                                std::size_t bytes, bool written,
                                Registration* temporary);
  Result<const Plan*> FindPlan(const AlgorithmInfo& algorithm, int root,
                               PlanOptions options);

  // An operation and the call for which it may be used again.
  struct Recent {
    std::optional<Call> call;
    Operation operation;
  };
  Recent& RecentOf(const Call& call);
  static const Operation* In(const Turn& turn, Operation& operation);

  const Job job_;

  // Algorithm, root, and PlanOptions.
  using PlanKey = std::tuple<const AlgorithmInfo*, int, bool, bool, bool, bool,
                             bool, bool, bool, std::uint32_t>;
  std::map<PlanKey, Plan> plans_;

  // The latest short call of those that share a place, and no other's.
  std::array<Recent, 16> recent_;
  Operation operation_;  // of a call that is not short

  // Of PrivateWay, by collective, in place, the logarithm of the bytes, and how
  // many ways there are.
  std::map<std::tuple<Collective, bool, int, std::size_t>, Trial> trials_;
  // Of operation_.
  Trial* trial_ = nullptr;
  std::size_t trial_bytes_ = 0;
  std::size_t way_ = kBySlots;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_PLANNER_H_
