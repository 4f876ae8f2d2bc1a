#include "pipeline/executor.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/file_descriptor.h"
#include "base/while_waiting.h"
#include "reduction/ieee_arithmetic.h"

namespace ringpipe {
namespace {

constexpr std::chrono::milliseconds kProbeInterval(500);
// How often a deadline and the caller are looked at where a reason is awaited.
constexpr std::chrono::milliseconds kReasonTick(10);
constexpr std::chrono::seconds kFlushTimeout(1);
// The accelerator has no descriptor to sleep on.
constexpr std::chrono::nanoseconds kFirstSleep = std::chrono::microseconds(50);
constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(1);
// A first message is held back for its eager payload so long that peers seldom
// get two, and wait but little where this rank makes another call than they.
constexpr std::chrono::milliseconds kHoldBack(1);

// Of a short call, between two looks at the clock.
constexpr unsigned kPollsPerClock = 32;
// About a microsecond.
constexpr unsigned kPollsBeforeYield = 40;

}  // namespace

Executor::Executor(std::unique_ptr<SlotPool> pool,
                   std::vector<std::unique_ptr<Transport>> transports,
                   const Options& options)
    : options_(options), slots_(pool->list().counters().slots) {
  state_.size = options.size;
  state_.pool = std::move(pool);
  state_.transports = Transports(std::move(transports), options.size);
  state_.active.reserve(options.size);
  if (options.trace != nullptr) {
    state_.trace = std::make_unique<CallTrace>(*options.trace, options.size);
  }
  static const auto* const kNothing = new Plan;  // outlives all threads
  state_.flow.Start(*kNothing, 0, 1, options.size, state_.slots());
}

// --- One collective ---------------------------------------------------------

Status Executor::Run(const Operation& operation) {
  if (options_.abort->raised(operation.digest.sequence)) {
    return options_.abort->reason(operation.digest.sequence);
  }
  const IeeeArithmetic arithmetic;  // each rank's, or results would differ
  Status status;
  try {
    status = Begin(operation);
    if (status.ok() && is_short_) {
      status = short_run_.Run(*this, *this);
    }
    status = status.ok() ? Loop() : status;
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  }
  if (!status.ok()) {
    status = EndWithError(status);
  }
  Drop();
  if (!is_short_) {
    CountSlots();
  }
  if (state_.trace != nullptr) {
    state_.trace->End(status.ok());
  }
  if (options_.whereabouts != nullptr) {
    // A short call has gone on a moment ago.
    options_.whereabouts->Move(
        Whereabouts::Place::kOutside,
        is_short_ && status.ok() ? idle_since_ : CoarseNow());
  }
  return status;
}

void Executor::Drop() {
  for (const auto& transport : transports()) {
    transport->End();
  }
}

Status Executor::Begin(const Operation& operation) {
  state_.operation = &operation;
  options_.check->Begin(operation.digest);
  if (state_.trace != nullptr) {
    state_.trace->Begin(operation.digest);
  }
  const Plan& plan = *operation.plan;
  is_short_ = !operation.short_steps.empty();
  if (!is_short_) {
    if (plan.takes_slots) {
      RINGPIPE_RETURN_IF_ERROR(operation.message_bytes > 0
                                   ? state_.pool->Use(operation.message_bytes)
                                   : state_.pool->UseLong());
      for (std::size_t i = 0; i < transports().all().size(); ++i) {
        state_.slot_handles[i] = transports().all()[i]->HandleOf(*state_.pool);
      }
    }
    state_.flow.Start(
        plan, operation.subchunks(), operation.depth, state_.size,
        state_.slots(),
        {operation.subchunks_of_inputs, operation.subchunks_of_outputs});
    copy_in_.Begin();
    reduce_.Begin();
    copy_out_.Begin();
    register_.Begin();
    if (state_.received.size() < state_.instances()) {
      state_.received.resize(state_.instances());
    }
    state_.MakeRoomForPieces();
  }
  if (state_.trace != nullptr) {
    state_.trace->MakeRoom(is_short_ ? plan.steps.size() : state_.instances());
  }
  if (descriptors_.empty()) {
    CollectDescriptors();
  }
  state_.active.clear();
  for (const Plan::Peer& peer : plan.peers) {
    Connection* const connection = state_.transports.connection(peer.rank);
    connection->Begin(
        {&operation.digest, peer.sends, peer.receives, peer.eager});
    state_.active.push_back(connection);
  }
  idle_ = stands_aborted_ = false;
  idle_since_ = CoarseNow();
  next_probe_ = idle_since_ + kProbeInterval;
  caller_due_ = idle_since_ + kClockTick;
  RecordWhereabouts(/*waits=*/false);
  for (const auto& transport : transports()) {
    RINGPIPE_RETURN_IF_ERROR(transport->Begin(operation.digest.sequence));
  }
  return Status::Ok();
}

// Not before the transports are connected.
void Executor::CollectDescriptors() {
  descriptors_.clear();
  for (const auto& transport : transports()) {
    const auto descriptors = transport->descriptors();
    descriptors_.insert(descriptors_.end(), descriptors.begin(),
                        descriptors.end());
  }
  descriptors_.push_back({options_.abort->fd(), POLLIN, 0});
}

Status Executor::Arrived(Instance instance, const std::byte* data,
                         std::uint32_t bytes) {
  if (is_short_) {
    short_run_.Arrived(instance, data, bytes);
    return Status::Ok();
  }
  return receive_.Arrived(instance, data, bytes);
}

// As one turn of the loop, which spares itself the clock as long as little time
// has passed.
Status Executor::LetHappen() {
  const bool is_aborted = aborted();
  RINGPIPE_ASSIGN_OR_RETURN(const bool happened, Poll());
  if (happened) {
    Happened();
    for (Connection* connection : state_.active) {
      RINGPIPE_RETURN_IF_ERROR(connection->Progress(*this).status());
    }
    return Status::Ok();
  }
  // What came early is taken after the first look.
  if (is_aborted && std::exchange(stands_aborted_, true)) {
    return options_.abort->reason(sequence());
  }
  // The rank that it waits for may have been put on the same core. Whoever
  // yields may be away for long, and looks at the clock.
  const bool yields =
      options_.oversubscribed || short_polls_ >= kPollsBeforeYield;
  if (yields) {
    sched_yield();
  }
  if (++short_polls_ % kPollsPerClock != 0 && !yields) {
    return Status::Ok();
  }
  const Clock::time_point now = Clock::now();
  RINGPIPE_RETURN_IF_ERROR(MayGoOn(now));
  return Wait(now, yields);
}

void Executor::Happened() {
  short_polls_ = 0;
  stands_aborted_ = false;
  if (idle_) {
    GoOn(Clock::now());
  }
}

Status Executor::Loop() {
  while (!Finished()) {
    const Clock::time_point now = Clock::now();
    const bool is_aborted = aborted();
    RINGPIPE_RETURN_IF_ERROR(MayGoOn(now));
    RINGPIPE_ASSIGN_OR_RETURN(const bool happened, AdvanceStages());
    if (happened) {
      stands_aborted_ = false;
      if (idle_) {
        GoOn(now);
      }
    } else if (is_aborted && std::exchange(stands_aborted_, true)) {
      return options_.abort->reason(sequence());
    } else {
      RINGPIPE_RETURN_IF_ERROR(Wait(now, /*has_yielded=*/false));
    }
  }
  return Status::Ok();
}

// After a time in which nothing happened.
void Executor::GoOn(Clock::time_point now) {
  idle_ = false;
  idle_for_->Waited(now - idle_since_);
  if (state_.trace != nullptr) {
    state_.trace->Waited(idle_for_->stage(), idle_since_, now);
  }
  idle_since_ = now;
  if (recorded_as_waiting_) {
    RecordWhereabouts(/*waits=*/false);
  }
}

bool Executor::Finished() const {
  return state_.flow.finished() &&
         std::all_of(
             state_.active.begin(), state_.active.end(),
             [](const Connection* connection) { return connection->agreed(); });
}

// In the order of who waits for it: peers for credits and data, then this
// rank's user for the result.
Result<bool> Executor::AdvanceStages() {
  RINGPIPE_ASSIGN_OR_RETURN(const bool happened, Poll());
  if (idle_ && !happened && only_polls_) {
    return false;
  }
  RINGPIPE_ASSIGN_OR_RETURN(const bool issued, Issue());
  RINGPIPE_ASSIGN_OR_RETURN(const bool received, receive_.Advance(*this));
  RINGPIPE_ASSIGN_OR_RETURN(const bool reduced, reduce_.Advance());
  RINGPIPE_ASSIGN_OR_RETURN(const bool copied_in, copy_in_.Advance());
  RINGPIPE_ASSIGN_OR_RETURN(const bool registered, register_.Advance());
  RINGPIPE_ASSIGN_OR_RETURN(const bool sent, send_.Advance(*this));
  RINGPIPE_ASSIGN_OR_RETURN(const bool copied_out, copy_out_.Advance());
  return happened || issued || received || reduced || copied_in || registered ||
         sent || copied_out;
}

Result<bool> Executor::Issue() {
  bool issued = false;
  while ((issued_ = state_.flow.Issue()) == Flow::Issued::kIssued) {
    issued = true;
  }
  return issued;
}

Result<bool> Executor::Poll() {
  if (state_.trace == nullptr) {
    return PollTransports();
  }
  const Clock::time_point begin = Clock::now();
  auto happened = PollTransports();
  if (happened.ok() && *happened) {
    state_.trace->InTransport(begin, Clock::now());
  }
  return happened;
}

Result<bool> Executor::PollTransports() {
  bool happened = false;
  for (const auto& transport : transports()) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool polled, transport->Poll(*this));
    happened |= polled;
  }
  return happened;
}

