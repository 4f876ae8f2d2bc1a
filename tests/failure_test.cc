// A rank that dies, leaves or does not answer: the others end in time with an
// error that names it, and nothing is left behind.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/liveness_bound.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/holdings.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kStartTime(60);  // generous: sanitizers, a busy machine
constexpr seconds kLiveness = LivenessBound(seconds(2));

// --- Roles ---

// Allreduces until the first error, which it prints, with what the process
// holds before and after. A call may take kTimeoutMs; 0: as long as by default.
template <int kTimeoutMs>
int LoopForever() {
  const Holdings before;
  Status status;
  {
    auto options = CommunicatorOptions::FromProcess();
    auto communicator = Communicator::Create(*options);
    if (!communicator.ok()) {
      Print("create: " + communicator.status().ToString());
      return 1;
    }
    std::vector<float> send(1 << 20, 1.0F);
    std::vector<float> receive(1 << 20);
    for (int call = 0; status.ok(); ++call) {
      status =
          (*communicator)
              ->AllReduce(send.data(), receive.data(), send.size(),
                          DataType::kFloat32, ReduceOp::kSum,
                          kTimeoutMs > 0 ? Timeout(milliseconds(kTimeoutMs))
                                         : Timeout());
      if (call == 3) {
        Print("running");
      }
    }
    Print(status.ToString());
  }
  Print(CompareHoldings(before));
  return 3;
}

// Allreduces a few times and, when the test has looked, leaves in order.
int RunAndLeave() {
  const Holdings before;
  {
    auto options = CommunicatorOptions::FromProcess();
    auto communicator = Communicator::Create(*options);
    if (!communicator.ok()) {
      Print("create: " + communicator.status().ToString());
      return 1;
    }
    std::vector<float> values(100'000, 1.0F);
    for (int call = 0; call < 5; ++call) {
      auto request =
          (*communicator)
              ->AllReduceAsync(values.data(), values.data(), values.size(),
                               DataType::kFloat32, ReduceOp::kMax);
      const Status status = request.ok() ? request->Wait() : request.status();
      if (!status.ok()) {
        Print(status.ToString());
        return 2;
      }
    }
    Print("running");
    AwaitGo();
  }
  Print(CompareHoldings(before));
  return 0;
}

// Rank 1 destroys its communicator, which waits for the others; they call.
int DestroyEarly() {
  auto options = CommunicatorOptions::FromProcess();
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  Print("running");
  if ((*communicator)->rank() != 1) {
    AwaitGo();
    Print((*communicator)->Barrier(milliseconds(1000)).ToString());
  }
  return 0;
}

// Creates a communicator, calls a barrier, and exits without destroying it.
int ExitWithoutDestroying() {
  auto options = CommunicatorOptions::FromProcess();
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  Print("running");
  if ((*communicator)->rank() == 1) {
    AwaitGo();
    (void)communicator->release();  // exits with it as it is
    return 0;
  }
  Print((*communicator)->Barrier().ToString());
  return 3;
}

// --- Tests ---

// Of 127.0.0.1, and free a moment ago.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  close(fd);
  return ntohs(address.sin_port);
}

// The same on two hosts, which meet over TCP.
std::vector<RankProcess> StartOnTwoHosts(const std::string& role, int size,
                                         const std::string& job) {
  const std::string root =
      "RINGPIPE_ROOT=127.0.0.1:" + std::to_string(FreePort());
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back(role, rank, size, job,
                       std::vector{root, "RINGPIPE_SECRET=of " + job,
                                   "RINGPIPE_HOST_ID=host " +
                                       std::to_string(2 * rank / size)});
  }
  return ranks;
}

// What the running ranks have. Also that it is what the checks below look for:
// each rank has a memory file, and a socket that is bound to one of the
// device's names; ranks that share memory need none, once they have met.
Footprint FootprintOf(const std::vector<RankProcess>& ranks) {
  std::vector<pid_t> processes;
  for (const RankProcess& rank : ranks) {
    processes.push_back(rank.pid());
    const Footprint own({rank.pid()});
    EXPECT_GE(own.memory_files.size(), 1U);
    const std::set<std::string> names = UnixNames(own);
    EXPECT_TRUE(OverHostMemory() ||
                std::any_of(names.begin(), names.end(),
                            [](const std::string& name) {
                              return name.starts_with("@ringpipe-soft/");
                            }))
        << ::testing::PrintToString(names);
  }
  return Footprint(processes);
}

const std::vector<std::string> kNothing = {};

class KilledRankTest : public ::testing::TestWithParam<int> {};

TEST_P(KilledRankTest, EndsTheOthersInTwoSecondsNamedAndLeavesNothing) {
  constexpr int kSize = 4;
  const int victim = GetParam();
  const std::string job = NewJob();
  std::vector<RankProcess> ranks = StartRanks("loop", kSize, job);
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const Footprint footprint = FootprintOf(ranks);
  const steady_clock::time_point killed = steady_clock::now();
  ranks[victim].Signal(SIGKILL);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == victim) {
      continue;
    }
    const std::string error = ranks[rank].ReadLine(kStartTime);
    EXPECT_LT(steady_clock::now() - killed, kLiveness) << "rank " << rank;
    EXPECT_NE(error.find("peer lost"), std::string::npos) << error;
    EXPECT_NE(error.find("rank " + std::to_string(victim)), std::string::npos)
        << error;
    EXPECT_EQ(ranks[rank].ReadLine(kStartTime), "clean");
    EXPECT_TRUE(WIFEXITED(ranks[rank].Wait(kStartTime)));
  }
  EXPECT_TRUE(WIFSIGNALED(ranks[victim].Wait(kStartTime)));
  EXPECT_EQ(LeftOnTheMachine(job, footprint, kLiveness), kNothing);
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRankTest, ::testing::Values(0, 2));

