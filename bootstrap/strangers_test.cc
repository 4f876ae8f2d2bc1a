// Who connects to the root and is no rank of the job: closed, counted, and a
// delay to nobody.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "auth/confined_process.h"
#include "auth/handshake.h"
#include "base/liveness_bound.h"
#include "base/log.h"
#include "base/peer_process.h"
#include "bootstrap/address.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/message.h"
#include "bootstrap/raw_peer.h"
#include "bootstrap/session.h"
#include "bootstrap/test_job.h"

namespace ringpipe {
namespace {

using std::chrono::seconds;

// Where a job meets, for those who are no rank of it.
struct Meeting {
  std::string root;
  Endpoint endpoint;
  std::string secret;

  Bootstrap::Options OptionsOf(int rank) const {
    Bootstrap::Options options = MakeOptions(root, rank, 2);
    options.secret = secret;
    return options;
  }
};

Meeting AtUnixSocket() {
  const std::string name = UniqueName();
  return {"unix:@" + name, UnixEndpoint(name), ""};
}

// At a port that was free a moment ago.
Meeting AtTcp() {
  using tcp = boost::asio::ip::tcp;
  const tcp::endpoint any(boost::asio::ip::make_address("127.0.0.1"), 0);
  const Endpoint free = OwnSide(OpenListening(any).value().get());
  tcp::endpoint found;
  std::memcpy(found.data(), free.data(), free.size());
  return {"127.0.0.1:" + std::to_string(found.port()), free, "of the job"};
}

// A job of two whose rank 1 comes only after `attack`.
void ExpectJoinsDespite(const Meeting& meeting,
                        const std::function<void(const Endpoint&)>& attack,
                        int refused) {
  auto root = std::async(std::launch::async,
                         [&] { return Bootstrap::Join(meeting.OptionsOf(0)); });
  attack(meeting.endpoint);
  Joined member = Bootstrap::Join(meeting.OptionsOf(1));
  Joined zero = root.get();
  ASSERT_TRUE(member.ok()) << member.status().ToString();
  ASSERT_TRUE(zero.ok()) << zero.status().ToString();
  auto passed = std::async(std::launch::async,
                           [&] { return member.value()->Barrier(Soon()); });
  EXPECT_TRUE(zero.value()->Barrier(Soon()).ok());
  EXPECT_TRUE(passed.get().ok());
  EXPECT_EQ(zero.value()->refused_connections(), refused);
}

void SendGarbage(const Endpoint& root) {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, '\xff'),
        EncodeFrame("hello"), EncodeFrame(""), std::string("\0\0\0\1", 4)}) {
    RawPeer stranger(root);
    stranger.SendBytes(garbage);
    EXPECT_TRUE(stranger.WaitForClose());
  }
}

TEST(StrangersTest, GarbageIsClosedAndCounted) {
  ExpectJoinsDespite(AtUnixSocket(), SendGarbage, 5);
  ExpectJoinsDespite(AtTcp(), SendGarbage, 5);
}

TEST(StrangersTest, WhoDoesNotKnowTheSecretDoesNotGetIn) {
  ExpectJoinsDespite(
      AtTcp(),
      [](const Endpoint& root) {
        for (const char* secret : {"", "of another job"}) {
          EXPECT_FALSE(RawPeer(root).Authenticate(
              {secret, "bootstrap", "job", kBootstrapVersion}));
        }
      },
      2);
}

// What they send must not decide how much rank 0 keeps and says of them.
TEST(StrangersTest, GarbageOfManyKindsIsSaidInShort) {
  constexpr uint32_t kStrangers = 100;
  const std::string name = UniqueName();
  Bootstrap::Options options = MakeOptions("unix:@" + name, 0, 2);
  options.deadline = Deadline::After(LivenessBound(seconds(1)));
  auto root =
      std::async(std::launch::async, [&] { return Bootstrap::Join(options); });
  for (uint32_t i = 0; i < kStrangers; ++i) {
    RawPeer stranger(name);
    const FrameHeader header =
        MakeFrameHeader(Handshake::kMostMessageBytes + 1 + i);
    stranger.SendBytes({header.data(), header.size()});
    EXPECT_TRUE(stranger.WaitForClose());
  }
  RawPeer(name).SendBytes(EncodeFrame("hello"));
  RawPeer(name).SendBytes(std::string("\0\0", 2));
  EXPECT_FALSE(RawPeer(name).Authenticate(
      {"", "bootstrap", "another job", kBootstrapVersion}));
  EXPECT_FALSE(RawPeer(name).Authenticate(
      {"", "something else", "job", kBootstrapVersion}));
  EXPECT_FALSE(RawPeer(name).Authenticate(
      {"secret", "bootstrap", "job", kBootstrapVersion}));
  {
    RawPeer stranger(name);
    EXPECT_TRUE(
        stranger.Authenticate({"", "bootstrap", "job", kBootstrapVersion}));
    stranger.Send(Departure{1});
    EXPECT_TRUE(stranger.WaitForClose());
  }
  const std::string said = root.get().status().message();
  EXPECT_NE(said.find("refused 106 connection(s)"), std::string::npos) << said;
  EXPECT_NE(said.find(": other reasons)"), std::string::npos) << said;
  EXPECT_LT(said.size(), 1500U);
}