// --- Waiting ----------------------------------------------------------------

Status Executor::Wait(Clock::time_point now, bool has_yielded) {
  if (!idle_) {
    idle_ = true;
    idle_since_ = now;
    idle_polls_ = 0;
    next_sleep_ = kFirstSleep;
    idle_for_ = &WaitedFor();
    only_polls_ = !Accelerating() && !HoldsMessages();
    return Status::Ok();
  }
  if (now - idle_since_ >= kHoldBack && HoldsBack()) {
    RINGPIPE_RETURN_IF_ERROR(Announce());
  }
  if (now - idle_since_ < options_.spin) {
    if (!has_yielded && (options_.oversubscribed || ++idle_polls_ % 16 == 0)) {
      sched_yield();
    }
    return Status::Ok();
  }
  return SleepUntilEvent();
}

Status Executor::SleepUntilEvent() {
  RINGPIPE_ASSIGN_OR_RETURN(const bool happened, PrepareToSleep());
  if (happened) {
    only_polls_ = false;
    return Status::Ok();
  }
  RecordWhereabouts(/*waits=*/true);
  RINGPIPE_ASSIGN_OR_RETURN(const int ready, PollDescriptors());
  for (const auto& transport : transports()) {
    transport->ConsumeEvents();
  }
  if (descriptors_.back().revents != 0) {
    options_.abort->Rearm(sequence());
  }
  if (ready > 0) {
    RINGPIPE_RETURN_IF_ERROR(CheckAsyncEvents());
  }
  return Probe();
}

