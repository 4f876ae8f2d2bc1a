#include "pipeline/executor.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace ringpipe {
namespace {

constexpr std::chrono::milliseconds kProbeInterval(500);
constexpr std::chrono::seconds kFlushTimeout(1);

// A rank that fails tells the others why, and closes its connections; they may
// see the latter first. They wait for the reason this long, but not where the
// error is that a peer was silent: the reason would have come in that time.
constexpr int kReasonPatienceMs = 300;

// The most receives that are posted on one connection at a time. Those that
// have a slot are bounded by the slots; those that land in user memory need a
// bound of their own: as many as can wait for one sender without costing much.
constexpr int kMostReceives = 256;

}  // namespace

Result<std::unique_ptr<Executor>> Executor::Create(
    std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails,
    const std::shared_ptr<verbs::Device>& allocator, const Options& options) {
  std::unique_ptr<Executor> executor(new Executor(options));
  PipelineState& state = executor->state_;
  state.rank = options.connections.rank;
  state.size = options.connections.size;
  state.rails = std::move(rails);
  const std::size_t slot_bytes =
      std::max<std::size_t>((options.subchunk_bytes + 63) / 64 * 64, 64);
  RINGPIPE_ASSIGN_OR_RETURN(
      state.pool,
      SlotPool::Create(state.rails, *allocator, slot_bytes, options.slots));
  state.slot_bytes.assign(options.slots, 0);
  ConnectionSet::Options connections = options.connections;
  connections.receives = std::min(options.slots, kMostReceives);
  RINGPIPE_ASSIGN_OR_RETURN(
      state.connections,
      ConnectionSet::Create(state.rails, allocator, connections));
  const auto descriptors = state.connections->descriptors();
  executor->descriptors_.assign(descriptors.begin(), descriptors.end());
  executor->descriptors_.push_back({options.abort->fd(), POLLIN, 0});
  return executor;
}

// Connections first: until they are gone the devices may use the memory.
Executor::~Executor() { state_.connections.reset(); }

// --- One collective ---------------------------------------------------------

Status Executor::Run(const Operation& operation) {
  if (options_.abort->raised()) {
    return options_.abort->reason();
  }
  Status status;
  try {
    Begin(operation);
    status = Loop();
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  }
  if (!status.ok()) {
    status = EndWithError(status);
  }
  if (options_.whereabouts != nullptr) {
    options_.whereabouts->Move(Whereabouts::Place::kOutside);
  }
  return status;
}

void Executor::Begin(const Operation& operation) {
  state_.operation = &operation;
  digests_[operation.digest.sequence % digests_.size()] = operation.digest;
  state_.flow.Start(*operation.plan, operation.chunking.subchunks(),
                    operation.depth, state_.size);
  const std::size_t instances =
      state_.flow.lanes() * operation.plan->steps.size();
  for (AcceleratorStage* stage : std::initializer_list<AcceleratorStage*>{
           &copy_in_, &reduce_, &copy_out_}) {
    stage->Begin(instances);
  }
  register_.Begin(instances);
  state_.active.clear();
  for (const int peer : operation.plan->peers) {
    PeerConnection& connection = state_.connections->at(peer);
    connection.digest_verified = false;
    state_.active.push_back(&connection);
  }
  idle_ = false;
  next_probe_ = Clock::now() + kProbeInterval;
  RecordWhereabouts(/*waits=*/false);
}

Status Executor::Loop() {
  for (PeerConnection* connection : state_.active) {
    RINGPIPE_RETURN_IF_ERROR(connection->SendDigest(state_.operation->digest));
  }
  for (const auto& connection : state_.connections->connections()) {
    if (connection != nullptr && connection->early_digest) {
      const Digest digest = *std::exchange(connection->early_digest, {});
      RINGPIPE_RETURN_IF_ERROR(HandleDigest(*connection, digest));
    }
  }
  while (!Finished()) {
    if (options_.abort->raised()) {
      return options_.abort->reason();
    }
    RINGPIPE_RETURN_IF_ERROR(CheckDeadline());
    RINGPIPE_ASSIGN_OR_RETURN(const bool happened, AdvanceStages());
    if (!happened) {
      RINGPIPE_RETURN_IF_ERROR(Wait());
    } else if (idle_) {
      idle_ = false;
      idle_for_->Waited(Clock::now() - idle_since_);
      if (recorded_as_waiting_) {
        RecordWhereabouts(/*waits=*/false);
      }
    }
  }
  return Status::Ok();
}

