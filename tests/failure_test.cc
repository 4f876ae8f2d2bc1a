// A rank that dies, leaves or does not answer: the others end in time with an
// error that names it, and nothing is left behind.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
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
int LoopForever(Way) {
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
int RunAndLeave(Way) {
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
int DestroyEarly(Way) {
  auto options = CommunicatorOptions::FromProcess();
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  Print("running");
  if ((*communicator)->rank() != 1) {
    AwaitGo();
    Print((*communicator)->Barrier(milliseconds(500)).ToString());
  }
  return 0;
}

// Creates a communicator, calls a barrier, and exits without destroying it.
int ExitWithoutDestroying(Way) {
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

// Calls until the first error, which it prints; rank 1 has memory that is
// shared, and a child that lives on.
int ForkAndLoop(Way) {
  auto options = CommunicatorOptions::FromProcess();
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok() || !(*communicator)->Allocate(1 << 20).ok()) {
    return 1;
  }
  if ((*communicator)->rank() == 1 && fork() == 0) {
    AwaitGo();
    _exit(0);
  }
  Print("running");
  Status status;
  while (status.ok()) {
    status = (*communicator)->Barrier();
  }
  Print(status.ToString());
  return 3;
}

// Has a child that destroys what it has inherited, and calls after that.
int ForkAndDestroyInTheChild(Way) {
  auto options = CommunicatorOptions::FromProcess();
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  if ((*communicator)->rank() == 1) {
    const pid_t child = fork();
    if (child == 0) {
      communicator->reset();
#ifdef __SANITIZE_ADDRESS__
      // What only the parent's threads point to is a leak here.
      _exit(0);
#else
      std::exit(0);
#endif
    }
    int status = 0;
    waitpid(child, &status, 0);
    Print(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "exited" : "crashed");
  }
  Print((*communicator)->Barrier().ToString());
  return 0;
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
std::vector<RankProcess> StartOnTwoHosts(Way way, const std::string& role,
                                         int size, const std::string& job) {
  const std::string root =
      "RINGPIPE_ROOT=127.0.0.1:" + std::to_string(FreePort());
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back(way, role, rank, size, job,
                       std::vector{root, "RINGPIPE_SECRET=of " + job,
                                   "RINGPIPE_HOST_ID=host " +
                                       std::to_string(2 * rank / size)});
  }
  return ranks;
}

// What the running ranks have. Also that it is what the checks below look for:
// each rank has a memory file, and a socket that is bound to one of the
// device's names; ranks that share memory need none, once they have met.
Footprint FootprintOf(Way way, const std::vector<RankProcess>& ranks) {
  std::vector<pid_t> processes;
  for (const RankProcess& rank : ranks) {
    processes.push_back(rank.pid());
    const Footprint own({rank.pid()});
    EXPECT_GE(own.memory_files.size(), 1U);
    const std::set<std::string> names = UnixNames(own);
    EXPECT_TRUE(SharesMemory(way) ||
                std::any_of(names.begin(), names.end(),
                            [](const std::string& name) {
                              return name.starts_with("@ringpipe-soft/");
                            }))
        << ::testing::PrintToString(names);
  }
  return Footprint(processes);
}

const std::vector<std::string> kNothing = {};

const auto kWays = ::testing::ValuesIn(WaysOf("failure_test"));

// (the way, the rank that is killed)
class KilledRankTest : public ::testing::TestWithParam<std::tuple<Way, int>> {};

TEST_P(KilledRankTest, EndsTheOthersInTwoSecondsNamedAndLeavesNothing) {
  constexpr int kSize = 4;
  const auto [way, victim] = GetParam();
  const std::string job = NewJob();
  std::vector<RankProcess> ranks = StartRanks(way, "loop", kSize, job);
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const Footprint footprint = FootprintOf(way, ranks);
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

INSTANTIATE_TEST_SUITE_P(Ways, KilledRankTest,
                         ::testing::Combine(kWays, ::testing::Values(0, 2)),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) +
                                  "_rank" +
                                  std::to_string(std::get<1>(info.param));
                         });

struct KilledBesideAStopped {
  int size;
  int stopped;
  int victim;
  int hosts;
};

class KilledBesideAStoppedRankTest
    : public ::testing::TestWithParam<std::tuple<Way, KilledBesideAStopped>> {};

// The news must not depend on any one rank, not on rank 0 either.
TEST_P(KilledBesideAStoppedRankTest, EndsTheOthersInThreeSecondsNamed) {
  const auto& [way, ranks_of_test] = GetParam();
  const auto& [size, stopped, victim, hosts] = ranks_of_test;
  std::vector<RankProcess> ranks =
      hosts == 1 ? StartRanks(way, "loop", size, NewJob())
                 : StartOnTwoHosts(way, "loop", size, NewJob());
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
    Ways, KilledBesideAStoppedRankTest,
    ::testing::Combine(kWays,
                       ::testing::Values(KilledBesideAStopped{3, 0, 1, 1},
                                         KilledBesideAStopped{4, 0, 3, 1},
                                         KilledBesideAStopped{4, 1, 0, 1},
                                         KilledBesideAStopped{6, 0, 2, 1},
                                         KilledBesideAStopped{6, 3, 2, 1},
                                         KilledBesideAStopped{8, 0, 5, 1},
                                         KilledBesideAStopped{4, 0, 3, 2},
                                         KilledBesideAStopped{6, 0, 2, 2},
                                         KilledBesideAStopped{8, 5, 4, 2})),
    [](const auto& info) {
      const KilledBesideAStopped& ranks = std::get<1>(info.param);
      return std::string(Name(std::get<0>(info.param))) + "_" +
             std::to_string(ranks.size) + "ranks_" +
             std::to_string(ranks.stopped) + "stopped_" +
             std::to_string(ranks.victim) + "killed_" +
             std::to_string(ranks.hosts) + "hosts";
    });

class LeavingTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, LeavingTest, kWays, NameOfWay);

