#include "bootstrap/bootstrap.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/liveness_bound.h"
#include "base/thread_count.h"
#include "bootstrap/raw_peer.h"
#include "bootstrap/session.h"
#include "bootstrap/test_job.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

int CountEntries(const std::string& folder) {
  DIR* directory = opendir(folder.c_str());
  int count = 0;
  while (readdir(directory) != nullptr) {
    ++count;
  }
  closedir(directory);
  return count;
}

// A port of 127.0.0.1 that is taken while this lives.
class TakenPort {
 public:
  TakenPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes);
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { Release(); }
  void Release() {
    if (fd_ >= 0) {
      close(std::exchange(fd_, -1));
    }
  }
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int fd_;
  int port_ = 0;
};

// --- Joining and gathering ---------------------------------------------------

class JoinTest : public testing::TestWithParam<int> {};

TEST_P(JoinTest, GathersByRankAndMeetsAtBarriers) {
  const int size = GetParam();
  std::vector<Joined> ranks = JoinAll(MakeJob(size));
  std::atomic<int> arrived{0};
  OnAll(&ranks, [&](Bootstrap* rank) {
    for (int round = 0; round < 3; ++round) {
      const std::string own(rank->rank() * 100, static_cast<char>('a' + round));
      const auto blobs = rank->AllGather(own, Soon());
      ASSERT_TRUE(blobs.ok()) << blobs.status().ToString();
      ASSERT_EQ(blobs.value().size(), static_cast<size_t>(size));
      for (int peer = 0; peer < size; ++peer) {
        EXPECT_EQ(blobs.value()[peer],
                  std::string(peer * 100, static_cast<char>('a' + round)));
      }
    }
    ++arrived;
    EXPECT_TRUE(rank->Barrier(Soon()).ok());
    EXPECT_EQ(arrived, size);
    EXPECT_TRUE(rank->failure().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, JoinTest, testing::Values(1, 2, 5, 16));

TEST(BootstrapTest, LargestBlobsOverTcpWithASecret) {
  TakenPort port;
  std::vector<Bootstrap::Options> all = MakeJob(3);
  for (Bootstrap::Options& options : all) {
    options.launch.root = port.address();
    options.secret = "s";
  }
  port.Release();
  std::vector<Joined> ranks = JoinAll(all);
  OnAll(&ranks, [](Bootstrap* rank) {
    const std::string own(kMostBlobBytes,
                          static_cast<char>('0' + rank->rank()));
    const auto blobs = rank->AllGather(own, Soon());
    ASSERT_TRUE(blobs.ok()) << blobs.status().ToString();
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_TRUE(blobs.value()[peer] ==
                  std::string(kMostBlobBytes, static_cast<char>('0' + peer)));
    }
    ExpectSays(rank->AllGather(own + "x", Soon()).status(),
               StatusCode::kInvalidArgument, {"1 MiB"});
  });
}

TEST(BootstrapTest, RanksMayStartBeforeRankZeroListens) {
  const std::vector<Bootstrap::Options> all = MakeJob(2);
  auto early =
      std::async(std::launch::async, [&] { return Bootstrap::Join(all[1]); });
  // No state to wait for from outside: however this interleaves, it must work.
  std::this_thread::yield();
  Joined root = Bootstrap::Join(all[0]);
  Joined member = early.get();
  EXPECT_TRUE(root.ok());
  EXPECT_TRUE(member.ok());
}

TEST(BootstrapTest, NoThreadOrDescriptorIsLeft) {
  // Whatever is set up once in a process.
  JoinAll(MakeJob(2));
  const int descriptors = CountEntries("/proc/self/fd");
  const int threads = CountThreads();
  {
    std::vector<Joined> ranks = JoinAll(MakeJob(5));
    (void)ranks[3].value()->Abort({StatusCode::kAborted, "enough"});
  }
  EXPECT_EQ(CountEntries("/proc/self/fd"), descriptors);
  EXPECT_EQ(CountThreads(), threads);
}

TEST(BootstrapTest, TwoJobsAtOnceDoNotMeet) {
  std::vector<Bootstrap::Options> all = MakeJob(2);
  for (Bootstrap::Options& options : MakeJob(2)) {
    all.push_back(options);
  }
  std::vector<Joined> ranks = JoinAll(all);
  OnAll(&ranks, [&](Bootstrap* rank) {
    const bool second =
        rank == ranks[2].value().get() || rank == ranks[3].value().get();
    const std::string name = second ? "second" : "first";
    EXPECT_EQ(rank->AllGather(name, Soon()).value(),
              (std::vector<std::string>{name, name}));
  });
}

// --- Joins that fail ---------------------------------------------------------

TEST(BootstrapTest, MissingRanksAreListedToAllByTheFirstDeadline) {
  std::vector<Bootstrap::Options> all = MakeJob(5);
  all[0].deadline = Soon();
  all[3].deadline = Deadline::After(kTimeToConnect);
  const std::vector<Joined> ranks = JoinAll({all[0], all[3]});
  for (const Joined& rank : ranks) {
    ExpectSays(rank.status(), StatusCode::kTimeout,
               {"rank(s) 1, 2, 4 of 5", "no connection was refused",
                "RINGPIPE_SECRET"});
  }
}

TEST(BootstrapTest, MissingRankZeroIsNamed) {
  Bootstrap::Options options = MakeJob(2)[1];
  options.deadline = Deadline::After(kTimeToConnect);
  const Status status = Bootstrap::Join(options).status();
  ExpectSays(status, StatusCode::kTimeout,
             {"rank 0 is missing", "Connection refused", options.launch.root});
  EXPECT_EQ(status.message().find("no connection was refused"),
            std::string::npos)
      << status.message();
}

// A rank with other options than the rest: refused, counted, not harmful.
void ExpectRefusedRank(const std::function<void(Bootstrap::Options*)>& change,
                       const std::string& reason) {
  std::vector<Bootstrap::Options> all = MakeJob(2);
  all[0].secret = all[1].secret = "right";
  all[0].deadline = Deadline::After(kTimeToConnect + milliseconds(100));
  all[1].deadline = Deadline::After(kTimeToConnect);
  change(&all[1]);
  const std::vector<Joined> ranks = JoinAll(all);
  ExpectSays(ranks[0].status(), StatusCode::kTimeout,
             {"rank(s) 1 of 2", "refused", reason});
  ExpectSays(ranks[1].status(), StatusCode::kTimeout,
             {"RINGPIPE_SECRET", "RINGPIPE_JOB_ID"});
}

TEST(BootstrapTest, WrongSecretIsRefused) {
  ExpectRefusedRank([](Bootstrap::Options* rank) { rank->secret = "wrong"; },
                    "another secret");
}

TEST(BootstrapTest, WrongJobIdIsRefused) {
  ExpectRefusedRank(
      [](Bootstrap::Options* rank) { rank->launch.job_id = "another"; },
      "another job");
}

TEST(BootstrapTest, SizeMismatchEndsEveryRanksJoin) {
  std::vector<Bootstrap::Options> all = MakeJob(4);
  all[2].launch.size = 5;
  for (const Joined& rank : JoinAll(all)) {
    ExpectSays(rank.status(), StatusCode::kMismatch,
               {"rank 2", "5 ranks", "rank 0 says 4"});
  }
}

TEST(BootstrapTest, DuplicateRankEndsEveryRanksJoin) {
  std::vector<Bootstrap::Options> all = MakeJob(4);
  all[2].launch.rank = 3;
  for (const Joined& rank : JoinAll(all)) {
    ExpectSays(rank.status(), StatusCode::kMismatch,
               {"claim to be rank 3", "pid " + std::to_string(getpid())});
  }
}

TEST(BootstrapTest, ARankThatCannotTakePartTellsTheOthersWhy) {
  for (const int unable : {0, 2}) {
    std::vector<Bootstrap::Options> all = MakeJob(3);
    const std::string why = "rank " + std::to_string(unable) + ": no power";
    all[unable].obstacle = Status(StatusCode::kResourceExhausted, why);
    const auto start = Clock::now();
    for (const Joined& rank : JoinAll(all)) {
      ExpectSays(rank.status(), StatusCode::kResourceExhausted, {why});
    }
    EXPECT_LT(Clock::now() - start, LivenessBound(seconds(2)));
  }
}

TEST(BootstrapTest, ARankThatCannotTakePartDoesNotWaitLongForRankZero) {
  Bootstrap::Options options = MakeJob(2)[1];
  options.deadline = Deadline::Infinite();
  options.obstacle = Status(StatusCode::kResourceExhausted, "no power");
  const auto start = Clock::now();
  ExpectSays(Bootstrap::Join(options).status(), StatusCode::kResourceExhausted,
             {"no power"});
  EXPECT_LT(Clock::now() - start, LivenessBound(seconds(4)));
}

TEST(BootstrapTest, AnotherVersionEndsEveryRanksJoin) {
  const std::string name = UniqueName();
  auto joining = std::async(std::launch::async, [&] {
    return JoinAll({MakeOptions("unix:@" + name, 0, 3),
                    MakeOptions("unix:@" + name, 1, 3)});
  });
  const std::string newer_version =
      "version " + std::to_string(kBootstrapVersion + 1);
  RawPeer newer(name);
  ASSERT_TRUE(
      newer.Authenticate({"", "bootstrap", "job", kBootstrapVersion + 1}));
  const Result<Message> told = newer.Receive();
  ASSERT_TRUE(told.ok());
  ExpectSays(std::get<AbortNotice>(told.value()).reason, StatusCode::kMismatch,
             {newer_version, "version " + std::to_string(kBootstrapVersion)});
  for (const Joined& rank : joining.get()) {
    ExpectSays(rank.status(), StatusCode::kMismatch, {newer_version});
  }
}

TEST(BootstrapTest, AddressInUseIsAnErrorAtOnceThatNamesIt) {
  TakenPort port;
  Bootstrap::Options options = MakeOptions(port.address(), 0, 2);
  options.secret = "s";
  const auto start = Clock::now();
  // Who has it says nothing, for 1 s.
  ExpectSays(Bootstrap::Join(options).status(), StatusCode::kUnavailable,
             {port.address(), "EADDRINUSE", "RINGPIPE_ROOT"});
  EXPECT_LT(Clock::now() - start, LivenessBound(seconds(2)));

  const std::string name = UniqueName();
  const Bootstrap::Options waiting = MakeOptions("unix:@" + name, 0, 2);
  auto first =
      std::async(std::launch::async, [&] { return Bootstrap::Join(waiting); });
  RawPeer connected(name);  // so it listens
  Bootstrap::Options other_job = waiting;
  other_job.launch.job_id = "another";
  ExpectSays(Bootstrap::Join(other_job).status(), StatusCode::kUnavailable,
             {"unix:@" + name, "EADDRINUSE"});
  Joined member = Bootstrap::Join(MakeOptions("unix:@" + name, 1, 2));
  EXPECT_TRUE(member.ok());
  EXPECT_TRUE(first.get().ok());
}

// --- Two jobs at one address -------------------------------------------------

// What each rank is told about the job: "A" or "B" by which it belongs to.
Status GatherJobs(Joined& rank, const std::string& own,
                  std::vector<std::string>* jobs) {
  RINGPIPE_RETURN_IF_ERROR(rank.status());
  RINGPIPE_RETURN_IF_ERROR(rank.value()->Barrier(Soon()));
  RINGPIPE_ASSIGN_OR_RETURN(*jobs, rank.value()->AllGather(own, Soon()));
  return Status::Ok();
}

// Whichever ranks find each other first: by the time of the first barrier all
// have come, and so has a second one for some place.
TEST(TwoJobsTest, AtOneAddressNeverMix) {
  for (int round = 0; round < 10; ++round) {
    const std::string root = "unix:@" + UniqueName();
    std::latch all_came(6);
    std::vector<std::thread> ranks;
    for (int i = 0; i < 6; ++i) {
      ranks.emplace_back([&root, &all_came, i] {
        Bootstrap::Options options = MakeOptions(root, i % 3, 3);
        options.deadline = Deadline::After(seconds(2));
        const std::string own = i < 3 ? "A" : "B";
        Joined rank = Bootstrap::Join(options);
        all_came.arrive_and_wait();
        std::vector<std::string> jobs(3, own);
        (void)GatherJobs(rank, own, &jobs);
        EXPECT_EQ(jobs, std::vector<std::string>(3, own));
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
  }
}

TEST(TwoJobsTest, SecondRankZeroEndsBothJoins) {
  Joined second = Status(StatusCode::kAborted, "not yet there");
  Joined first = Status(StatusCode::kAborted, "not yet there");
  // Who is silent for a second, on a busy machine, could be anybody.
  for (int round = 0;
       round < 5 && second.status().code() != StatusCode::kMismatch; ++round) {
    const std::string name = UniqueName();
    const Bootstrap::Options options = MakeOptions("unix:@" + name, 0, 2);
    auto joining = std::async(std::launch::async,
                              [&] { return Bootstrap::Join(options); });
    RawPeer connected(name);  // so it listens
    second = Bootstrap::Join(options);
    first = joining.get();
  }
  for (const Joined* rank : {&second, &first}) {
    ExpectSays(rank->status(), StatusCode::kMismatch,
               {"two processes claim to be rank 0", "RINGPIPE_JOB_ID"});
  }
}

TEST(TwoJobsTest, ClaimOfATakenPlaceEndsTheJobUntilItsFirstBarrier) {
  const std::vector<Bootstrap::Options> all = MakeJob(2);
  std::vector<Joined> ranks = JoinAll(all);
  ExpectSays(Bootstrap::Join(all[1]).status(), StatusCode::kMismatch,
             {"two processes claim to be rank 1", "RINGPIPE_JOB_ID"});
  OnAll(&ranks, [](Bootstrap* rank) {
    ExpectSays(rank->Barrier(Soon()), StatusCode::kMismatch,
               {"two processes claim to be rank 1"});
  });
}

TEST(TwoJobsTest, NothingListensAfterTheFirstBarrier) {
  std::vector<Bootstrap::Options> all = MakeJob(2);
  std::vector<Joined> ranks = JoinAll(all);
  OnAll(&ranks,
        [](Bootstrap* rank) { EXPECT_TRUE(rank->Barrier(Soon()).ok()); });
  // As when the same processes make a second communicator.
  std::vector<Joined> again = JoinAll(all);
  for (std::vector<Joined>* job : {&ranks, &again}) {
    OnAll(job,
          [](Bootstrap* rank) { EXPECT_TRUE(rank->Barrier(Soon()).ok()); });
  }
}

TEST(JobKeyTest, IsTheSameInAJobAndDiffersBetweenJobs) {
  std::vector<Joined> ranks = JoinAll(MakeJob(3));
  const std::string key = ranks[0].value()->job_key();
  EXPECT_EQ(key.size(), 32U);
  OnAll(&ranks, [&](Bootstrap* rank) { EXPECT_EQ(rank->job_key(), key); });
  std::vector<Joined> others = JoinAll(MakeJob(3));
  EXPECT_NE(others[0].value()->job_key(), key);
}

TEST(BootstrapTest, TcpNeedsASecret) {
  for (const std::string root : {"192.0.2.1:2000", "127.0.0.1:2000"}) {
    for (const int rank : {0, 1}) {
      ExpectSays(Bootstrap::Join(MakeOptions(root, rank, 2)).status(),
                 StatusCode::kInvalidArgument,
                 {root, "RINGPIPE_SECRET", "unix:@NAME"});
    }
  }
}

TEST(BootstrapTest, BadLaunchesAndAddressesAreErrors) {
  for (const int rank : {0, 1}) {
    ExpectSays(Bootstrap::Join(MakeOptions("nonsense", rank, 2)).status(),
               StatusCode::kInvalidArgument, {"nonsense", "HOST:PORT"});
  }
  EXPECT_EQ(Bootstrap::Join(MakeOptions("unix:@x", 2, 2)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Bootstrap::Join(MakeOptions("unix:@x", 0, 0)).status().code(),
            StatusCode::kInvalidArgument);
  Bootstrap::Options long_id = MakeOptions("unix:@x", 0, 2);
  long_id.launch.job_id = std::string(300, 'j');
  ExpectSays(Bootstrap::Join(long_id).status(), StatusCode::kInvalidArgument,
             {"RINGPIPE_JOB_ID"});
}

// --- Launchers' variables ----------------------------------------------------

// Joins as four ranks with the variables that `of_rank` gives.
void ExpectFourJoin(
    const std::function<std::map<std::string, std::string>(int)>& of_rank) {
  std::vector<Bootstrap::Options> all;
  for (int rank = 0; rank < 4; ++rank) {
    const std::map<std::string, std::string> variables = of_rank(rank);
    const Result<Launch> launch = DetectLaunch(
        Environment(),
        [&](std::string_view name) -> std::optional<std::string> {
          const auto found = variables.find(std::string(name));
          return found == variables.end() ? std::nullopt
                                          : std::optional(found->second);
        });
    ASSERT_TRUE(launch.ok()) << launch.status().ToString();
    all.push_back(MakeOptions("", rank, 4));
    all.back().launch = launch.value();
    all.back().secret = "s";
  }
  std::vector<Joined> ranks = JoinAll(all);
  OnAll(&ranks,
        [](Bootstrap* rank) { EXPECT_TRUE(rank->Barrier(Soon()).ok()); });
}

TEST(BootstrapTest, TorchrunsVariablesWorkThoughTheAgentOwnsMasterPort) {
  const TakenPort agent;
  for (const std::string local_size : {"4", "2"}) {
    ExpectFourJoin([&](int rank) {
      return std::map<std::string, std::string>{
          {"RANK", std::to_string(rank)},
          {"WORLD_SIZE", "4"},
          {"LOCAL_WORLD_SIZE", local_size},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(agent.port())},
          {"TORCHELASTIC_RUN_ID", "none"},
      };
    });
  }
}

TEST(BootstrapTest, SlurmsVariablesWork) {
  for (const std::string list : {"gpu1", "localhost,gpu2"}) {
    ExpectFourJoin([&](int rank) {
      return std::map<std::string, std::string>{
          {"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_NTASKS", "4"},
          {"SLURM_JOB_ID", std::to_string(getpid())},
          {"SLURM_STEP_ID", "1"},
          {"SLURM_STEP_NODELIST", list},
      };
    });
  }
}

TEST(FormatRanksTest, NamesRunsOfRanks) {
  EXPECT_EQ(FormatRanks({3}), "3");
  EXPECT_EQ(FormatRanks({1, 2, 4, 5, 6, 9}), "1, 2, 4 to 6, 9");
}

}  // namespace
}  // namespace ringpipe
