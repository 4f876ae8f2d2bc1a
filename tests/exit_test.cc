// Programs that end without destroying their communicators, as most do: a rank
// whose calls have ended is no loss to the others, however late they are.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/liveness_bound.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/exiting_rank.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kStartTime(60);  // generous: sanitizers, a busy machine

// --- Roles ---

// Makes TEST_BARRIERS barriers, each when the test says so, and exits, again
// when the test says so: as TEST_END says.
int MakeBarriers(Way) {
  auto options = CommunicatorOptions::FromProcess();
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  static Communicator& left_behind = *communicator->release();
  Print("running");
  AwaitGo();
  for (int left = std::atoi(std::getenv("TEST_BARRIERS")); left > 0; --left) {
    Print(left_behind.Barrier().ToString());
    AwaitGo();
  }
  const char* const end = std::getenv("TEST_END");
  if (end != nullptr && end == std::string("quick_exit")) {
    std::quick_exit(0);
  } else if (end != nullptr) {
    _exit(0);
  }
  return 0;
}

// Destroyed at exit, after that has been told to the others.
std::unique_ptr<Communicator> lasting;

int KeepItInAStatic(Way) {
  auto communicator = Communicator::Create(*CommunicatorOptions::FromProcess());
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  lasting = std::move(communicator).value();
  return 0;
}

// Makes a broadcast, and a barrier on all ranks but 0, each when the test says
// so, and exits, again when the test says so.
int BroadcastAndMeet(Way) {
  auto options = CommunicatorOptions::FromProcess();
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok()) {
    return 1;
  }
  static Communicator& left_behind = *communicator->release();
  Print("running");
  AwaitGo();
  float value = 7;
  Print(left_behind.Broadcast(&value, &value, 1, DataType::kFloat32, 0)
            .ToString());
  AwaitGo();
  if (left_behind.rank() != 0) {
    Print(left_behind.Barrier().ToString());
    AwaitGo();
  }
  return 0;
}

// Exits when the test says so, while another thread waits in the destructor.
int ExitWhileDestroying(Way) {
  bool destroys = false;
  auto options = CommunicatorOptions::FromProcess();
  options->while_waiting = [&destroys] {
    if (destroys) {
      Print("destroying");
      while (true) {
        pause();  // the other thread ends the process
      }
    }
    return false;
  };
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  std::thread([] {
    AwaitGo();
    std::exit(0);
  }).detach();
  destroys = true;
  communicator->reset();
  return 1;
}

// How long an abort waits until the system has its reason (bootstrap/).
constexpr milliseconds kToldWithin(100);

// The rank TEST_ABORTS makes a call that nobody else ends, aborts, says whether
// the system has "told" the reason or will do so too "late", and ends in the
// same moment; the others wait in a call, and the last one makes it when it has
// heard that there is a reason.
int AbortAndExit(Way) {
  auto communicator = Communicator::Create(*CommunicatorOptions::FromProcess());
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  Print("running");
  AwaitGo();
  Communicator& c = **communicator;
  if (c.rank() == std::atoi(std::getenv("TEST_ABORTS"))) {
    const auto pending = c.BarrierAsync();
    const auto start = steady_clock::now();
    c.Abort("the disk is full");
    Print(steady_clock::now() - start < kToldWithin ? "told" : "late");
    _exit(0);
  }
  while (c.rank() == c.size() - 1 && c.failure().ok()) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  Print(c.Barrier().ToString());
  return 0;
}

// With more than a socket takes at once.
int ExchangeMuch(Way) {
  auto communicator = Communicator::Create(*CommunicatorOptions::FromProcess());
  if (!communicator.ok()) {
    return 1;
  }
  static Communicator& left_behind = *communicator->release();
  const auto blobs = left_behind.Exchange(std::string(1 << 20, 'x'));
  if (!blobs.ok()) {
    Print(blobs.status().ToString());
    return 2;
  }
  return 0;
}

// As a program in C does.
int MakeFourCallsInC(Way) { return MakeFourCalls(); }

// --- Tests ---

const auto kWays = ::testing::ValuesIn(WaysOf("exit_test"));

// By each way; 18 are of different kinds.
int Jobs() {
  const char* const jobs = std::getenv("TEST_RUNS");
  return jobs == nullptr ? 20 : std::atoi(jobs);
}

class ExitTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, ExitTest, kWays, NameOfWay);

TEST_P(ExitTest, AfterTheLastCallFailsOnNoRank) {
  constexpr std::array kSizes = {2, 4, 8};
  constexpr std::array kCounts = {2, 256 << 10, 4 << 20};
  constexpr std::array kDelaysMs = {0, 20};
  for (int job = 0; job < Jobs() && !::testing::Test::HasFailure(); ++job) {
    const int size = kSizes[job % 3];
    const int count = kCounts[job / 3 % 3];
    const int delay_ms = kDelaysMs[job / 9 % 2];
    SCOPED_TRACE("job " + std::to_string(job) + ": " + std::to_string(size) +
                 " ranks, " + std::to_string(count) + " floats, rank 0 " +
                 std::to_string(delay_ms) + " ms late");
    const std::string name = NewJob();
    std::vector<RankProcess> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back(
          GetParam(), "four calls", rank, size, name,
          std::vector{"TEST_COUNT=" + std::to_string(count),
                      "TEST_DELAY_MS=" + std::to_string(delay_ms)});
    }
    for (int rank = 0; rank < size; ++rank) {
      const int status = ranks[rank].Wait(kStartTime);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "rank " << rank << " ended with " << status << ": "
          << ranks[rank].ReadLine(milliseconds(10));
    }
  }
}

// In which system call its main thread sleeps, as /proc has it; -1: it runs.
int SleepsIn(const RankProcess& rank) {
  std::ifstream file("/proc/" + std::to_string(rank.pid()) + "/syscall");
  int number = -1;
  file >> number;
  return number;
}

// Where a call sleeps; a rank that waits for a word from this test does so in
// read.
void AwaitSleepInCall(const RankProcess& rank) {
  const auto end = steady_clock::now() + kStartTime;
  while (SleepsIn(rank) != SYS_ppoll) {
    ASSERT_LT(steady_clock::now(), end) << SleepsIn(rank);
    std::this_thread::yield();
  }
}

// By rank: how many barriers it makes; how it ends otherwise than by exit.
std::vector<RankProcess> StartAtBarriers(
    Way way, const std::vector<int>& barriers,
    const std::vector<std::string>& ends = {}) {
  const std::string job = NewJob();
  const int size = static_cast<int>(barriers.size());
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    std::vector variables = {"TEST_BARRIERS=" + std::to_string(barriers[rank])};
    if (!ends.empty() && !ends[rank].empty()) {
      variables.push_back("TEST_END=" + ends[rank]);
    }
    ranks.emplace_back(way, "barriers", rank, size, job, variables);
  }
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.ReadLine(kStartTime), "running");
  }
  return ranks;
}

// The adversarial device sends within a millisecond, if it gets a core.
constexpr milliseconds kMostDelay(3000);

// (the way, who ends, whether it is killed)
class EndDuringASleepTest
    : public ::testing::TestWithParam<std::tuple<Way, int, bool>> {};

// Rank 0 speaks for the job over the bootstrap, rank 1 does not.
TEST_P(EndDuringASleepTest, IsNoLossToACallWhoseMessagesHaveCome) {
  const auto [way, rank, is_killed] = GetParam();
  if (is_killed && IsAdversarial(way)) {
    GTEST_SKIP() << "the device of the killed rank still has its last message";
  }
  std::vector<RankProcess> ranks = StartAtBarriers(way, {1, 1});
  RankProcess& ends = ranks[rank];
  RankProcess& sleeps = ranks[1 - rank];
  sleeps.Go();
  AwaitSleepInCall(sleeps);
  if (IsAdversarial(way)) {
    std::this_thread::sleep_for(kMostDelay);
  }
  sleeps.Signal(SIGSTOP);
  ends.Go();
  ASSERT_EQ(ends.ReadLine(kStartTime), "ok");
  if (is_killed) {
    ends.Signal(SIGKILL);
  } else {
    ends.Go();
  }
  EXPECT_EQ(ends.Wait(kStartTime), is_killed ? SIGKILL : 0);
  sleeps.Signal(SIGCONT);
  EXPECT_EQ(sleeps.ReadLine(kStartTime), "ok");
}

