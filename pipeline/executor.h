#ifndef RINGPIPE_PIPELINE_EXECUTOR_H_
#define RINGPIPE_PIPELINE_EXECUTOR_H_

#include <poll.h>

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
#include "pipeline/connection_set.h"
#include "pipeline/copy_in_stage.h"
#include "pipeline/copy_out_stage.h"
#include "pipeline/operation.h"
#include "pipeline/pipeline_state.h"
#include "pipeline/receive_stage.h"
#include "pipeline/reduce_stage.h"
#include "pipeline/register_stage.h"
#include "pipeline/send_stage.h"
#include "pipeline/whereabouts.h"

namespace ringpipe {

// Runs collectives on real memory: the software pipeline of one rank.
//
//   issue ─► copy in ─► send ─► (peer) receive ─► reduce ─► send ...
//   (a slot) or register                             └────► copy out ─► release
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
    ConnectionSet::Options connections;  // Create sets its receives
    std::size_t subchunk_bytes = 0;      // of the largest sub-chunk
    int slots = 0;
    std::chrono::nanoseconds spin{0};
    AbortSignal* abort = nullptr;  // outlives the executor
    // Kept up to date, for others to read; outlives the executor. May be null.
    WhereaboutsRecord* whereabouts = nullptr;
    // Given a timeout, returns one that says more, if it can. May be empty.
    std::function<Status(const Status&)> explain_timeout;
    // A digest in words, for the message of a mismatch.
    std::string (*describe)(const Digest&) = nullptr;
    // Called with the first error, before the queue pairs are flushed: tells
    // the other ranks. May be empty.
    std::function<void(const Status&)> on_error;
    // Called with events of the devices that need no action, for the log. May
    // be empty.
    std::function<void(const std::string&)> on_notice;
  };

  // Allocates and registers everything, in memory of `allocator`'s; no rank is
  // connected yet.
  static Result<std::unique_ptr<Executor>> Create(
      std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails,
      const std::shared_ptr<verbs::Device>& allocator, const Options& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // To be connected before the first Run.
  ConnectionSet& connections() { return *state_.connections; }

  // Memory for accelerators to prepare.
  const SlotPool& pool() const { return *state_.pool; }

  // Runs one collective to its end. Every error is final: the abort signal is
  // raised with it, and every later Run returns the signal's reason. When Run
  // returns, nothing touches the operation's memory any more; where that could
  // not be achieved, the status says so.
  Status Run(const Operation& operation);

  std::vector<StageCounters> stage_counters() const;
  SlotCounters slot_counters() const;

 private:
  explicit Executor(const Options& options) : options_(options) {}

  void Begin(const Operation& operation);
  Status Loop();
  bool Finished() const;

  // Each returns whether anything happened.
  Result<bool> AdvanceStages();
  Result<bool> Issue();
  Result<bool> TakeCompletions();
  Status HandleCompletion(const ibv_wc& completion);
  Status HandleControl(PeerConnection& connection, int buffer,
                       std::uint32_t bytes);
  Status HandleDigest(PeerConnection& connection, const Digest& digest);
  Status VerifyDigest(PeerConnection& connection, const Digest& digest);
  // The error that a failed completion means.
  Status CompletionError(const ibv_wc& completion);

  // Nothing can be done: spins or sleeps.
  Status Wait();
  Status SleepUntilEvent();
  Status Probe();
  Status CheckAsyncEvents();
  Deadline EarliestDeadline() const;
  Status CheckDeadline();
  // For whereabouts: in a call, and standing still where `waits`.
  void RecordWhereabouts(bool waits);
  StageMeter& WaitedFor();
  std::string DescribeWait();
  Status EndWithError(const Status& found);
  Status TellError(const Status& found);
  bool TakeBackMemory();

  const Options options_;
  PipelineState state_;

  StageMeter acquire_meter_{"acquire"};
  CopyInStage copy_in_{state_};
  RegisterStage register_{state_};
  SendStage send_{state_, register_};
  ReceiveStage receive_{state_};
  ReduceStage reduce_{state_};
  CopyOutStage copy_out_{state_};

  // Digests of the last collectives, by sequence modulo their number: a peer
  // that disagrees may be behind.
  std::array<Digest, 64> digests_;
  bool recorded_as_waiting_ = false;
  bool after_silence_ = false;  // the error is that a peer did not answer
  Flow::Issued issued_ = Flow::Issued::kNothing;
  std::array<ibv_wc, 32> completions_;
  std::vector<pollfd> descriptors_;

  // While nothing happens.
  bool idle_ = false;
  Clock::time_point idle_since_;
  StageMeter* idle_for_ = nullptr;
  unsigned idle_polls_ = 0;
  Clock::time_point next_probe_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_EXECUTOR_H_
