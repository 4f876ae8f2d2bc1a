#include "engine/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/exception_status.h"
#include "bootstrap/launcher.h"
#include "engine/call_order.h"
#include "engine/checked_call.h"
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
  return WithoutExceptions([]() -> Result<CommunicatorOptions> {
    CommunicatorOptions options;
    RINGPIPE_ASSIGN_OR_RETURN(options.environment, Environment::FromProcess());
    return options;
  });
}

namespace {

// Who waits for the first of several calls to end.
struct FirstEnd {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;  // guarded by mutex

  void Tell() {
    // Under the lock to the end: whoever waits destroys it then.
    const std::lock_guard<std::mutex> lock(mutex);
    ended = true;
    changed.notify_all();
  }

  // Whether there was one by then.
  bool Await(const Deadline& deadline) {
    std::unique_lock<std::mutex> lock(mutex);
    const auto has_ended = [this] { return ended; };
    if (deadline.infinite()) {
      changed.wait(lock, has_ended);
      return true;
    }
    return changed.wait_until(lock, deadline.when(), has_ended);
  }
};

}  // namespace

// The end of an asynchronous call, shared between who waits and who runs it.
// Thread-safe.
struct Request::State {
  explicit State(Status expired) : wait_expired(std::move(expired)) {}

  // What a wait returns that expires: it must not fail for want of memory,
  // which would look like the end of the call.
  const Status wait_expired;
  mutable std::mutex mutex;
  std::condition_variable ended;
  // Guarded by mutex.
  std::optional<Status> status;
  std::vector<FirstEnd*> waiting;

  void End(const Status& result) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      status = result;
      for (FirstEnd* const first : waiting) {
        first->Tell();
      }
    }
    ended.notify_all();
  }

  // nullopt: it has not ended by then.
  std::optional<Status> Await(const Deadline& deadline) {
    std::unique_lock<std::mutex> lock(mutex);
    const auto has_ended = [this] { return status.has_value(); };
    if (deadline.infinite()) {
      ended.wait(lock, has_ended);
    } else {
      ended.wait_until(lock, deadline.when(), has_ended);
    }
    return status;
  }

  bool Done() const {
    const std::lock_guard<std::mutex> lock(mutex);
    return status.has_value();
  }
};

Status Request::Wait(std::chrono::milliseconds timeout) {
  const std::optional<Status> end = state_->Await(Deadline::After(timeout));
  return end.has_value() ? *end : state_->wait_expired;
}

bool Request::Done() const { return state_->Done(); }

Status Request::WaitAll(std::span<const Request> requests,
                        std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::After(timeout);
  Status error, expired;
  for (const Request& request : requests) {
    const std::optional<Status> end = request.state_->Await(deadline);
    if (!end.has_value()) {
      expired = request.state_->wait_expired;
    } else if (error.ok()) {
      error = *end;
    }
  }
  return expired.ok() ? error : expired;
}

// Tells `first` of the end of each request, as long as it lives.
class Request::Watch {
 public:
  Watch(std::span<const Request> requests, FirstEnd& first)
      : requests_(requests), first_(first) {}
  ~Watch() {
    for (const Request& request : requests_) {
      State& state = *request.state_;
      const std::lock_guard<std::mutex> lock(state.mutex);
      std::erase(state.waiting, &first_);
    }
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Throws std::bad_alloc.
  void Begin() {
    for (const Request& request : requests_) {
      State& state = *request.state_;
      const std::lock_guard<std::mutex> lock(state.mutex);
      state.waiting.push_back(&first_);
      if (state.status.has_value()) {
        first_.Tell();
      }
    }
  }

 private:
  const std::span<const Request> requests_;
  FirstEnd& first_;
};

Result<std::size_t> Request::WaitAny(std::span<const Request> requests,
                                     std::chrono::milliseconds timeout) {
  if (requests.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "there is no request to wait for");
  }
  return WithoutExceptions([&]() -> Result<std::size_t> {
    FirstEnd first;
    Watch watch(requests, first);
    watch.Begin();
    if (!first.Await(Deadline::After(timeout))) {
      return requests.front().state_->wait_expired;
    }
    return static_cast<std::size_t>(
        std::find_if(requests.begin(), requests.end(),
                     [](const Request& request) { return request.Done(); }) -
        requests.begin());
  });
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

  Status Run(const Call& call) {
    const CallOrder::Caller caller(order_);
    return Guarded([&]() -> Status {
      RINGPIPE_ASSIGN_OR_RETURN(const CheckedCall checked,
                                engine_->Check(call));
      const Deadline deadline = DeadlineFor(call.timeout);
      return order_.RunNow(deadline, [&](std::uint64_t sequence) {
        return engine_->Run(checked,
                            {sequence, deadline, &order_.earliest_deadline()});
      });
    });
  }

