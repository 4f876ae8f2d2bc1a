// Ranks that abort, die, stop, or leave: what the others hear, and when.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/liveness_bound.h"
#include "bootstrap/message.h"
#include "bootstrap/raw_peer.h"
#include "bootstrap/session.h"
#include "bootstrap/test_job.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A rank as a process of its own, which stays until it is killed.
class RankProcess {
 public:
  explicit RankProcess(const Launch& launch) {
    std::vector<std::string> environment = {
        "RINGPIPE_RANK=" + std::to_string(launch.rank),
        "RINGPIPE_SIZE=" + std::to_string(launch.size),
        "RINGPIPE_ROOT=" + launch.root, "RINGPIPE_JOB_ID=" + launch.job_id};
    std::vector<char*> environ_pointers;
    for (std::string& entry : environment) {
      environ_pointers.push_back(entry.data());
    }
    environ_pointers.push_back(nullptr);
    std::string program = std::getenv("JOIN_ONCE");
    std::string stay = "stay";
    char* arguments[] = {program.data(), stay.data(), nullptr};
    // Its standard input never ends while this test runs.
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments,
                          environ_pointers.data()),
              0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[0]);
    input_ = ends[1];
  }
  ~RankProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(input_);
  }
  void Kill() const { kill(pid_, SIGKILL); }
  void Stop() const {
    kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
};

// --- Liveness ----------------------------------------------------------------

TEST(LivenessTest, AbortReachesEveryRankWithTheFirstReason) {
  constexpr int kSize = 4;
  std::vector<Bootstrap::Options> all = MakeJob(kSize);
  std::vector<FailureRecord> records(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    all[rank].on_failure = records[rank].callback();
  }
  {
    std::vector<Joined> ranks = JoinAll(all);
    auto waiting = std::async(std::launch::async, [&] {
      return ranks[1].value()->Barrier(Deadline::Infinite());
    });
    ExpectSays(ranks[2].value()->Abort({StatusCode::kDeviceError, "broken"}),
               StatusCode::kDeviceError, {"broken"});
    ExpectSays(ranks[2].value()->Abort({StatusCode::kAborted, "later"}),
               StatusCode::kDeviceError, {"broken"});
    for (int rank = 0; rank < kSize; ++rank) {
      ExpectSays(records[rank].Wait(LivenessBound(seconds(2))),
                 StatusCode::kDeviceError, {"broken"});
      ExpectSays(ranks[rank].value()->failure(), StatusCode::kDeviceError,
                 {"broken"});
      ExpectSays(ranks[rank].value()->AllGather("", Soon()).status(),
                 StatusCode::kDeviceError, {"broken"});
    }
    ExpectSays(waiting.get(), StatusCode::kDeviceError, {"broken"});
  }
  for (const FailureRecord& record : records) {
    EXPECT_EQ(record.calls(), 1);
  }
}

