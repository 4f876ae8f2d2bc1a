// For tests: a buffer that does not lie together.
#ifndef RINGPIPE_TESTS_SCATTERED_H_
#define RINGPIPE_TESTS_SCATTERED_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "engine/call.h"
#include "tests/reference.h"

namespace ringpipe::testing {

// Values in pieces of many lengths, in any order in memory, with gaps between.
template <typename T>
class Scattered {
 public:
  Scattered(const std::vector<T>& values, std::uint64_t seed)
      : memory_(Poisoned<T>(Cut(values.size(), seed))) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      memory_[at_[i]] = values[i];
    }
  }

  // Of elements [first, first + count); empty ones among them.
  std::vector<Buffer> Pieces(std::size_t first, std::size_t count) {
    std::vector<Buffer> pieces;
    for (std::size_t i = first; i < first + count; ++i) {
      if (i > first && at_[i] == at_[i - 1] + 1) {
        ++pieces.back().count;
      } else {
        pieces.push_back({nullptr, 0});
        pieces.push_back({&memory_[at_[i]], 1});
      }
    }
    return pieces;
  }

  std::vector<T> Values(std::size_t first, std::size_t count) const {
    std::vector<T> values;
    for (std::size_t i = first; i < first + count; ++i) {
      values.push_back(memory_[at_[i]]);
    }
    return values;
  }

  bool GapsAreWhole() const {
    const T gap = Poisoned<T>(1).front();
    return std::all_of(gaps_.begin(), gaps_.end(), [&](std::size_t at) {
      return BytesOf(memory_[at]) == BytesOf(gap);
    });
  }

 private:
  static auto BytesOf(const T& value) {
    return std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  }

  // Returns how much memory it takes.
  std::size_t Cut(std::size_t values, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::pair<std::size_t, std::size_t>> pieces;  // first, count
    for (std::size_t first = 0; first < values;) {
      const std::size_t most = 1ULL << random() % 16;
      const std::size_t count =
          std::min<std::size_t>(1 + random() % most, values - first);
      pieces.emplace_back(first, count);
      first += count;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    at_.resize(values);
    std::size_t end = 0;
    for (const auto& [first, count] : pieces) {
      gaps_.push_back(end++);
      for (std::size_t i = first; i < first + count; ++i) {
        at_[i] = end++;
      }
    }
    gaps_.push_back(end++);
    return end;
  }

  std::vector<std::size_t> at_;  // by element
  std::vector<std::size_t> gaps_;
  std::vector<T> memory_;
};

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_SCATTERED_H_