  Result<Request> Start(const Call& call) {
    const CallOrder::Caller caller(order_);
    std::shared_ptr<Request::State> request;
    const Status started = Guarded([&]() -> Status {
      RINGPIPE_ASSIGN_OR_RETURN(const CheckedCall checked,
                                engine_->Check(call));
      const Deadline deadline = DeadlineFor(call.timeout);
      request = std::make_shared<Request::State>(wait_expired_);
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
    const Deadline deadline = DeadlineFor({});
    // A thread that waits here waits no longer than the one before it, whose
    // end by the deadline is the end of the communicator.
    const std::lock_guard<std::mutex> turn(exchanging_);
    try {
      return engine_->bootstrap().AllGather(blob, deadline);
    } catch (const std::exception& exception) {
      const Status status = ExceptionStatus(exception);
      engine_->Fail(status);
      return status;
    }
  }

  // Ends the communicator, because a call could not be made that peers may wait
  // for. Returns the reason, which may be an earlier one.
  Status Fail(const Status& reason) noexcept {
    const CallOrder::Caller caller(order_);
    static_cast<void>(Guarded([&] { return reason; }));
    const Status first = engine_->failure();
    return first.ok() ? reason : first;
  }

  // Ends what is pending, so that all callers leave and the progress thread can
  // be joined; and waits for the other ranks, as long as no thread calls.
  void Leave() {
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
    } catch (const std::exception&) {
      // Without a word.
    }
  }

  // A call that could not be made is missing here, and peers may wait for it or
  // take the next one for it: the communicator has failed. Not so where its
  // arguments were refused, which all ranks do alike.
  template <typename F>
  Status Guarded(F f) {
    Status status = WithoutExceptions(f);
    if (status.ok() || status.code() == StatusCode::kInvalidArgument) {
      return status;
    }
    if (order_.closed()) {
      AbortCalls();
    } else if (engine_->failure().ok()) {
      engine_->Fail(status);
    }
    return status;
  }

  Deadline DeadlineFor(Timeout timeout) const {
    return Deadline::AfterRoughly(timeout.value_or(
        std::chrono::milliseconds(engine_->environment().timeout_ms)));
  }

  const pid_t process_ = getpid();
  const Status wait_expired_{
      StatusCode::kTimeout,
      "the call has not ended in the time of this wait; it runs on, wait for "
      "it again"};
  std::unique_ptr<Engine> engine_;
  std::atomic<bool> is_created_ = false;
  std::mutex exchanging_;  // whose turn it is
  CallOrder order_;        // ends before the engine does
  // Ends first: a process that exits while it destroys the communicator tells
  // the others too.
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
  return WithoutExceptions([&]() -> Result<std::unique_ptr<Communicator>> {
    // The engine comes last: from then on the peers count on this rank.
    std::unique_ptr<Communicator> communicator(
        new Communicator(std::make_unique<State>()));
    RINGPIPE_ASSIGN_OR_RETURN(auto engine, CreateEngine(options));
    communicator->state_->Own(std::move(engine));
    return communicator;
  });
}

int Communicator::rank() const { return state_->engine().rank(); }
int Communicator::size() const { return state_->engine().size(); }

Result<void*> Communicator::Allocate(std::size_t bytes) {
  return WithoutExceptions(
      [&] { return state_->engine().memory().Allocate(bytes); });
}

Status Communicator::Free(void* memory) {
  return WithoutExceptions(
      [&] { return state_->engine().memory().Free(memory); });
}

Status Communicator::Register(void* memory, std::size_t bytes) {
  return WithoutExceptions(
      [&] { return state_->engine().Register(memory, bytes); });
}

Status Communicator::Deregister(void* memory) {
  return WithoutExceptions(
      [&] { return state_->engine().memory().Deregister(memory); });
}

Status Communicator::Run(const Call& call) { return state_->Run(call); }

Result<Request> Communicator::Start(const Call& call) {
  return state_->Start(call);
}

void Communicator::Abort(std::string_view reason) noexcept {
  state_->engine().Abort("aborted the communicator: ", reason);
}

Result<std::vector<std::string>> Communicator::Exchange(
    const std::string& blob) {
  return state_->Exchange(blob);
}

Status Communicator::Fail(const Status& reason) noexcept {
  return state_->Fail(reason);
}

Status Communicator::failure() const { return state_->engine().failure(); }

std::string Communicator::device() const {
  try {
    return state_->engine().device();
  } catch (const std::bad_alloc&) {
    return "";
  }
}

std::vector<StageCounters> Communicator::stage_counters() const {
  try {
    return state_->engine().stage_counters();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

SlotCounters Communicator::slot_counters() const {
  return state_->engine().slot_counters();
}

}  // namespace ringpipe
