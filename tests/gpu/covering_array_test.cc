#include "tests/gpu/covering_array.h"

#include <cstddef>
#include <set>
#include <tuple>

#include "gtest/gtest.h"

namespace ringpipe::testing {
namespace {

const std::vector<int> kValues = {7, 3, 5, 2, 1, 4};

// Forbids pairs, and what is no pair.
bool Allowed(const Row& row) {
  const bool pair = row[0] == 6 && row[1] != 2;
  const bool three = row[2] == 0 && row[3] == 1 && row[5] > 0;
  return !pair && !three;
}

using Pair = std::tuple<std::size_t, int, std::size_t, int>;
std::set<Pair> PairsOf(const std::vector<Row>& rows) {
  std::set<Pair> pairs;
  for (const Row& row : rows) {
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) {
        pairs.emplace(a, row[a], b, row[b]);
      }
    }
  }
  return pairs;
}

TEST(CoveringArrayTest, AllRowsAreTheAllowedOnesOnceEach) {
  EXPECT_EQ(AllRows(kValues, [](const Row&) { return true; }).size(),
            7U * 3 * 5 * 2 * 4);
  const std::vector<Row> rows = AllRows(kValues, Allowed);
  // 4 * 5 * 2 rows with a 6 but for the 2 after it; of the other 7 * 3 - 2, 3
  // that begin with the same three.
  EXPECT_EQ(rows.size(), 840U - 2 * 40 - 19 * 3);
  EXPECT_EQ(std::set<Row>(rows.begin(), rows.end()).size(), rows.size());
  for (const Row& row : rows) {
    EXPECT_TRUE(Allowed(row));
  }
}

TEST(CoveringArrayTest, EveryPairThatARowHasIsInOneOfTheChosen) {
  const std::vector<Row> rows = AllRows(kValues, Allowed);
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<Row> chosen = CoverPairs(rows, seed);
    EXPECT_EQ(PairsOf(chosen), PairsOf(rows)) << "seed " << seed;
    for (const Row& row : chosen) {
      EXPECT_TRUE(Allowed(row)) << "seed " << seed;
    }
  }
}

// No fewer would do than there are pairs of the two largest dimensions.
TEST(CoveringArrayTest, TheChosenAreNotManyMoreThanTheFewestThatCanBe) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    EXPECT_LE(CoverPairs(AllRows(kValues, Allowed), seed).size(),
              7U * 5 * 5 / 4)
        << "seed " << seed;
  }
}

TEST(CoveringArrayTest, TheSeedSaysWhichAreChosen) {
  const std::vector<Row> rows = AllRows(kValues, Allowed);
  EXPECT_EQ(CoverPairs(rows, 1), CoverPairs(rows, 1));
  EXPECT_NE(CoverPairs(rows, 1), CoverPairs(rows, 2));
}

TEST(CoveringArrayTest, OfNoRowsNoneAreChosen) {
  EXPECT_TRUE(CoverPairs({}, 1).empty());
}

}  // namespace
}  // namespace ringpipe::testing
