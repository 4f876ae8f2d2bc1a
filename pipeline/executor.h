#ifndef RINGPIPE_PIPELINE_EXECUTOR_H_
#define RINGPIPE_PIPELINE_EXECUTOR_H_

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/status.h"
#include "pipeline/abort_signal.h"
#include "pipeline/call_check.h"
#include "pipeline/connection.h"
#include "pipeline/operation.h"
#include "pipeline/pipeline_state.h"
#include "pipeline/short_run.h"
#include "pipeline/stages.h"
#include "pipeline/trace.h"
#include "pipeline/whereabouts.h"

namespace ringpipe {

// Runs collectives on real memory: the software pipeline of one rank.
//
//   issue ─► copy in ─► send ─► (peer) receive ─► reduce ─► send ...
//   (a slot) or register                             └────► copy out ─► release
//
// Run drives all stages on the caller's thread: it takes what the transports
// have for it, advances every stage by what is ready, and where nothing is,
// spins for a bounded time and then sleeps in poll() on the transports'
// descriptors and the abort signal, until the deadline. If the call that is
// made is a BlockingCall with a function, that is called meanwhile.
//
// One thread at a time, except stage_counters and slot_counters.
class Executor final : private Connection::Events, private ShortRun::Driver {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    std::chrono::nanoseconds spin{0};
    // The host has more ranks than cores: who waits lets another one run.
    bool oversubscribed = false;
    AbortSignal* abort = nullptr;  // outlives the executor
    CallCheck* check = nullptr;    // the transports' too; outlives them
    // Kept up to date, for others to read; outlives the executor. May be null.
    WhereaboutsRecord* whereabouts = nullptr;
    // Where its calls are recorded; outlives the executor. Null: nowhere.
    Trace* trace = nullptr;
    // Given a timeout, returns one that says more, if it can. May be empty.
    std::function<Status(const Status&)> explain_timeout;
    // Called with the first error, before the connections are ended: tells the
    // other ranks, whose calls from number `first` on it ends. May be empty.
    std::function<void(const Status&, std::uint64_t first)> on_error;
    // Called with events of the devices that need no action, for the log. May
    // be empty.
    std::function<void(const std::string&)> on_notice;
  };

  // The transports, at most kMostTransports, together have a connection to
  // every other rank; they are to be connected before the first Run. A slot
  // of the pool has room for the largest message.
  Executor(std::unique_ptr<SlotPool> pool,
           std::vector<std::unique_ptr<Transport>> transports,
           const Options& options);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const Transports& transports() const { return state_.transports; }

  // For accelerators, to prepare the memory of the long slots, which all calls
  // on theirs use. Not during Run.
  SlotPool& pool() { return *state_.pool; }

  // Tells peers why this rank ends the communicator, for calls from number
  // `first` on, as far as a transport can. Any thread.
  void TellPeers(const Status& reason, std::uint64_t first = 0) {
    for (const auto& transport : transports()) {
      transport->Tell(reason, first);
    }
  }
  // Before the process exits, where no call runs.
  void FinishSending(Deadline deadline) {
    for (const auto& transport : transports()) {
      transport->FinishSending(deadline);
    }
  }

  // Runs one collective to its end. Every error is final: the abort signal is
  // raised with it, and every later Run returns the signal's reason. When Run
  // returns, nothing touches the operation's memory any more; where that could
  // not be achieved, the status says so.
  Status Run(const Operation& operation);
  // Of a call that has failed before Run: what was found out of its buffers, or
  // registered, is let go. Does no harm after Run.
  void Drop();

  std::vector<StageCounters> stage_counters() const;
  // As of the last call that used slots.
  SlotCounters slot_counters() const;

 private:
  Status Begin(const Operation& operation);
  void CollectDescriptors();
  Status Loop();
  bool Finished() const;