// Which rank 1 is told, and strangers can see.
TEST(StrangersTest, AnotherUserIsRefusedInTheNeighboursPlaceToo) {
  constexpr size_t kNameBytes = 108;
  using Name = std::array<char, kNameBytes>;
  PeerProcess stranger([](ValuePipe& pipe) {
    const Name name = pipe.Get<Name>();
    // Not another user, but to be refused like one.
    const pid_t child = ForkIntoUserNamespace();
    if (child == 0) {
      RawPeer peer(UnixEndpoint(name.data()));
      peer.SendBytes("GET / HTTP/1.1\r\n\r\n");
      _exit(peer.WaitForClose() ? 0 : 1);
    }
    pipe.Put(child > 0);
    int status = 1;
    waitpid(child, &status, 0);
    return status == 0;
  });
  const std::string root = UniqueName();
  std::vector<std::future<Joined>> joining;
  std::string logged;
  for (const int rank : {0, 2}) {
    Bootstrap::Options options = MakeOptions("unix:@" + root, rank, 3);
    if (rank == 2) {
      options.logger = Logger(
          LogLevel::kWarning,
          [&logged](LogLevel, std::string_view line) { logged += line; });
    }
    joining.push_back(std::async(
        std::launch::async, [options] { return Bootstrap::Join(options); }));
  }
  RawPeer first(root);
  ASSERT_TRUE(first.Authenticate({"", "bootstrap", "job", kBootstrapVersion}));
  first.Send(JoinRequest{1, 3, -1, {7, "x"}});
  const Result<Message> gathered = first.Receive();
  ASSERT_TRUE(gathered.ok()) << gathered.status().ToString();
  const Identity above =
      Identity::Decode(std::get<GatheredBlobs>(*gathered).blobs[2]).value();
  Name name = {};
  Address::Parse(above.contact).value().host.copy(name.data(), kNameBytes - 1);
  stranger.pipe().Put(name);
  if (!stranger.pipe().Get<bool>()) {
    return SkipWithoutUserNamespaces();
  }
  EXPECT_TRUE(stranger.Join());
  const Joined zero = joining[0].get();
  {
    const Joined second = joining[1].get();
    ASSERT_TRUE(second.ok()) << second.status().ToString();
    EXPECT_EQ(second.value()->refused_connections(), 1);
  }
  EXPECT_NE(logged.find("refused a connection at unix:@" + root +
                        ": a stranger came in the place of rank 1: it "),
            std::string::npos)
      << logged;
  EXPECT_NE(logged.find("RINGPIPE_SECRET"), std::string::npos) << logged;
}

// A rank that is not trusted comes again, until its deadline.
TEST(StrangersTest, ARefusalThatRepeatsIsLoggedOnce) {
  const std::string name = UniqueName();
  std::string logged;
  Bootstrap::Options options = MakeOptions("unix:@" + name, 0, 2);
  options.logger =
      Logger(LogLevel::kWarning, [&logged](LogLevel, std::string_view line) {
        logged += std::string(line) + "\n";
      });
  auto root =
      std::async(std::launch::async, [&] { return Bootstrap::Join(options); });
  for (int i = 0; i < 30; ++i) {
    RawPeer stranger(name);
    stranger.SendBytes(EncodeFrame("hello"));
    EXPECT_TRUE(stranger.WaitForClose());
  }
  const Joined member = Bootstrap::Join(MakeOptions("unix:@" + name, 1, 2));
  const Joined zero = root.get();
  ASSERT_TRUE(zero.ok()) << zero.status().ToString();
  EXPECT_EQ(zero.value()->refused_connections(), 30);
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 1) << logged;
}

