#include "engine/communicator.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "bootstrap/launcher.h"
#include "engine/call.h"
#include "engine/call_order.h"
#include "engine/engine.h"
#include "engine/exit_notice.h"
#include "engine/ringpipe.h"

#define RINGPIPE_STRING_(x) #x
#define RINGPIPE_STRING(x) RINGPIPE_STRING_(x)

namespace ringpipe {

const char* Version() {
  return RINGPIPE_STRING(RINGPIPE_VERSION_MAJOR) "." RINGPIPE_STRING(
      RINGPIPE_VERSION_MINOR) "." RINGPIPE_STRING(RINGPIPE_VERSION_PATCH);
}

Result<CommunicatorOptions> CommunicatorOptions::FromProcess() {
  CommunicatorOptions options;
  RINGPIPE_ASSIGN_OR_RETURN(options.environment, Environment::FromProcess());
  return options;
}

// The end of an asynchronous call, shared between who waits and who runs it.
// Thread-safe.
struct Request::State {
  mutable std::mutex mutex;
  std::condition_variable ended;
  std::optional<Status> status;  // guarded by mutex

  void End(const Status& result) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      status = result;
    }
    ended.notify_all();
  }
};

Status Request::Wait(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  const auto ended = [this] { return state_->status.has_value(); };
  const Deadline deadline = Deadline::After(timeout);
  if (deadline.infinite()) {
    state_->ended.wait(lock, ended);
  } else if (!state_->ended.wait_until(lock, deadline.when(), ended)) {
    return {StatusCode::kTimeout,
            "the call has not ended after " + std::to_string(timeout.count()) +
                " ms of waiting; it runs on, wait for it again"};
  }
  return *state_->status;
}

bool Request::Done() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->status.has_value();
}

class Communicator::State {
 public:
  State() {
    exit_notice_.emplace([this] { Exit(); });
  }

  // Before all else. Allocates nothing.
  void Own(std::unique_ptr<Engine> engine) {
    engine_ = std::move(engine);
    is_created_.store(true, std::memory_order_release);
  }
  Engine& engine() { return *engine_; }
  // Not its child's.
  bool IsOfThisProcess() const { return process_ == getpid(); }

  Status RunNow(const Call& call, Timeout timeout) {
    const CallOrder::Caller caller(order_);
    return Guarded([&]() -> Status {
      RINGPIPE_ASSIGN_OR_RETURN(const CheckedCall checked,
                                engine_->Check(call));
      const Deadline deadline = DeadlineFor(timeout);
      const auto run = [&](std::uint64_t sequence) {
        return engine_->Run(checked,
                            {sequence, deadline, &order_.earliest_deadline()});
      };
      return order_.RunNow(deadline, std::ref(run));  // a copy would allocate
    });
  }

  Result<Request> RunLater(const Call& call, Timeout timeout) {
    const CallOrder::Caller caller(order_);
    std::shared_ptr<Request::State> request;
    const Status started = Guarded([&]() -> Status {
      RINGPIPE_ASSIGN_OR_RETURN(const CheckedCall checked,
                                engine_->Check(call));
      const Deadline deadline = DeadlineFor(timeout);
      request = std::make_shared<Request::State>();
      return order_.RunLater(
          deadline,
          [this, checked, deadline](std::uint64_t sequence) {
            return engine_->Run(
                checked, {sequence, deadline, &order_.earliest_deadline()});
          },
          [request](const Status& status) { request->End(status); });
    });
    if (!started.ok()) {
      return started;
    }
    return Request(std::move(request));
  }

  Result<std::vector<std::string>> Exchange(const std::string& blob) {
    const CallOrder::Caller caller(order_);
    if (order_.closed()) {
      AbortCalls();
      return CallOrder::Closed();
    }
    return engine_->bootstrap().AllGather(blob, DeadlineFor({}));
  }

  // Ends what is pending, so that all callers leave and the progress thread can
  // be joined; and waits for the other ranks, as long as no thread calls.
  void Leave() {
    exit_notice_.reset();
    order_.Close();
    if (order_.pending()) {
      AbortCalls();
    }
    if (engine_ != nullptr) {
      engine_->LeaveTogether();
    }
  }

 private:
  // Peers may be in a call that this rank does not make any more.
  void AbortCalls() {
    engine_->Abort("destroyed its communicator while calls were pending",
                   "; wait for them first");
  }

  void Exit() noexcept {
    if (!is_created_.load(std::memory_order_acquire)) {
      return;
    }
    try {
      if (!order_.RunIfIdle([this] { engine_->Exit(/*idle=*/true); })) {
        engine_->Exit(/*idle=*/false);
      }
    } catch (const std::bad_alloc&) {
      // Without a word.
    }
  }

  // A call for which there was no memory, or no thread, or which came too late,
  // is missing here, and peers may wait for it: the communicator has failed.
  template <typename F>
  Status Guarded(F f) {
    Status status;
    try {
      status = f();
    } catch (const std::bad_alloc&) {
      status = OutOfMemory();  // the peers have to hear of that
    }
    if (!status.ok() && order_.closed()) {
      AbortCalls();
    } else if (status.code() == StatusCode::kResourceExhausted) {
      engine_->Fail(status);
    }
    return status;
  }

  Deadline DeadlineFor(Timeout timeout) const {
    return Deadline::AfterRoughly(timeout.value_or(
        std::chrono::milliseconds(engine_->environment().timeout_ms)));
  }

  const pid_t process_ = getpid();
  std::unique_ptr<Engine> engine_;
  std::atomic<bool> is_created_ = false;
  CallOrder order_;  // ends before the engine does
  std::optional<ExitNotice> exit_notice_;
};