TEST(LivenessTest, ConcurrentAbortsAreToldOnceOnEveryRank) {
  constexpr int kSize = 3;
  std::vector<Bootstrap::Options> all = MakeJob(kSize);
  std::vector<FailureRecord> records(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    all[rank].on_failure = records[rank].callback();
  }
  {
    std::vector<Joined> ranks = JoinAll(all);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4 * kSize; ++i) {
      threads.emplace_back([&ranks, i] {
        Bootstrap* const rank = ranks[i % kSize].value().get();
        const Status won =
            rank->Abort({StatusCode::kAborted, "by " + std::to_string(i)});
        EXPECT_EQ(won.message(), rank->failure().message());
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (FailureRecord& record : records) {
      EXPECT_EQ(record.Wait(LivenessBound(seconds(2))).code(),
                StatusCode::kAborted);
    }
  }
  for (const FailureRecord& record : records) {
    EXPECT_EQ(record.calls(), 1);
  }
}

class KilledRankTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRankTest, testing::Values(0, 2));

TEST_P(KilledRankTest, IsNamedToTheOthersWithinASecond) {
  std::vector<Bootstrap::Options> all = MakeJob(3);
  const RankProcess process(all[GetParam()].launch);
  all.erase(all.begin() + GetParam());
  FailureRecord records[2];
  for (const int i : {0, 1}) {
    all[i].on_failure = records[i].callback();
  }
  std::vector<Joined> ranks = JoinAll(all);
  OnAll(&ranks, [](Bootstrap* rank) {
    ASSERT_TRUE(rank->AllGather(std::to_string(rank->rank()), Soon()).ok());
  });
  process.Kill();
  for (FailureRecord& record : records) {
    ExpectSays(record.Wait(LivenessBound(seconds(1))), StatusCode::kPeerLost,
               {"rank " + std::to_string(GetParam()) + " (pid " +
                    std::to_string(process.pid()) + " on host ",
                "has ended"});
  }
}

TEST(LivenessTest, RankKilledWhileOthersStillJoinEndsTheirJoin) {
  const std::string name = UniqueName();
  auto joining = std::async(std::launch::async, [&] {
    return Bootstrap::Join(MakeOptions("unix:@" + name, 0, 4));
  });
  RawPeer waiting(name);
  ASSERT_TRUE(
      waiting.Authenticate({"", "bootstrap", "job", kBootstrapVersion}));
  waiting.Send(JoinRequest{1, 4, -1, {6, "x"}});
  {
    RawPeer killed(name);
    ASSERT_TRUE(
        killed.Authenticate({"", "bootstrap", "job", kBootstrapVersion}));
    killed.Send(JoinRequest{2, 4, -1, {7, "x"}});
  }
  const Result<Message> told = waiting.Receive();
  ASSERT_TRUE(told.ok());
  ExpectSays(std::get<AbortNotice>(told.value()).reason, StatusCode::kPeerLost,
             {"rank 2 (pid 7 on host x) has ended"});
  // Late, and told all the same.
  ExpectSays(Bootstrap::Join(MakeOptions("unix:@" + name, 3, 4)).status(),
             StatusCode::kPeerLost, {"rank 2 (pid 7 on host x) has ended"});
  EXPECT_EQ(joining.get().status().code(), StatusCode::kPeerLost);
}

TEST(LivenessTest, StoppedRankIsMissedButNotLost) {
  std::vector<Bootstrap::Options> all = MakeJob(3);
  const RankProcess process(all[2].launch);
  std::vector<Joined> ranks = JoinAll({all[0], all[1]});
  OnAll(&ranks, [](Bootstrap* rank) {
    ASSERT_TRUE(rank->AllGather(std::to_string(rank->rank()), Soon()).ok());
    ASSERT_TRUE(rank->Barrier(Soon()).ok());
  });
  process.Stop();
  OnAll(&ranks, [](Bootstrap* rank) {
    ExpectSays(rank->Barrier(Deadline::After(kTimeToConnect)),
               StatusCode::kTimeout, {"rank(s) 2 of 3", "barrier"});
  });
}

TEST(LivenessTest, CallsThatDoNotMatchAreAnErrorEverywhere) {
  std::vector<Joined> ranks = JoinAll(MakeJob(3));
  OnAll(&ranks, [](Bootstrap* rank) {
    const Status status = rank->rank() == 1
                              ? rank->Barrier(Soon())
                              : rank->AllGather("", Soon()).status();
    ExpectSays(status, StatusCode::kMismatch,
               {"barrier", "all-gather", "same order"});
  });
}

// --- Leaving -----------------------------------------------------------------

TEST(LivenessTest, AnExitIsNoFailureAndReachesAllWithItsCalls) {
  constexpr int kSize = 4;
  for (const int exits : {0, 2}) {
    std::vector<Bootstrap::Options> all = MakeJob(kSize);
    std::vector<FailureRecord> records(kSize);
    std::vector<std::promise<uint64_t>> told(kSize);
    for (int rank = 0; rank < kSize; ++rank) {
      all[rank].on_failure = records[rank].callback();
      all[rank].on_exit = [&told, rank](const Status& reason, uint64_t calls) {
        EXPECT_EQ(reason.code(), StatusCode::kPeerLost);
        told[rank].set_value(calls);
      };
    }
    std::vector<Joined> ranks = JoinAll(all);
    ranks[exits].value()->Exit(7);
    ExpectSays(ranks[exits].value()->Barrier(Soon()), StatusCode::kPeerLost,
               {"left"});
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank != exits) {
        auto calls = told[rank].get_future();
        ASSERT_EQ(calls.wait_for(seconds(20)), std::future_status::ready);
        EXPECT_EQ(calls.get(), 7U);
      }
    }
    ranks[exits] = Status(StatusCode::kAborted, "gone");
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank != exits) {
        EXPECT_TRUE(ranks[rank].value()->failure().ok());
      }
    }
  }
}

TEST(LivenessTest, LeavingInOrderIsNoFailure) {
  constexpr int kSize = 3;
  std::vector<Bootstrap::Options> all = MakeJob(kSize);
  std::vector<FailureRecord> records(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    all[rank].on_failure = records[rank].callback();
  }
  std::vector<Joined> ranks = JoinAll(all);
  auto waiting = std::async(std::launch::async, [&] {
    return ranks[1].value()->Barrier(Deadline::Infinite());
  });
  ranks[2] = Status(StatusCode::kAborted, "gone");
  ExpectSays(waiting.get(), StatusCode::kPeerLost, {"rank(s) 2", "left"});
  EXPECT_EQ(ranks[1].value()->departed(), std::vector<int>{2});
  ExpectSays(ranks[0].value()->AllGather("", Soon()).status(),
             StatusCode::kPeerLost, {"rank(s) 2", "left"});
  EXPECT_TRUE(ranks[0].value()->failure().ok());
  EXPECT_TRUE(ranks[1].value()->failure().ok());
  ranks.clear();
  for (const FailureRecord& record : records) {
    EXPECT_EQ(record.calls(), 0);
  }
}

