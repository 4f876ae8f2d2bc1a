#include "bootstrap/bootstrap.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/liveness_bound.h"
#include "bootstrap/message.h"
#include "bootstrap/raw_peer.h"
#include "bootstrap/session.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Longer than anything takes, shorter than the test may.
Deadline Soon() { return Deadline::After(seconds(20)); }

// For ranks that are there to do their part before a deadline that is to expire
// because of one that is not, also on a busy machine.
constexpr milliseconds kTimeToConnect(1000);

std::string UniqueName() {
  static std::atomic<int> count{0};
  return "ringpipe-test-" + std::to_string(getpid()) + "-" +
         std::to_string(++count);
}

Bootstrap::Options MakeOptions(const std::string& root, int rank, int size) {
  Bootstrap::Options options;
  options.launch = {rank, size, root, "job", "test"};
  options.deadline = Soon();
  options.logger = Logger(LogLevel::kError);
  return options;
}

using Joined = Result<std::unique_ptr<Bootstrap>>;

// Joins with all ranks at once, each on a thread of its own.
std::vector<Joined> JoinAll(const std::vector<Bootstrap::Options>& all) {
  std::vector<std::future<Joined>> joining;
  for (const Bootstrap::Options& options : all) {
    joining.push_back(std::async(
        std::launch::async, [options] { return Bootstrap::Join(options); }));
  }
  std::vector<Joined> joined;
  for (auto& future : joining) {
    joined.push_back(future.get());
  }
  return joined;
}

std::vector<Bootstrap::Options> MakeJob(int size) {
  const std::string root = "unix:@" + UniqueName();
  std::vector<Bootstrap::Options> all;
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(MakeOptions(root, rank, size));
  }
  return all;
}

