#include "pipeline/executor.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "memory_pool/registered_memory.h"

namespace ringpipe {
namespace {

constexpr int kMaxSends = 64;  // work requests outstanding a connection
constexpr std::chrono::milliseconds kProbeInterval(500);
constexpr std::chrono::seconds kFlushTimeout(2);

// Digests, sleeps and grants go inline.
static_assert(sizeof(Digest) <= 64 && sizeof(SleepNotice) <= 64);

}  // namespace

Executor::Executor(std::shared_ptr<verbs::ProtectionDomain> pd,
                   const Options& options)
    : options_(options), pd_(std::move(pd)) {
  state_.rank = options.rank;
  state_.size = options.size;
}

Result<std::unique_ptr<Executor>> Executor::Create(
    std::shared_ptr<verbs::ProtectionDomain> pd, const Options& options) {
  std::unique_ptr<Executor> executor(new Executor(std::move(pd), options));
  RINGPIPE_RETURN_IF_ERROR(executor->Allocate());
  RINGPIPE_RETURN_IF_ERROR(executor->CreateConnections());
  return executor;
}

// Queue pairs first: until they are gone the device may use the memory.
Executor::~Executor() {
  state_.connections.clear();
  ReleaseRegistered(std::move(credit_region_), std::move(credit_memory_));
}

Status Executor::Allocate() {
  const int slots = options_.data_slots + ControlSlots(options_.size);
  const std::size_t slot_bytes =
      std::max<std::size_t>((options_.subchunk_bytes + 63) / 64 * 64, 64);
  RINGPIPE_ASSIGN_OR_RETURN(state_.pool,
                            SlotPool::Create(pd_, slot_bytes, slots));
  state_.slot_bytes.assign(slots, 0);

  RINGPIPE_ASSIGN_OR_RETURN(
      credit_memory_, pd_->device()->Allocate(
                          sizeof(PeerConnection::CreditWord) * options_.size));
  RINGPIPE_ASSIGN_OR_RETURN(
      credit_region_, verbs::MemoryRegion::Register(
                          pd_, credit_memory_.data(), credit_memory_.bytes(),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));

  const int peers = options_.size - 1;
  const int entries = slots + std::max(peers, 1) * kMaxSends;
  RINGPIPE_ASSIGN_OR_RETURN(
      cq_, verbs::CompletionQueue::Create(pd_->device(), entries));
  return Status::Ok();
}

Status Executor::CreateConnections() {
  verbs::QueuePair::Options options;
  if (pd_->device()->info().software) {
    // Over TCP, which repeats by itself: 1.07 s until a peer is given up, so
    // that all ranks know of a dead link within 3 s, also those that learn it
    // only by asking.
    options.timeout = 16;
    options.retry_count = 3;
  }
  options.max_send = kMaxSends;
  options.max_receive = kControlReceives + options_.data_slots;
  auto* words =
      reinterpret_cast<PeerConnection::CreditWord*>(credit_memory_.data());
  state_.connections.resize(options_.size);
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == options_.rank) {
      continue;
    }
    RINGPIPE_ASSIGN_OR_RETURN(auto queue_pair,
                              verbs::QueuePair::Create(pd_, cq_, options));
    if (queue_pair->max_inline_bytes() < static_cast<int>(sizeof(Digest))) {
      return {StatusCode::kUnavailable,
              pd_->device()->info().name + " cannot send " +
                  std::to_string(sizeof(Digest)) +
                  " bytes inline, which ringpipe needs: choose another device "
                  "with RINGPIPE_DEVICE"};
    }
    state_.connections[peer] = std::make_unique<PeerConnection>(
        peer, std::move(queue_pair),
        new (&words[peer]) PeerConnection::CreditWord, credit_region_.rkey(),
        kMaxSends);
    for (int i = 0; i < kControlReceives; ++i) {
      RINGPIPE_RETURN_IF_ERROR(state_.connections[peer]->PostReceive(
          *state_.pool, state_.slots().Acquire(), /*for_data=*/false));
    }
  }
  return Status::Ok();
}

PeerConnection::Address Executor::AddressFor(int peer) const {
  return state_.connections[peer]->address();
}

Status Executor::Connect(int peer, const PeerConnection::Address& remote) {
  return state_.connections[peer]->Connect(remote);
}

// --- One collective ---------------------------------------------------------

