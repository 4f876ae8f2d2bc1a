// A rank that dies, stops or leaves: the others end in time with an error that
// names it, their memory is safe, and nothing is left behind.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kStartTime(60);  // generous: sanitizers, a busy machine
constexpr seconds kLiveness(2);

// --- What a process holds
// ------------------------------------------------------

std::size_t CountEntries(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return std::distance(begin(entries), end(entries));
}

struct Holdings {
  // A sanitizer starts a thread of its own at the first one of the process.
  bool warm = (std::thread([] {}).join(), true);
  std::size_t threads = CountEntries("/proc/self/task");
  std::size_t descriptors = CountEntries("/proc/self/fd");

  bool operator==(const Holdings&) const = default;
  std::string ToString() const {
    return std::to_string(threads) + " threads, " +
           std::to_string(descriptors) + " descriptors";
  }
};

// Segments and sockets of the software device and the bootstrap.
std::vector<std::string> LeftOnTheMachine(const std::string& job) {
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().string().find("ringpipe") != std::string::npos) {
      left.push_back(entry.path());
    }
  }
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (line.find(job) != std::string::npos) {
      left.push_back(line);
    }
  }
  return left;
}

// --- Roles
// -----------------------------------------------------------------------

// Allreduces until the first error, which it prints, with what the process
// holds before and after.
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
      status = (*communicator)
                   ->AllReduce(send.data(), receive.data(), send.size(),
                               DataType::kFloat32, ReduceOp::kSum);
      if (call == 3) {
        Print("running");
      }
    }
    Print(status.ToString());
  }
  const Holdings after;
  Print(before == after
            ? "clean"
            : "left: " + after.ToString() + ", before: " + before.ToString());
  return 3;
}

// Allreduces a few times and leaves in order.
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
  }
  const Holdings after;
  Print(before == after
            ? "clean"
            : "left: " + after.ToString() + ", before: " + before.ToString());
  return 0;
}

// Allreduces until the test stops rank 1; then rank 0's call expires, rank 0
// overwrites its buffers, the test lets rank 1 go on, and rank 0 looks at them.
int OverwriteAfterTimeout() {
  auto options = CommunicatorOptions::FromProcess();
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok()) {
    Print("create: " + communicator.status().ToString());
    return 1;
  }
  std::vector<float> send(4 << 20, 1.0F);
  std::vector<float> receive(4 << 20);
  const bool first = (*communicator)->rank() == 0;
  Status status;
  for (int call = 0; status.ok(); ++call) {
    status = (*communicator)
                 ->AllReduce(send.data(), receive.data(), send.size(),
                             DataType::kFloat32, ReduceOp::kSum,
                             first ? milliseconds(1500) : seconds(60));
    if (call == 3) {
      Print("running");
    }
  }
  std::fill(send.begin(), send.end(), -7.0F);
  std::fill(receive.begin(), receive.end(), -9.0F);
  Print(status.ToString());
  AwaitGo();  // rank 1 has gone on, and ended
  const auto changed = [](const std::vector<float>& values, float value) {
    return std::any_of(values.begin(), values.end(),
                       [value](float v) { return v != value; });
  };
  Print(changed(send, -7.0F) || changed(receive, -9.0F) ? "changed"
                                                        : "unchanged");
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

// --- Tests
// -----------------------------------------------------------------------

std::vector<RankProcess> Start(const std::string& role, int size,
                               const std::string& job) {
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back(role, rank, size, job);
  }
  return ranks;
}

class KilledRankTest : public ::testing::TestWithParam<int> {};

TEST_P(KilledRankTest, EndsTheOthersInTwoSecondsNamedAndLeavesNothing) {
  constexpr int kSize = 4;
  const int victim = GetParam();
  const std::string job = NewJob();
  std::vector<RankProcess> ranks = Start("loop", kSize, job);
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
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
  EXPECT_EQ(LeftOnTheMachine(job), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRankTest, ::testing::Values(0, 2));

TEST(LeavingTest, InOrderLeavesNoThreadDescriptorOrSegment) {
  const std::string job = NewJob();
  std::vector<RankProcess> ranks = Start("leave", 3, job);
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.ReadLine(kStartTime), "clean");
    EXPECT_EQ(rank.Wait(kStartTime), 0);
  }
  EXPECT_EQ(LeftOnTheMachine(job), std::vector<std::string>());
}

TEST(LeavingTest, WithoutDestroyingIsTheLossOfTheRankToWhoWaits) {
  std::vector<RankProcess> ranks = Start("exit", 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[1].Go();
  const std::string error = ranks[0].ReadLine(kLiveness);
  EXPECT_NE(error.find("peer lost"), std::string::npos) << error;
  EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
}

TEST(StoppedRankTest, CannotWriteIntoBuffersAfterTheCallHasExpired) {
  std::vector<RankProcess> ranks = Start("overwrite", 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[1].Signal(SIGSTOP);
  const std::string error = ranks[0].ReadLine(kStartTime);
  EXPECT_NE(error.find("timeout"), std::string::npos) << error;
  EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
  ranks[1].Signal(SIGCONT);
  // Its own call ends with rank 0's reason.
  const std::string reason = ranks[1].ReadLine(kStartTime);
  EXPECT_NE(reason.find("timeout"), std::string::npos) << reason;
  ranks[0].Go();
  EXPECT_EQ(ranks[0].ReadLine(kStartTime), "unchanged");
}

TEST(StoppedRankTest, IsWaitedForLongerThanTheDeviceRepeatsARequest) {
  // 3 times 1.07 s (verbs/queue_pair.h): an HCA answers for a stopped process.
  constexpr milliseconds kStopped(4500);
  std::vector<RankProcess> ranks = Start("loop", 3, NewJob());
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
                        {{"loop", &LoopForever},
                         {"leave", &RunAndLeave},
                         {"overwrite", &OverwriteAfterTimeout},
                         {"exit", &ExitWithoutDestroying}});
}
