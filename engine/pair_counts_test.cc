#include "engine/pair_counts.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

TEST(PairCountsTest, AreTheLengthsOfTheParts) {
  using Borders = const std::vector<std::uint64_t>;
  CallBuffers buffers;
  buffers.borders = std::make_shared<Borders>(Borders{0, 3, 3, 8});
  buffers.receive_borders = std::make_shared<Borders>(Borders{0, 1, 5, 5});
  EXPECT_EQ(PairCountsOf(buffers),
            (std::vector<PairCounts>{{3, 1}, {0, 4}, {5, 0}}));
}

// One rank's "sent" is the other one's "received".
TEST(PairCountsTest, AgreeWhereWhatIsSentIsReceived) {
  EXPECT_TRUE(ComparePairCounts(0, 7, {{2, 2}, {3, 4}}, {{2, 2}, {4, 3}}).ok());
}

TEST(PairCountsTest, OfAPairThatDisagreesBothWaysAreNamed) {
  for (const PairCounts& there : {PairCounts{5, 3}, PairCounts{4, 9}}) {
    const Status status =
        ComparePairCounts(0, 7, {{2, 2}, {3, 4}}, {{2, 2}, there});
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_EQ(status.message(),
              "collective call number 7, all-to-all, differs in the counts of "
              "a pair: rank 0 has 3 elements for rank 1, which takes " +
                  std::to_string(there.received) + ", and takes 4 of the " +
                  std::to_string(there.sent) +
                  " that it has; both must give the same");
  }
}

}  // namespace
}  // namespace ringpipe
