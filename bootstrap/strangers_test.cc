// Who connects to the root and is no rank of the job: closed, counted, and a
// delay to nobody.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "auth/handshake.h"
#include "base/liveness_bound.h"
#include "bootstrap/message.h"
#include "bootstrap/raw_peer.h"
#include "bootstrap/session.h"
#include "bootstrap/test_job.h"

namespace ringpipe {
namespace {

using std::chrono::seconds;

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
  auto passed = std::async(std::launch::async,
                           [&] { return member.value()->Barrier(Soon()); });
  EXPECT_TRUE(zero.value()->Barrier(Soon()).ok());
  EXPECT_TRUE(passed.get().ok());
  EXPECT_EQ(zero.value()->refused_connections(), refused);
}

TEST(StrangersTest, GarbageIsClosedAndCounted) {
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

// What they send must not decide how much rank 0 keeps and says of them.
TEST(StrangersTest, GarbageOfManyKindsIsSaidInShort) {
  constexpr uint32_t kStrangers = 300;
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
  EXPECT_NE(said.find("refused 306 connection(s)"), std::string::npos) << said;
  EXPECT_NE(said.find(": other reasons)"), std::string::npos) << said;
  EXPECT_LT(said.size(), 1500U);
}

TEST(StrangersTest, OversizedFrameIsClosedByItsHeader) {
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

TEST(StrangersTest, SilentStrangerIsClosedInTime) {
  ExpectJoinsDespite(
      [](const std::string& name) {
        RawPeer stranger(name);
        // After 5 s; it waits for 20 s.
        EXPECT_TRUE(stranger.WaitForClose());
      },
      1);
}

TEST(StrangersTest, FloodOfSilentStrangersDelaysNobodyForLong) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  constexpr int kStrangers = 1500;  // more than there are places
  const rlimit enough = {4096, limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &enough) != 0) {
    GTEST_SKIP() << "needs 4096 descriptors (ulimit -Hn)";
  }
  std::vector<RawPeer> strangers;
  const auto start = Clock::now();
  ExpectJoinsDespite(
      [&](const std::string& name) {
        for (int i = 0; i < kStrangers; ++i) {
          strangers.emplace_back(name);
        }
      },
      kStrangers);
  EXPECT_LT(Clock::now() - start,
            LivenessBound(std::chrono::milliseconds(500)));
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(StrangersTest, AuthenticatedStrangerThatNeverJoinsIsClosed) {
  ExpectJoinsDespite(
      [](const std::string& name) {
        RawPeer stranger(name);
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