INSTANTIATE_TEST_SUITE_P(
    Ways, EndDuringASleepTest,
    ::testing::Combine(kWays, ::testing::Values(0, 1), ::testing::Bool()),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_rank" +
             std::to_string(std::get<1>(info.param)) +
             (std::get<2>(info.param) ? "_killed" : "_exits");
    });

TEST_P(ExitTest, MayDestroyACommunicatorThatIsStatic) {
  std::vector<RankProcess> ranks =
      StartRanks(GetParam(), "static", 4, NewJob());
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.Wait(kStartTime), 0);
  }
}

// Rank 0 has what the others still wait for.
TEST_P(ExitTest, AfterAnExchangeFailsOnNoRank) {
  std::vector<RankProcess> ranks =
      StartRanks(GetParam(), "exchange", 4, NewJob());
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.Wait(kStartTime), 0) << rank.ReadLine(milliseconds(10));
  }
}

// The others hear of it from the system alone.
TEST_P(ExitTest, BesideTheHandlersIsADeath) {
  for (const std::string end : {"_exit", "quick_exit"}) {
    std::vector<RankProcess> ranks =
        StartAtBarriers(GetParam(), {1, 2}, {end, ""});
    for (RankProcess& rank : ranks) {
      rank.Go();
    }
    for (RankProcess& rank : ranks) {
      ASSERT_EQ(rank.ReadLine(kStartTime), "ok");
    }
    ranks[1].Go();
    AwaitSleepInCall(ranks[1]);
    ranks[0].Go();
    EXPECT_EQ(ranks[0].Wait(kStartTime), 0);
    const auto start = steady_clock::now();
    const std::string error = ranks[1].ReadLine(kStartTime);
    EXPECT_TRUE(error.starts_with("peer lost: rank 0")) << error;
    EXPECT_EQ(error.find("without destroying"), std::string::npos) << error;
    EXPECT_LT(steady_clock::now() - start, LivenessBound(seconds(2)));
  }
}

// Although its end is all that the system tells them.
TEST_P(ExitTest, RightAfterAnAbortTheReasonIsTheAborts) {
  // Makes its call when all is over, and it knows: until then nobody's can end
  // well.
  constexpr int kLate = 3;
  int told = 0;
  for (const int aborts : {0, 1, 2}) {
    for (int round = 0; round < 5; ++round) {
      const std::string job = NewJob();
      std::vector<RankProcess> ranks;
      for (int rank = 0; rank <= kLate; ++rank) {
        ranks.emplace_back(
            GetParam(), "aborting", rank, kLate + 1, job,
            std::vector<std::string>{"TEST_ABORTS=" + std::to_string(aborts)});
      }
      for (RankProcess& rank : ranks) {
        ASSERT_EQ(rank.ReadLine(kStartTime), "running");
      }
      for (int rank = 0; rank < kLate; ++rank) {
        if (rank != aborts) {
          ranks[rank].Go();
          AwaitSleepInCall(ranks[rank]);
        }
      }
      ranks[aborts].Go();
      // On a busy machine the reason may come late, and then not at all.
      const bool is_told = ranks[aborts].ReadLine(kStartTime) == "told";
      told += is_told ? 1 : 0;
      for (int rank = 0; rank <= kLate; ++rank) {
        if (rank == kLate) {
          ranks[rank].Go();
        }
        if (rank != aborts) {
          const std::string error = ranks[rank].ReadLine(kStartTime);
          const std::string reason =
              "aborted: rank " + std::to_string(aborts) +
              " aborted the communicator: the disk is full";
          EXPECT_TRUE(error == reason ||
                      (!is_told && error.starts_with("peer lost")))
              << "rank " << rank << ": " << error;
        }
      }
    }
  }
  EXPECT_GT(told, 0);
}

TEST_P(ExitTest, IsNotHeldUpByAStoppedRank) {
  std::vector<RankProcess> ranks = StartAtBarriers(GetParam(), {1, 1});
  for (RankProcess& rank : ranks) {
    rank.Go();
  }
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "ok");
  }
  ranks[1].Signal(SIGSTOP);
  ranks[0].Go();
  const auto start = steady_clock::now();
  EXPECT_EQ(ranks[0].Wait(kStartTime), 0);
  EXPECT_LT(steady_clock::now() - start, LivenessBound(seconds(2)));
}

