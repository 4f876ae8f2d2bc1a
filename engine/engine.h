#ifndef RINGPIPE_ENGINE_ENGINE_H_
#define RINGPIPE_ENGINE_ENGINE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/counters.h"
#include "base/deadline.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/launcher.h"
#include "cuda/accelerator.h"
#include "engine/accelerators.h"
#include "engine/checked_call.h"
#include "engine/goodbye.h"
#include "engine/gpu_sharing.h"
#include "engine/hosts.h"
#include "engine/job_trace.h"
#include "engine/planner.h"
#include "engine/rails.h"
#include "memory_pool/registered_memory.h"
#include "memory_pool/registration.h"
#include "memory_pool/slot_pool.h"
#include "pipeline/abort_signal.h"
#include "pipeline/executor.h"
#include "pipeline/host/region.h"

namespace ringpipe {

// What a communicator owns on one rank: its place in the job, the devices, the
// pipeline. Thread-safe, except that Run takes one call at a time.
class Engine {
 public:
  // CommunicatorOptions'.
  struct Parts {
    std::shared_ptr<Accelerator> accelerator;
    std::shared_ptr<TransportFactory> transport;
    const Store* store = nullptr;  // for Create alone; may be null
  };

  static Result<std::unique_ptr<Engine>> Create(const Environment& environment,
                                                const Launch& launch,
                                                const Logger& logger,
                                                const Parts& parts);

  // Releases everything. After LeaveTogether, or a failure.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return launch_.rank; }
  int size() const { return launch_.size; }

  // kInvalidArgument (see CheckCall; also buffers of two kinds of memory, or of
  // another device than the accelerator's) before anything has begun.
  // kDeviceError, and the communicator fails on all ranks, where the
  // accelerator of this process has ended. Any thread.
  Result<CheckedCall> Check(const Call& call);

  // Runs a call to its end.
  Status Run(const CheckedCall& checked, const Timing& timing);

  // memory().Register, for host memory alone: kInvalidArgument for a device's.
  Status Register(void* memory, std::size_t bytes);

  RegisteredMemory& memory() { return *memory_; }
  // For who needs it longer than this object lives.
  std::shared_ptr<RegisteredMemory> shared_memory() { return memory_; }
  Bootstrap& bootstrap() { return *bootstrap_; }
  const Environment& environment() const { return environment_; }

  // Ends the job with `reason`, for calls from number `first` on, unless it has
  // failed before. Allocates nothing where there is no memory; the others may
  // then take this rank for lost.
  void Fail(const Status& reason, std::uint64_t first = 0) noexcept;
  // The same with what this rank did, "aborted the communicator: ", and why.
  void Abort(std::string_view what, std::string_view why) noexcept;
  // Why the next call fails; ok where it need not.
  Status failure() const {
    return abort_->raised() ? abort_->reason(whereabouts_.now().calls_ended())
                            : Status::Ok();
  }
  // In ascending order: see Communicator::lost_ranks. Throws std::bad_alloc.
  std::vector<int> LostRanks() const;
  // As Goodbye's; and writes the trace, if there is one.
  void LeaveTogether() noexcept;
  // The process is about to exit without destroying this object.
  void Exit(bool idle) noexcept;

  std::string device() const;
  std::vector<StageCounters> stage_counters() const {
    return executor_->stage_counters();
  }
  SlotCounters slot_counters() const { return executor_->slot_counters(); }

 private:
  Engine(const Environment& environment, const Launch& launch,
         const Logger& logger, const Parts& parts);

  Status Join(Deadline deadline, const Status& able, const Store* store);
  // All that follows the join.
  Status CheckLimits();
  Status CheckDescriptors() const;
  Status SetUp(Deadline deadline);
  Status MeetNeighbours(Deadline deadline);
  Status OpenDevices(Deadline deadline);
  std::shared_ptr<MemorySource> memory_source() const;
  Status CreateExecutor();
  Result<std::vector<std::unique_ptr<Transport>>> CreateTransports(int slots);
  // RailTransport::Options'.
  std::uint64_t RegisteredSendsFrom() const;
  Status Agree(Deadline deadline);
  std::string Addresses() const;
  std::string AddressIn(const std::string& addresses,
                        std::string_view way) const;
  Status ConnectAll(Deadline deadline);
  void CreatePlanner();

  Deadline CallDeadline() const {
    return Deadline::After(std::chrono::milliseconds(environment_.timeout_ms));
  }
  // An error of this rank's own comes to them with its number.
  void TellOthers(const Status& reason, std::uint64_t first) noexcept;
  // The same, with the rank for which all wait in the end.
  Status ExplainTimeout(const Status& timeout);
  Status Execute(const CheckedCall& checked, const Timing& timing);
  Status CompareCounts(const CheckedCall& checked, const Timing& timing);

  const Environment environment_;
  const Launch launch_;
  const Logger logger_;
  // Abort's, where there is no memory for the reason.
  const Status aborted_;

  // In the order of construction; destroyed in reverse.
  std::unique_ptr<AbortSignal> abort_;
  WhereaboutsRecord whereabouts_;
  std::unique_ptr<Bootstrap> bootstrap_;
  RankRails rails_;
  Hosts hosts_;
  AlgorithmChoice algorithms_;
  int depth_ = 1;                   // sub-chunks a round
  std::shared_ptr<Region> region_;  // where hosts_.in_memory has any; else null
  RegisteredMemory::ProtectionDomains domains_;  // by rail
  std::shared_ptr<RegisteredMemory> memory_;
  Accelerators accelerators_;
  GpuSharing gpu_sharing_;
  const std::shared_ptr<TransportFactory> transport_;  // may be null
  CallCheck check_;
  std::unique_ptr<JobTrace> trace_;  // null: off
  std::unique_ptr<Executor> executor_;

  // Whether no rail pins memory.
  bool registers_for_nothing_ = false;
  // From the end of Create on.
  std::optional<Planner> planner_;
  Operation counts_exchange_;  // the last
  std::optional<Goodbye> goodbye_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_ENGINE_H_