// Calls `f` for all ranks at once.
void OnAll(std::vector<Joined>* ranks,
           const std::function<void(Bootstrap*)>& f) {
  std::vector<std::thread> threads;
  for (Joined& rank : *ranks) {
    ASSERT_TRUE(rank.ok()) << rank.status().ToString();
    threads.emplace_back([&f, &rank] { f(rank.value().get()); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void ExpectSays(const Status& status, StatusCode code,
                const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "no \"" << word << "\" in: " << status.ToString();
  }
}

// What a rank's failure callback was told.
class FailureRecord {
 public:
  std::function<void(const Status&)> callback() {
    return [this](const Status& reason) {
      if (++calls_ == 1) {
        first_.set_value(reason);
      }
    };
  }
  // Within `limit`, or ok.
  Status Wait(milliseconds limit) {
    return future_.wait_for(limit) == std::future_status::ready ? future_.get()
                                                                : Status();
  }
  int calls() const { return calls_; }

 private:
  std::atomic<int> calls_{0};
  std::promise<Status> first_;
  std::shared_future<Status> future_ = first_.get_future().share();
};

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
  const int threads = CountEntries("/proc/self/task");
  {
    std::vector<Joined> ranks = JoinAll(MakeJob(5));
    (void)ranks[3].value()->Abort({StatusCode::kAborted, "enough"});
  }
  EXPECT_EQ(CountEntries("/proc/self/fd"), descriptors);
  // The kernel may list a joined thread for a moment.
  const Deadline deadline = Deadline::After(seconds(5));
  while (CountEntries("/proc/self/task") > threads && !deadline.expired()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(CountEntries("/proc/self/task"), threads);
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
  ExpectSays(Bootstrap::Join(options).status(), StatusCode::kTimeout,
             {"rank 0 is missing", "refused", options.launch.root});
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

TEST(BootstrapTest, AnotherVersionEndsEveryRanksJoin) {
  const std::string name = UniqueName();
  auto joining = std::async(std::launch::async, [&] {
    return JoinAll({MakeOptions("unix:@" + name, 0, 3),
                    MakeOptions("unix:@" + name, 1, 3)});
  });
  RawPeer newer(name);
  ASSERT_TRUE(newer.Authenticate({"", "bootstrap", "job", 2}));
  const Result<Message> told = newer.Receive();
  ASSERT_TRUE(told.ok());
  ExpectSays(std::get<AbortNotice>(told.value()).reason, StatusCode::kMismatch,
             {"version 2", "version 1"});
  for (const Joined& rank : joining.get()) {
    ExpectSays(rank.status(), StatusCode::kMismatch, {"version 2"});
  }
}

TEST(BootstrapTest, AddressInUseIsAnErrorAtOnceThatNamesIt) {
  TakenPort port;
  const auto start = Clock::now();
  ExpectSays(Bootstrap::Join(MakeOptions(port.address(), 0, 2)).status(),
             StatusCode::kUnavailable,
             {port.address(), "EADDRINUSE", "RINGPIPE_ROOT"});
  EXPECT_LT(Clock::now() - start, LivenessBound(seconds(1)));

  const std::vector<Bootstrap::Options> job = MakeJob(2);
  std::vector<Joined> ranks = JoinAll(job);
  // The listener is gone once all have joined; while they wait it is not.
  const std::string name = UniqueName();
  Bootstrap::Options waiting = MakeOptions("unix:@" + name, 0, 2);
  auto first =
      std::async(std::launch::async, [&] { return Bootstrap::Join(waiting); });
  RawPeer connected(name);  // so it listens
  ExpectSays(Bootstrap::Join(waiting).status(), StatusCode::kUnavailable,
             {"unix:@" + name, "EADDRINUSE"});
  Joined member = Bootstrap::Join(MakeOptions("unix:@" + name, 1, 2));
  EXPECT_TRUE(member.ok());
  EXPECT_TRUE(first.get().ok());
}

TEST(BootstrapTest, OtherHostsNeedASecret) {
  for (const int rank : {0, 1}) {
    ExpectSays(Bootstrap::Join(MakeOptions("192.0.2.1:2000", rank, 2)).status(),
               StatusCode::kInvalidArgument,
               {"192.0.2.1:2000", "RINGPIPE_SECRET"});
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

// --- Strangers ---------------------------------------------------------------

// A job of two whose rank 1 comes only after `attack`.
void ExpectJoinsDespite(const std::function<void(const std::string&)>& attack,
                        int refused) {
  const std::string name = UniqueName();
  auto root = std::async(std::launch::async, [&] {
    return Bootstrap::Join(MakeOptions("unix:@" + name, 0, 2));
  });
  attack(name);
  Joined member = Bootstrap::Join(MakeOptions("unix:@" + name, 1, 2));
  Joined zero = root.get();
  ASSERT_TRUE(member.ok()) << member.status().ToString();
  ASSERT_TRUE(zero.ok()) << zero.status().ToString();
  EXPECT_EQ(zero.value()->refused_connections(), refused);
}

TEST(BootstrapTest, GarbageIsClosedAndCounted) {
  ExpectJoinsDespite(
      [](const std::string& name) {
        for (const std::string& garbage :
             {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, '\xff'),
              EncodeFrame("hello"), EncodeFrame(""),
              std::string("\0\0\0\1", 4)}) {
          RawPeer stranger(name);
          stranger.SendBytes(garbage);
          EXPECT_TRUE(stranger.WaitForClose());
        }
      },
      5);
}

TEST(BootstrapTest, OversizedFrameIsClosedByItsHeader) {
  ExpectJoinsDespite(
      [](const std::string& name) {
        RawPeer stranger(name);
        const FrameHeader header =
            MakeFrameHeader(Handshake::kMostMessageBytes + 1);
        stranger.SendBytes({header.data(), header.size()});
        EXPECT_TRUE(stranger.WaitForClose());
      },
      1);
}

TEST(BootstrapTest, SilentStrangerIsClosedInTime) {
  ExpectJoinsDespite(
      [](const std::string& name) {
        RawPeer stranger(name);
        // After 5 s; it waits for 20 s.
        EXPECT_TRUE(stranger.WaitForClose());
      },
      1);
}

TEST(BootstrapTest, FloodOfSilentStrangersDelaysNobodyForLong) {
  std::vector<RawPeer> strangers;
  const auto start = Clock::now();
  ExpectJoinsDespite(
      [&](const std::string& name) {
        for (int i = 0; i < 200; ++i) {
          strangers.emplace_back(name);
        }
      },
      200);
  // Less than the 5 s, three times, for which 200 may stay silent at 64 places.
  EXPECT_LT(Clock::now() - start, seconds(12));
}

TEST(BootstrapTest, AuthenticatedStrangerThatNeverJoinsIsClosed) {
  ExpectJoinsDespite(
      [](const std::string& name) {
        RawPeer stranger(name);
        EXPECT_TRUE(stranger.Authenticate({"", "bootstrap", "job", 1}));
        stranger.Send(Departure{1});
        EXPECT_TRUE(stranger.WaitForClose());
      },
      1);
}

TEST(BootstrapTest, RankThatBreaksTheProtocolIsCutOffByName) {
  const std::string name = UniqueName();
  FailureRecord record;
  Bootstrap::Options options = MakeOptions("unix:@" + name, 0, 2);
  options.on_failure = record.callback();
  auto joining =
      std::async(std::launch::async, [&] { return Bootstrap::Join(options); });
  RawPeer rank(name);
  ASSERT_TRUE(rank.Authenticate({"", "bootstrap", "job", 1}));
  rank.Send(JoinRequest{1, 2, -1, {7, "x"}});
  const Joined root = joining.get();
  ASSERT_TRUE(root.ok());
  rank.SendBytes(EncodeFrame(std::string(100, 'x')));  // no valid MAC
  ExpectSays(record.Wait(LivenessBound(seconds(5))), StatusCode::kPeerLost,
             {"rank 1 (pid 7 on host x)", "wrong MAC"});
}

// --- Liveness ----------------------------------------------------------------

TEST(BootstrapTest, AbortReachesEveryRankWithTheFirstReason) {
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

TEST(BootstrapTest, ConcurrentAbortsAreToldOnceOnEveryRank) {
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

TEST(BootstrapTest, KilledRankIsNamedToTheOthersWithinASecond) {
  std::vector<Bootstrap::Options> all = MakeJob(3);
  FailureRecord records[2];
  for (const int rank : {0, 1}) {
    all[rank].on_failure = records[rank].callback();
  }
  const RankProcess process(all[2].launch);
  std::vector<Joined> ranks = JoinAll({all[0], all[1]});
  OnAll(&ranks, [](Bootstrap* rank) {
    ASSERT_TRUE(rank->AllGather(std::to_string(rank->rank()), Soon()).ok());
  });
  process.Kill();
  for (FailureRecord& record : records) {
    ExpectSays(
        record.Wait(LivenessBound(seconds(1))), StatusCode::kPeerLost,
        {"rank 2 (pid " + std::to_string(process.pid()) + " on host ", "died"});
  }
}

TEST(BootstrapTest, KilledRankZeroIsNamedToTheOthersWithinASecond) {
  std::vector<Bootstrap::Options> all = MakeJob(3);
  FailureRecord records[2];
  for (const int rank : {1, 2}) {
    all[rank].on_failure = records[rank - 1].callback();
  }
  const RankProcess process(all[0].launch);
  std::vector<Joined> ranks = JoinAll({all[1], all[2]});
  OnAll(&ranks, [](Bootstrap* rank) {
    ASSERT_TRUE(rank->AllGather(std::to_string(rank->rank()), Soon()).ok());
  });
  process.Kill();
  for (FailureRecord& record : records) {
    ExpectSays(
        record.Wait(LivenessBound(seconds(1))), StatusCode::kPeerLost,
        {"rank 0 (pid " + std::to_string(process.pid()) + " on host ", "died"});
  }
}

TEST(BootstrapTest, RankKilledWhileOthersStillJoinEndsTheirJoin) {
  const std::string name = UniqueName();
  auto joining = std::async(std::launch::async, [&] {
    return Bootstrap::Join(MakeOptions("unix:@" + name, 0, 4));
  });
  RawPeer waiting(name);
  ASSERT_TRUE(waiting.Authenticate({"", "bootstrap", "job", 1}));
  waiting.Send(JoinRequest{1, 4, -1, {6, "x"}});
  {
    RawPeer killed(name);
    ASSERT_TRUE(killed.Authenticate({"", "bootstrap", "job", 1}));
    killed.Send(JoinRequest{2, 4, -1, {7, "x"}});
  }
  const Result<Message> told = waiting.Receive();
  ASSERT_TRUE(told.ok());
  ExpectSays(std::get<AbortNotice>(told.value()).reason, StatusCode::kPeerLost,
             {"rank 2 (pid 7 on host x) died"});
  // Late, and told all the same.
  ExpectSays(Bootstrap::Join(MakeOptions("unix:@" + name, 3, 4)).status(),
             StatusCode::kPeerLost, {"rank 2 (pid 7 on host x) died"});
  EXPECT_EQ(joining.get().status().code(), StatusCode::kPeerLost);
}

TEST(BootstrapTest, StoppedRankIsMissedButNotLost) {
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

TEST(BootstrapTest, CallsThatDoNotMatchAreAnErrorEverywhere) {
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

TEST(BootstrapTest, LeavingInOrderIsNoFailure) {
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

TEST(BootstrapTest, RankZeroMayLeaveFirst) {
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

TEST(BootstrapTest, AbortJustBeforeLeavingStillReachesTheOthers) {
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
