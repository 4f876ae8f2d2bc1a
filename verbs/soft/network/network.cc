#include "verbs/soft/network/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>

#include "verbs/soft/layout.h"
#include "verbs/soft/network/network_loop.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr int kBacklog = 1024;
// A flood of strangers must not become a flood of log lines.
constexpr int kMostStrangersLogged = 10;

// A listening socket; none, with errno.
FileDescriptor ListenAt(const sockaddr* address, socklen_t length,
                        int ipv6_only) {
  FileDescriptor socket(::socket(
      address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  // A port is free as soon as nobody listens, whatever is left of connections.
  // Two may then bind it at once; only one may listen.
  const bool ok = socket &&
                  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one,
                             sizeof one) == 0 &&
                  (address->sa_family == AF_INET ||
                   setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY,
                              &ipv6_only, sizeof ipv6_only) == 0) &&
                  bind(socket.get(), address, length) == 0 &&
                  listen(socket.get(), kBacklog) == 0;
  if (!ok) {
    const int error = errno;
    socket.Close();
    errno = error;
  }
  return socket;
}

FileDescriptor ListenIpv4(in_addr_t address, std::uint16_t port) {
  sockaddr_in ipv4 = {};
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  ipv4.sin_addr.s_addr = htonl(address);
  return ListenAt(reinterpret_cast<sockaddr*>(&ipv4), sizeof ipv4, 0);
}

FileDescriptor ListenIpv6(const in6_addr& address, std::uint16_t port,
                          int ipv6_only) {
  sockaddr_in6 ipv6 = {};
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(port);
  ipv6.sin6_addr = address;
  return ListenAt(reinterpret_cast<sockaddr*>(&ipv6), sizeof ipv6, ipv6_only);
}

FileDescriptor ListenAnywhere(std::uint16_t port) {
  FileDescriptor both = ListenIpv6(in6addr_any, port, 0);
  // A kernel may have no IPv6.
  return both || errno == EADDRINUSE ? std::move(both)
                                     : ListenIpv4(INADDR_ANY, port);
}

FileDescriptor ListenAtGid(const ibv_gid& gid, std::uint16_t port) {
  in6_addr address;
  memcpy(&address, gid.raw, sizeof address);
  if (!IsIpv4(gid)) {
    return ListenIpv6(address, port, 1);
  }
  in_addr_t ipv4;
  memcpy(&ipv4, gid.raw + 12, sizeof ipv4);
  return ListenIpv4(ntohl(ipv4), port);
}

}  // namespace

Network::Network(Context* context, const Options& options, const Port* port,
                 const Logger& logger)
    : context_(context), options_(options), port_(port), logger_(logger) {}

Network::~Network() = default;

std::uint32_t Network::blocks() const {
  const int ports = options_.last_port - options_.first_port + 1;
  return static_cast<std::uint32_t>(std::clamp(ports, 0, 1 << kBlockBits));
}

std::uint16_t Network::PortOf(std::uint32_t qpn) const {
  return static_cast<std::uint16_t>(
      static_cast<std::uint32_t>(options_.first_port) + BlockOf(qpn));
}

std::string Network::Place(const QueuePairAddress& address) const {
  char text[INET6_ADDRSTRLEN] = "";
  const bool ipv4 = IsIpv4(address.gid);
  inet_ntop(ipv4 ? AF_INET : AF_INET6, address.gid.raw + (ipv4 ? 12 : 0), text,
            sizeof text);
  const std::string host = ipv4 ? text : "[" + std::string(text) + "]";
  return host + ":" + std::to_string(PortOf(address.qpn));
}

std::string Network::PortsText() const {
  return std::to_string(options_.first_port) + " to " +
         std::to_string(options_.last_port) + " (RINGPIPE_SOFT_PORTS)";
}

std::string Network::TcpTimeoutText() const {
  const auto ms = options_.tcp_timeout.count();
  return (ms % 1000 == 0 ? std::to_string(ms / 1000) + " s"
                         : std::to_string(ms) + " ms") +
         " (RINGPIPE_TCP_TIMEOUT_MS)";
}

bool Network::Listen(std::uint32_t block) {
  listeners_.clear();
  if (!ReachesThisHost()) {
    return true;
  }
  const std::uint16_t port = PortOf(block << kIndexBits);
  const bool anywhere =
      options_.other_hosts && options_.interfaces.admits_all();
  bool ok =
      Keep(anywhere ? ListenAnywhere(port) : ListenIpv4(INADDR_LOOPBACK, port));
  std::vector<ibv_gid> gids;
  for (int i = 0; ok && options_.other_hosts && !anywhere; ++i) {
    Port::Entry entry;
    if (!port_->QueryGid(i, &entry)) {
      break;
    }
    // Two interfaces may have the same address.
    const bool is_new =
        entry.interface != 0 && !IsLoopback(entry.gid) &&
        std::none_of(gids.begin(), gids.end(), [&entry](const ibv_gid& one) {
          return SameGid(one, entry.gid);
        });
    if (is_new) {
      gids.push_back(entry.gid);
      ok = Keep(ListenAtGid(entry.gid, port));
    }
  }
  if (!ok) {
    listeners_.clear();
    errno = EADDRINUSE;
  } else if (listeners_.empty()) {
    LogDebug("soft0: cannot listen at port " + std::to_string(port));
  }
  return ok;
}

bool Network::Keep(FileDescriptor listener) {
  if (!listener) {
    return errno != EADDRINUSE;
  }
  listeners_.push_back(std::move(listener));
  return true;
}

void Network::OnStranger(const Status& reason) {
  const int count = ++strangers_;
  if (count <= kMostStrangersLogged) {
    logger_.Warning(
        "soft0: refused a connection over TCP: " + reason.message() +
        (count == kMostStrangersLogged ? "; further ones are not logged" : ""));
  }
}

// Without a key anybody could connect, or be connected to.
bool Network::ReachesThisHost() const {
  return !options_.key.empty() &&
         (options_.other_hosts || !options_.host_id.empty());
}

int Network::Check(const ibv_gid& peer) const {
  if (options_.other_hosts || IsLocal(peer)) {
    return 0;
  }
  logger_.Error(
      "soft0: a queue pair cannot be connected to another host: set "
      "RINGPIPE_SECRET to the same secret on all hosts");
  return EACCES;
}

NetworkLoop* Network::Loop() {
  std::lock_guard lock(mutex_);
  if (loop_ == nullptr && !stopped_) {
    loop_ = NetworkLoop::Start(context_, this);
    const int error = errno;
    if (loop_ == nullptr && !start_failed_) {
      start_failed_ = true;
      logger_.Error("soft0: cannot start the network thread: " +
                    std::string(strerrordesc_np(error)));
    }
    errno = error;
  }
  return loop_.get();
}

bool Network::IsListener(int fd) const {
  return std::any_of(
      listeners_.begin(), listeners_.end(),
      [fd](const FileDescriptor& listener) { return listener.get() == fd; });
}

bool Network::OnListenerReadable() { return Loop() != nullptr; }

int Network::Connect(const std::shared_ptr<RemotePeer>& peer,
                     std::uint32_t qp_index) {
  NetworkLoop* const loop = Loop();
  if (loop == nullptr) {
    return errno;
  }
  if (peer->connects()) {  // else the other end does
    loop->Connect(peer, qp_index);
  }
  return 0;
}

void Network::Stop() {
  std::unique_ptr<NetworkLoop> loop;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    loop = std::move(loop_);
  }
  if (loop != nullptr) {
    loop->Stop();
  }
}

}  // namespace ringpipe::verbs::soft
