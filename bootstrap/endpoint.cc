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
#include <iterator>
#include <memory>

#include "auth/local_peer.h"
#include "base/tcp_timeout.h"

namespace ringpipe {
namespace {

constexpr int kBacklog = 1024;

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

using boost::asio::ip::tcp;

using InterfaceAddresses = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

// Null, with errno set, if the system does not say.
InterfaceAddresses ReadInterfaceAddresses() {
  ifaddrs* list = nullptr;
  (void)getifaddrs(&list);
  return {list, &freeifaddrs};
}

tcp::endpoint AsTcp(const Endpoint& endpoint) {
  tcp::endpoint result(
      endpoint.data()->sa_family == AF_INET ? tcp::v4() : tcp::v6(), 0);
  std::memcpy(result.data(), endpoint.data(), result.size());
  return result;
}

// Its address, if it is up and has one, with port 0.
std::optional<tcp::endpoint> UsableAddress(const ifaddrs& one) {
  if (one.ifa_addr == nullptr || (one.ifa_flags & IFF_UP) == 0 ||
      (one.ifa_addr->sa_family != AF_INET &&
       one.ifa_addr->sa_family != AF_INET6)) {
    return std::nullopt;
  }
  tcp::endpoint endpoint(
      one.ifa_addr->sa_family == AF_INET ? tcp::v4() : tcp::v6(), 0);
  std::memcpy(endpoint.data(), one.ifa_addr, endpoint.size());
  return endpoint;
}

// Those of the interfaces that may be used at which other hosts reach this one.
Result<std::vector<tcp::endpoint>> AdmittedAddresses(
    const NameFilter& interfaces) {
  const InterfaceAddresses list = ReadInterfaceAddresses();
  if (list == nullptr) {
    return ErrnoStatus(StatusCode::kUnavailable,
                       "cannot read the addresses of this host's network "
                       "interfaces (getifaddrs)",
                       errno);
  }
  std::vector<tcp::endpoint> admitted;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    const std::optional<tcp::endpoint> address = UsableAddress(*i);
    if (address && interfaces.Admits(i->ifa_name) && !IsLocal(*address)) {
      admitted.push_back(*address);
    }
  }
  return admitted;
}

// The address from which the kernel would send there; none if it has no route.
std::optional<tcp::endpoint> KernelsSource(const Endpoint& there) {
  // To connect a datagram socket sends nothing.
  const FileDescriptor fd(
      socket(there.data()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd || connect(fd.get(), there.data(),
                     static_cast<socklen_t>(there.size())) != 0) {
    return std::nullopt;
  }
  tcp::endpoint source = AsTcp(OwnSide(fd.get()));
  source.port(0);
  return source;
}

// The sources for `there` among the addresses of the admitted interfaces.
std::vector<tcp::endpoint> Sources(const Endpoint& there,
                                   const std::vector<tcp::endpoint>& admitted) {
  const std::optional<tcp::endpoint> kernels = KernelsSource(there);
  if (kernels &&
      std::find(admitted.begin(), admitted.end(), *kernels) != admitted.end()) {
    return {*kernels};
  }
  std::vector<tcp::endpoint> sources;
  std::copy_if(admitted.begin(), admitted.end(), std::back_inserter(sources),
               [&](const tcp::endpoint& one) {
                 // A link-local one says too little to be answered.
                 return one.protocol().family() == there.protocol().family() &&
                        !IsLinkLocal(one);
               });
  return sources;
}

}  // namespace

Endpoint UnixEndpoint(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  return Endpoint(&address, offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

Result<std::vector<Endpoint>> ListeningEndpoints(const NameFilter& interfaces,
                                                 uint16_t port) {
  using boost::asio::ip::make_address;
  if (interfaces.admits_all()) {
    // IPv6's wildcard takes IPv4's connections as well.
    return std::vector<Endpoint>{tcp::endpoint(tcp::v6(), port),
                                 tcp::endpoint(tcp::v4(), port)};
  }
  std::vector<Endpoint> endpoints;
  // The last is what Debian's /etc/hosts has for a host's own name.
  for (const char* loopback : {"127.0.0.1", "::1", "127.0.1.1"}) {
    endpoints.emplace_back(tcp::endpoint(make_address(loopback), port));
  }
  RINGPIPE_ASSIGN_OR_RETURN(const std::vector<tcp::endpoint> admitted,
                            AdmittedAddresses(interfaces));
  for (const tcp::endpoint& address : admitted) {
    endpoints.emplace_back(tcp::endpoint(address.address(), port));
  }
  return endpoints;
}

Result<std::vector<std::string>> AddressesOf(
    const std::vector<Endpoint>& listening, const NameFilter& interfaces) {
  namespace ip = boost::asio::ip;
  std::vector<std::string> others, local;
  for (const Endpoint& place : listening) {
    const tcp::endpoint own = AsTcp(place);
    std::vector<tcp::endpoint> expanded = {own};
    if (own.address().is_unspecified()) {
      RINGPIPE_ASSIGN_OR_RETURN(expanded, AdmittedAddresses(interfaces));
      expanded.emplace_back(ip::address_v4::loopback(), 0);
    }
    for (const tcp::endpoint& one : expanded) {
      // IPv6's wildcard takes IPv4's connections as well.
      if (one.address().is_v4() || own.address().is_v6()) {
        const tcp::endpoint address(one.address(), own.port());
        if (IsLocal(address)) {
          local.push_back(ToString(address));
        } else if (!IsLinkLocal(address)) {
          others.push_back(ToString(address));
        }
      }
    }
  }
  if (others.empty() && local.empty()) {
    return Status(StatusCode::kUnavailable,
                  "rank 0 listens only at link-local addresses, which others "
                  "cannot use without a scope; let it listen at another one");
  }
  return others.empty() ? local : others;
}

Result<std::vector<Route>> RoutesTo(const std::vector<Endpoint>& endpoints,
                                    const NameFilter& interfaces) {
  const auto any_source = [&](const Endpoint& there) {
    return interfaces.admits_all() || IsLocal(there);
  };
  std::vector<tcp::endpoint> admitted;
  if (!std::all_of(endpoints.begin(), endpoints.end(), any_source)) {
    RINGPIPE_ASSIGN_OR_RETURN(admitted, AdmittedAddresses(interfaces));
  }
  std::vector<Route> routes;
  for (const Endpoint& there : endpoints) {
    if (any_source(there)) {
      routes.push_back({there, std::nullopt});
      continue;
    }
    for (const tcp::endpoint& source : Sources(there, admitted)) {
      routes.push_back({there, source});
    }
  }
  if (routes.empty()) {
    return NoAddressForOthers();
  }
  return routes;
}

Status NoAddressForOthers() {
  return {StatusCode::kUnavailable,
          "no network interface that RINGPIPE_SOCKET_IFNAME (or "
          "NCCL_SOCKET_IFNAME) admits is up and has an address at which other "
          "hosts reach this one; it has " +
              DescribeOwnAddresses()};
}

std::string DescribeOwnAddresses() {
  constexpr int kMost = 8;
  std::string text;
  int count = 0;
  const InterfaceAddresses list = ReadInterfaceAddresses();
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    if (const std::optional<tcp::endpoint> address = UsableAddress(*i)) {
      if (++count > kMost) {
        return text + ", ...";
      }
      text += (text.empty() ? "" : ", ") + std::string(i->ifa_name) + " " +
              address->address().to_string();
    }
  }
  return text.empty() ? "none" : text;
}

Endpoint OwnSide(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  (void)getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  return {&address, bytes};
}

Result<Endpoint> FindOwnSide(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot find out the own address (getsockname)", errno);
  }
  return Endpoint(&address, bytes);
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

bool IsLinkLocal(const Endpoint& endpoint) {
  return endpoint.data()->sa_family == AF_INET6 &&
         AsTcp(endpoint).address().to_v6().is_link_local();
}

bool IsOwn(const Endpoint& endpoint) {
  if (IsLocal(endpoint)) {
    return true;
  }
  tcp::endpoint any_port = AsTcp(endpoint);
  any_port.port(0);
  const FileDescriptor fd(
      socket(any_port.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd && bind(fd.get(), any_port.data(),
                    static_cast<socklen_t>(any_port.size())) == 0;
}

std::string AddressOf(const Endpoint& endpoint) {
  namespace ip = boost::asio::ip;
  if (endpoint.data()->sa_family == AF_UNIX) {
    return "";
  }
  const ip::address address = AsTcp(endpoint).address();
  // What an IPv6 socket that takes IPv4's connections says of these.
  return address.is_v6() && address.to_v6().is_v4_mapped()
             ? ip::make_address_v4(ip::v4_mapped, address.to_v6()).to_string()
             : address.to_string();
}

std::string ToString(const Endpoint& endpoint) {
  const std::string address = AddressOf(endpoint);
  if (address.empty()) {
    constexpr size_t kPath = offsetof(sockaddr_un, sun_path) + 1;
    const auto* const bytes = reinterpret_cast<const char*>(endpoint.data());
    return "unix:@" + (endpoint.size() > kPath
                           ? std::string(bytes + kPath, endpoint.size() - kPath)
                           : std::string());
  }
  const bool brackets = address.find(':') != std::string::npos;
  return (brackets ? "[" + address + "]" : address) + ":" +
         std::to_string(AsTcp(endpoint).port());
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

Result<FileDescriptor> OpenConnecting(const Route& route) {
  RINGPIPE_ASSIGN_OR_RETURN(FileDescriptor fd, OpenSocket(route.there));
  if (route.source) {
    SetOption(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (bind(fd.get(), route.source->data(),
             static_cast<socklen_t>(route.source->size())) != 0) {
      return ErrnoStatus(StatusCode::kUnavailable,
                         "cannot connect from " + AddressOf(*route.source),
                         errno);
    }
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

void DetectDeadHost(int connected_fd, std::chrono::milliseconds timeout) {
  if (OwnSide(connected_fd).data()->sa_family == AF_UNIX) {
    return;
  }
  SetOption(connected_fd, IPPROTO_TCP, TCP_NODELAY, 1);
  ProbeIdleConnection(connected_fd, timeout);
  LimitUnacknowledged(connected_fd, timeout);
}

std::string DescribeConnectFailure(const Route& route, int error) {
  const std::string there =
      ToString(route.there) +
      (route.source ? " from " + AddressOf(*route.source) : "");
  if (error == ETIMEDOUT) {
    return "no answer from " + there +
           ": a firewall drops packets to this TCP port, or no host has this "
           "address";
  }
  if (error == ECONNREFUSED) {
    return ErrnoStatus(StatusCode::kUnavailable, "nobody listens at " + there,
                       error)
        .message();
  }
  return ErrnoStatus(StatusCode::kUnavailable, "cannot connect to " + there,
                     error)
      .message();
}

Status CheckPeer(int connected_fd) {
  if (OwnSide(connected_fd).data()->sa_family != AF_UNIX) {
    return Status::Ok();
  }
  ucred peer{};
  const Status trusted = CheckLocalPeer(connected_fd, &peer);
  return trusted.ok()
             ? trusted
             : Status(trusted.code(),
                      trusted.message() +
                          "; if it is a rank of this job, set RINGPIPE_SECRET "
                          "to the same text on all ranks, which then count "
                          "instead of user and namespace");
}

}  // namespace ringpipe
