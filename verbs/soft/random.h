#ifndef RINGPIPE_VERBS_SOFT_RANDOM_H_
#define RINGPIPE_VERBS_SOFT_RANDOM_H_

#include <cstdint>

namespace ringpipe::verbs::soft {

// The dice of the adversarial mode: splitmix64 (Steele, Lea, Flood, "Fast
// splittable pseudorandom number generators", 2014). Not thread-safe.
class Random {
 public:
  // `stream` makes independent sequences of one seed. Seed 0: not in use.
  Random(std::uint64_t seed, std::uint64_t stream)
      : enabled_(seed != 0), state_(seed * 0x9e3779b97f4a7c15 + stream) {}

  bool enabled() const { return enabled_; }

  // 0 to limit - 1.
  std::uint32_t Below(std::uint32_t limit) {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<std::uint32_t>((z ^ (z >> 31)) % limit);
  }

 private:
  bool enabled_;
  std::uint64_t state_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_RANDOM_H_