Status Executor::Run(const Operation& operation) {
  if (options_.abort->raised()) {
    return options_.abort->reason();
  }
  Begin(operation);
  const Status status = Loop();
  return status.ok() ? status : EndWithError(status);
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
  state_.active.clear();
  for (const auto& connection : state_.connections) {
    if (connection == nullptr) {
      continue;
    }
    connection->digest_verified = false;
    const auto uses = [&](const Step& step) {
      return step.transfer.peer == connection->peer();
    };
    if (std::any_of(operation.plan->steps.begin(), operation.plan->steps.end(),
                    uses)) {
      state_.active.push_back(connection.get());
    }
  }
  idle_ = false;
  next_probe_ = Clock::now() + kProbeInterval;
}

Status Executor::Loop() {
  for (PeerConnection* connection : state_.active) {
    RINGPIPE_RETURN_IF_ERROR(connection->SendDigest(state_.operation->digest));
  }
  for (const auto& connection : state_.connections) {
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
  RINGPIPE_ASSIGN_OR_RETURN(const bool sent, send_.Advance());
  RINGPIPE_ASSIGN_OR_RETURN(const bool copied_out, copy_out_.Advance());
  return happened || issued || received || reduced || copied_in || sent ||
         copied_out;
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
  const int count = cq_->Poll(completions_);
  if (count < 0) {
    return Status(StatusCode::kDeviceError, "polling the completion queue of " +
                                                pd_->device()->info().name +
                                                " failed");
  }
  // All are counted before one is handled: an error must not lose the rest.
  CountCompletions(count);
  for (int i = 0; i < count; ++i) {
    RINGPIPE_RETURN_IF_ERROR(HandleCompletion(completions_[i]));
  }
  return count > 0;
}

void Executor::CountCompletions(int count) {
  for (int i = 0; i < count; ++i) {
    const WorkId id = WorkId::Unpack(completions_[i].wr_id);
    PeerConnection& connection = *state_.connections[id.peer];
    if (id.kind == WorkId::Kind::kReceive) {
      connection.CountReceiveCompletion();
    } else {
      connection.CountSendCompletion();
    }
  }
}

Status Executor::HandleCompletion(const ibv_wc& completion) {
  const WorkId id = WorkId::Unpack(completion.wr_id);
  PeerConnection& connection = *state_.connections[id.peer];
  if (completion.status != IBV_WC_SUCCESS) {
    return CompletionError(connection, completion);
  }
  if (id.kind == WorkId::Kind::kReceive) {
    return HandleReceive(connection, static_cast<int>(id.slot), completion);
  }
  if (id.kind == WorkId::Kind::kData) {
    send_.Completed(id.instance);
  }
  return Status::Ok();
}

Status Executor::HandleReceive(PeerConnection& connection, int slot,
                               const ibv_wc& completion) {
  const auto kind = static_cast<MessageKind>(ntohl(completion.imm_data));
  if (!IsWhole(kind, completion)) {
    return {StatusCode::kInternal,
            "rank " + std::to_string(connection.peer()) +
                " sent a message of unknown kind or length: do all ranks run "
                "the same version of ringpipe?"};
  }
  if (kind == MessageKind::kData) {
    return HandleData(connection, slot, completion.byte_len);
  }
  // A control message: its receive is posted anew before it is acted upon, so
  // that the answer tells the peer that it may send the next one.
  Digest digest;
  SleepNotice notice;
  const std::byte* payload = state_.pool->data(slot);
  std::memcpy(&digest, payload, sizeof digest);
  std::memcpy(&notice, payload, sizeof notice);
  RINGPIPE_RETURN_IF_ERROR(
      connection.PostReceive(*state_.pool, slot, /*for_data=*/false));
  if (kind == MessageKind::kDigest) {
    return HandleDigest(connection, digest);
  }
  if (kind == MessageKind::kSleep) {
    return connection.HandleSleep(notice);
  }
  connection.HandleWake();
  return Status::Ok();
}

bool Executor::IsWhole(MessageKind kind, const ibv_wc& completion) {
  if ((completion.wc_flags & IBV_WC_WITH_IMM) == 0) {
    return false;
  }
  switch (kind) {
    case MessageKind::kData:
      return completion.opcode == IBV_WC_RECV;  // its length: see ReceiveStage
    case MessageKind::kDigest:
      return completion.opcode == IBV_WC_RECV &&
             completion.byte_len == sizeof(Digest);
    case MessageKind::kSleep:
      return completion.opcode == IBV_WC_RECV &&
             completion.byte_len == sizeof(SleepNotice);
    case MessageKind::kWake:
      return completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  }
  return false;
}

// A peer's digest comes before its data. Where it was that of a later call, the
// peer has passed this one without this rank.
Status Executor::HandleData(PeerConnection& connection, int slot,
                            std::uint32_t bytes) {
  if (connection.digest_verified) {
    return receive_.Arrived(connection, slot, bytes);
  }
  const std::string rank = "rank " + std::to_string(connection.peer());
  if (!connection.early_digest) {
    return {StatusCode::kInternal, rank + " sent data before its digest"};
  }
  return {StatusCode::kMismatch,
          rank + " has passed collective call number " +
              std::to_string(state_.operation->digest.sequence) +
              ", in which rank " + std::to_string(options_.rank) + " called " +
              options_.describe(state_.operation->digest) + ", and now calls " +
              options_.describe(*connection.early_digest) +
              "; all ranks must make the same calls in the same order"};
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
                std::to_string(options_.rank) + " is at number " +
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
              " differs between ranks: rank " + std::to_string(options_.rank) +
              " called " + options_.describe(own) + ", rank " +
              std::to_string(connection.peer()) + " called " +
              options_.describe(digest) +
              "; all ranks must make the same calls in the same order, with "
              "the same RINGPIPE_ variables"};
}

