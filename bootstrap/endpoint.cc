#include "bootstrap/endpoint.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "auth/local_peer.h"

namespace ringpipe {
namespace {

constexpr int kBacklog = 1024;
constexpr int kKeepAliveIdleS = 5;
constexpr int kKeepAliveIntervalS = 5;
constexpr int kKeepAliveProbes = 3;
constexpr unsigned kUserTimeoutMs = 20'000;

template <typename T>
void SetOption(int fd, int level, int name, const T& value) {
  // Each is an improvement only: a kernel without it does as it can.
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

Result<FileDescriptor> OpenSocket(const Endpoint& endpoint) {
  FileDescriptor fd(socket(endpoint.data()->sa_family,
                           SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    return ErrnoStatus(errno == EAFNOSUPPORT ? StatusCode::kInvalidArgument
                                             : StatusCode::kResourceExhausted,
                       "cannot open a socket", errno);
  }
  return fd;
}

// Whether a peer on another host can answer to it without more being said.
bool IsSource(const ifaddrs& one, int family) {
  if (one.ifa_addr == nullptr || one.ifa_addr->sa_family != family ||
      (one.ifa_flags & IFF_UP) == 0) {
    return false;
  }
  sockaddr_in6 ipv6{};
  if (family == AF_INET6) {
    std::memcpy(&ipv6, one.ifa_addr, sizeof(ipv6));
  }
  return !IN6_IS_ADDR_LINKLOCAL(&ipv6.sin6_addr);
}

using InterfaceAddresses = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

InterfaceAddresses ReadInterfaceAddresses() {
  ifaddrs* list = nullptr;
  (void)getifaddrs(&list);
  return {list, &freeifaddrs};
}

// Binds to the first address of the interfaces; the kernel chooses the port.
Status BindToInterface(int fd, int family, const NameFilter& interfaces) {
  const InterfaceAddresses list = ReadInterfaceAddresses();
  Status status(
      StatusCode::kUnavailable,
      std::string("no network interface with an ") +
          (family == AF_INET ? "IPv4" : "IPv6") +
          " address is up among those that RINGPIPE_SOCKET_IFNAME (or "
          "NCCL_SOCKET_IFNAME) admits");
  const socklen_t bytes =
      family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    if (interfaces.Admits(i->ifa_name) && IsSource(*i, family)) {
      SetOption(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
      status =
          bind(fd, i->ifa_addr, bytes) == 0
              ? Status::Ok()
              : ErrnoStatus(StatusCode::kUnavailable,
                            std::string("cannot connect from ") + i->ifa_name,
                            errno);
      break;
    }
  }
  return status;
}

}  // namespace

Endpoint UnixEndpoint(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  return Endpoint(&address, offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

std::vector<Endpoint> ListeningEndpoints(const NameFilter& interfaces,
                                         uint16_t port) {
  using boost::asio::ip::make_address;
  using boost::asio::ip::tcp;
  if (interfaces.admits_all()) {
    // IPv6's wildcard takes IPv4's connections as well.
    return {tcp::endpoint(tcp::v6(), port), tcp::endpoint(tcp::v4(), port)};
  }
  std::vector<Endpoint> endpoints;
  // The last is what Debian's /etc/hosts has for a host's own name.
  for (const char* loopback : {"127.0.0.1", "::1", "127.0.1.1"}) {
    endpoints.emplace_back(tcp::endpoint(make_address(loopback), port));
  }
  const InterfaceAddresses list = ReadInterfaceAddresses();
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    for (const int family : {AF_INET, AF_INET6}) {
      if (!interfaces.Admits(i->ifa_name) || !IsSource(*i, family)) {
        continue;
      }
      tcp::endpoint endpoint(family == AF_INET ? tcp::v4() : tcp::v6(), 0);
      std::memcpy(endpoint.data(), i->ifa_addr, endpoint.size());
      endpoint.port(port);
      if (!endpoint.address().is_loopback()) {
        endpoints.emplace_back(endpoint);
      }
    }
  }
  return endpoints;
}

Endpoint OwnSide(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  (void)getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  return {&address, bytes};
}

bool IsLocal(const Endpoint& endpoint) {
  const sockaddr* address = endpoint.data();
  if (address->sa_family == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, address, sizeof(ipv4));
    return ntohl(ipv4.sin_addr.s_addr) >> 24 == 127;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 ipv6{};
    std::memcpy(&ipv6, address, sizeof(ipv6));
    return IN6_IS_ADDR_LOOPBACK(&ipv6.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr) &&
            ipv6.sin6_addr.s6_addr[12] == 127);
  }
  return address->sa_family == AF_UNIX;
}

Result<FileDescriptor> OpenListening(const Endpoint& endpoint) {
  RINGPIPE_ASSIGN_OR_RETURN(FileDescriptor fd, OpenSocket(endpoint));
  if (endpoint.data()->sa_family != AF_UNIX) {
    // The connections of a job that just ended do not count as "in use"; a
    // process that still listens does.
    SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  }
  if (endpoint.data()->sa_family == AF_INET6) {
    SetOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  if (bind(fd.get(), endpoint.data(),
           static_cast<socklen_t>(endpoint.size())) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    const StatusCode code = error == EADDRNOTAVAIL
                                ? StatusCode::kInvalidArgument
                            : error == EADDRINUSE ? StatusCode::kUnavailable
                            : error == EACCES ? StatusCode::kPermissionDenied
                                              : StatusCode::kResourceExhausted;
    return ErrnoStatus(code, "cannot listen", error);
  }
  return fd;
}

Result<FileDescriptor> OpenConnecting(const Endpoint& endpoint,
                                      const NameFilter& interfaces) {
  RINGPIPE_ASSIGN_OR_RETURN(FileDescriptor fd, OpenSocket(endpoint));
  if (!interfaces.admits_all() && !IsLocal(endpoint)) {
    RINGPIPE_RETURN_IF_ERROR(
        BindToInterface(fd.get(), endpoint.data()->sa_family, interfaces));
  }
  return fd;
}

FileDescriptor AcceptFrom(int listening_fd) {
  return FileDescriptor(
      accept4(listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

bool IsConnectedToItself(int connected_fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getpeername(connected_fd, reinterpret_cast<sockaddr*>(&address),
                  &bytes) != 0 ||
      address.ss_family == AF_UNIX ||
      OwnSide(connected_fd) != Endpoint(&address, bytes)) {
    return false;
  }
  const linger reset = {1, 0};  // no TIME_WAIT
  (void)setsockopt(connected_fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  return true;
}

void DetectDeadHost(int connected_fd) {
  if (OwnSide(connected_fd).data()->sa_family == AF_UNIX) {
    return;
  }
  SetOption(connected_fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(connected_fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(connected_fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleS);
  SetOption(connected_fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalS);
  SetOption(connected_fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  SetOption(connected_fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

Status CheckPeer(int connected_fd) {
  if (OwnSide(connected_fd).data()->sa_family != AF_UNIX) {
    return Status::Ok();
  }
  ucred peer{};
  return CheckLocalPeer(connected_fd, &peer);
}

}  // namespace ringpipe
