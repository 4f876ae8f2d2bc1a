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
#include "base/while_waiting.h"
#include "bootstrap/launcher.h"
#include "bootstrap/store.h"
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

Status MayBlock(const char* call) {
  return WithoutExceptions([&] { return UsersFunction::MayBlock(call); });
}

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

  Waited Await(const Deadline& deadline) {
    std::unique_lock<std::mutex> lock(mutex);
    return WaitUntil(changed, lock, deadline, [this] { return ended; });
  }
};

}  // namespace

// What the requests of one communicator have in common, which some of them may
// outlive.
struct Request::Waits {
  WhileWaiting while_waiting;
  // A wait that ends before its call must not fail for want of memory, which
  // would look like the end of the call.
  const Status expired{
      StatusCode::kWaitOver,
      "the call has not ended in the time of this wait; it runs on, wait for "
      "it again"};
  const Status interrupted{
      StatusCode::kInterrupted,
      "the function while_waiting has ended this wait; the call runs on"};

  const Status& Why(Waited waited) const {
    return waited == Waited::kEnded ? interrupted : expired;
  }
};

// The end of an asynchronous call, shared between who waits and who runs it.
// Thread-safe.
struct Request::State {
  explicit State(std::shared_ptr<const Waits> its_waits)
      : waits(std::move(its_waits)) {}

  const std::shared_ptr<const Waits> waits;
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

  // Once it is done, the status does not change any more.
  Waited Await(const Deadline& deadline) {
    std::unique_lock<std::mutex> lock(mutex);
    return WaitUntil(ended, lock, deadline,
                     [this] { return status.has_value(); });
  }

  bool Done() const {
    const std::lock_guard<std::mutex> lock(mutex);
    return status.has_value();
  }
};

Status Request::Wait(std::chrono::milliseconds timeout) {
  RINGPIPE_RETURN_IF_ERROR(MayBlock("Request::Wait (ringpipe_wait)"));
  const BlockingCall blocking(state_->waits->while_waiting);
  const Waited waited = state_->Await(Deadline::After(timeout));
  return waited == Waited::kDone ? *state_->status : state_->waits->Why(waited);
}

bool Request::Done() const { return state_->Done(); }

Status Request::WaitAll(std::span<const Request> requests,
                        std::chrono::milliseconds timeout) {
  if (requests.empty()) {
    return Status::Ok();
  }
  RINGPIPE_RETURN_IF_ERROR(MayBlock("Request::WaitAll (ringpipe_wait_all)"));
  const Waits& waits = *requests.front().state_->waits;
  const BlockingCall blocking(waits.while_waiting);
  const Deadline deadline = Deadline::After(timeout);
  Status error;
  for (const Request& request : requests) {
    const Waited waited = request.state_->Await(deadline);
    if (waited != Waited::kDone) {
      return waits.Why(waited);
    }
    if (error.ok()) {
      error = *request.state_->status;
    }
  }
  return error;
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
  RINGPIPE_RETURN_IF_ERROR(MayBlock("Request::WaitAny (ringpipe_wait_any)"));
  return WithoutExceptions([&]() -> Result<std::size_t> {
    const Waits& waits = *requests.front().state_->waits;
    const BlockingCall blocking(waits.while_waiting);
    FirstEnd first;
    Watch watch(requests, first);
    watch.Begin();
    if (const Waited waited = first.Await(Deadline::After(timeout));
        waited != Waited::kDone) {
      return waits.Why(waited);
    }
    return static_cast<std::size_t>(
        std::find_if(requests.begin(), requests.end(),
                     [](const Request& request) { return request.Done(); }) -
        requests.begin());
  });
}

class Communicator::State {
 public:
  explicit State(WhileWaiting while_waiting)
      : waits_(std::make_shared<const Request::Waits>(
            Request::Waits{std::move(while_waiting)})) {
    exit_notice_.emplace([this] { Exit(); });
  }

  // Before all else. Allocates nothing.
  void Own(std::unique_ptr<Engine> engine) {
    engine_ = std::move(engine);
    is_created_.store(true, std::memory_order_release);
  }
  Engine& engine() { return *engine_; }
  const WhileWaiting& while_waiting() const { return waits_->while_waiting; }
  // Not its child's.
  bool IsOfThisProcess() const { return process_ == getpid(); }

  Status Run(const Call& call) {
    RINGPIPE_RETURN_IF_ERROR(MayBlock("Run (ringpipe_run)"));
    const CallOrder::Caller caller(order_);
    const BlockingCall blocking(while_waiting());
    return Guarded([&]() -> Status {
      RINGPIPE_ASSIGN_OR_RETURN(const CheckedCall checked,
                                engine_->Check(call));
      const Deadline deadline = DeadlineFor(call.timeout);
      return order_.RunNow(
          deadline,
          [&](std::uint64_t sequence) {
            return engine_->Run(
                checked, {sequence, deadline, &order_.earliest_deadline()});
          },
          Numbers(checked));
    });
  }

