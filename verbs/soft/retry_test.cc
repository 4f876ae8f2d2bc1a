// A receiver that is not ready, and a peer that is not there.
#include <chrono>

#include "base/deadline.h"
#include "base/liveness_bound.h"
#include "base/peer_process.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"

namespace ringpipe::verbs::soft {
namespace {

using std::chrono::milliseconds;

class Retry : public testing::TestWithParam<std::uint64_t> {
 protected:
  Retry() { options_.adversary_seed = GetParam(); }
  EndpointOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Retry, testing::Values(0, 11));

TEST_P(Retry, ReceiverNotReadyForEverWaitsForTheReceive) {
  Pair pair(options_);  // rnr_retry 7
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 8)}), 0);
  EXPECT_TRUE(pair.a.Quiet());
  ASSERT_EQ(pair.b.Receive(2, {pair.b.Sge(0, 8)}), 0);
  EXPECT_EQ(pair.b.Poll().value().wr_id, 2u);  // by a's timer: a only sleeps
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
}

TEST_P(Retry, ReceiverNotReadyIsExhaustedWithoutTheReceiversKnowledge) {
  options_.rnr_retry = 2;
  Pair pair(options_);
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 8)}), 0);
  ASSERT_EQ(pair.a.Send(2, {pair.a.Sge(0, 8)}, 0), 0);
  const auto failed = pair.a.Poll();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(failed->wr_id, 1u);
  const auto flushed = pair.a.Poll();
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed->wr_id, 2u);
  EXPECT_EQ(pair.b.State(), IBV_QPS_RTS);
  EXPECT_TRUE(pair.b.Quiet());
}

