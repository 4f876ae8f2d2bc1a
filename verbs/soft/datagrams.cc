#include "verbs/soft/datagrams.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "auth/mac.h"
#include "reduction/host_copy.h"
#include "verbs/soft/context.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/queue_pair.h"

namespace ringpipe::verbs::soft {
namespace {

// So that a flood cannot keep a poll for ever.
constexpr int kMostAtOnce = 64;
constexpr int kBufferBytes = 4 << 20;
constexpr std::string_view kPurpose = "ringpipe software verbs datagram";

std::string_view Characters(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

sockaddr_in6 UdpAddress(const ibv_gid& gid, int port) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  memcpy(&address.sin6_addr, gid.raw, sizeof gid.raw);
  return address;
}

DatagramHeader InWireOrder(DatagramHeader header) {
  header.magic = htole32(header.magic);
  header.dest_qpn = htole32(header.dest_qpn);
  header.src_qpn = htole32(header.src_qpn);
  header.qkey = htole32(header.qkey);
  header.slid = htole16(header.slid);
  return header;
}

bool WouldBlock(int error) {
  return error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

// Whether the sender that the kernel names in `message` is this user's. Of its
// namespace the kernel tells nothing any more where the sender has ended.
bool IsFromThisUser(msghdr* message) {
  for (cmsghdr* control = CMSG_FIRSTHDR(message); control != nullptr;
       control = CMSG_NXTHDR(message, control)) {
    if (control->cmsg_level == SOL_SOCKET &&
        control->cmsg_type == SCM_CREDENTIALS) {
      ucred sender;
      memcpy(&sender, CMSG_DATA(control), sizeof sender);
      return sender.uid == geteuid();
    }
  }
  return false;
}

FileDescriptor BindLocal(const Options& options, std::uint32_t block) {
  FileDescriptor socket(
      ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = DatagramAddress(options, block, &address);
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &kBufferBytes,
             sizeof kBufferBytes);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kBufferBytes,
             sizeof kBufferBytes);
  if (!socket ||
      setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return FileDescriptor();
  }
  return socket;
}

FileDescriptor BindUdp(const Options& options, std::uint32_t block) {
  FileDescriptor socket(
      ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int off = 0;
  setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &kBufferBytes,
             sizeof kBufferBytes);
  const sockaddr_in6 address =
      UdpAddress(ibv_gid{}, options.first_port + static_cast<int>(block));
  if (!socket || bind(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                      sizeof address) != 0) {
    return FileDescriptor();
  }
  return socket;
}

}  // namespace

std::array<std::byte, kGrhBytes> MakeGrh(const DatagramHeader& header,
                                         std::uint32_t payload_bytes,
                                         bool ethernet) {
  std::array<std::byte, kGrhBytes> bytes = {};
  if (ethernet && IsIpv4(header.destination)) {
    iphdr ip = {};
    ip.version = 4;
    ip.ihl = 5;
    ip.ttl = 64;
    ip.protocol = IPPROTO_UDP;
    ip.tot_len = htons(static_cast<std::uint16_t>(sizeof ip + payload_bytes));
    memcpy(&ip.saddr, header.source.raw + 12, 4);
    memcpy(&ip.daddr, header.destination.raw + 12, 4);
    memcpy(bytes.data() + kGrhBytes - sizeof ip, &ip, sizeof ip);
    return bytes;
  }
  ibv_grh grh = {};
  grh.version_tclass_flow = htobe32(6u << 28);
  grh.paylen = htobe16(static_cast<std::uint16_t>(payload_bytes));
  grh.next_hdr = 0x1b;  // IBA's transport
  grh.hop_limit = 64;
  grh.sgid = header.source;
  grh.dgid = header.destination;
  static_assert(sizeof grh == kGrhBytes);
  memcpy(bytes.data(), &grh, sizeof grh);
  return bytes;
}

bool Datagrams::Open() {
  std::lock_guard lock(open_mutex_);
  if (local_) {
    return true;
  }
  const Options& options = context_->options();
  FileDescriptor local = BindLocal(options, context_->block());
  FileDescriptor room(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  FileDescriptor udp;
  if (local && options.other_hosts) {
    udp = BindUdp(options, context_->block());
  }
  if (!local || !room || (options.other_hosts && !udp)) {
    return false;
  }
  local_ = std::move(local);
  room_ = std::move(room);
  udp_ = std::move(udp);
  local_fd_ = local_.get();
  room_fd_ = room_.get();
  udp_fd_ = udp_.get();
  return true;
}

// --- Sending -----------------------------------------------------------------

Datagrams::Sent Datagrams::Send(const DatagramHeader& header,
                                std::span<const iovec> payload) {
  return context_->port().IsLocal(header.destination)
             ? SendLocally(header, payload)
             : SendByUdp(header, payload);
}

Datagrams::Sent Datagrams::SendLocally(const DatagramHeader& header,
                                       std::span<const iovec> payload) {
  DatagramHeader wire = InWireOrder(header);
  iovec parts[1 + kMaxSge] = {{&wire, sizeof wire}};
  std::copy(payload.begin(), payload.end(), parts + 1);
  LocalAddress address = AddressOf(BlockOf(header.dest_qpn));
  msghdr message = {};
  message.msg_name = &address.name;
  message.msg_namelen = address.length;
  message.msg_iov = parts;
  message.msg_iovlen = 1 + payload.size();
  if (sendmsg(local_.get(), &message, MSG_NOSIGNAL) >= 0 ||
      !WouldBlock(errno)) {
    room_in_vain_ = false;
    return Sent::kDone;
  }
  AwaitRoom(BlockOf(header.dest_qpn), address);
  return Sent::kFull;
}

// A receiver's queue holds few datagrams (net.unix.max_dgram_qlen, usually 10).
// The kernel tells of room in it to those who are connected, and the socket
// that sends is connected to nobody. Where several receivers are full, all
// senders but the last wait for a timer.
void Datagrams::AwaitRoom(std::uint32_t block, const LocalAddress& address) {
  std::lock_guard lock(room_mutex_);
  if (room_in_vain_ || awaited_block_ == block) {
    return;
  }
  epoll_event event = {};
  event.events = EPOLLOUT | EPOLLONESHOT;
  event.data.fd = room_.get();
  if (connect(room_.get(), reinterpret_cast<const sockaddr*>(&address.name),
              address.length) == 0 &&
      epoll_ctl(epoll_, EPOLL_CTL_MOD, room_.get(), &event) == 0) {
    awaited_block_ = block;
  }
}

void Datagrams::OnRoom() {
  std::lock_guard lock(room_mutex_);
  awaited_block_.reset();
  room_in_vain_ = true;
}

Datagrams::LocalAddress Datagrams::AddressOf(std::uint32_t block) {
  std::lock_guard lock(addresses_mutex_);
  const auto [found, is_new] = addresses_.try_emplace(block);
  if (is_new) {
    found->second.length =
        DatagramAddress(context_->options(), block, &found->second.name);
  }
  return found->second;
}

Datagrams::Sent Datagrams::SendByUdp(const DatagramHeader& header,
                                     std::span<const iovec> payload) {
  if (!udp_) {
    return Sent::kDone;  // there are no other hosts
  }
  std::array<std::byte, kMostBytes> datagram;
  const DatagramHeader wire = InWireOrder(header);
  memcpy(datagram.data(), &wire, sizeof wire);
  std::size_t bytes = sizeof wire;
  for (const iovec& part : payload) {
    HostCopy(datagram.data() + bytes, part.iov_base, part.iov_len);
    bytes += part.iov_len;
  }
  const Result<Mac> mac =
      ComputeMac(context_->options().key,
                 {kPurpose, Characters({datagram.data(), bytes})});
  if (!mac.ok()) {
    return Sent::kDone;
  }
  memcpy(datagram.data() + bytes, mac.value().data(), sizeof(Mac));
  const sockaddr_in6 address = UdpAddress(
      header.destination, context_->options().first_port +
                              static_cast<int>(BlockOf(header.dest_qpn)));
  if (sendto(udp_.get(), datagram.data(), bytes + sizeof(Mac), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&address),
             sizeof address) >= 0 ||
      !WouldBlock(errno)) {
    return Sent::kDone;
  }
  return Sent::kFull;
}

// --- Receiving ---------------------------------------------------------------

int Datagrams::Drain() {
  std::unique_lock lock(drain_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return 0;  // somebody is at it
  }
  int count = 0;
  while (count < kMostAtOnce && ReceiveLocally()) {
    ++count;
  }
  while (udp_ && count < kMostAtOnce && ReceiveByUdp()) {
    ++count;
  }
  return count;
}

bool Datagrams::ReceiveLocally() {
  iovec part = {buffer_.data(), buffer_.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(local_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) {
    return false;
  }
  if ((message.msg_flags & MSG_TRUNC) == 0 && IsFromThisUser(&message)) {
    Deliver({buffer_.data(), static_cast<std::size_t>(got)});
  }
  return true;
}

bool Datagrams::ReceiveByUdp() {
  const ssize_t got =
      recv(udp_.get(), buffer_.data(), buffer_.size(), MSG_TRUNC);
  if (got < 0) {
    return false;
  }
  const auto bytes = static_cast<std::size_t>(got);
  if (bytes > buffer_.size() || bytes < sizeof(DatagramHeader) + sizeof(Mac)) {
    return true;
  }
  const std::span<const std::byte> content(buffer_.data(), bytes - sizeof(Mac));
  const Result<Mac> mac =
      ComputeMac(context_->options().key, {kPurpose, Characters(content)});
  if (mac.ok() &&
      MacsEqual(mac.value(),
                Characters({buffer_.data() + content.size(), sizeof(Mac)}))) {
    Deliver(content);
  }
  return true;
}

void Datagrams::Deliver(std::span<const std::byte> datagram) {
  if (datagram.size() < sizeof(DatagramHeader) ||
      datagram.size() > sizeof(DatagramHeader) + kMaxDatagramBytes) {
    return;
  }
  DatagramHeader wire;
  memcpy(&wire, datagram.data(), sizeof wire);
  const DatagramHeader header = InWireOrder(wire);  // its own inverse
  if (header.magic != DatagramHeader::kMagic) {
    return;
  }
  const std::shared_ptr<QueuePair> qp =
      context_->FindQueuePair(IndexOf(header.dest_qpn));
  if (qp != nullptr && qp->number() == header.dest_qpn) {
    qp->ReceiveDatagram(header, datagram.subspan(sizeof header));
  }
}

// --- Waking ------------------------------------------------------------------

bool Datagrams::Watch(int epoll) {
  epoll_ = epoll;
  for (const FileDescriptor* socket : {&local_, &udp_, &room_}) {
    epoll_event event = {};
    event.events = EPOLLONESHOT;
    event.data.fd = socket->get();
    if (*socket &&
        epoll_ctl(epoll, EPOLL_CTL_ADD, socket->get(), &event) != 0 &&
        errno != EEXIST) {
      return false;
    }
  }
  return true;
}

void Datagrams::Arm() {
  for (const FileDescriptor* socket : {&local_, &udp_}) {
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLONESHOT;
    event.data.fd = socket->get();
    if (*socket) {
      epoll_ctl(epoll_, EPOLL_CTL_MOD, socket->get(), &event);
    }
  }
}

}  // namespace ringpipe::verbs::soft
