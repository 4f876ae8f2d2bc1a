// Which of several ways of doing the same is the fastest, found by doing all.
#ifndef RINGPIPE_ENGINE_TRIAL_H_
#define RINGPIPE_ENGINE_TRIAL_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace ringpipe {

// For calls of one kind. Which way is the fastest depends on where the
// processors are to each other and how large the pages are, and on virtual
// machines it changes: most calls go the way that has taken the least time of
// late, and each 32nd another one, in turn. Ranks that make the same calls
// mostly try at the same ones. One thread at a time.
class Trial {
 public:
  // `ways`: from 2, counted from 0.
  explicit Trial(std::size_t ways) : ways_(ways) {}

  // The way that the next call goes.
  std::size_t Next() const {
    if (calls_ < kFirstTries * ways_.size()) {
      return calls_ % ways_.size();
    }
    const std::size_t best = Fastest();
    if (calls_ % kTriesOtherEach != 0) {
      return best;
    }
    const std::size_t turn = calls_ / kTriesOtherEach % (ways_.size() - 1);
    return (best + 1 + turn) % ways_.size();
  }

  // It has gone that way, and taken so long for so many bytes.
  void Took(std::size_t way, std::chrono::nanoseconds time, std::size_t bytes) {
    ++calls_;
    ways_[way].Add(static_cast<double>(time.count()) /
                   static_cast<double>(bytes));
  }

 private:
  // Of each way: the first time memory may be touched first.
  static constexpr std::uint64_t kFirstTries = 2;
  static constexpr std::uint64_t kTriesOtherEach = 32;
  // The first way is left only for one that is clearly faster.
  static constexpr double kClearly = 0.875;

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
  std::size_t Fastest() const {
    std::size_t fastest = 0;
    for (std::size_t way = 1; way < ways_.size(); ++way) {
      const double most = ways_[fastest].Best() * (fastest == 0 ? kClearly : 1);
      if (ways_[way].Best() < most) {
        fastest = way;
      }
    }
    return fastest;
  }

  static constexpr double kNone = std::numeric_limits<double>::infinity();

  std::vector<Way> ways_;
  std::uint64_t calls_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_TRIAL_H_