// The deadline was that of a rank whose gathering the exit ended: nobody waits
// for it any more.
TEST(LivenessTest, AnExitEndsTheDeadlineOfTheGatheringThatItEnds) {
  std::vector<Joined> ranks = JoinAll(MakeJob(3));
  auto leaving = std::async(std::launch::async, [&] {
    return ranks[1].value()->Barrier(Deadline::After(milliseconds(6000)));
  });
  std::this_thread::sleep_for(milliseconds(100));
  (void)ranks[1].value()->AskAll(Soon());  // so rank 0 has heard of that
  ranks[2].value()->Exit(7);
  ExpectSays(leaving.get(), StatusCode::kPeerLost, {"rank(s) 2", "left"});
  std::this_thread::sleep_for(milliseconds(6500));
  EXPECT_TRUE(ranks[0].value()->failure().ok())
      << ranks[0].value()->failure().ToString();
}

TEST(LivenessTest, ARankThatWaitsInVainToLeaveTogetherFailsNobody) {
  std::vector<Bootstrap::Options> all = MakeJob(3);
  std::promise<std::pair<std::string, uint64_t>> told;
  all[2].on_exit = [&told](const Status& reason, uint64_t calls) {
    told.set_value({reason.message(), calls});
  };
  std::vector<Joined> ranks = JoinAll(all);
  ExpectSays(ranks[1].value()->LeaveTogether(Deadline::After(milliseconds(50))),
             StatusCode::kTimeout, {"not all ranks leave"});
  ranks[1].value()->LeaveAlone(7);
  ranks[1] = Status(StatusCode::kAborted, "gone");
  const auto [reason, calls] = told.get_future().get();
  EXPECT_TRUE(reason.starts_with("rank 1 (") &&
              reason.ends_with("has destroyed its communicator"))
      << reason;
  EXPECT_EQ(calls, 7);
  // Those who come later wait for nobody.
  ExpectSays(ranks[0].value()->LeaveTogether(Soon()), StatusCode::kPeerLost,
             {"rank(s) 1", "left"});
  EXPECT_TRUE(ranks[0].value()->failure().ok());
  EXPECT_TRUE(ranks[2].value()->failure().ok());
}

TEST(LivenessTest, AGatheringThatAnExitHasEndedSetsNoDeadlineAfterwards) {
  std::vector<Bootstrap::Options> all = MakeJob(4);
  std::promise<void> inside;
  all[1].on_exit = [&inside](const Status&, uint64_t) {
    inside.set_value();
    std::this_thread::sleep_for(milliseconds(200));
  };
  std::vector<Joined> ranks = JoinAll(all);
  ranks[3].value()->Exit(7);  // no neighbour: rank 0 tells of it
  inside.get_future().wait();
  // What it has the bootstrap's thread do comes after the exit.
  ExpectSays(ranks[1].value()->Barrier(Deadline::After(milliseconds(500))),
             StatusCode::kPeerLost, {"rank(s) 3", "left"});
  std::this_thread::sleep_for(milliseconds(1000));
  EXPECT_TRUE(ranks[1].value()->failure().ok())
      << ranks[1].value()->failure().ToString();
}

TEST(LivenessTest, AnExitEndsTheGatheringOfAnotherThread) {
  std::vector<Joined> ranks = JoinAll(MakeJob(2));
  auto waiting = std::async(std::launch::async,
                            [&] { return ranks[1].value()->Barrier(Soon()); });
  std::this_thread::sleep_for(milliseconds(20));
  ranks[1].value()->Exit(1);
  ExpectSays(waiting.get(), StatusCode::kPeerLost, {"rank(s) 1", "left"});
}