TEST_P(LeavingTest, InOrderLeavesNoThreadDescriptorSocketOrSegment) {
  const std::string job = NewJob();
  std::vector<RankProcess> ranks = StartRanks(GetParam(), "leave", 3, job);
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const Footprint footprint = FootprintOf(GetParam(), ranks);
  for (RankProcess& rank : ranks) {
    rank.Go();
  }
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.ReadLine(kStartTime), "clean");
    EXPECT_EQ(rank.Wait(kStartTime), 0);
  }
  EXPECT_EQ(LeftOnTheMachine(job, footprint, kLiveness), kNothing);
}

TEST_P(LeavingTest, WithoutDestroyingIsTheLossOfTheRankToWhoWaits) {
  std::vector<RankProcess> ranks = StartRanks(GetParam(), "exit", 2, NewJob());
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

class ForkTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, ForkTest, kWays, NameOfWay);

// Not the neighbour, which waits as well.
TEST_P(ForkTest, AChildThatOutlivesItsRankHidesNoDeathAndKeepsNoMemory) {
  const std::string job = NewJob();
  std::vector<RankProcess> ranks =
      StartRanks(GetParam(), "fork and loop", 2, job);
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const Footprint footprint = FootprintOf(GetParam(), ranks);
  const steady_clock::time_point killed = steady_clock::now();
  ranks[1].Signal(SIGKILL);
  const std::string error = ranks[0].ReadLine(kStartTime);
  EXPECT_LT(steady_clock::now() - killed, kLiveness);
  EXPECT_NE(error.find("peer lost: rank 1"), std::string::npos) << error;
  EXPECT_TRUE(WIFEXITED(ranks[0].Wait(kStartTime)));
  EXPECT_TRUE(WIFSIGNALED(ranks[1].Wait(kStartTime)));
  EXPECT_EQ(LeftOnTheMachine("what no process has", footprint, kLiveness),
            kNothing);
}

TEST_P(ForkTest, AChildDestroysACommunicatorToNoEffect) {
  std::vector<RankProcess> ranks =
      StartRanks(GetParam(), "fork and destroy in the child", 2, NewJob());
  EXPECT_EQ(ranks[1].ReadLine(kStartTime), "exited");
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.ReadLine(kStartTime), "ok");
    EXPECT_TRUE(WIFEXITED(rank.Wait(kStartTime)));
  }
}

class ExpiredCallTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, ExpiredCallTest, kWays, NameOfWay);

// The errors of the others in a job of eight whose rank 5 is stopped.
std::vector<std::string> ErrorsBesideStoppedRankFive(Way way) {
  constexpr int kSize = 8;
  constexpr int kStopped = 5;
  std::vector<RankProcess> ranks =
      StartRanks(way, "loop in 4 s", kSize, NewJob());
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[kStopped].Signal(SIGSTOP);
  std::vector<std::string> errors;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank != kStopped) {
      errors.push_back(ranks[rank].ReadLine(kStartTime));
    }
  }
  return errors;
}

TEST_P(ExpiredCallTest, NamesTheRankForWhichAllWait) {
  constexpr int kJobs = 3;
  const auto names_it = [](const std::string& error) {
    return error.find("; rank 5 does not answer") != std::string::npos;
  };
  std::vector<std::string> errors = ErrorsBesideStoppedRankFive(GetParam());
  // On a busy machine another rank may get no core for as long as an answer is
  // waited for, and is as silent then.
  for (int job = 1; job < kJobs && !std::ranges::all_of(errors, names_it);
       ++job) {
    errors = ErrorsBesideStoppedRankFive(GetParam());
  }
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("timeout"), std::string::npos) << error;
    EXPECT_TRUE(names_it(error)) << error;
    // From when it stopped, whatever its device has answered since: it is
    // asked every 500 ms.
    EXPECT_GT(SecondsAfter("others have waited for it for ", error), 0.8)
        << error;
  }
}

TEST_P(ExpiredCallTest, NamesTheRankThatDestroysItsCommunicator) {
  std::vector<RankProcess> ranks =
      StartRanks(GetParam(), "destroy early", 3, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[0].Go();
  ranks[2].Go();
  const std::string error = ranks[0].ReadLine(kStartTime);
  // Or it gave up waiting meanwhile, where this test got no core.
  EXPECT_TRUE(error.find("; rank 1 has been destroying its communicator") !=
                  std::string::npos ||
              error.ends_with("has destroyed its communicator"))
      << error;
}

class StoppedPeerTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, StoppedPeerTest, kWays, NameOfWay);

TEST_P(StoppedPeerTest, IsWaitedForLongerThanTheDeviceRepeatsARequest) {
  // 3 times 1.07 s (verbs/queue_pair.h): an HCA answers for a stopped process.
  constexpr milliseconds kStopped(4500);
  std::vector<RankProcess> ranks = StartRanks(GetParam(), "loop", 3, NewJob());
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
  return RunRoleOrTests(
      argc, argv,
      {{"loop", &LoopForever<0>},
       {"loop in 4 s", &LoopForever<4000>},
       {"destroy early", &DestroyEarly},
       {"fork and loop", &ForkAndLoop},
       {"fork and destroy in the child", &ForkAndDestroyInTheChild},
       {"leave", &RunAndLeave},
       {"exit", &ExitWithoutDestroying}});
}
