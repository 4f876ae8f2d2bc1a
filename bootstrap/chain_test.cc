// The links between neighbours by rank: strangers do not get in, nor keep the
// neighbour out.
#include "bootstrap/chain.h"

#include <gtest/gtest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <string>
#include <thread>
#include <vector>

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
    const Address root = Address::Parse(GetParam()).value();
    const Result<std::string> contact =
        chain_.Listen(root, Tcp(1), NameFilter());
    ASSERT_TRUE(contact.ok()) << contact.status().ToString();
    const Address address = Address::Parse(*contact).value();
    below_finds_ =
        root.unix_socket ? UnixEndpoint(address.host) : Tcp(address.port);
    chain_.Connect(kKey, "", NameFilter(),
                   {[this](const Status& why) { told_.set_value(why); },
                    [this](int rank, const Status&) { lost_.set_value(rank); },
                    [](int, const std::string&) {}, [] {}});
    thread_ = std::thread([this] { io_.run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) {
      return;
    }
    boost::asio::post(io_, [this] {
      chain_.Leave();
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
  Chain chain_{&io_, 2, 3};
  Endpoint below_finds_;
  std::promise<Status> told_;
  std::promise<int> lost_;
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

}  // namespace
}  // namespace ringpipe