std::chrono::nanoseconds Executor::NextSleep() {
  if (Accelerating()) {
    return std::exchange(next_sleep_, std::min(2 * next_sleep_, kLongestSleep));
  }
  if (HoldsBack()) {
    return std::chrono::milliseconds(1);
  }
  // The earliest deadline may change, but then the next probe is not far.
  int most_ms = std::min(EarliestDeadline().PollTimeoutMs(1000),
                         Deadline::At(next_probe_).PollTimeoutMs(1000));
  most_ms = Deadline::At(CallerDue()).PollTimeoutMs(most_ms);
  return std::chrono::milliseconds(most_ms);
}

// How many events there are. Looks then whether the numbers still stand for
// descriptors of this rank: of other files it would take what is not its own.
Result<int> Executor::PollDescriptors() {
  const std::chrono::nanoseconds sleep = NextSleep();
  const timespec timeout = {sleep.count() / 1'000'000'000,
                            sleep.count() % 1'000'000'000};
  const int ready =
      ppoll(descriptors_.data(), descriptors_.size(), &timeout, nullptr);
  if (ready < 0 && errno != EINTR) {
    return ErrnoStatus(StatusCode::kInternal, "ppoll", errno);
  }
  if (BlockingCall* const call = BlockingCall::Current();
      ready < 0 && call != nullptr) {
    call->Hurry();
    caller_due_ = call->due();
  }
  const bool some_are_closed =
      ready > 0 && std::any_of(descriptors_.begin(), descriptors_.end(),
                               [](const pollfd& one) {
                                 return (one.revents & POLLNVAL) != 0;
                               });
  if (some_are_closed || !options_.abort->is_intact()) {
    return DescriptorsClosed();
  }
  return ready;
}

Result<bool> Executor::PrepareToSleep() {
  for (const auto& transport : transports()) {
    RINGPIPE_RETURN_IF_ERROR(transport->Arm());
  }
  // Looked for before the messages: those of a peer that is lost have come
  // before that.
  const Status lost = LostPeer();
  RINGPIPE_ASSIGN_OR_RETURN(const bool polled, Poll());
  if (polled) {
    return true;
  }
  RINGPIPE_RETURN_IF_ERROR(lost);
  // What a peer has written here may raise no event: to be woken by the next of
  // it, and to look once more.
  for (Connection* connection : state_.active) {
    RINGPIPE_RETURN_IF_ERROR(connection->PrepareToSleep(
        state_.flow.NextSend(connection->peer()) != nullptr));
  }
  return send_.Advance(*this);
}

// What a connection has not taken yet it may take without an event.
bool Executor::HoldsMessages() {
  return std::any_of(state_.active.begin(), state_.active.end(),
                     [this](const Connection* connection) {
                       const int peer = connection->peer();
                       return state_.flow.NextSend(peer) != nullptr ||
                              state_.flow.NextReceive(peer) != nullptr;
                     });
}

bool Executor::HoldsBack() const {
  return std::any_of(
      state_.active.begin(), state_.active.end(),
      [](const Connection* connection) { return connection->holds_back(); });
}

Status Executor::Announce() {
  for (Connection* connection : state_.active) {
    if (connection->holds_back()) {
      RINGPIPE_RETURN_IF_ERROR(connection->Announce());
    }
  }
  return Status::Ok();
}

Status Executor::CheckAsyncEvents() {
  std::vector<std::string> notices;
  Status status;
  for (const auto& transport : transports()) {
    const Status checked = transport->CheckAsyncEvents(&notices);
    status = status.ok() ? checked : status;
  }
  for (const std::string& notice : notices) {
    if (options_.on_notice) {
      options_.on_notice(notice);
    }
  }
  CollectDescriptors();
  return status;
}

// Why a peer for which the call waits will do nothing more.
Status Executor::LostPeer() {
  reason_patience_ = AbortSignal::kReasonPatience;
  for (const Connection* connection : state_.active) {
    Status failure = WaitsFor(*connection) || connection->sending()
                         ? connection->failure()
                         : Status::Ok();
    if (!failure.ok()) {
      reason_patience_ =
          connection->reason_patience().value_or(reason_patience_);
      return failure;
    }
  }
  return Status::Ok();
}

Status Executor::Probe() {
  if (Clock::now() < next_probe_) {
    return Status::Ok();
  }
  next_probe_ = Clock::now() + kProbeInterval;
  RINGPIPE_RETURN_IF_ERROR(CheckAsyncEvents());
  for (Connection* connection : state_.active) {
    if (WaitsFor(*connection)) {
      RINGPIPE_RETURN_IF_ERROR(connection->Probe());
    }
  }
  return Status::Ok();
}

bool Executor::WaitsFor(const Connection& connection) const {
  const int peer = connection.peer();
  return !connection.agreed() || HasReceives(peer) || HasSends(peer);
}

bool Executor::HasReceives(int peer) const {
  return is_short_ ? short_run_.Receives(peer) : state_.flow.HasReceives(peer);
}

bool Executor::HasSends(int peer) const {
  return is_short_ ? short_run_.Sends(peer) : state_.flow.HasSends(peer);
}

Deadline Executor::EarliestDeadline() const {
  const Operation& operation = *state_.operation;
  return operation.earliest_deadline == nullptr
             ? operation.deadline
             : Deadline::At(std::min(operation.deadline.when(),
                                     operation.earliest_deadline->load()));
}

// Unless the communicator was ended, its caller's function ends the call, or
// the deadline has come. Where a rank is lost, the call goes on as long as
// anything happens: it may not wait for that one.
Status Executor::MayGoOn(Clock::time_point now) {
  if (aborted()) {
    Status reason = options_.abort->reason(sequence());
    if (reason.code() != StatusCode::kPeerLost) {
      return reason;
    }
  }
  const Operation& operation = *state_.operation;
  if (now >= caller_due_ && CallerEnds()) {
    return EndedByCaller(options_.rank, operation.name(operation.digest));
  }
  if (now < EarliestDeadline().when()) {
    return Status::Ok();
  }
  return {StatusCode::kTimeout,
          operation.name(operation.digest) + " did not end by " +
              (operation.deadline.expired()
                   ? "its deadline"
                   : "the deadline of a call that waits behind it") +
              " on rank " + std::to_string(options_.rank) +
              ", which waits for " + DescribeWait()};
}

Clock::time_point Executor::CallerDue() {
  BlockingCall* const call = BlockingCall::Current();
  caller_due_ = call == nullptr ? Clock::time_point::max() : call->due();
  return caller_due_;
}

bool Executor::CallerEnds() {
  BlockingCall* const call = BlockingCall::Current();
  const bool ends = call != nullptr && call->Ends();
  static_cast<void>(CallerDue());
  return ends;
}

void Executor::RecordWhereabouts(bool waits) {
  recorded_as_waiting_ = waits;
  if (options_.whereabouts == nullptr) {
    return;
  }
  const std::uint64_t calls = state_.operation->digest.sequence + 1;
  if (!waits) {
    options_.whereabouts->BeginCall(calls, idle_since_);
    return;
  }
  Whereabouts here;
  here.place = Whereabouts::Place::kInCall;
  here.calls = calls;
  here.since = idle_since_;
  for (const Connection* connection : state_.active) {
    if (WaitsFor(*connection) || connection->sending()) {
      here.WaitFor(connection->peer());
    }
  }
  options_.whereabouts->Wait(here);
}

// Which stage the pipeline stands still for.
StageMeter& Executor::WaitedFor() {
  if (reduce_.busy()) {
    return reduce_.meter();
  }
  if (copy_in_.busy()) {
    return copy_in_.meter();
  }
  if (copy_out_.busy()) {
    return copy_out_.meter();
  }
  for (const Connection* connection : state_.active) {
    if (HasReceives(connection->peer())) {
      return receive_.meter();
    }
  }
  return issued_ == Flow::Issued::kNoSlot ? acquire_meter_ : send_.meter();
}

std::string Executor::DescribeWait() {
  std::string text;
  for (const Connection* connection : state_.active) {
    const int peer = connection->peer();
    const std::string rank = "rank " + std::to_string(peer);
    if (!connection->agreed()) {
      text += (text.empty() ? "" : ", ") + rank + " to make the same call";
    } else if (HasReceives(peer)) {
      text += (text.empty() ? "" : ", ") + std::string("data from ") + rank;
    } else if (HasSends(peer)) {
      text += (text.empty() ? "" : ", ") + rank + " to receive";
    } else if (connection->sending()) {
      text += (text.empty() ? "" : ", ") + rank + " to acknowledge";
    }
  }
  if (issued_ == Flow::Issued::kNoSlot) {
    text += (text.empty() ? "" : ", ") + std::string("a free slot of ") +
            std::to_string(state_.slots().counters().slots) +
            " (RINGPIPE_SLOTS)";
  }
  return text.empty() ? "the device" : text;
}

// --- The end of a failed collective -----------------------------------------

// Whatever is short, the user's memory is made safe, and where it cannot be,
// the code says so.
Status Executor::EndWithError(const Status& found) {
  Status reason = OutOfMemory();
  try {
    reason = TellError(found);
  } catch (const std::bad_alloc&) {
    try {
      reason = TellError(reason);
    } catch (const std::bad_alloc&) {
      // The peers find out by themselves.
    }
  }
  try {
    if (TakeBackMemory()) {
      return reason;
    }
    return {StatusCode::kMemoryHeld,
            "the device did not let go of the buffers in time, they must not "
            "be reused: " +
                reason.ToString()};
  } catch (const std::bad_alloc&) {
    return held_;
  }
}

// Tells everybody. Returns the reason, which may be another one that came
// first.
Status Executor::TellError(const Status& found) {
  Status error = found;
  if (error.code() == StatusCode::kTimeout && options_.explain_timeout) {
    if (idle_) {
      RecordWhereabouts(/*waits=*/true);
    }
    try {
      error = options_.explain_timeout(error);
    } catch (const std::bad_alloc&) {
      // As it was.
    }
  }
  if (error.code() == StatusCode::kPeerLost && !AwaitReason()) {
    const Operation& operation = *state_.operation;
    error = EndedByCaller(options_.rank, operation.name(operation.digest));
  }
  if (aborted()) {
    error = options_.abort->reason(sequence());
  }
  // A rank's exit ends the calls of others, too, only from that number on.
  const std::uint64_t first = options_.abort->FirstOf(sequence());
  Status reason = options_.abort->Raise(error, first);
  if (options_.on_error) {
    options_.on_error(reason, first);
  }
  return reason;
}

// Of a peer that is lost, which closes its connections when it has told why;
// others may see the latter first. False if the caller has ended the call.
bool Executor::AwaitReason() {
  const AbortSignal& abort = *options_.abort;
  // Who has left this communicator has said so.
  const Deadline end = Deadline::After(
      abort.raised() ? AbortSignal::kReasonPatience : reason_patience_);
  while (!aborted() && abort.is_intact() && !end.expired() &&
         !EarliestDeadline().expired()) {
    if (CallerEnds()) {
      return false;
    }
    abort.AwaitReason(sequence(), Deadline::At(std::min(
                                      end.when(), Clock::now() + kReasonTick)));
  }
  return true;
}

// Whether nobody reaches the user's memory any more.
bool Executor::TakeBackMemory() {
  // All are ended before one is waited for.
  const Deadline deadline = Deadline::After(kFlushTimeout);
  for (const auto& transport : transports()) {
    transport->Stop();
  }
  bool flushed = true;
  for (const auto& transport : transports()) {
    flushed &= transport->Flush(deadline);
  }
  Accelerator* const device = state_.operation->device;
  return (device == nullptr || device->Drain(deadline)) && flushed;
}

// --- Counters ---------------------------------------------------------------

std::vector<StageCounters> Executor::stage_counters() const {
  return {acquire_meter_.counters(),    copy_in_.meter().counters(),
          register_.meter().counters(), send_.meter().counters(),
          receive_.meter().counters(),  reduce_.meter().counters(),
          copy_out_.meter().counters()};
}

SlotCounters Executor::slot_counters() const {
  return {slots_, slots_in_use_.load(std::memory_order_relaxed),
          slots_high_water_.load(std::memory_order_relaxed),
          slot_waits_.load(std::memory_order_relaxed)};
}

void Executor::CountSlots() {
  const SlotCounters& now = state_.slots().counters();
  slots_in_use_.store(now.in_use, std::memory_order_relaxed);
  slots_high_water_.store(now.high_water, std::memory_order_relaxed);
  slot_waits_.store(now.waits, std::memory_order_relaxed);
}

}  // namespace ringpipe
