#ifndef RINGPIPE_VERBS_IP_ADDRESS_H_
#define RINGPIPE_VERBS_IP_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ringpipe::verbs {

// An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d. Plain data, in network
// byte order.
struct IpAddress {
  std::uint8_t bytes[16] = {};

  // "192.168.77.1", "fd00::1"; nullopt where `text` is no address.
  static std::optional<IpAddress> Parse(const std::string& text);

  bool is_ipv4() const;
  // As Parse takes it.
  std::string Text() const;
  // For socket calls: AF_INET or AF_INET6; `port` in host byte order.
  sockaddr_storage SocketAddress(std::uint16_t port) const;

  bool operator==(const IpAddress&) const = default;
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_IP_ADDRESS_H_
