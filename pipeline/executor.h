#ifndef RINGPIPE_PIPELINE_EXECUTOR_H_
#define RINGPIPE_PIPELINE_EXECUTOR_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/status.h"
#include "pipeline/abort_signal.h"
#include "pipeline/copy_in_stage.h"
#include "pipeline/copy_out_stage.h"
#include "pipeline/operation.h"
#include "pipeline/peer_connection.h"
#include "pipeline/pipeline_state.h"
#include "pipeline/receive_stage.h"
#include "pipeline/reduce_stage.h"
#include "pipeline/send_stage.h"
#include "verbs/completion_queue.h"
#include "verbs/memory_region.h"

namespace ringpipe {

// Runs collectives on real memory: the software pipeline of one rank.
//
//   issue ─► copy in ─► send ─► (peer) receive ─► reduce ─► send ...
//   (a slot)                                         └────► copy out ─► release
//
// Each stage has a file of its own. Run drives all of them on the caller's
// thread: it takes completions, advances every stage by what is ready, and
// where nothing is, spins for a bounded time and then sleeps in poll() on the
// completion channel and the abort signal, until the deadline.
//
// One thread at a time, except stage_counters.
class Executor {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    std::size_t subchunk_bytes = 0;  // of the largest sub-chunk
    int data_slots = 0;              // beyond those of control receives
    std::chrono::nanoseconds spin{0};
    AbortSignal* abort = nullptr;  // outlives the executor
    // A digest in words, for the message of a mismatch.
    std::string (*describe)(const Digest&) = nullptr;
    // Called with the first error, before the queue pairs are flushed: tells
    // the other ranks. May be empty.
    std::function<void(const Status&)> on_error;
  };

  // Slots that a rank among `size` needs for control messages, beyond what its
  // schedules need: part of the smallest number of slots.
  static int ControlSlots(int size) { return kControlReceives * (size - 1); }

  // Allocates and registers everything; no rank is connected yet.
  static Result<std::unique_ptr<Executor>> Create(
      std::shared_ptr<verbs::ProtectionDomain> pd, const Options& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // For `peer`, and what `peer` has for this rank.
  PeerConnection::Address AddressFor(int peer) const;
  Status Connect(int peer, const PeerConnection::Address& remote);

  // Memory for accelerators to prepare.
  const SlotPool& pool() const { return *state_.pool; }

  // Runs one collective to its end. Any error but none is final: the abort
  // signal is raised with it, and every later Run returns the signal's reason.
  // When it returns, nothing touches the operation's memory any more, or the
  // status says that this could not be had.
  Status Run(const Operation& operation);

  // Whether the last Run failed without getting everything back from the
  // device: user memory that was registered for it must stay so.
  bool device_holds_memory() const { return device_holds_memory_; }

  std::vector<StageCounters> stage_counters() const;
  SlotCounters slot_counters() const;

 private:
  Executor(std::shared_ptr<verbs::ProtectionDomain> pd, const Options& options);

  Status Allocate();
  Status CreateConnections();
  void Begin(const Operation& operation);
  Status Loop();
  bool Finished() const;

  // Each returns whether anything happened.
  Result<bool> AdvanceStages();
  Result<bool> Issue();
  Result<bool> TakeCompletions();
  void CountCompletions(int count);
  Status HandleCompletion(const ibv_wc& completion);
  Status HandleReceive(PeerConnection& connection, int slot,
                       const ibv_wc& completion);
  // Whether a control message may be read: its kind and length, which a peer
  // chose.
  static bool IsWhole(MessageKind kind, const ibv_wc& completion);
  Status HandleData(PeerConnection& connection, int slot, std::uint32_t bytes);
  Status HandleDigest(PeerConnection& connection, const Digest& digest);
  Status VerifyDigest(PeerConnection& connection, const Digest& digest);
  // The error that a failed completion means.
  Status CompletionError(const PeerConnection& connection,
                         const ibv_wc& completion) const;

  // Nothing can be done: spins or sleeps.
  Status Wait();
  Status SleepUntilEvent();
  Status Probe();
  Deadline EarliestDeadline() const;
  Status CheckDeadline();
  StageMeter& WaitedFor();
  std::string DescribeWait();
  Status EndWithError(const Status& error);
  bool FlushConnections();

  const Options options_;
  const std::shared_ptr<verbs::ProtectionDomain> pd_;
  std::shared_ptr<verbs::CompletionQueue> cq_;
  verbs::Allocation credit_memory_;
  verbs::MemoryRegion credit_region_;
  PipelineState state_;

  StageMeter acquire_meter_{"acquire"};
  CopyInStage copy_in_{state_};
  SendStage send_{state_};
  ReceiveStage receive_{state_};
  ReduceStage reduce_{state_};
  CopyOutStage copy_out_{state_};

  // Digests of the last collectives, by sequence modulo their number: a peer
  // that disagrees may be behind.
  std::array<Digest, 64> digests_;
  bool device_holds_memory_ = false;
  Flow::Issued issued_ = Flow::Issued::kNothing;
  std::array<ibv_wc, 32> completions_;

  // While nothing happens.
  bool idle_ = false;
  Clock::time_point idle_since_;
  StageMeter* idle_for_ = nullptr;
  unsigned idle_polls_ = 0;
  Clock::time_point next_probe_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_EXECUTOR_H_
