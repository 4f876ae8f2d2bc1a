#include "pipeline/rails/rail_connection.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "pipeline/rails/striping.h"
#include "reduction/host_copy.h"

namespace ringpipe {
namespace {

// More credits at once than any rank can have posted receives: a counter that
// was overwritten.
constexpr std::uint64_t kMaxCredit = 1 << 20;

}  // namespace

RailConnection::RailConnection(int peer,
                               std::unique_ptr<ControlChannel> control,
                               std::vector<Rail> rails, const Memory& nothing,
                               const CallCheck& check)
    : Connection(peer),
      control_(std::move(control)),
      rails_(std::move(rails)),
      nothing_(nothing),
      check_(check) {
  early_.Reset(kControlReceives);
}

// --- Setting up --------------------------------------------------------------

RailConnection::Address RailConnection::address() const {
  Address address;
  address.word_address =
      reinterpret_cast<std::uintptr_t>(control_->memory().word);
  address.control = control_->queue_pair().endpoint();
  address.rails = static_cast<std::uint32_t>(rails_.size());
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    address.rail[i] = rails_[i].own;
  }
  return address;
}

bool RailConnection::Has(int rail, std::uint32_t qp_number) const {
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    if (rails_[i].index == rail &&
        (rails_[i].own.data.qp_number == qp_number ||
         (i == 0 &&
          control_->queue_pair().endpoint().qp_number == qp_number))) {
      return true;
    }
  }
  return false;
}

std::string RailConnection::Address::Serialize() const {
  return {reinterpret_cast<const char*>(this),
          offsetof(Address, rail) + rails * sizeof(RailAddress)};
}

Result<RailConnection::Address> RailConnection::Address::Parse(
    std::string_view text) {
  Address address;
  constexpr std::size_t kFixed = offsetof(Address, rail);
  if (text.size() >= kFixed) {
    std::memcpy(static_cast<void*>(&address), text.data(), kFixed);
    if (address.rails >= 1 && address.rails <= kMaxRails &&
        text.size() == kFixed + address.rails * sizeof(RailAddress)) {
      std::memcpy(static_cast<void*>(&address), text.data(), text.size());
      return address;
    }
  }
  return Status(StatusCode::kMismatch,
                "an address of another format: do all ranks run "
                "the same version of ringpipe?");
}

Status RailConnection::SetRemote(const Address& remote) {
  const std::size_t common = std::min<std::size_t>(rails_.size(), remote.rails);
  rails_.resize(common);
  std::vector<std::uint32_t> speeds;
  for (std::size_t i = 0; i < common; ++i) {
    const Address::RailAddress& own = rails_[i].own;
    if (own.kind != remote.rail[i].kind) {
      return {StatusCode::kMismatch,
              "this rank reaches rank " + std::to_string(peer()) +
                  " by another kind of device than the other way round: set "
                  "RINGPIPE_DEVICE (or NCCL_IB_HCA) alike on all ranks"};
    }
    speeds.push_back(
        std::min(own.megabits_per_second, remote.rail[i].megabits_per_second));
    remote_rkeys_[i] = remote.rail[i].word_rkey;
  }
  pattern_ = StripePattern(speeds);
  remote_word_ = remote.word_address;
  control_->set_remote_word(remote_word_, remote_rkeys_[0]);
  return Status::Ok();
}

Status RailConnection::Connect(const Address& remote) {
  const std::string context = "connecting to rank " + std::to_string(peer());
  RINGPIPE_RETURN_IF_ERROR(
      control_->queue_pair().Connect(remote.control).WithContext(context));
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    RINGPIPE_RETURN_IF_ERROR(rails_[i]
                                 .channel->queue_pair()
                                 .Connect(remote.rail[i].data)
                                 .WithContext(context));
  }
  return Status::Ok();
}

Status RailConnection::Fail() {
  Status status = control_->queue_pair().Fail();
  for (const Rail& rail : rails_) {
    const Status failed = rail.channel->queue_pair().Fail();
    status = status.ok() ? failed : status;
  }
  return status;
}

// --- A call ------------------------------------------------------------------

Abilities RailConnection::abilities() const {
  int pieces = DataChannel::kMostPieces;
  for (const Rail& rail : rails_) {
    pieces = std::min(pieces, rail.channel->pieces());
  }
  return {.pieces = static_cast<std::uint32_t>(pieces),
          .eager_bytes = kEagerBytes};
}

