#include "verbs/soft/peer_link.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "auth/local_peer.h"

namespace ringpipe::verbs::soft {
namespace {

// More than a context has, and fewer than this process can have open.
constexpr std::size_t kMaxChannels = 256;

// Whether to write to it can do no worse than fail: an eventfd or another
// anonymous inode. A pipe might raise SIGPIPE, a file fill up.
bool IsHarmless(const FileDescriptor& channel) {
  struct stat info;
  return fstat(channel.get(), &info) == 0 && (info.st_mode & S_IFMT) == 0;
}

}  // namespace

PeerLink::PeerLink(FileDescriptor socket, pid_t pid)
    : socket_(std::move(socket)), pid_(pid), same_process_(pid == getpid()) {
  // A process of a pid namespace that is not seen from here has no number.
  slots_only_ = pid <= 0;
}

std::shared_ptr<PeerLink> PeerLink::Connect(const Options& options,
                                            std::uint32_t block) {
  FileDescriptor socket(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = ContextAddress(options, block, &address);
  ucred peer;
  if (!socket ||
      connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) !=
          0 ||
      !CheckLocalPeer(socket.get(), &peer).ok()) {
    return nullptr;
  }
  return std::shared_ptr<PeerLink>(new PeerLink(std::move(socket), peer.pid));
}

std::shared_ptr<PeerLink> PeerLink::ToSelf(std::shared_ptr<Segment> segment,
                                           std::function<void()> wake) {
  std::shared_ptr<PeerLink> link(new PeerLink(FileDescriptor(), getpid()));
  link->segment_ = std::move(segment);
  link->has_segment_ = true;
  link->wake_ = std::move(wake);
  return link;
}

void PeerLink::RequestAttach(std::uint32_t requester_qpn,
                             std::uint32_t responder_qpn) {
  LinkMessage message;
  message.kind = LinkMessage::kAttach;
  message.requester_qpn = requester_qpn;
  message.responder_qpn = responder_qpn;
  message.segment = has_segment_ ? 0 : 1;
  // A message that does not fit is asked for again; a dead peer shows as that.
  SendLinkMessage(socket_.get(), message);
}

void PeerLink::Ring() {
  if (wake_ != nullptr) {
    wake_();
    return;
  }
  LinkMessage message;
  message.kind = LinkMessage::kRing;
  // Where it does not fit, others wait that wake the peer as well.
  SendLinkMessage(socket_.get(), message);
}

Received PeerLink::Receive(LinkMessage* message) {
  LinkFiles files;
  const Received received = ReceiveLinkMessage(socket_.get(), message, &files);
  if (received != Received::kMessage ||
      message->kind != LinkMessage::kAttached) {
    return received;
  }
  if (message->segment != 0 && segment_ == nullptr) {
    Result<std::shared_ptr<Segment>> segment =
        Segment::Attach(std::move(files[0]), std::move(files[1]));
    if (!segment.ok()) {
      return Received::kClosed;
    }
    segment_ = std::move(segment).value();
    has_segment_ = true;
  }
  FileDescriptor channel = std::move(files[message->segment != 0 ? 2 : 0]);
  if (message->channel != 0 && channel) {
    if (!IsHarmless(channel) || channels_.size() >= kMaxChannels) {
      return Received::kClosed;
    }
    channels_.try_emplace(message->channel, std::move(channel));
  }
  return segment_ != nullptr ? Received::kMessage : Received::kClosed;
}

int PeerLink::ChannelFd(std::uint32_t channel) const {
  const auto found = channels_.find(channel);
  return found != channels_.end() ? found->second.get() : -1;
}

}  // namespace ringpipe::verbs::soft
