#include "bench/floor_kernels.h"

#include <gtest/gtest.h>

#include <vector>

namespace ringpipe {
namespace {

// 64-byte aligned, as the floor's buffers are.
struct alignas(64) Line {
  float values[16] = {};
};

class Floats {
 public:
  explicit Floats(std::size_t count) : lines_(count / 16 + 1) {}
  float* data() { return lines_[0].values; }
  float& operator[](std::size_t i) { return lines_[i / 16].values[i % 16]; }

 private:
  std::vector<Line> lines_;
};

TEST(FloorKernels, SumsOfAnyNumberOfSourcesReachEveryDestination) {
  for (const Stores stores : {Stores::kOrdinary, Stores::kStreaming}) {
    for (const std::size_t sources : {1, 2, 3, 4, 5, 8, 9}) {
      // Beyond a block; no whole number of vectors.
      for (const std::size_t count : {0, 1, 17, 4096, 10007}) {
        std::vector<Floats> inputs(sources, Floats(count));
        Floats other(count);
        std::vector<const float*> from;
        for (std::size_t s = 0; s < sources; ++s) {
          for (std::size_t i = 0; i < count; ++i) {
            inputs[s][i] = static_cast<float>(i % 1000 + s * 1000);
          }
          from.push_back(inputs[s].data());
        }
        // In place too.
        const std::vector<float*> to = {other.data(), inputs[0].data()};
        SumFloats(stores, to, from, count);
        FinishStores();
        const std::size_t pairs = sources * (sources - 1) / 2;
        for (std::size_t i = 0; i < count; ++i) {
          const auto expected =
              static_cast<float>(sources * (i % 1000) + 1000 * pairs);
          ASSERT_EQ(other[i], expected) << sources << " sources, at " << i;
          ASSERT_EQ(inputs[0][i], expected) << sources << " sources, at " << i;
        }
        // And not a float more.
        ASSERT_EQ(other[count], 0);
      }
    }
  }
}

}  // namespace
}  // namespace ringpipe
