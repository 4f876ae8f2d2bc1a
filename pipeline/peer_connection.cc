#include "pipeline/peer_connection.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "pipeline/striping.h"

namespace ringpipe {
namespace {

// More grants at once than any rank can have posted receives: a word that was
// overwritten.
constexpr std::uint64_t kMaxCredit = 1 << 20;

}  // namespace

PeerConnection::PeerConnection(int peer,
                               std::unique_ptr<ControlChannel> control,
                               std::vector<Rail> rails)
    : peer_(peer), control_(std::move(control)), rails_(std::move(rails)) {}

PeerConnection::Address PeerConnection::address() const {
  Address address;
  address.word_address =
      reinterpret_cast<std::uintptr_t>(control_->memory().word);
  address.control = control_->queue_pair().endpoint();
  address.rails = static_cast<std::uint32_t>(rails_.size());
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    address.rail[i].data = rails_[i].channel->queue_pair().endpoint();
    address.rail[i].word_rkey = rails_[i].word_rkey;
    address.rail[i].megabits_per_second = rails_[i].megabits_per_second;
    address.rail[i].kind = rails_[i].kind;
  }
  return address;
}

void PeerConnection::Address::AppendTo(std::string& text) const {
  text.append(reinterpret_cast<const char*>(this),
              offsetof(Address, rail) + rails * sizeof(Rail));
}

Result<PeerConnection::Address> PeerConnection::Address::TakeFrom(
    std::string_view& text) {
  Address address;
  constexpr std::size_t kFixed = offsetof(Address, rail);
  if (text.size() >= kFixed) {
    std::memcpy(static_cast<void*>(&address), text.data(), kFixed);
    const std::size_t bytes = kFixed + address.rails * sizeof(Rail);
    if (address.rails <= kMaxRails && text.size() >= bytes) {
      std::memcpy(static_cast<void*>(&address), text.data(), bytes);
      text.remove_prefix(bytes);
      return address;
    }
  }
  return Status(StatusCode::kMismatch, "an address of another format");
}

Status PeerConnection::SetRemote(const Address& remote) {
  if (remote.rails < 1 || remote.rails > kMaxRails) {
    return {StatusCode::kMismatch,
            "rank " + std::to_string(peer_) + " says that it has " +
                std::to_string(remote.rails) +
                " rails: do all ranks run the same version of ringpipe?"};
  }
  const std::size_t common = std::min<std::size_t>(rails_.size(), remote.rails);
  std::move(rails_.begin() + static_cast<std::ptrdiff_t>(common), rails_.end(),
            std::back_inserter(unused_rails_));
  rails_.resize(common);
  std::vector<std::uint32_t> speeds;
  for (std::size_t i = 0; i < common; ++i) {
    if (rails_[i].kind != remote.rail[i].kind) {
      return {StatusCode::kMismatch,
              "this rank reaches rank " + std::to_string(peer_) +
                  " by another kind of device than the other way round: set "
                  "RINGPIPE_DEVICE (or NCCL_IB_HCA) alike on all ranks"};
    }
    speeds.push_back(std::min(rails_[i].megabits_per_second,
                              remote.rail[i].megabits_per_second));
    remote_rkeys_[i] = remote.rail[i].word_rkey;
  }
  pattern_ = StripePattern(speeds);
  remote_word_ = remote.word_address;
  control_->set_remote_word(remote_word_, remote_rkeys_[0]);
  return Status::Ok();
}

Status PeerConnection::Connect(const Address& remote) {
  const std::string context = "connecting to rank " + std::to_string(peer_);
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

Status PeerConnection::Fail() {
  Status status = control_->queue_pair().Fail();
  for (const std::vector<Rail>* rails : {&rails_, &unused_rails_}) {
    for (const Rail& rail : *rails) {
      const Status failed = rail.channel->queue_pair().Fail();
      if (status.ok()) {
        status = failed;
      }
    }
  }
  return status;
}

Result<std::uint64_t> PeerConnection::Credit() {
  // Software iWARP may show a part of a new value, which is never above it.
  seen_grants_ =
      std::max(seen_grants_,
               control_->memory().word->grants.load(std::memory_order_acquire));
  const std::uint64_t credit = seen_grants_ - sent_;
  if (credit > kMaxCredit) {
    return Status(StatusCode::kInternal,
                  "rank " + std::to_string(peer_) +
                      " granted an impossible number of messages: its memory "
                      "or this rank's was overwritten");
  }
  return credit;
}

Status PeerConnection::PostSends() {
  for (Rail& rail : rails_) {
    RINGPIPE_RETURN_IF_ERROR(rail.channel->PostSends());
  }
  return Status::Ok();
}

int PeerConnection::sends_outstanding() const {
  int outstanding = 0;
  for (const Rail& rail : rails_) {
    outstanding += rail.channel->sends_outstanding();
  }
  return outstanding;
}

Status PeerConnection::SendDigest(const Digest& digest) {
  ControlMessage message;
  message.kind = ControlMessage::Kind::kDigest;
  message.digest = digest;
  return control_->Send(message);
}

Status PeerConnection::SendSleep() {
  if (asleep_) {
    return Status::Ok();
  }
  asleep_ = true;
  ControlMessage message;
  message.kind = ControlMessage::Kind::kSleep;
  message.seen_grants =
      control_->memory().word->grants.load(std::memory_order_acquire);
  return control_->Send(message);
}

Status PeerConnection::Probe() {
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

Result<bool> PeerConnection::PostReceives() {
  bool happened = false;
  for (Rail& rail : rails_) {
    happened |= rail.channel->HasNewReceives();
    RINGPIPE_RETURN_IF_ERROR(rail.channel->PostReceives());
  }
  if (grants_ != grants_told_ && control_->HasRoom()) {
    RINGPIPE_RETURN_IF_ERROR(TellGrants());
    happened = true;
  }
  return happened;
}

Status PeerConnection::TellGrants() {
  grants_told_ = grants_;
  RINGPIPE_RETURN_IF_ERROR(control_->WriteCredit(grants_));
  if (!std::exchange(peer_asleep_, false)) {
    return Status::Ok();
  }
  ControlMessage message;
  message.kind = ControlMessage::Kind::kWake;
  return control_->Send(message);
}

Status PeerConnection::HandleSleep(std::uint64_t seen_grants) {
  peer_asleep_ = true;
  // A grant that crossed the SLEEP: the sender may not have seen it.
  return grants_told_ != seen_grants ? TellGrants() : Status::Ok();
}

bool PeerConnection::DeviceHoldsMemory() const {
  if (control_->receives_posted() > 0) {
    return true;
  }
  return std::any_of(rails_.begin(), rails_.end(), [](const Rail& rail) {
    return rail.channel->sends_outstanding() > 0 ||
           rail.channel->receives_posted() > 0;
  });
}

}  // namespace ringpipe