// Where rank 0 gets no core while an asking is open, its end and the next
// asking come at the same time as the end of its patience.
TEST(LivenessTest, AnAskingIsNotEndedByThePatienceOfTheOneBefore) {
  bool waits = false;
  for (int round = 0; round < 5 && !waits; ++round) {  // on a busy machine
    const std::string name = UniqueName();
    std::atomic<bool> is_first = true;
    auto rank0 = std::async(std::launch::async, [&] {
      Bootstrap::Options options = MakeOptions("unix:@" + name, 0, 2);
      options.reply = [&is_first] {
        if (is_first.exchange(false)) {
          std::this_thread::sleep_for(milliseconds(400));
        }
        return std::string("here");
      };
      return Bootstrap::Join(options);
    });
    RawPeer peer(name);
    ASSERT_TRUE(peer.Authenticate({"", "bootstrap", "job", kBootstrapVersion}));
    peer.Send(JoinRequest{1, 2, -1, {6, "x"}});
    ASSERT_TRUE(peer.Receive().ok());  // who has joined
    const Joined own = rank0.get();
    peer.Send(Question{});
    std::this_thread::sleep_for(milliseconds(100));
    peer.Send(Reply{"first"});
    peer.Send(Question{});
    int questions = 0;
    std::vector<std::string> last;
    for (int replies = 0; replies < 2;) {
      const Result<Message> message = peer.Receive();
      ASSERT_TRUE(message.ok()) << message.status().ToString();
      if (std::holds_alternative<Question>(*message) && ++questions == 2) {
        peer.Send(Reply{"second"});
      }
      if (std::holds_alternative<Replies>(*message)) {
        last = std::get<Replies>(*message).texts;
        ++replies;
      }
    }
    waits = last == std::vector<std::string>{"here", "second"};
  }
  EXPECT_TRUE(waits);
}

TEST(LivenessTest, RankZeroMayLeaveFirst) {
  std::vector<Joined> ranks = JoinAll(MakeJob(3));
  auto waiting = std::async(std::launch::async, [&] {
    return ranks[1].value()->Barrier(Deadline::Infinite());
  });
  const auto start = Clock::now();
  ranks[0] = Status(StatusCode::kAborted, "gone");
  EXPECT_LT(Clock::now() - start, LivenessBound(milliseconds(900)));
  ExpectSays(waiting.get(), StatusCode::kPeerLost, {"rank(s) 0", "left"});
  ExpectSays(ranks[2].value()->Barrier(Soon()), StatusCode::kPeerLost,
             {"rank(s) 0", "left"});
  EXPECT_TRUE(ranks[1].value()->failure().ok());
  EXPECT_TRUE(ranks[2].value()->failure().ok());
}

// To one that reads as one far away does: 2 MiB take it two seconds. Whether it
// gets all, and then rank 0's last word.
bool SlowReaderGetsAll(bool rank0_exits) {
  const std::string name = UniqueName();
  auto rank0 = std::async(std::launch::async, [&] {
    Joined rank = Bootstrap::Join(MakeOptions("unix:@" + name, 0, 2));
    ASSERT_TRUE(
        rank.value()->AllGather(std::string(1 << 20, 'x'), Soon()).ok());
    if (rank0_exits) {
      rank.value()->Exit(1);
    }
  });
  RawPeer slow(name);
  EXPECT_TRUE(slow.Authenticate({"", "bootstrap", "job", kBootstrapVersion}));
  slow.Send(JoinRequest{1, 2, -1, {6, "x"}});
  EXPECT_TRUE(slow.Receive().ok());  // who has joined
  slow.set_pause(milliseconds(4));
  slow.Send(
      Contribution{1, Gathering::kAllGather, -1, std::string(1 << 20, 'y')});
  std::size_t blobs = 0;
  Result<Message> message = slow.Receive();
  while (message.ok() && std::holds_alternative<GatheredBlobs>(*message)) {
    blobs += std::get<GatheredBlobs>(*message).blobs.size();
    message = slow.Receive();
  }
  return blobs == 2 && message.ok() &&
         std::holds_alternative<Departure>(*message);
}

TEST(LivenessTest, ARankThatReadsSlowlyGetsAllBeforeRankZeroIsGone) {
  for (const bool exits : {false, true}) {
    bool gets_all = false;
    // On a busy machine it may read nothing for so long that rank 0 gives up.
    for (int round = 0; round < 5 && !gets_all; ++round) {
      gets_all = SlowReaderGetsAll(exits);
    }
    EXPECT_TRUE(gets_all);
  }
}

TEST(LivenessTest, AbortJustBeforeLeavingStillReachesTheOthers) {
  for (const int leaver : {0, 1}) {
    std::vector<Bootstrap::Options> all = MakeJob(3);
    FailureRecord record;
    all[2].on_failure = record.callback();
    std::vector<Joined> ranks = JoinAll(all);
    (void)ranks[leaver].value()->Abort({StatusCode::kDeviceError, "broken"});
    ranks[leaver] = Status(StatusCode::kAborted, "gone");
    ExpectSays(record.Wait(LivenessBound(seconds(2))), StatusCode::kDeviceError,
               {"broken"});
  }
}

}  // namespace
}  // namespace ringpipe