  Result<Request> Start(const Call& call, Ended ended) {
    const CallOrder::Caller caller(order_);
    std::shared_ptr<Request::State> request;
    const Status started = Guarded([&]() -> Status {
      RINGPIPE_ASSIGN_OR_RETURN(const CheckedCall checked,
                                engine_->Check(call));
      const Deadline deadline = DeadlineFor(call.timeout);
      request = std::make_shared<Request::State>(waits_);
      return order_.RunLater(
          deadline,
          [this, checked, deadline](std::uint64_t sequence) {
            return engine_->Run(
                checked, {sequence, deadline, &order_.earliest_deadline()});
          },
          [request](const Status& status) { request->End(status); },
          InUsersFunction(std::move(ended)), Numbers(checked));
    });
    if (!started.ok()) {
      return started;
    }
    return Request(std::move(request));
  }

  Result<std::vector<std::string>> Exchange(const std::string& blob) {
    RINGPIPE_RETURN_IF_ERROR(MayBlock("Exchange (ringpipe_exchange)"));
    const CallOrder::Caller caller(order_);
    const BlockingCall blocking(while_waiting());
    if (order_.closed()) {
      AbortCalls();
      return CallOrder::Closed();
    }
    const Deadline deadline = DeadlineFor({});
    const ExchangeTurn turn(*this);
    if (!turn.has_come()) {
      EndCalls();
      return engine_->failure();
    }
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
    const BlockingCall blocking(while_waiting());
    order_.Close();
    if (order_.pending()) {
      AbortCalls();
    }
    if (engine_ != nullptr) {
      engine_->LeaveTogether();
    }
  }

 private:
  // Exchange calls take turns.
  class ExchangeTurn {
   public:
    // A thread that waits here waits no longer than the one before it, whose
    // end by the deadline is the end of the communicator.
    explicit ExchangeTurn(State& state) : state_(state) {
      std::unique_lock<std::mutex> lock(state_.exchange_mutex_);
      has_come_ =
          WaitUntil(state_.exchange_ended_, lock, Deadline::Infinite(),
                    [this] { return !state_.exchanging_; }) == Waited::kDone;
      state_.exchanging_ |= has_come_;
    }
    ~ExchangeTurn() {
      if (has_come_) {
        {
          const std::lock_guard<std::mutex> lock(state_.exchange_mutex_);
          state_.exchanging_ = false;
        }
        state_.exchange_ended_.notify_one();
      }
    }
    ExchangeTurn(const ExchangeTurn&) = delete;
    ExchangeTurn& operator=(const ExchangeTurn&) = delete;

    // Not if the caller's function has ended the wait for it.
    bool has_come() const { return has_come_; }

   private:
    State& state_;
    bool has_come_ = false;
  };

  // What runs `ended` such that calls which block are refused in it.
  static CallOrder::End InUsersFunction(Ended ended) {
    if (!ended) {
      return {};
    }
    return [ended = std::move(ended)](const Status& status) noexcept {
      const UsersFunction running("ended");
      ended(status);
    };
  }

  // The caller's function has ended a wait for earlier calls.
  void EndCalls() noexcept {
    Status reason = OutOfMemory();
    try {
      reason =
          EndedByCaller(engine_->rank(), "a call that waited for its turn");
    } catch (const std::exception&) {
      // Without the reason.
    }
    engine_->Fail(reason);
  }

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
  const std::shared_ptr<const Request::Waits> waits_;
  std::unique_ptr<Engine> engine_;
  std::atomic<bool> is_created_ = false;
  std::mutex exchange_mutex_;
  std::condition_variable exchange_ended_;
  bool exchanging_ = false;  // guarded by exchange_mutex_
  // Ends before the engine does.
  CallOrder order_{[this] { EndCalls(); }};
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
  if (options.store.has_value() && environment.root.empty()) {
    environment.root = kAnyAddress;
  }
  RINGPIPE_ASSIGN_OR_RETURN(const Launch launch, DetectLaunch(environment));
  const std::string prefix = "rank " + std::to_string(launch.rank);
  const Logger logger = options.log
                            ? Logger(environment.log_level, options.log, prefix)
                            : Logger(environment.log_level, prefix);
  return Engine::Create(environment, launch, logger,
                        {options.accelerator, options.transport,
                         options.store ? &*options.store : nullptr});
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::Create(
    const CommunicatorOptions& options) {
  RINGPIPE_RETURN_IF_ERROR(MayBlock("Create (ringpipe_create)"));
  if (options.while_waiting_interval.count() <= 0) {
    return WithoutExceptions([]() -> Status {
      return {StatusCode::kInvalidArgument,
              "CommunicatorOptions::while_waiting_interval is not positive"};
    });
  }
  return WithoutExceptions([&]() -> Result<std::unique_ptr<Communicator>> {
    // The engine comes last: from then on the peers count on this rank.
    std::unique_ptr<Communicator> communicator(
        new Communicator(std::make_unique<State>(WhileWaiting{
            options.while_waiting, options.while_waiting_interval})));
    const BlockingCall blocking(communicator->state_->while_waiting());
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

Result<Request> Communicator::Start(const Call& call, Ended ended) {
  return state_->Start(call, std::move(ended));
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

std::shared_ptr<RegisteredMemory> Communicator::memory() const {
  return state_->engine().shared_memory();
}

Status Communicator::failure() const { return state_->engine().failure(); }

Result<std::vector<int>> Communicator::lost_ranks() const {
  return WithoutExceptions([this]() -> Result<std::vector<int>> {
    return state_->engine().LostRanks();
  });
}

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
