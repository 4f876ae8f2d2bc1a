#include "bootstrap/address.h"

#include <sys/un.h>

#include <boost/asio/ip/address.hpp>
#include <charconv>
#include <string_view>

namespace ringpipe {
namespace {

constexpr std::string_view kUnixPrefix = "unix:@";
// An abstract name starts with a null byte.
constexpr size_t kMostUnixNameBytes = sizeof(sockaddr_un::sun_path) - 1;

}  // namespace

bool Address::IsLoopback() const {
  boost::system::error_code not_literal;
  const auto literal = boost::asio::ip::make_address(host, not_literal);
  return host == "localhost" || (!not_literal && literal.is_loopback());
}

bool Address::IsLinkLocal() const {
  boost::system::error_code is_name;
  const auto literal = boost::asio::ip::make_address_v6(host, is_name);
  return !is_name && literal.is_link_local();
}

std::string Address::ToString() const {
  if (unix_socket) {
    return std::string(kUnixPrefix) + host;
  }
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Address> Address::Parse(const std::string& text) {
  return Parse(text, /*to_listen=*/false);
}

Result<Address> Address::ParseListening(const std::string& text) {
  return Parse(text, /*to_listen=*/true);
}

Result<Address> Address::Parse(const std::string& text, bool to_listen) {
  const Status bad(StatusCode::kInvalidArgument,
                   "\"" + text +
                       "\" is not an address for rank 0 (RINGPIPE_ROOT): use "
                       "HOST:PORT, [IPv6]:PORT with a port from 1 to 65535, "
                       "or unix:@NAME with a name of 1 to " +
                       std::to_string(kMostUnixNameBytes) + " bytes");
  Address address;
  if (text.starts_with(kUnixPrefix)) {
    address.unix_socket = true;
    address.host = text.substr(kUnixPrefix.size());
    if (address.host.empty() || address.host.size() > kMostUnixNameBytes) {
      return bad;
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) {
    return bad;
  }
  address.host = text.substr(0, colon);
  if (address.host.starts_with('[') && address.host.ends_with(']')) {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find(':') != std::string::npos) {
    return bad;  // IPv6 without brackets: which colon is the port's?
  }
  const char* end = text.data() + text.size();
  const auto [parsed, error] =
      std::from_chars(text.data() + colon + 1, end, address.port);
  if (address.host.empty() || error != std::errc() || parsed != end ||
      (!to_listen && (address.port == 0 || address.is_any()))) {
    return bad;
  }
  if (address.IsLinkLocal() && address.host.find('%') == std::string::npos) {
    return Status(StatusCode::kInvalidArgument,
                  text +
                      " (RINGPIPE_ROOT) is a link-local address, which every "
                      "interface may have: say which one, [" +
                      address.host + "%eth0]:" + std::to_string(address.port) +
                      " for eth0 on all hosts, or use another address of rank "
                      "0's host");
  }
  return address;
}

}  // namespace ringpipe
