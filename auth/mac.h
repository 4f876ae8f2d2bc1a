// HMAC-SHA256 (RFC 2104) and nonces, by OpenSSL.
#ifndef RINGPIPE_AUTH_MAC_H_
#define RINGPIPE_AUTH_MAC_H_

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ringpipe {

using Mac = std::array<char, 32>;
using Nonce = std::array<char, 32>;

inline std::string_view AsBytes(const std::array<char, 32>& array) {
  return {array.data(), array.size()};
}

// The MAC of the concatenation of `parts`; an empty key is a key like any
// other. kUnavailable where OpenSSL has no HMAC or no SHA-256. Thread-safe.
Result<Mac> ComputeMac(std::string_view key,
                       std::initializer_list<std::string_view> parts);

// In a time that does not depend on where they differ. Thread-safe.
bool MacsEqual(const Mac& left, std::string_view right);

// From the system's generator; kUnavailable where that has nothing to give.
// Thread-safe.
Result<Nonce> RandomNonce();

}  // namespace ringpipe

#endif  // RINGPIPE_AUTH_MAC_H_
