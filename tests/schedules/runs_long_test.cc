// Every algorithm moves 64 MiB, and among 1 to 16 ranks a million elements.
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "gtest/gtest.h"
#include "pipeline/test_job.h"
#include "tests/schedules/algorithm_run.h"

namespace ringpipe {
namespace {

// Among so many ranks, by a way.
class RunsLongTest : public testing::TestWithParam<std::tuple<int, Way>> {};

TEST_P(RunsLongTest, SixtyFourMebibytesAreRight) {
  const auto [size, way] = GetParam();
  constexpr std::uint64_t kBytes = 64 << 20;
  ExpectAllRight({.size = size,
                  .counts = {kBytes / sizeof(float)},
                  .way = way,
                  .slot_bytes = 64 * 1024,
                  .places = Places::kInPlaceIfItCanBe,
                  .timeout = std::chrono::minutes(10)});
}

INSTANTIATE_TEST_SUITE_P(Ranks, RunsLongTest,
                         testing::Combine(testing::Values(2, 7, 16),
                                          testing::Values(Way::kHostMemory,
                                                          Way::kRails)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) == Way::kRails
                                       ? "_software_device"
                                       : "_host_memory");
                         });

// Among so many ranks.
class MillionTest : public testing::TestWithParam<int> {};

TEST_P(MillionTest, AMillionElementsAreRight) {
  for (const auto& [way, seed] :
       {std::pair(Way::kHostMemory, 0), {Way::kRails, 0}, {Way::kRails, 1}}) {
    ExpectAllRight({.size = GetParam(),
                    .counts = {1'000'003},
                    .seed = seed,  // 1: the adversary's
                    .way = way,
                    .slot_bytes = 64 * 1024,
                    .places = Places::kInPlaceIfItCanBe,
                    .timeout = std::chrono::minutes(10)});
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, MillionTest, testing::Range(1, 17));

}  // namespace
}  // namespace ringpipe
