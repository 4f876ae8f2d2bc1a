// ringpipe_lost_ranks after a rank of four was killed: each of the others has
// its number and no other, however it is asked.
#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <tuple>
#include <vector>

#include "base/liveness_bound.h"
#include "engine/ringpipe.h"
#include "gtest/gtest.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr seconds kPatience(60);
constexpr seconds kLiveness = LivenessBound(seconds(2));

// "1 3", of so many.
std::string Text(const std::int32_t* ranks, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += (i > 0 ? " " : "") + std::to_string(ranks[i]);
  }
  return text;
}

// Makes calls until one fails, and prints how, and who is lost then; leaves
// when it is told to, since who has left counts as lost too.
int CallUntilLost(Way) {
  ringpipe_communicator* own = nullptr;
  if (ringpipe_create(nullptr, &own) != RINGPIPE_OK) {
    Print(ringpipe_error_message());
    return 1;
  }
  std::array<std::int32_t, kRanks> ranks = {};
  std::size_t count = kRanks;
  ringpipe_status status = ringpipe_lost_ranks(own, nullptr, 0, &count);
  Print("before: " + std::string(ringpipe_status_name(status)) + ", " +
        std::to_string(count));
  std::vector<float> x(1 << 16, 1);
  for (status = RINGPIPE_OK; status == RINGPIPE_OK;) {
    status =
        ringpipe_all_reduce(own, x.data(), x.data(), x.size(), RINGPIPE_FLOAT32,
                            RINGPIPE_MAX, RINGPIPE_DEFAULT_TIMEOUT, nullptr);
  }
  Print(ringpipe_status_name(status));
  status = ringpipe_lost_ranks(own, ranks.data(), ranks.size(), &count);
  Print(status == RINGPIPE_OK ? Text(ranks.data(), count)
                              : ringpipe_error_message());
  // Where there is room for none it says how many there are.
  ranks.fill(-1);
  status = ringpipe_lost_ranks(own, ranks.data(), 0, &count);
  Print(std::to_string(count) + " beyond " + Text(ranks.data(), 1));
  AwaitGo();
  ringpipe_destroy(own);
  return 0;
}

// (the way, the rank that is killed)
class LostRanksTest : public ::testing::TestWithParam<std::tuple<Way, int>> {};

INSTANTIATE_TEST_SUITE_P(
    Ways, LostRanksTest,
    ::testing::Combine(::testing::ValuesIn(WaysOf("lost_ranks_test")),
                       ::testing::Range(0, kRanks)),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_rank" +
             std::to_string(std::get<1>(info.param));
    });

TEST_P(LostRanksTest, AreTheOneThatWasKilled) {
  const auto [way, victim] = GetParam();
  std::vector<RankProcess> ranks =
      StartRanks(way, "call until lost", kRanks, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kPatience), "before: ok, 0");
  }
  ranks[victim].Signal(SIGKILL);
  const auto killed = steady_clock::now();
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != victim) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      EXPECT_EQ(ranks[rank].ReadLine(kPatience), "peer lost");
      EXPECT_EQ(ranks[rank].ReadLine(kPatience), std::to_string(victim));
      EXPECT_EQ(ranks[rank].ReadLine(kPatience), "1 beyond -1");
    }
  }
  EXPECT_LT(steady_clock::now() - killed, kLiveness);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != victim) {
      ranks[rank].Go();
      EXPECT_EQ(ranks[rank].Wait(kPatience), 0);
    }
  }
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(argc, argv, {{"call until lost", &CallUntilLost}});
}
