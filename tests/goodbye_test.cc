// Communicators that the ranks destroy at different times, or in different
// orders, as languages with garbage collection do: who destroys one waits for
// nobody for long, and what others still have to get is not lost.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/liveness_bound.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kStartTime(60);  // generous: sanitizers, a busy machine
constexpr int kCount = 10'000;     // which rank 1 can hold

// --- Roles ---

// Makes two communicators, and destroys them in an order of its own.
int DestroysCrosswise(Way) {
  std::mutex mutex;
  std::string warnings;
  std::vector<std::unique_ptr<Communicator>> both;
  for (const char* name : {"first", "second"}) {
    auto options = CommunicatorOptions::FromProcess();
    options->root = options->environment.root + "-" + name;
    options->log = [&](LogLevel level, std::string_view text) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (level == LogLevel::kWarning) {
        warnings += std::string(text) + "; ";
      }
    };
    auto communicator = Communicator::Create(*options);
    if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
      Print(communicator.status().ToString());
      return 1;
    }
    both.push_back(std::move(communicator).value());
  }
  Print("running");
  AwaitGo();
  const int first = both[0]->rank() % 2;
  both[first].reset();
  both[1 - first].reset();
  Print("destroyed; " + warnings);
  return 0;
}

// Takes part in a broadcast from rank 0, when the test says so, and destroys
// its communicator at once, or calls again (TEST_CALLS).
int Broadcasts(Way) {
  auto communicator = Communicator::Create(*CommunicatorOptions::FromProcess());
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  Print("running");
  AwaitGo();
  std::vector<float> values(kCount, (*communicator)->rank() == 0 ? 7.0F : 0.0F);
  const Status status = (*communicator)
                            ->Broadcast(values.data(), values.data(), kCount,
                                        DataType::kFloat32, 0);
  Print(status.ToString() + (values[kCount - 1] == 7.0F ? "" : ", and wrong"));
  if (std::atoi(std::getenv("TEST_CALLS")) > 1) {
    Print((*communicator)->Barrier().ToString());
  }
  communicator->reset();
  Print("destroyed");
  AwaitGo();
  return 0;
}

// --- Tests ---

class GoodbyeTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, GoodbyeTest,
                         ::testing::ValuesIn(WaysOf("goodbye_test")),
                         NameOfWay);

TEST_P(GoodbyeTest,
       InDifferentOrdersWaitsForNobodyForLongAndNamesWhoIsMissing) {
  std::vector<RankProcess> ranks =
      StartRanks(GetParam(), "crosswise", 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const auto begin = steady_clock::now();
  for (RankProcess& rank : ranks) {
    rank.Go();
  }
  std::string said;
  for (RankProcess& rank : ranks) {
    said += rank.ReadLine(kStartTime);
    EXPECT_EQ(rank.Wait(kStartTime), 0);
  }
  EXPECT_LT(steady_clock::now() - begin, LivenessBound(seconds(4)));
  // Whoever gives up first names the other one, which then has nobody to name.
  EXPECT_TRUE(said.find("any longer for rank(s) 1,") != std::string::npos ||
              said.find("any longer for rank(s) 0,") != std::string::npos)
      << said;
}

// Rank 0 has ended its broadcast long before rank 2 makes it.
TEST_P(GoodbyeTest, OfARankThatHasEndedItsCallsFailsNoneOfThese) {
  const std::string job = NewJob();
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back(GetParam(), "broadcast", rank, 3, job,
                       std::vector<std::string>{
                           "TEST_CALLS=" + std::to_string(rank == 0 ? 1 : 2),
                           "RINGPIPE_ALGORITHM=broadcast:chain"});
  }
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[0].Go();
  ranks[1].Go();
  ASSERT_EQ(ranks[0].ReadLine(kStartTime), "ok");
  ASSERT_EQ(ranks[0].ReadLine(kStartTime), "destroyed");
  ranks[2].Go();
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(ranks[rank].ReadLine(kStartTime), "ok");
    const std::string error = ranks[rank].ReadLine(kStartTime);
    EXPECT_TRUE(error.starts_with("peer lost: rank 0 (pid ") &&
                error.ends_with(") has destroyed its communicator"))
        << error;
    EXPECT_EQ(ranks[rank].ReadLine(kStartTime), "destroyed");
  }
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(
      argc, argv,
      {{"crosswise", &DestroysCrosswise}, {"broadcast", &Broadcasts}});
}