bool Executor::Finished() const {
  return state_.flow.finished() &&
         std::all_of(state_.active.begin(), state_.active.end(),
                     [](const PeerConnection* connection) {
                       return connection->digest_verified;
                     });
}

// In the order of who waits for it: peers for credits and data, then this
// rank's user for the result.
Result<bool> Executor::AdvanceStages() {
  RINGPIPE_ASSIGN_OR_RETURN(bool happened, TakeCompletions());
  RINGPIPE_ASSIGN_OR_RETURN(const bool issued, Issue());
  RINGPIPE_ASSIGN_OR_RETURN(const bool received, receive_.Advance());
  RINGPIPE_ASSIGN_OR_RETURN(const bool reduced, reduce_.Advance());
  RINGPIPE_ASSIGN_OR_RETURN(const bool copied_in, copy_in_.Advance());
  RINGPIPE_ASSIGN_OR_RETURN(const bool registered, register_.Advance());
  RINGPIPE_ASSIGN_OR_RETURN(const bool sent, send_.Advance());
  RINGPIPE_ASSIGN_OR_RETURN(const bool copied_out, copy_out_.Advance());
  return happened || issued || received || reduced || copied_in || registered ||
         sent || copied_out;
}

Result<bool> Executor::Issue() {
  bool issued = false;
  while ((issued_ = state_.flow.Issue(state_.slots())) ==
         Flow::Issued::kIssued) {
    issued = true;
  }
  return issued;
}

// --- Completions ------------------------------------------------------------

Result<bool> Executor::TakeCompletions() {
  RINGPIPE_ASSIGN_OR_RETURN(const int count,
                            state_.connections->Poll(completions_));
  Status status;
  for (int i = 0; i < count; ++i) {
    if (status.ok()) {
      // The others must not be lost: the end of the collective waits for them.
      try {
        status = HandleCompletion(completions_[i]);
      } catch (const std::bad_alloc&) {
        status = OutOfMemory();
      }
    } else {
      state_.connections->Discard(completions_[i]);
    }
  }
  RINGPIPE_RETURN_IF_ERROR(status);
  return count > 0;
}

Status Executor::HandleCompletion(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) {
    Status error = CompletionError(completion);
    state_.connections->Discard(completion);
    return error;
  }
  const WorkId id = WorkId::Unpack(completion.wr_id);
  PeerConnection& connection = state_.connections->at(id.peer);
  if (id.channel == WorkId::kControl) {
    if (id.receive) {
      return HandleControl(connection, static_cast<int>(id.number),
                           completion.byte_len);
    }
    connection.control().SendCompleted(id.number);
    return Status::Ok();
  }
  DataChannel& channel = *connection.rails()[id.channel].channel;
  if (id.receive) {
    return receive_.Arrived(connection, channel.ReceiveCompleted(),
                            completion.byte_len);
  }
  Status status;
  channel.SendCompleted(id.number, [&](Instance instance) {
    const Status completed = send_.Completed(instance);
    status = status.ok() ? completed : status;
  });
  return status;
}

// The receive is posted anew before the message is acted upon, so that the
// answer tells the peer that it may send the next one.
Status Executor::HandleControl(PeerConnection& connection, int buffer,
                               std::uint32_t bytes) {
  ControlChannel& control = connection.control();
  control.CountReceive();
  const std::optional<ControlMessage> message = control.Read(buffer, bytes);
  if (!message.has_value()) {
    return {StatusCode::kInternal,
            "rank " + std::to_string(connection.peer()) +
                " sent a message of unknown kind or length: do all ranks run "
                "the same version of ringpipe?"};
  }
  RINGPIPE_RETURN_IF_ERROR(control.PostReceive(buffer));
  switch (message->kind) {
    case ControlMessage::Kind::kDigest:
      return HandleDigest(connection, message->digest);
    case ControlMessage::Kind::kSleep:
      return connection.HandleSleep(message->seen_grants);
    case ControlMessage::Kind::kWake:
      connection.HandleWake();
      break;
  }
  return Status::Ok();
}