// (ranks, the one that is stopped, the one that is killed, hosts)
class KilledBesideAStoppedRankTest
    : public ::testing::TestWithParam<std::tuple<int, int, int, int>> {};

// The news must not depend on any one rank, not on rank 0 either.
TEST_P(KilledBesideAStoppedRankTest, EndsTheOthersInThreeSecondsNamed) {
  const auto [size, stopped, victim, hosts] = GetParam();
  std::vector<RankProcess> ranks =
      hosts == 1 ? StartRanks("loop", size, NewJob())
                 : StartOnTwoHosts("loop", size, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[stopped].Signal(SIGSTOP);
  const steady_clock::time_point killed = steady_clock::now();
  ranks[victim].Signal(SIGKILL);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == stopped || rank == victim) {
      continue;
    }
    const std::string error = ranks[rank].ReadLine(kStartTime);
    EXPECT_LT(steady_clock::now() - killed, LivenessBound(seconds(3)))
        << "rank " << rank;
    // Perhaps after "memory held": who is stopped may stand in a copy.
    EXPECT_NE(error.find("peer lost: rank " + std::to_string(victim)),
              std::string::npos)
        << error;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, KilledBesideAStoppedRankTest,
    ::testing::Values(std::tuple(3, 0, 1, 1), std::tuple(4, 0, 3, 1),
                      std::tuple(4, 1, 0, 1), std::tuple(6, 0, 2, 1),
                      std::tuple(6, 3, 2, 1), std::tuple(8, 0, 5, 1),
                      std::tuple(4, 0, 3, 2), std::tuple(6, 0, 2, 2),
                      std::tuple(8, 5, 4, 2)));

TEST(LeavingTest, InOrderLeavesNoThreadDescriptorSocketOrSegment) {
  const std::string job = NewJob();
  std::vector<RankProcess> ranks = StartRanks("leave", 3, job);
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const Footprint footprint = FootprintOf(ranks);
  for (RankProcess& rank : ranks) {
    rank.Go();
  }
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.ReadLine(kStartTime), "clean");
    EXPECT_EQ(rank.Wait(kStartTime), 0);
  }
  EXPECT_EQ(LeftOnTheMachine(job, footprint, kLiveness), kNothing);
}

TEST(LeavingTest, WithoutDestroyingIsTheLossOfTheRankToWhoWaits) {
  std::vector<RankProcess> ranks = StartRanks("exit", 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[1].Go();
  const std::string error = ranks[0].ReadLine(kLiveness);
  EXPECT_NE(error.find("peer lost"), std::string::npos) << error;
  EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
}

// The number that follows `words` in `text`; 0 where they are not there.
double SecondsAfter(const std::string& words, const std::string& text) {
  const std::size_t at = text.find(words);
  return at == std::string::npos
             ? 0
             : std::strtod(&text[at + words.size()], nullptr);
}

// Not the neighbour, which waits as well.
TEST(ExpiredCallTest, NamesTheRankForWhichAllWait) {
  constexpr int kSize = 8;
  constexpr int kStopped = 5;
  std::vector<RankProcess> ranks = StartRanks("loop in 4 s", kSize, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[kStopped].Signal(SIGSTOP);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank != kStopped) {
      const std::string error = ranks[rank].ReadLine(kStartTime);
      EXPECT_NE(error.find("timeout"), std::string::npos) << error;
      EXPECT_NE(error.find("; rank 5 does not answer"), std::string::npos)
          << error;
      // From when it stopped, whatever its device has answered since: it is
      // asked every 500 ms.
      EXPECT_GT(SecondsAfter("others wait for it for ", error), 0.8) << error;
    }
  }
}

TEST(ExpiredCallTest, NamesTheRankThatDestroysItsCommunicator) {
  std::vector<RankProcess> ranks = StartRanks("destroy early", 3, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[0].Go();
  ranks[2].Go();
  const std::string error = ranks[0].ReadLine(kStartTime);
  EXPECT_NE(error.find("; rank 1 destroys its communicator"), std::string::npos)
      << error;
}

TEST(StoppedPeerTest, IsWaitedForLongerThanTheDeviceRepeatsARequest) {
  // 3 times 1.07 s (verbs/queue_pair.h): an HCA answers for a stopped process.
  constexpr milliseconds kStopped(4500);
  std::vector<RankProcess> ranks = StartRanks("loop", 3, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[1].Signal(SIGSTOP);
  // Meanwhile the others want for credit and data, and sleep.
  EXPECT_EQ(ranks[0].ReadLine(kStopped), "") << "ended while rank 1 stood";
  ranks[1].Signal(SIGCONT);
  EXPECT_EQ(ranks[2].ReadLine(milliseconds(500)), "")
      << "ended when it went on";
  ranks[1].Signal(SIGKILL);
  EXPECT_NE(ranks[0].ReadLine(kStartTime).find("peer lost"), std::string::npos);
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(argc, argv,
                        {{"loop", &LoopForever<0>},
                         {"loop in 4 s", &LoopForever<4000>},
                         {"destroy early", &DestroyEarly},
                         {"leave", &RunAndLeave},
                         {"exit", &ExitWithoutDestroying}});
}