void RailConnection::Begin(const Call& call) {
  digest_ = *call.digest;
  call_sent_ = agreed_ = lost_send_ = false;
  sends_eagerly_ = call.eager && call.sends;
  expects_eager_ = takes_eager_ = call.eager && call.receives;
}

bool RailConnection::CanExpect() const {
  return expects_eager_ || Striped(credits_).CanAddReceive();
}

void RailConnection::Expect(Instance instance, const Memory& target) {
  if (std::exchange(expects_eager_, false)) {
    expected_ = {instance, target};
    return;
  }
  Striped(credits_++)
      .AddReceive(instance, target.bytes > 0 ? target : nothing_);
}

// Data go to a peer that has said that it makes the same call: its credit is
// for this one.
Result<bool> RailConnection::CanSend() {
  if (sends_eagerly_) {
    return control_->CanSend();
  }
  if (!agreed_ || !Striped(sent_).CanAddSend()) {
    return false;
  }
  RINGPIPE_ASSIGN_OR_RETURN(const std::uint64_t credit, Credit());
  return credit > 0;
}

Result<bool> RailConnection::Send(Instance instance, Pieces source) {
  if (sends_eagerly_) {
    RINGPIPE_RETURN_IF_ERROR(SendCall(&source.front()));
    return true;
  }
  DataChannel& channel = Striped(sent_++);
  channel.AddSend(instance, source);
  if (!channel.CanAddSend()) {  // the lists are short; a long one is several
    RINGPIPE_RETURN_IF_ERROR(channel.PostSends());
  }
  return false;
}

// With the eager message, or before it.
Status RailConnection::SendCall(const Memory* eager) {
  RINGPIPE_RETURN_IF_ERROR(PostReceives().status());
  credits_told_ = credits_;
  call_sent_ = true;
  const ControlHeader header = {
      .has_payload = eager != nullptr, .credits = credits_, .digest = digest_};
  if (eager == nullptr) {
    return control_->Send(header);
  }
  sends_eagerly_ = false;
  return control_->Send(header, eager->data, eager->bytes);
}

Status RailConnection::Announce() {
  return control_->CanSend() ? SendCall(nullptr) : Status::Ok();
}

Result<bool> RailConnection::Progress(Events& events) {
  RINGPIPE_ASSIGN_OR_RETURN(bool happened, PostReceives());
  if (!call_sent_ && !sends_eagerly_ && control_->CanSend()) {
    RINGPIPE_RETURN_IF_ERROR(SendCall(nullptr));
    happened = true;
  }
  if (call_sent_ && credits_ != credits_told_ && control_->HasRoom()) {
    RINGPIPE_RETURN_IF_ERROR(TellCredits());
    happened = true;
  }
  for (Rail& rail : rails_) {
    RINGPIPE_RETURN_IF_ERROR(rail.channel->PostSends());
  }
  RINGPIPE_ASSIGN_OR_RETURN(const bool delivered, DeliverEager(events));
  return happened || delivered;
}

Result<bool> RailConnection::DeliverEager(Events& events) {
  if (!expected_.has_value() || !eager_.has_value()) {
    return false;
  }
  const auto [instance, target] = *std::exchange(expected_, std::nullopt);
  const Early message = *std::exchange(eager_, std::nullopt);
  if (message.payload_bytes > target.bytes) {
    return WrongLength(peer(), message.payload_bytes, target.bytes);
  }
  HostCopy(target.data, control_->payload(message.buffer),
           message.payload_bytes);
  RINGPIPE_RETURN_IF_ERROR(control_->PostReceive(message.buffer));
  RINGPIPE_RETURN_IF_ERROR(
      events.Arrived(instance, target.data, message.payload_bytes));
  return true;
}

Result<bool> RailConnection::PostReceives() {
  bool happened = false;
  for (Rail& rail : rails_) {
    happened |= rail.channel->HasNewReceives();
    RINGPIPE_RETURN_IF_ERROR(rail.channel->PostReceives());
  }
  return happened;
}

// --- Credit ------------------------------------------------------------------

// How many messages may be sent now. kInternal where the counter is what a peer
// that works cannot have written.
Result<std::uint64_t> RailConnection::Credit() {
  // Software iWARP may show a part of a new value, which is never above it.
  seen_credits_ = std::max(seen_credits_, control_->memory().word->credits.load(
                                              std::memory_order_acquire));
  const std::uint64_t credit = seen_credits_ - sent_;
  if (credit > kMaxCredit) {
    return Status(
        StatusCode::kInternal,
        "rank " + std::to_string(peer()) +
            " gave credit for an impossible number of messages: its memory "
            "or this rank's was overwritten");
  }
  return credit;
}