Status Executor::HandleDigest(PeerConnection& connection,
                              const Digest& digest) {
  const std::uint64_t now = state_.operation->digest.sequence;
  if (digest.sequence > now) {
    connection.early_digest = digest;
    return Status::Ok();
  }
  if (now - digest.sequence >= digests_.size()) {
    return {StatusCode::kMismatch,
            "rank " + std::to_string(connection.peer()) + " called " +
                options_.describe(digest) + " as collective call number " +
                std::to_string(digest.sequence) + ", and rank " +
                std::to_string(state_.rank) + " is at number " +
                std::to_string(now) +
                " already: it called something else there"};
  }
  return VerifyDigest(connection, digest);
}

Status Executor::VerifyDigest(PeerConnection& connection,
                              const Digest& digest) {
  const Digest& own = digests_[digest.sequence % digests_.size()];
  if (digest == own) {
    connection.digest_verified |=
        digest.sequence == state_.operation->digest.sequence;
    return Status::Ok();
  }
  return {StatusCode::kMismatch,
          "collective call number " + std::to_string(digest.sequence) +
              " differs between ranks: rank " + std::to_string(state_.rank) +
              " called " + options_.describe(own) + ", rank " +
              std::to_string(connection.peer()) + " called " +
              options_.describe(digest) +
              "; all ranks must make the same calls in the same order, with "
              "the same RINGPIPE_ variables"};
}

Status Executor::CompletionError(const ibv_wc& completion) {
  const bool local = completion.status == IBV_WC_LOC_PROT_ERR ||
                     completion.status == IBV_WC_LOC_QP_OP_ERR ||
                     completion.status == IBV_WC_LOC_LEN_ERR;
  after_silence_ = completion.status == IBV_WC_RETRY_EXC_ERR;
  return {local ? StatusCode::kDeviceError : StatusCode::kPeerLost,
          state_.connections->DescribeFailure(completion)};
}

// --- Waiting ----------------------------------------------------------------

Status Executor::Wait() {
  const Clock::time_point now = Clock::now();
  if (!idle_) {
    idle_ = true;
    idle_since_ = now;
    idle_polls_ = 0;
    idle_for_ = &WaitedFor();
    return Status::Ok();
  }
  // The accelerator has no descriptor to sleep on, and is never long.
  const bool accelerating =
      copy_in_.busy() || reduce_.busy() || copy_out_.busy();
  if (accelerating || now - idle_since_ < options_.spin) {
    if (++idle_polls_ % 16 == 0) {
      sched_yield();
    }
    return Status::Ok();
  }
  return SleepUntilEvent();
}

Status Executor::SleepUntilEvent() {
  RINGPIPE_RETURN_IF_ERROR(state_.connections->Arm());
  RINGPIPE_ASSIGN_OR_RETURN(const bool completed, TakeCompletions());
  if (completed) {
    return Status::Ok();
  }
  // A peer's grant raises no completion here: look once more, and ask to be
  // woken by the next.
  RINGPIPE_RETURN_IF_ERROR(send_.AnnounceSleep());
  RINGPIPE_ASSIGN_OR_RETURN(const bool posted, send_.Advance());
  if (posted) {
    return Status::Ok();
  }
  RecordWhereabouts(/*waits=*/true);
  // The earliest deadline may change, but then the next probe is not far.
  const int timeout_ms =
      std::min(EarliestDeadline().PollTimeoutMs(1000),
               Deadline::At(next_probe_).PollTimeoutMs(1000));
  const int ready = poll(descriptors_.data(), descriptors_.size(), timeout_ms);
  if (ready < 0 && errno != EINTR) {
    return ErrnoStatus(StatusCode::kInternal, "poll", errno);
  }
  state_.connections->ConsumeEvents();
  if (ready > 0) {
    RINGPIPE_RETURN_IF_ERROR(CheckAsyncEvents());
  }
  return Probe();
}

Status Executor::CheckAsyncEvents() {
  std::vector<std::string> notices;
  Status status = state_.connections->CheckAsyncEvents(&notices);
  for (const std::string& notice : notices) {
    if (options_.on_notice) {
      options_.on_notice(notice);
    }
  }
  return status;
}

