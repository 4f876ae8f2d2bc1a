#include "validate/partners.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe::validate {
namespace {

class PartnersTest : public testing::TestWithParam<int> {
 protected:
  const int ranks_ = GetParam();
};

INSTANTIATE_TEST_SUITE_P(All, PartnersTest,
                         testing::Values(2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 31,
                                         64, 100));

TEST_P(PartnersTest, TheShiftsHaveEveryLinkOnce) {
  std::set<std::pair<int, int>> links;
  for (int distance = 1; distance < ranks_; ++distance) {
    for (int step = 0; step < ShiftSteps(ranks_, distance); ++step) {
      for (int rank = 0; rank < ranks_; ++rank) {
        const Pairing pairing = ShiftPairing(ranks_, distance, step, rank);
        if (pairing.to >= 0) {
          EXPECT_TRUE(links.emplace(rank, pairing.to).second);
          EXPECT_EQ(ShiftPairing(ranks_, distance, step, pairing.to).from,
                    rank);
          EXPECT_EQ(StepOfLink(ranks_, rank, pairing.to), step);
        }
      }
    }
  }
  EXPECT_EQ(links.size(), static_cast<std::size_t>(ranks_) * (ranks_ - 1));
}

TEST_P(PartnersTest, InAStepOfAShiftARankSendsOrReceivesAndNotBoth) {
  for (int distance = 1; distance < ranks_; ++distance) {
    for (int step = 0; step < ShiftSteps(ranks_, distance); ++step) {
      for (int rank = 0; rank < ranks_; ++rank) {
        const Pairing pairing = ShiftPairing(ranks_, distance, step, rank);
        EXPECT_TRUE(pairing.to < 0 || pairing.from < 0);
      }
    }
  }
}

TEST_P(PartnersTest, InATournamentEachPairMeetsOnce) {
  std::set<std::pair<int, int>> met;
  for (int round = 0; round < TournamentRounds(ranks_); ++round) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const int partner = TournamentPartner(ranks_, round, rank);
      ASSERT_NE(partner, rank);
      ASSERT_LT(partner, ranks_);
      if (partner >= 0) {
        EXPECT_EQ(TournamentPartner(ranks_, round, partner), rank);
        EXPECT_TRUE(met.emplace(rank, partner).second);
      }
    }
  }
  EXPECT_EQ(met.size(), static_cast<std::size_t>(ranks_) * (ranks_ - 1));
}

void ExpectEachSendMeetsAReceive(const std::vector<Pairing>& pairings) {
  for (std::size_t rank = 0; rank < pairings.size(); ++rank) {
    const Pairing& pairing = pairings[rank];
    ASSERT_NE(pairing.to, static_cast<int>(rank));
    if (pairing.to >= 0) {
      EXPECT_EQ(pairings[pairing.to].from, static_cast<int>(rank));
    }
    if (pairing.from >= 0) {
      EXPECT_EQ(pairings[pairing.from].to, static_cast<int>(rank));
    }
  }
}

TEST_P(PartnersTest, InPatternsOfAllRanksEachSendMeetsAReceive) {
  ExpectEachSendMeetsAReceive(NaturalRing(ranks_));
  ExpectEachSendMeetsAReceive(Bisection(InOrder(ranks_)));
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    ExpectEachSendMeetsAReceive(RandomRing(ranks_, seed));
    ExpectEachSendMeetsAReceive(Bisection(RandomOrder(ranks_, seed)));
    const auto permutation = RandomPermutation(ranks_, seed);
    ExpectEachSendMeetsAReceive(permutation);
    EXPECT_TRUE(
        std::all_of(permutation.begin(), permutation.end(),
                    [](const Pairing& pairing) { return pairing.to >= 0; }));
  }
}

TEST(LinkLoadsTest, WithOneRankAHostEachLinkIsAlone) {
  const LinkLoads loads({0, 1, 2, 3, 4});
  for (int from = 0; from < 5; ++from) {
    for (int to = 0; to < 5; ++to) {
      EXPECT_EQ(loads.Of(from, to), from == to ? 0 : 1);
    }
  }
}

TEST(LinkLoadsTest, RanksOfOneHostShareItsCable) {
  // Two hosts of four ranks. By 4 all cross, half of them in each step, which
  // is all of one host; by 1 one rank of each host crosses.
  const LinkLoads loads({0, 0, 0, 0, 1, 1, 1, 1});
  EXPECT_EQ(loads.Of(0, 4), 4);
  EXPECT_EQ(loads.Of(3, 4), 1);
  EXPECT_EQ(loads.Of(0, 1), 2);
}

}  // namespace
}  // namespace ringpipe::validate
