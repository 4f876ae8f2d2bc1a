#include "verbs/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace ringpipe::verbs {
namespace {

constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

std::optional<IpAddress> IpAddress::Parse(const std::string& text) {
  IpAddress address;
  if (inet_pton(AF_INET6, text.c_str(), address.bytes) == 1) {
    return address;
  }
  std::memcpy(address.bytes, kMapped, sizeof(kMapped));
  if (inet_pton(AF_INET, text.c_str(), address.bytes + sizeof(kMapped)) == 1) {
    return address;
  }
  return std::nullopt;
}

bool IpAddress::is_ipv4() const {
  return std::equal(std::begin(kMapped), std::end(kMapped), bytes);
}

std::string IpAddress::Text() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_ipv4()) {
    inet_ntop(AF_INET, bytes + sizeof(kMapped), text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, bytes, text, sizeof(text));
  }
  return text;
}

sockaddr_storage IpAddress::SocketAddress(std::uint16_t port) const {
  sockaddr_storage storage = {};
  if (is_ipv4()) {
    sockaddr_in ipv4 = {};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    std::memcpy(&ipv4.sin_addr, bytes + sizeof(kMapped), 4);
    std::memcpy(&storage, &ipv4, sizeof(ipv4));
  } else {
    sockaddr_in6 ipv6 = {};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    std::memcpy(&ipv6.sin6_addr, bytes, sizeof(bytes));
    std::memcpy(&storage, &ipv6, sizeof(ipv6));
  }
  return storage;
}

}  // namespace ringpipe::verbs