Status Executor::Probe() {
  if (Clock::now() < next_probe_) {
    return Status::Ok();
  }
  next_probe_ = Clock::now() + kProbeInterval;
  RINGPIPE_RETURN_IF_ERROR(CheckAsyncEvents());
  for (PeerConnection* connection : state_.active) {
    const int peer = connection->peer();
    if (!connection->digest_verified || state_.flow.HasReceives(peer) ||
        state_.flow.HasSends(peer)) {
      RINGPIPE_RETURN_IF_ERROR(connection->Probe());
    }
  }
  return Status::Ok();
}

Deadline Executor::EarliestDeadline() const {
  const Operation& operation = *state_.operation;
  return operation.earliest_deadline == nullptr
             ? operation.deadline
             : Deadline::At(std::min(operation.deadline.when(),
                                     operation.earliest_deadline->load()));
}

Status Executor::CheckDeadline() {
  if (!EarliestDeadline().expired()) {
    return Status::Ok();
  }
  const Operation& operation = *state_.operation;
  return {StatusCode::kTimeout,
          operation.name(operation.digest) + " did not end by " +
              (operation.deadline.expired()
                   ? "its deadline"
                   : "the deadline of a call that waits behind it") +
              " on rank " + std::to_string(state_.rank) + ", which waits for " +
              DescribeWait()};
}

void Executor::RecordWhereabouts(bool waits) {
  if (options_.whereabouts == nullptr) {
    return;
  }
  Whereabouts here;
  here.place = Whereabouts::Place::kInCall;
  here.calls = state_.operation->digest.sequence + 1;
  if (waits) {
    here.since = idle_since_;
    for (const PeerConnection* connection : state_.active) {
      const int peer = connection->peer();
      if (!connection->digest_verified || state_.flow.HasReceives(peer) ||
          state_.flow.HasSends(peer) || connection->sends_outstanding() > 0) {
        here.WaitFor(peer);
      }
    }
  }
  recorded_as_waiting_ = waits;
  options_.whereabouts->Set(here);
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
  for (PeerConnection* connection : state_.active) {
    if (state_.flow.HasReceives(connection->peer())) {
      return receive_.meter();
    }
  }
  return issued_ == Flow::Issued::kNoSlot ? acquire_meter_ : send_.meter();
}

std::string Executor::DescribeWait() {
  std::string text;
  for (PeerConnection* connection : state_.active) {
    const int peer = connection->peer();
    const std::string rank = "rank " + std::to_string(peer);
    if (!connection->digest_verified) {
      text += (text.empty() ? "" : ", ") + rank + " to make the same call";
    } else if (state_.flow.HasReceives(peer)) {
      text += (text.empty() ? "" : ", ") + std::string("data from ") + rank;
    } else if (state_.flow.HasSends(peer)) {
      text += (text.empty() ? "" : ", ") + rank + " to receive";
    } else if (connection->sends_outstanding() > 0) {
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
    return {StatusCode::kMemoryHeld, OutOfMemory().message()};
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
  if (error.code() == StatusCode::kPeerLost && !after_silence_) {
    pollfd abort = {options_.abort->fd(), POLLIN, 0};
    static_cast<void>(poll(&abort, 1, kReasonPatienceMs));
  }
  Status reason = options_.abort->Raise(error);
  if (options_.on_error) {
    options_.on_error(reason);
  }
  return reason;
}

// Whether no device reaches the user's memory any more.
bool Executor::TakeBackMemory() {
  const Operation& operation = *state_.operation;
  const bool flushed =
      state_.connections->Flush(Deadline::After(kFlushTimeout));
  const bool released = register_.ReleaseAll();
  operation.accelerator->Drain();
  // Memory that is not registered is out of the devices' reach, whatever they
  // still do to the slots.
  return released && (flushed || !(operation.input.registered ||
                                   operation.output.registered));
}

// --- Counters ---------------------------------------------------------------

std::vector<StageCounters> Executor::stage_counters() const {
  return {acquire_meter_.counters(),    copy_in_.meter().counters(),
          register_.meter().counters(), send_.meter().counters(),
          receive_.meter().counters(),  reduce_.meter().counters(),
          copy_out_.meter().counters()};
}

SlotCounters Executor::slot_counters() const {
  return state_.pool->list().counters();
}

}  // namespace ringpipe
