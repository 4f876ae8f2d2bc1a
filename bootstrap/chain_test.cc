// The links between neighbours by rank: strangers do not get in, nor keep the
// neighbour out.
#include "bootstrap/chain.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "auth/confined_process.h"
#include "base/liveness_bound.h"
#include "bootstrap/message.h"
#include "bootstrap/raw_peer.h"
#include "bootstrap/test_job.h"

namespace ringpipe {
namespace {

using std::chrono::seconds;
using tcp = boost::asio::ip::tcp;

constexpr char kKey[] = "the key of the job";

Endpoint Tcp(uint16_t port) {
  return tcp::endpoint(boost::asio::ip::make_address("127.0.0.1"), port);
}

// Rank 2 of 3, which listens for rank 1, on a thread of its own.
class ChainTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Listen();
    Start();
  }
  void Listen(bool has_secret = false) {
    chain_.emplace(&io_, 2, 3, has_secret, std::chrono::seconds(15));
    const Address root = Address::Parse(GetParam()).value();
    const Result<std::string> contact =
        chain_->Listen(root, Tcp(1), NameFilter());
    ASSERT_TRUE(contact.ok()) << contact.status().ToString();
    const Address address = Address::Parse(*contact).value();
    below_finds_ =
        root.unix_socket ? UnixEndpoint(address.host) : Tcp(address.port);
  }
  void Start() {
    chain_->Connect(
        kKey, "", NameFilter(),
        {[this](const Status& why) { told_.set_value(why); },
         [](const Departure&) {},
         [this](int rank, const Status&) { lost_.set_value(rank); },
         [](int, const std::string&) {},
         [this](const std::string& why) { refused_.set_value(why); }, [] {}});
    thread_ = std::thread([this] { io_.run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) {
      return;
    }
    boost::asio::post(io_, [this] {
      chain_->Leave();
      work_.reset();
      io_.stop();
    });
    thread_.join();
  }

  static Handshake::Options Options(const std::string& key, int rank) {
    return {key, "bootstrap chain from rank " + std::to_string(rank), "",
            kBootstrapVersion};
  }

  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type>
      work_{io_.get_executor()};
  std::optional<Chain> chain_;
  Endpoint below_finds_;
  std::promise<Status> told_;
  std::promise<int> lost_;
  std::promise<std::string> refused_;
  std::thread thread_;
};

INSTANTIATE_TEST_SUITE_P(Roots, ChainTest,
                         ::testing::Values("unix:@job", "127.0.0.1:1"));

TEST_P(ChainTest, StrangersDoNotGetInAndHoldNobodyUp) {
  std::vector<RawPeer> silent;
  for (int i = 0; i < 100; ++i) {  // more than there are places
    silent.emplace_back(below_finds_);
  }
  const auto start = Clock::now();
  RawPeer garbage(below_finds_);
  garbage.SendBytes("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(garbage.WaitForClose());
  for (const Handshake::Options& wrong :
       {Options("", 1), Options("another job's", 1), Options(kKey, 0)}) {
    EXPECT_FALSE(RawPeer(below_finds_).Authenticate(wrong));
  }
  RawPeer neighbour(below_finds_);
  ASSERT_TRUE(neighbour.Authenticate(Options(kKey, 1)));
  EXPECT_LT(Clock::now() - start, LivenessBound(seconds(3)));
  for (const RawPeer& stranger : silent) {
    EXPECT_TRUE(stranger.WaitForClose());
  }
  neighbour.Send(AbortNotice{{StatusCode::kPeerLost, "rank 0 died"}});
  auto told = told_.get_future();
  ASSERT_EQ(told.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_EQ(told.get().message(), "rank 0 died");
}

TEST_P(ChainTest, ANeighbourThatWasHeardAndIsGoneIsLost) {
  {
    RawPeer neighbour(below_finds_);
    ASSERT_TRUE(neighbour.Authenticate(Options(kKey, 1)));
    neighbour.Send(Question{});
  }
  auto lost = lost_.get_future();
  ASSERT_EQ(lost.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_EQ(lost.get(), 1);
}

// A process of this user in another user namespace, which has the job's key and
// wants to be the neighbour.
class ConfinedNeighbourTest : public ChainTest {
 protected:
  void SetUp() override {}

  // How its handshake ends; nothing where there can be no such process.
  std::optional<bool> Authenticates(bool has_secret) {
    Listen(has_secret);
    // Before there is a thread, which it would not have.
    const pid_t child = ForkIntoUserNamespace();
    if (child == 0) {
      _exit(RawPeer(below_finds_).Authenticate(Options(kKey, 1)) ? 1 : 2);
    }
    if (child < 0) {
      return std::nullopt;
    }
    Start();
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status) == 1;
  }
};

INSTANTIATE_TEST_SUITE_P(Roots, ConfinedNeighbourTest,
                         ::testing::Values("unix:@job"));

TEST_P(ConfinedNeighbourTest, IsRefusedWhereThereIsNoSecret) {
  const std::optional<bool> got_in = Authenticates(/*has_secret=*/false);
  if (!got_in) {
    return SkipWithoutUserNamespaces();
  }
  EXPECT_FALSE(*got_in);
  auto refused = refused_.get_future();
  ASSERT_EQ(refused.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_NE(refused.get().find("user"), std::string::npos);
  EXPECT_TRUE(RawPeer(below_finds_).Authenticate(Options(kKey, 1)));
}

TEST_P(ConfinedNeighbourTest, GetsInWithTheSecret) {
  const std::optional<bool> got_in = Authenticates(/*has_secret=*/true);
  if (!got_in) {
    return SkipWithoutUserNamespaces();
  }
  EXPECT_TRUE(*got_in);
}

}  // namespace
}  // namespace ringpipe
