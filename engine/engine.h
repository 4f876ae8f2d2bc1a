#ifndef RINGPIPE_ENGINE_ENGINE_H_
#define RINGPIPE_ENGINE_ENGINE_H_

#include <atomic>
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
#include "engine/call.h"
#include "engine/hosts.h"
#include "engine/planner.h"
#include "engine/rails.h"
#include "memory_pool/registered_memory.h"
#include "memory_pool/registration.h"
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
  };

  static Result<std::unique_ptr<Engine>> Create(const Environment& environment,
                                                const Launch& launch,
                                                const Logger& logger,
                                                const Parts& parts);

  // Waits until the other ranks are here too, for RINGPIPE_TIMEOUT_MS at most
  // and not after a failure; then releases everything.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return launch_.rank; }
  int size() const { return launch_.size; }

  // kInvalidArgument (see CheckCall; also buffers of two kinds of memory, or of
  // another device than the accelerator's) before anything has begun. Any
  // thread.
  Result<CheckedCall> Check(const Call& call) const;

  // Runs a call to its end.
  Status Run(const CheckedCall& checked, const Turn& turn);

  RegisteredMemory& memory() { return *memory_; }
  Bootstrap& bootstrap() { return *bootstrap_; }
  const Environment& environment() const { return environment_; }

  // Ends the job with `reason`, unless it has failed before. Where there is no
  // memory to tell the others, they find out by themselves.
  void Fail(const Status& reason) noexcept;
  Status failure() const { return abort_->reason(); }

  std::string device() const;
  std::vector<StageCounters> stage_counters() const {
    return executor_->stage_counters();
  }
  SlotCounters slot_counters() const { return executor_->slot_counters(); }

 private:
  Engine(const Environment& environment, const Launch& launch,
         const Logger& logger, const Parts& parts);

  Status Join(Deadline deadline);
  // All that follows the join.
  Status SetUp(Deadline deadline);
  Status MeetNeighbours(Deadline deadline);
  Status OpenDevices();
  std::shared_ptr<MemorySource> memory_source() const;
  Status CreateExecutor();
  Result<std::vector<std::unique_ptr<Transport>>> CreateTransports(int slots);
  void ChooseRegistration();
  Status Agree(Deadline deadline);
  std::string Addresses() const;
  std::string AddressIn(const std::string& addresses,
                        std::string_view way) const;
  Status ConnectAll(Deadline deadline);
  void CreatePlanner();
  void FindAccelerator();
  // At the first call on `accelerator`'s memory: lets it pin the slots. Other
  // ranks may do so at another call, or never.
  Status Prepare(Accelerator& accelerator);

  // An error of this rank's own comes to them with its number.
  void TellOthers(const Status& reason);
  void LeaveTogether();
  // The same, with the rank for which all wait in the end.
  Status ExplainTimeout(const Status& timeout);
  Status Execute(const CheckedCall& checked, const Turn& turn);
  Result<Accelerator*> ChooseAccelerator(const Call& call,
                                         const CallBuffers& buffers) const;

  const Environment environment_;
  const Launch launch_;
  const Logger logger_;

  // In the order of construction; destroyed in reverse.
  std::unique_ptr<AbortSignal> abort_;
  WhereaboutsRecord whereabouts_;
  std::unique_ptr<Bootstrap> bootstrap_;
  RankRails rails_;
  Hosts hosts_;
  int depth_ = 1;                   // sub-chunks a round
  std::shared_ptr<Region> region_;  // where hosts_.in_memory has any; else null
  RegisteredMemory::ProtectionDomains domains_;  // by rail
  std::unique_ptr<RegisteredMemory> memory_;
  std::unique_ptr<Accelerator> host_;
  std::shared_ptr<Accelerator> accelerator_;  // besides the host's; may be null
  bool accelerator_prepared_ = false;         // Run's alone
  const std::shared_ptr<TransportFactory> transport_;  // may be null
  CallCheck check_;
  std::unique_ptr<Executor> executor_;

  // Planner::Job's, found before the others.
  bool registers_for_nothing_ = false;
  std::uint64_t registered_sends_from_ = 0;
  std::optional<Planner> planner_;  // from the end of Create on
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_ENGINE_H_