  // Each returns whether anything happened.
  Result<bool> AdvanceStages();
  Result<bool> Issue();
  Result<bool> Poll();
  Result<bool> PollTransports();
  Status Arrived(Instance instance, const std::byte* data,
                 std::uint32_t bytes) override;
  Status Sent(Instance instance) override { return send_.Sent(instance); }

  Status LetHappen() override;
  void Happened() override;
  void GoOn(Clock::time_point now);
  // Nothing can be done: spins or sleeps. `has_yielded`: has given its core
  // away a moment ago.
  Status Wait(Clock::time_point now, bool has_yielded);
  bool HoldsMessages();
  Status SleepUntilEvent();
  // Whether it found that something has happened meanwhile.
  Result<bool> PrepareToSleep();
  Result<int> PollDescriptors();
  // Whether the accelerator has been given what it is not seen to have done.
  bool Accelerating() const {
    return copy_in_.busy() || reduce_.busy() || copy_out_.busy();
  }
  // How long to sleep at most. For whoever has no descriptor to wake this rank,
  // short, and longer with each time.
  std::chrono::nanoseconds NextSleep();
  Status Announce();
  bool HoldsBack() const;
  Status Probe();
  Status CheckAsyncEvents();
  Status LostPeer();
  Deadline EarliestDeadline() const;
  std::uint64_t sequence() const { return state_.operation->digest.sequence; }
  // Whether the communicator has failed, for this call too.
  bool aborted() const { return options_.abort->raised(sequence()); }
  Status MayGoOn(Clock::time_point now);
  // When to look for, or call, the function of this thread's BlockingCall.
  Clock::time_point CallerDue();
  bool CallerEnds();
  // For whereabouts: in a call, and standing still where `waits`.
  void RecordWhereabouts(bool waits);
  StageMeter& WaitedFor();
  // Whether the call has still to receive from the peer, or to send to it.
  bool HasReceives(int peer) const;
  bool HasSends(int peer) const;
  // Whether the call stands still for the peer, as far as can be seen.
  bool WaitsFor(const Connection& connection) const;
  std::string DescribeWait();
  Status EndWithError(const Status& found);
  Status TellError(const Status& found);
  bool AwaitReason();
  bool TakeBackMemory();
  void CountSlots();

  const Options options_;
  PipelineState state_;

  // What Run returns where there is no memory to say more.
  const Status held_{StatusCode::kMemoryHeld, "out of memory"};

  // SlotCounters.
  const std::uint64_t slots_;
  std::atomic<std::uint64_t> slots_in_use_ = 0;
  std::atomic<std::uint64_t> slots_high_water_ = 0;
  std::atomic<std::uint64_t> slot_waits_ = 0;

  StageMeter acquire_meter_{TraceTrack::kAcquire};
  CopyInStage copy_in_{state_};
  RegisterStage register_{state_};
  SendStage send_{state_, register_};
  ReceiveStage receive_{state_};
  ReduceStage reduce_{state_};
  CopyOutStage copy_out_{state_};

  ShortRun short_run_{
      state_,
      {send_.meter(), receive_.meter(), reduce_.meter(), copy_out_.meter()}};
  bool is_short_ = false;  // the running call

  bool recorded_as_waiting_ = false;
  Flow::Issued issued_ = Flow::Issued::kNothing;
  std::vector<pollfd> descriptors_;

  // While nothing happens.
  bool idle_ = false;
  Clock::time_point idle_since_;  // or since when it goes on
  // Of the peer that LostPeer has found.
  std::chrono::milliseconds reason_patience_ = AbortSignal::kReasonPatience;
  StageMeter* idle_for_ = nullptr;
  bool only_polls_ = false;  // nothing goes on but by an event of a transport
  unsigned idle_polls_ = 0;
  std::chrono::nanoseconds next_sleep_{0};  // while the accelerator works
  unsigned short_polls_ = 0;
  bool stands_aborted_ = false;  // and nothing has happened since
  Clock::time_point next_probe_;
  // CallerDue, so far: at first only when to look, as most calls end before.
  Clock::time_point caller_due_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_EXECUTOR_H_