Status RailConnection::TellCredits() {
  credits_told_ = credits_;
  RINGPIPE_RETURN_IF_ERROR(control_->WriteCredit(credits_));
  if (!std::exchange(peer_asleep_, false)) {
    return Status::Ok();
  }
  return control_->Send({.kind = ControlHeader::Kind::kWake});
}

Status RailConnection::HandleSleep(std::uint64_t seen_credits) {
  peer_asleep_ = true;
  // Credit that crossed the SLEEP: the sender may not have seen it.
  return credits_told_ != seen_credits ? TellCredits() : Status::Ok();
}

Status RailConnection::PrepareToSleep(bool has_message) {
  if (!has_message || sends_eagerly_ || !agreed_ || asleep_ ||
      !control_->CanSend()) {
    return Status::Ok();
  }
  RINGPIPE_ASSIGN_OR_RETURN(const std::uint64_t credit, Credit());
  if (credit > 0) {
    return Status::Ok();  // the send queue is full, which ends with an event
  }
  asleep_ = true;
  return control_->Send(
      {.kind = ControlHeader::Kind::kSleep, .credits = seen_credits_});
}

// --- Completions -------------------------------------------------------------

// The receive is posted anew before the message is acted upon, so that the
// answer tells the peer that it may send the next one.
Status RailConnection::ControlReceived(int buffer, std::uint32_t bytes) {
  using Kind = ControlHeader::Kind;
  control_->CountReceive();
  const std::optional<ControlHeader> header = control_->Read(buffer, bytes);
  if (!header.has_value()) {
    return {StatusCode::kInternal,
            "rank " + std::to_string(peer()) +
                " sent a message of unknown kind or length: do all ranks run "
                "the same version of ringpipe?"};
  }
  if (header->kind == Kind::kCall) {
    early_.push(
        {*header, buffer, static_cast<std::uint32_t>(bytes - sizeof *header)});
    return TakeEarly();
  }
  RINGPIPE_RETURN_IF_ERROR(control_->PostReceive(buffer));
  if (header->kind == Kind::kSleep) {
    return HandleSleep(header->credits);
  }
  asleep_ = false;
  return Status::Ok();
}

Status RailConnection::TakeEarly() {
  while (!early_.empty()) {
    const Early message = early_.front();
    const ControlHeader& header = message.header;
    RINGPIPE_ASSIGN_OR_RETURN(const CallCheck::When when,
                              check_.Compare(peer(), header.digest));
    if (when == CallCheck::When::kLater) {
      return Status::Ok();
    }
    early_.pop();
    if (when == CallCheck::When::kNow) {
      agreed_ = true;
      seen_credits_ = std::max(seen_credits_, header.credits);
    }
    if (header.has_payload == 0 || when == CallCheck::When::kPast) {
      RINGPIPE_RETURN_IF_ERROR(control_->PostReceive(message.buffer));
    } else if (std::exchange(takes_eager_, false)) {
      eager_ = message;
    } else {
      return {StatusCode::kInternal,
              "rank " + std::to_string(peer()) +
                  " sent an eager message that the schedule does not have"};
    }
  }
  return Status::Ok();
}

// --- Whether all is well -----------------------------------------------------

bool RailConnection::HasSendsOut() const {
  return std::any_of(rails_.begin(), rails_.end(), [](const Rail& rail) {
    return rail.channel->sends_outstanding() > 0;
  });
}

Status RailConnection::Probe() {
  if (!control_->awaits_completion() && control_->HasRoom()) {
    RINGPIPE_RETURN_IF_ERROR(control_->Probe());
  }
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    DataChannel& channel = *rails_[i].channel;
    if (channel.sends_outstanding() == 0) {
      RINGPIPE_RETURN_IF_ERROR(channel.Probe(remote_word_, remote_rkeys_[i]));
    }
  }
  return Status::Ok();
}

bool RailConnection::DeviceHoldsMemory() const {
  return control_->receives_posted() > 0 || HasSendsOut() ||
         std::any_of(rails_.begin(), rails_.end(), [](const Rail& rail) {
           return rail.channel->receives_posted() > 0;
         });
}

}  // namespace ringpipe
