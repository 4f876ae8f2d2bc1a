// Which of two ways of doing the same is the faster one, found by doing both.
#ifndef RINGPIPE_ENGINE_TRIAL_H_
#define RINGPIPE_ENGINE_TRIAL_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace ringpipe {

// For calls of one kind. Which way is faster depends on where the processors
// are to each other and how large the pages are, and on virtual machines it
// changes: most calls go the way that has taken less time of late, and each
// 32nd the other. Ranks that make the same calls mostly try at the same ones.
// One thread at a time.
class Trial {
 public:
  // Whether the next call goes the second way.
  bool TakesSecond() const {
    if (calls_ < kFirstBothTried) {
      return calls_ % 2 != 0;
    }
    const bool second = ways_[1].Best() < ways_[0].Best();
    return calls_ % kTriesOtherEach == 0 ? !second : second;
  }

  // It has gone that way, and taken so long for so many bytes.
  void Took(bool second, std::chrono::nanoseconds time, std::size_t bytes) {
    ++calls_;
    ways_[second ? 1 : 0].Add(static_cast<double>(time.count()) /
                              static_cast<double>(bytes));
  }

 private:
  // Twice each: the first time memory may be touched first.
  static constexpr std::uint64_t kFirstBothTried = 4;
  static constexpr std::uint64_t kTriesOtherEach = 32;

  // The best of the latest: a call that waits for a rank that comes late says
  // nothing of the way.
  struct Way {
    std::array<double, 3> latest = {kNone, kNone, kNone};
    std::size_t next = 0;

    void Add(double ns_per_byte) {
      latest[next++ % latest.size()] = ns_per_byte;
    }
    double Best() const {
      return *std::min_element(latest.begin(), latest.end());
    }
  };
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  std::array<Way, 2> ways_;
  std::uint64_t calls_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_TRIAL_H_