// By way of the rank whose call it has ended, the news of an exit does not come
// as the end of calls that both have ended.
TEST_P(ExitTest, IsPassedOnForNoCallBeforeIt) {
  constexpr int kSize = 4;
  const std::string job = NewJob();
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back(
        GetParam(), "broadcast", rank, kSize, job,
        std::vector<std::string>{"RINGPIPE_ALGORITHM=broadcast:chain"});
  }
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  for (int rank = 0; rank < kSize - 1; ++rank) {
    ranks[rank].Go();
  }
  // The chain's third rank waits for the fourth.
  ASSERT_EQ(ranks[0].ReadLine(kStartTime), "ok");
  ASSERT_EQ(ranks[1].ReadLine(kStartTime), "ok");
  AwaitSleepInCall(ranks[2]);
  ranks[1].Go();
  AwaitSleepInCall(ranks[1]);
  ranks[0].Go();
  EXPECT_EQ(ranks[0].Wait(kStartTime), 0);
  const std::string ended = ranks[1].ReadLine(kStartTime);
  EXPECT_NE(ended.find("has ended without destroying"), std::string::npos)
      << ended;
  ranks[3].Go();
  EXPECT_EQ(ranks[3].ReadLine(kStartTime), "ok");
  EXPECT_EQ(ranks[2].ReadLine(kStartTime), "ok");
}

TEST_P(ExitTest, InTheMiddleOfADestructionIsNoDeath) {
  const std::string job = NewJob();
  RankProcess exits(GetParam(), "destroying", 0, 2, job);
  RankProcess other(GetParam(), "barriers", 1, 2, job, {"TEST_BARRIERS=1"});
  ASSERT_EQ(other.ReadLine(kStartTime), "running");
  ASSERT_EQ(exits.ReadLine(kStartTime), "destroying");
  exits.Go();
  EXPECT_EQ(exits.Wait(kStartTime), 0);
  other.Go();
  const std::string error = other.ReadLine(kStartTime);
  EXPECT_NE(error.find("has ended without destroying its communicator"),
            std::string::npos)
      << error;
}

// (the way, who exits)
class ExitBeforeACallTest
    : public ::testing::TestWithParam<std::tuple<Way, int>> {};

TEST_P(ExitBeforeACallTest, EndsItOnAllAtOnceWithTheReason) {
  constexpr int kSize = 4;
  const auto [way, exiting] = GetParam();
  std::vector<int> barriers(kSize, 2);
  barriers[exiting] = 1;
  std::vector<RankProcess> ranks = StartAtBarriers(way, barriers);
  for (RankProcess& rank : ranks) {
    rank.Go();
  }
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "ok");
  }
  RankProcess& exits = ranks[exiting];
  const std::string reason = "rank " + std::to_string(exiting) + " (pid " +
                             std::to_string(exits.pid());
  // Some wait for it already, and some call when it has gone.
  const auto waits = [exiting = exiting](int rank) {
    return rank != exiting && rank % 2 != 0;
  };
  for (int rank = 0; rank < kSize; ++rank) {
    if (waits(rank)) {
      ranks[rank].Go();
      AwaitSleepInCall(ranks[rank]);
    }
  }
  exits.Go();
  EXPECT_EQ(exits.Wait(kStartTime), 0);
  const auto exited = steady_clock::now();
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank != exiting && !waits(rank)) {
      ranks[rank].Go();
    }
  }
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == exiting) {
      continue;
    }
    const std::string error = ranks[rank].ReadLine(kStartTime);
    EXPECT_TRUE(error.starts_with("peer lost") &&
                error.find(reason) != std::string::npos &&
                error.find("has ended without destroying its communicator") !=
                    std::string::npos)
        << "rank " << rank << ": " << error;
  }
  EXPECT_LT(steady_clock::now() - exited, LivenessBound(seconds(2)));
}

INSTANTIATE_TEST_SUITE_P(Ways, ExitBeforeACallTest,
                         ::testing::Combine(kWays, ::testing::Values(0, 2)),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) +
                                  "_rank" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(argc, argv,
                        {{"aborting", &AbortAndExit},
                         {"four calls", &MakeFourCallsInC},
                         {"barriers", &MakeBarriers},
                         {"broadcast", &BroadcastAndMeet},
                         {"destroying", &ExitWhileDestroying},
                         {"exchange", &ExchangeMuch},
                         {"static", &KeepItInAStatic}});
}