Status Executor::CompletionError(const PeerConnection& connection,
                                 const ibv_wc& completion) const {
  const bool local = completion.status == IBV_WC_LOC_PROT_ERR ||
                     completion.status == IBV_WC_LOC_QP_OP_ERR ||
                     completion.status == IBV_WC_LOC_LEN_ERR;
  return {local ? StatusCode::kDeviceError : StatusCode::kPeerLost,
          "connection to rank " + std::to_string(connection.peer()) + " on " +
              pd_->device()->info().name +
              " failed: " + verbs::DescribeCompletion(completion.status)};
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
  RINGPIPE_RETURN_IF_ERROR(cq_->Arm());
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
  pollfd fds[] = {{cq_->fd(), POLLIN, 0}, {options_.abort->fd(), POLLIN, 0}};
  // The earliest deadline may change, but then the next probe is not far.
  const int timeout_ms =
      std::min(EarliestDeadline().PollTimeoutMs(1000),
               Deadline::At(next_probe_).PollTimeoutMs(1000));
  if (poll(fds, 2, timeout_ms) < 0 && errno != EINTR) {
    return ErrnoStatus(StatusCode::kInternal, "poll", errno);
  }
  cq_->ConsumeEvents();
  return Probe();
}

Status Executor::Probe() {
  if (Clock::now() < next_probe_) {
    return Status::Ok();
  }
  next_probe_ = Clock::now() + kProbeInterval;
  RINGPIPE_RETURN_IF_ERROR(pd_->device()->CheckAsyncEvents());
  for (PeerConnection* connection : state_.active) {
    const int peer = connection->peer();
    const bool expecting = !connection->digest_verified ||
                           state_.flow.HasReceives(peer) ||
                           state_.flow.HasSends(peer);
    if (expecting && connection->sends_outstanding() == 0) {
      RINGPIPE_RETURN_IF_ERROR(connection->SendProbe());
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
              " on rank " + std::to_string(options_.rank) +
              ", which waits for " + DescribeWait()};
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

Status Executor::EndWithError(const Status& error) {
  Status reason = options_.abort->Raise(error);
  if (options_.on_error) {
    options_.on_error(reason);
  }
  device_holds_memory_ = !FlushConnections();
  state_.operation->accelerator->Drain();
  if (device_holds_memory_) {
    return reason.WithContext(
        "the device did not let go of the buffers in time, they must not be "
        "reused");
  }
  return reason;
}

// Nothing that was posted is executed after this: true once everything has
// been flushed.
bool Executor::FlushConnections() {
  bool failed = true;
  for (const auto& connection : state_.connections) {
    failed &= connection == nullptr || connection->Fail().ok();
  }
  const Deadline deadline = Deadline::After(kFlushTimeout);
  while (!deadline.expired()) {
    const int count = cq_->Poll(completions_);
    CountCompletions(count);
    const bool outstanding =
        std::any_of(state_.connections.begin(), state_.connections.end(),
                    [](const auto& connection) {
                      return connection != nullptr &&
                             (connection->sends_outstanding() > 0 ||
                              connection->receives_posted() > 0);
                    });
    if (!outstanding) {
      return failed;
    }
    if (count <= 0) {
      sched_yield();
    }
  }
  return false;
}

// --- Counters ---------------------------------------------------------------

std::vector<StageCounters> Executor::stage_counters() const {
  return {acquire_meter_.counters(),  copy_in_.meter().counters(),
          send_.meter().counters(),   receive_.meter().counters(),
          reduce_.meter().counters(), copy_out_.meter().counters()};
}

SlotCounters Executor::slot_counters() const {
  return state_.pool->list().counters();
}

}  // namespace ringpipe
