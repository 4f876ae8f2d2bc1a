#include "bench/block_hash.h"

#include <cstring>

namespace ringpipe {
namespace {

constexpr std::size_t kLanes = 8;  // enough to hide the multiplier's latency
constexpr std::uint64_t kOdd = 0x9fb21c651e98df25;

// A bijection of `state` for each `word`, and of `word` for each `state`: that
// is why one changed word always changes the result. The second multiplication
// spreads a change of the uppermost bits, which the first one leaves there.
inline std::uint64_t Step(std::uint64_t state, std::uint64_t word) {
  const std::uint64_t x = (state ^ word) * kOdd;
  return (x ^ (x >> 29)) * 0xd6e8feb86659fd93;
}

inline std::uint64_t Finish(std::uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

}  // namespace

std::uint64_t BlockHash(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  std::uint64_t lane[kLanes];
  for (std::size_t l = 0; l < kLanes; ++l) {
    lane[l] = Finish(l + 1);
  }
  std::size_t left = bytes;
  for (; left >= sizeof lane; left -= sizeof lane, from += sizeof lane) {
    std::uint64_t words[kLanes];
    std::memcpy(words, from, sizeof words);
    for (std::size_t l = 0; l < kLanes; ++l) {
      lane[l] = Step(lane[l], words[l]);
    }
  }
  std::uint64_t last[kLanes] = {};
  if (left > 0) {  // `data` may be null where there is nothing
    std::memcpy(last, from, left);
  }
  std::uint64_t result = bytes;
  for (std::size_t l = 0; l < kLanes; ++l) {
    result = Step(Finish(result), Step(lane[l], last[l]));
  }
  return Finish(result);
}

}  // namespace ringpipe