TEST_P(Retry, ReceiverNotReadyTakesItsTimersTime) {
  options_.rnr_retry = 3;
  options_.min_rnr_timer = 22;  // 20.48 ms
  Pair pair(options_);
  const Clock::time_point start = Clock::now();
  ASSERT_EQ(pair.a.Send(1, {}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_GE(Clock::now() - start, milliseconds(61));
}

TEST_P(Retry, PeerThatConnectsLaterIsWaitedFor) {
  options_.timeout = 0;
  Endpoint a(options_);
  Endpoint b(options_);
  a.Connect(b.identity());
  ASSERT_EQ(a.Send(1, {a.Sge(0, 8)}), 0);
  EXPECT_TRUE(a.Quiet());
  ASSERT_EQ(b.Receive(2, {b.Sge(0, 8)}), 0);
  b.Connect(a.identity());
  EXPECT_EQ(a.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.Poll().value().status, IBV_WC_SUCCESS);
}

TEST_P(Retry, NobodyThereExhaustsTheTransportRetries) {
  Endpoint a(options_);
  Identity nobody = a.identity();
  nobody.qpn ^= 0x3ff;  // a queue pair that does not exist
  a.Connect(nobody);
  const Clock::time_point start = Clock::now();
  ASSERT_EQ(a.Send(1, {}), 0);
  EXPECT_EQ(a.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(Clock::now() - start, milliseconds(134));  // 4.096 us * 2^14 * 2
  EXPECT_EQ(a.State(), IBV_QPS_ERR);
}

TEST_P(Retry, PeerConnectedToSomebodyElseDoesNotAnswer) {
  Pair pair(options_);
  Endpoint stranger(options_);
  stranger.Connect(pair.b.identity());
  ASSERT_EQ(pair.b.Receive(1, {}), 0);
  ASSERT_EQ(stranger.Send(1, {}), 0);
  EXPECT_EQ(stranger.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(pair.b.Quiet());
}

TEST_P(Retry, PacketSequenceNumbersMustAgree) {
  Endpoint a(options_);
  Endpoint b(options_);
  a.receive_psn = b.send_psn = 5;
  a.send_psn = 6;
  b.receive_psn = 7;
  a.Connect(b.identity());
  b.Connect(a.identity());
  ASSERT_EQ(a.Receive(1, {}), 0);
  ASSERT_EQ(b.Receive(2, {}), 0);
  ASSERT_EQ(b.Send(3, {}), 0);
  EXPECT_EQ(b.Poll().value().status, IBV_WC_SUCCESS);
  ASSERT_EQ(a.Poll().value().wr_id, 1u);
  ASSERT_EQ(a.Send(4, {}), 0);
  EXPECT_EQ(a.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
}

// The peer may have answered before this end knows its own number.
TEST_P(Retry, PacketSequenceNumberMayComeAfterTheAttachment) {
  Endpoint a(options_);
  Endpoint b(options_);
  a.send_psn = b.receive_psn = 77;
  b.Connect(a.identity());
  a.ToRtr(b.identity());
  a.Quiet();  // meanwhile b's housekeeper answers
  a.ToRts();
  ASSERT_EQ(a.Write(1, {a.Sge(0, 8)}, b.identity(), 0), 0);
  const auto completion = a.Poll();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, IBV_WC_SUCCESS);
}

TEST_P(Retry, PeerThatStartsOverIsLostUnlessNothingWasSent) {
  Pair pair(options_);
  const auto restart_b = [&] {
    pair.b.ToReset();
    pair.b.ToInit();
    ASSERT_EQ(pair.b.Receive(1, {}), 0);
    pair.b.Connect(pair.a.identity());
  };
  restart_b();
  ASSERT_EQ(pair.a.Send(2, {}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  restart_b();
  ASSERT_EQ(pair.a.Send(3, {}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
}

// Connects and then sleeps until it is killed.
bool ConnectAndSleep(ValuePipe& pipe, const EndpointOptions& options) {
  Endpoint endpoint(options);
  pipe.Put(endpoint.identity());
  endpoint.Connect(pipe.Get<Identity>());
  pipe.Put(true);
  pipe.Get<bool>();
  return true;
}

TEST_P(Retry, KilledPeerShowsToWhoHasRequestsOutstanding) {
  const EndpointOptions options = options_;
  PeerProcess peer(
      [options](ValuePipe& pipe) { return ConnectAndSleep(pipe, options); });
  Endpoint endpoint(options);
  const auto identity = peer.pipe().Get<Identity>();
  peer.pipe().Put(endpoint.identity());
  endpoint.Connect(identity);
  peer.pipe().Get<bool>();
  ASSERT_EQ(endpoint.Receive(7, {}), 0);
  ASSERT_EQ(endpoint.Send(1, {}), 0);  // RNR: stays outstanding
  peer.Kill();
  const Clock::time_point killed = Clock::now();
  const auto failed = endpoint.Poll();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->wr_id, 1u);
  EXPECT_EQ(failed->status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_LT(Clock::now() - killed, LivenessBound(std::chrono::seconds(2)));
  EXPECT_EQ(endpoint.Poll().value().wr_id, 7u);
}

TEST_P(Retry, KilledPeerShowsNothingToWhoOnlyReceives) {
  const EndpointOptions options = options_;
  PeerProcess peer(
      [options](ValuePipe& pipe) { return ConnectAndSleep(pipe, options); });
  Endpoint endpoint(options);
  const auto identity = peer.pipe().Get<Identity>();
  peer.pipe().Put(endpoint.identity());
  endpoint.Connect(identity);
  peer.pipe().Get<bool>();
  ASSERT_EQ(endpoint.Receive(7, {}), 0);
  peer.Kill();
  EXPECT_FALSE(endpoint.Poll(milliseconds(300)));
  EXPECT_FALSE(endpoint.NextEvent(milliseconds(0)));
  EXPECT_EQ(endpoint.State(), IBV_QPS_RTS);
}

TEST_P(Retry, PeerKilledWhileItSendsHoldsNobodyUp) {
  const EndpointOptions options = options_;
  PeerProcess peer([options](ValuePipe& pipe) {
    Endpoint endpoint(options);
    pipe.Put(endpoint.identity());
    const auto identity = pipe.Get<Identity>();
    endpoint.Connect(identity);
    while (true) {
      endpoint.Write(1, {endpoint.Sge(0, 1 << 20)}, identity, 0);
      endpoint.Poll();
      pipe.Put(true);
    }
    return true;
  });
  Endpoint endpoint(options);
  const auto identity = peer.pipe().Get<Identity>();
  peer.pipe().Put(endpoint.identity());
  endpoint.Connect(identity);
  for (int i = 0; i < 20; ++i) {
    peer.pipe().Get<bool>();
  }
  peer.Kill();  // likely in the middle of a write
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(endpoint.library().dereg_mr(endpoint.mr), 0);
  endpoint.mr = nullptr;
  EXPECT_LT(Clock::now() - start, LivenessBound(std::chrono::seconds(2)));
}

// As a program that knows fast adapters sets it.
TEST_P(Retry, AShortTimeoutIsNotTakenLiterally) {
  options_.timeout = 1;  // 8 us
  options_.retry_count = 0;
  Endpoint a(options_);
  Identity nobody = a.identity();
  nobody.qpn ^= 0x3ff;  // a queue pair that does not exist
  a.Connect(nobody);
  const Clock::time_point start = Clock::now();
  ASSERT_EQ(a.Send(1, {}), 0);
  EXPECT_EQ(a.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(Clock::now() - start, milliseconds(67));
}

// That its process has no time to answer is not the wire's time.
TEST_P(Retry, APeerThatIsSlowToAnswerAtFirstIsWaitedFor) {
  options_.retry_count = 0;  // 67 ms
  PeerProcess peer([&](ValuePipe& pipe) {
    Endpoint endpoint(options_);
    endpoint.Receive(1, {endpoint.Sge(0, 8)});
    pipe.Put(endpoint.identity());
    endpoint.Connect(pipe.Get<Identity>());
    pipe.Put(true);
    const auto completion = endpoint.Poll();
    return completion && completion->status == IBV_WC_SUCCESS;
  });
  Endpoint endpoint(options_);
  const auto identity = peer.pipe().Get<Identity>();
  peer.pipe().Put(endpoint.identity());
  peer.pipe().Get<bool>();
  ASSERT_EQ(kill(peer.pid(), SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(peer.pid(), &status, WUNTRACED), peer.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  endpoint.Connect(identity);
  ASSERT_EQ(endpoint.Send(2, {endpoint.Sge(0, 8)}), 0);
  EXPECT_FALSE(endpoint.Poll(milliseconds(200)));
  ASSERT_EQ(kill(peer.pid(), SIGCONT), 0);
  EXPECT_EQ(endpoint.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(peer.Join());
}

}  // namespace
}  // namespace ringpipe::verbs::soft