TEST(StrangersTest, OversizedFrameIsClosedByItsHeader) {
  ExpectJoinsDespite(
      AtUnixSocket(),
      [](const Endpoint& root) {
        RawPeer stranger(root);
        const FrameHeader header =
            MakeFrameHeader(Handshake::kMostMessageBytes + 1);
        stranger.SendBytes({header.data(), header.size()});
        EXPECT_TRUE(stranger.WaitForClose());
      },
      1);
}

TEST(StrangersTest, SilentStrangerIsClosedInTime) {
  ExpectJoinsDespite(
      AtUnixSocket(),
      [](const Endpoint& root) {
        RawPeer stranger(root);
        // After 5 s; it waits for 20 s.
        EXPECT_TRUE(stranger.WaitForClose());
      },
      1);
}

// A process with so many silent connections to the endpoint, as soon as
// somebody listens there; until it is killed.
pid_t StartToFlood(const Endpoint& root, int connections) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<RawPeer> strangers;
    for (int i = 0; i < connections; ++i) {
      strangers.emplace_back(root);
    }
    pause();
  }
  return child;
}

int OpenDescriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& descriptor :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST(StrangersTest, FloodOfSilentStrangersTakesFewDescriptorsAndLittleTime) {
  constexpr int kDescriptors = 1024;
  constexpr int kPlaces = kDescriptors / 4;
  constexpr int kProcesses = 3;
  constexpr int kEach = 400;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit usual = {kDescriptors, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  const Meeting meeting = AtUnixSocket();
  std::vector<pid_t> floods;
  for (int i = 0; i < kProcesses; ++i) {
    floods.push_back(StartToFlood(meeting.endpoint, kEach));
    ASSERT_GT(floods.back(), 0);
  }
  const int before = OpenDescriptors();
  int most = 0;
  std::atomic<bool> joined = false;
  std::thread watcher([&] {
    while (!joined) {
      most = std::max(most, OpenDescriptors());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const auto start = Clock::now();
  auto root = std::async(std::launch::async,
                         [&] { return Bootstrap::Join(meeting.OptionsOf(0)); });
  // There are as many as there is room for, and more that wait for it.
  while (OpenDescriptors() < before + kPlaces &&
         Clock::now() - start < LivenessBound(seconds(2))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Joined member = Bootstrap::Join(meeting.OptionsOf(1));
  EXPECT_TRUE(member.ok()) << member.status().ToString();
  EXPECT_TRUE(root.get().ok());
  EXPECT_LT(Clock::now() - start, LivenessBound(seconds(3)));
  joined = true;
  watcher.join();
  EXPECT_GE(most, before + kPlaces) << "no flood";
  EXPECT_LT(most, before + kPlaces + 50);
  for (const pid_t flood : floods) {
    kill(flood, SIGKILL);
    waitpid(flood, nullptr, 0);
  }
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(StrangersTest, AuthenticatedStrangerThatNeverJoinsIsClosed) {
  ExpectJoinsDespite(
      AtUnixSocket(),
      [](const Endpoint& root) {
        RawPeer stranger(root);
        EXPECT_TRUE(
            stranger.Authenticate({"", "bootstrap", "job", kBootstrapVersion}));
        stranger.Send(Departure{1});
        EXPECT_TRUE(stranger.WaitForClose());
      },
      1);
}

TEST(StrangersTest, RankThatBreaksTheProtocolIsCutOffByName) {
  const std::string name = UniqueName();
  FailureRecord record;
  Bootstrap::Options options = MakeOptions("unix:@" + name, 0, 2);
  options.on_failure = record.callback();
  auto joining =
      std::async(std::launch::async, [&] { return Bootstrap::Join(options); });
  RawPeer rank(name);
  ASSERT_TRUE(rank.Authenticate({"", "bootstrap", "job", kBootstrapVersion}));
  rank.Send(JoinRequest{1, 2, -1, {7, "x"}});
  const Joined root = joining.get();
  ASSERT_TRUE(root.ok());
  rank.SendBytes(EncodeFrame(std::string(100, 'x')));  // no valid MAC
  ExpectSays(record.Wait(LivenessBound(seconds(5))), StatusCode::kPeerLost,
             {"rank 1 (pid 7 on host x)", "wrong MAC"});
}

}  // namespace
}  // namespace ringpipe