Communicator::Communicator(std::unique_ptr<State> state)
    : state_(std::move(state)) {}

Communicator::~Communicator() {
  if (!state_->IsOfThisProcess()) {
    // A child of fork() has none of its threads and descriptors: nothing of it
    // can be ended here.
    static_cast<void>(state_.release());
    return;
  }
  state_->Leave();
}

namespace {

Result<std::unique_ptr<Engine>> CreateEngine(
    const CommunicatorOptions& options) {
  Environment environment = options.environment;
  if (options.rank.has_value()) {
    environment.rank = options.rank;
  }
  if (options.size.has_value()) {
    environment.size = options.size;
  }
  if (!options.root.empty()) {
    environment.root = options.root;
  }
  if (!options.job_id.empty()) {
    environment.job_id = options.job_id;
  }
  RINGPIPE_ASSIGN_OR_RETURN(const Launch launch, DetectLaunch(environment));
  const std::string prefix = "rank " + std::to_string(launch.rank);
  const Logger logger = options.log
                            ? Logger(environment.log_level, options.log, prefix)
                            : Logger(environment.log_level, prefix);
  return Engine::Create(environment, launch, logger,
                        {options.accelerator, options.transport});
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::Create(
    const CommunicatorOptions& options) {
  try {
    // The engine comes last: from then on the peers count on this rank.
    std::unique_ptr<Communicator> communicator(
        new Communicator(std::make_unique<State>()));
    RINGPIPE_ASSIGN_OR_RETURN(auto engine, CreateEngine(options));
    communicator->state_->Own(std::move(engine));
    return communicator;
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

int Communicator::rank() const { return state_->engine().rank(); }
int Communicator::size() const { return state_->engine().size(); }

Result<void*> Communicator::Allocate(std::size_t bytes) {
  return state_->engine().memory().Allocate(bytes);
}

Status Communicator::Free(void* memory) {
  return state_->engine().memory().Free(memory);
}

Status Communicator::Register(void* memory, std::size_t bytes) {
  return state_->engine().memory().Register(memory, bytes);
}

Status Communicator::Deregister(void* memory) {
  return state_->engine().memory().Deregister(memory);
}

Status Communicator::AllReduce(const void* send, void* receive,
                               std::size_t count, DataType type, ReduceOp op,
                               Timeout timeout) {
  return state_->RunNow(
      {Collective::kAllReduce, send, receive, count, type, op}, timeout);
}

Status Communicator::ReduceScatter(const void* send, void* receive,
                                   std::size_t count, DataType type,
                                   ReduceOp op, Timeout timeout) {
  return state_->RunNow(
      {Collective::kReduceScatter, send, receive, count, type, op}, timeout);
}

Status Communicator::AllGather(const void* send, void* receive,
                               std::size_t count, DataType type,
                               Timeout timeout) {
  return state_->RunNow({Collective::kAllGather, send, receive, count, type},
                        timeout);
}

Status Communicator::Broadcast(const void* send, void* receive,
                               std::size_t count, DataType type, int root,
                               Timeout timeout) {
  return state_->RunNow({Collective::kBroadcast, send, receive, count, type,
                         ReduceOp::kSum, root},
                        timeout);
}

Status Communicator::Barrier(Timeout timeout) {
  return state_->RunNow({Collective::kBarrier}, timeout);
}

Status Communicator::SendReceive(const void* send, int to, void* receive,
                                 int from, std::size_t count, DataType type,
                                 Timeout timeout) {
  return state_->RunNow({Collective::kSendReceive, send, receive, count, type,
                         ReduceOp::kSum, /*root=*/0, Partners{to, from}},
                        timeout);
}

Result<Request> Communicator::AllReduceAsync(const void* send, void* receive,
                                             std::size_t count, DataType type,
                                             ReduceOp op, Timeout timeout) {
  return state_->RunLater(
      {Collective::kAllReduce, send, receive, count, type, op}, timeout);
}

Result<Request> Communicator::ReduceScatterAsync(const void* send,
                                                 void* receive,
                                                 std::size_t count,
                                                 DataType type, ReduceOp op,
                                                 Timeout timeout) {
  return state_->RunLater(
      {Collective::kReduceScatter, send, receive, count, type, op}, timeout);
}

Result<Request> Communicator::AllGatherAsync(const void* send, void* receive,
                                             std::size_t count, DataType type,
                                             Timeout timeout) {
  return state_->RunLater({Collective::kAllGather, send, receive, count, type},
                          timeout);
}

Result<Request> Communicator::BroadcastAsync(const void* send, void* receive,
                                             std::size_t count, DataType type,
                                             int root, Timeout timeout) {
  return state_->RunLater({Collective::kBroadcast, send, receive, count, type,
                           ReduceOp::kSum, root},
                          timeout);
}

Result<Request> Communicator::BarrierAsync(Timeout timeout) {
  return state_->RunLater({Collective::kBarrier}, timeout);
}

void Communicator::Abort(std::string_view reason) noexcept {
  state_->engine().Abort("aborted the communicator: ", reason);
}

Result<std::vector<std::string>> Communicator::Exchange(
    const std::string& blob) {
  return state_->Exchange(blob);
}

Status Communicator::failure() const { return state_->engine().failure(); }
std::string Communicator::device() const { return state_->engine().device(); }

std::vector<StageCounters> Communicator::stage_counters() const {
  return state_->engine().stage_counters();
}

SlotCounters Communicator::slot_counters() const {
  return state_->engine().slot_counters();
}

}  // namespace ringpipe
