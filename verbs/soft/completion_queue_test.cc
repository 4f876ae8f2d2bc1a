// Completion channels, acknowledgements and overrun.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include <thread>

#include "base/deadline.h"
#include "base/peer_process.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr int kSoon = 10'000;  // ms: "comes"
constexpr int kNever = 30;     // ms: "does not come"

bool HasEvent(Endpoint& endpoint, int timeout_ms) {
  pollfd readable = {endpoint.channel->fd, POLLIN, 0};
  return poll(&readable, 1, timeout_ms) == 1;
}

bool TakeEvent(Endpoint& endpoint) {
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  if (endpoint.library().get_cq_event(endpoint.channel, &cq, &cq_context) !=
      0) {
    return false;
  }
  endpoint.library().ack_cq_events(cq, 1);
  return cq == endpoint.cq && cq_context == &endpoint;
}

// Of the next `most` completions, one at a time.
struct Taken {
  int sends = 0;
  int receives = 0;
};

Taken TakeOneByOne(ibv_cq* cq, int most) {
  Taken taken;
  ibv_wc completion;
  while (taken.sends + taken.receives < most &&
         ibv_poll_cq(cq, 1, &completion) == 1) {
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    ++((completion.opcode & IBV_WC_RECV) != 0 ? taken.receives : taken.sends);
  }
  return taken;
}

// Where sends complete as fast as they are polled, receives must not starve;
// nor the other way round.
TEST(Fairness, SendsAndReceivesTakeTurns) {
  constexpr int kEach = 20;
  Pair pair;
  // From then on a send is executed as it is posted.
  for (Endpoint* from : {&pair.a, &pair.b}) {
    Endpoint& to = from == &pair.a ? pair.b : pair.a;
    ASSERT_EQ(to.Receive(0, {}), 0);
    ASSERT_EQ(from->Send(0, {}), 0);
    ASSERT_TRUE(from->Poll());
    ASSERT_TRUE(to.Poll());
  }
  for (int i = 0; i < kEach; ++i) {
    ASSERT_EQ(pair.a.Receive(i, {}), 0);
    ASSERT_EQ(pair.b.Receive(i, {}), 0);
  }
  for (int i = 0; i < kEach; ++i) {
    ASSERT_EQ(pair.b.Send(100 + i, {}), 0);
    ASSERT_EQ(pair.a.Send(100 + i, {}), 0);
  }
  const Taken first = TakeOneByOne(pair.a.cq, kEach);
  EXPECT_EQ(first.sends, kEach / 2);
  EXPECT_EQ(first.receives, kEach / 2);
  const Taken rest = TakeOneByOne(pair.a.cq, 2 * kEach);
  EXPECT_EQ(rest.sends + rest.receives, kEach);
}

class Channel : public testing::TestWithParam<std::uint64_t> {
 protected:
  Channel() { options_.adversary_seed = GetParam(); }
  EndpointOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Channel, testing::Values(0, 11));

TEST_P(Channel, AnnouncesOneCompletionAfterArming) {
  Pair pair(options_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(pair.b.Receive(i, {}), 0);
  }
  ASSERT_EQ(pair.a.Send(1, {}), 0);
  ASSERT_TRUE(pair.b.Poll());
  EXPECT_FALSE(HasEvent(pair.b, 0));  // not armed
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 0), 0);
  EXPECT_FALSE(HasEvent(pair.b, kNever));
  ASSERT_EQ(pair.a.Send(2, {}), 0);
  ASSERT_EQ(pair.a.Send(3, {}), 0);
  ASSERT_TRUE(HasEvent(pair.b, kSoon));
  EXPECT_TRUE(TakeEvent(pair.b));
  ASSERT_TRUE(pair.b.Poll());
  ASSERT_TRUE(pair.b.Poll());
  EXPECT_FALSE(HasEvent(pair.b, 0));  // one event for one arming
}

TEST_P(Channel, AnnouncesSendCompletionsToo) {
  Pair pair(options_);
  ASSERT_EQ(ibv_req_notify_cq(pair.a.cq, 0), 0);
  ASSERT_EQ(pair.a.Write(1, {}, pair.b.identity(), 0), 0);
  ASSERT_TRUE(HasEvent(pair.a, kSoon));
  EXPECT_TRUE(TakeEvent(pair.a));
}

TEST_P(Channel, SolicitedOnlyIgnoresOtherMessages) {
  Pair pair(options_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(pair.b.Receive(i, {}), 0);
  }
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 1), 0);
  ASSERT_EQ(pair.a.Send(1, {}), 0);
  ASSERT_TRUE(pair.b.Poll());
  EXPECT_FALSE(HasEvent(pair.b, kNever));
  ASSERT_EQ(pair.a.Send(2, {}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), 0);
  ASSERT_TRUE(HasEvent(pair.b, kSoon));
  EXPECT_TRUE(TakeEvent(pair.b));
}

TEST_P(Channel, SolicitedOnlyAnnouncesErrors) {
  Pair pair(options_);
  ASSERT_EQ(pair.b.Receive(1, {}), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 1), 0);
  pair.b.ToError();
  ASSERT_TRUE(HasEvent(pair.b, kSoon));
  EXPECT_TRUE(TakeEvent(pair.b));
}

TEST_P(Channel, NonblockingDescriptorDoesNotBlock) {
  Endpoint endpoint(options_);
  const int fd = endpoint.channel->fd;
  ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
  ibv_cq* cq;
  void* cq_context;
  EXPECT_EQ(endpoint.library().get_cq_event(endpoint.channel, &cq, &cq_context),
            -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_P(Channel, AnotherProcessWakesASleeper) {
  const EndpointOptions options = options_;
  PeerProcess peer([options](ValuePipe& pipe) {
    Endpoint endpoint(options);
    pipe.Put(endpoint.identity());
    endpoint.Connect(pipe.Get<Identity>());
    pipe.Get<bool>();
    endpoint.Send(1, {endpoint.Sge(0, 8)});
    const auto sent = endpoint.Poll();
    pipe.Get<bool>();
    return sent && sent->status == IBV_WC_SUCCESS;
  });
  Endpoint endpoint(options);
  const auto identity = peer.pipe().Get<Identity>();
  peer.pipe().Put(endpoint.identity());
  endpoint.Connect(identity);
  ASSERT_EQ(endpoint.Receive(1, {endpoint.Sge(0, 8)}), 0);
  ASSERT_EQ(ibv_req_notify_cq(endpoint.cq, 0), 0);
  ibv_wc completion;
  ASSERT_EQ(ibv_poll_cq(endpoint.cq, 1, &completion), 0);
  peer.pipe().Put(true);
  ASSERT_TRUE(HasEvent(endpoint, kSoon));
  EXPECT_TRUE(TakeEvent(endpoint));
  EXPECT_EQ(ibv_poll_cq(endpoint.cq, 1, &completion), 1);
  peer.pipe().Put(true);
  EXPECT_TRUE(peer.Join());
}

TEST_P(Channel, DestroyWaitsForAcknowledgements) {
  Endpoint endpoint(options_);
  const Library& library = endpoint.library();
  ibv_cq* cq =
      library.create_cq(endpoint.context, 8, nullptr, endpoint.channel, 0);
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {1, 1, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* qp = library.create_qp(endpoint.pd, &attr);
  ibv_qp_attr state = {};
  state.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(library.modify_qp(qp, &state, IBV_QP_STATE), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  ibv_recv_wr request = {};
  ibv_recv_wr* bad;
  ASSERT_EQ(ibv_post_recv(qp, &request, &bad), 0);  // flushed
  ibv_cq* announced;
  void* cq_context;
  ASSERT_EQ(library.get_cq_event(endpoint.channel, &announced, &cq_context), 0);
  ASSERT_EQ(announced, cq);
  ASSERT_EQ(library.destroy_qp(qp), 0);
  std::atomic<bool> acknowledged{false};
  std::thread late([&] {
    acknowledged = true;
    library.ack_cq_events(announced, 1);
  });
  EXPECT_EQ(library.destroy_cq(cq), 0);
  EXPECT_TRUE(acknowledged);
  late.join();
}

// Overruns: whoever fills the queue, the queue and its queue pairs are lost.
void ExpectOverrun(Endpoint& endpoint) {
  const Deadline deadline = Deadline::After(std::chrono::seconds(10));
  ibv_wc completion;
  int got;
  do {
    got = ibv_poll_cq(endpoint.cq, 1, &completion);
  } while (got >= 0 && !deadline.expired());
  EXPECT_LT(got, 0);
  EXPECT_EQ(endpoint.NextEvent(), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(endpoint.NextEvent(), IBV_EVENT_QP_FATAL);
  EXPECT_EQ(endpoint.State(), IBV_QPS_ERR);
}

TEST(Overrun, BySends) {
  EndpointOptions options;
  options.cqe = 4;
  Pair pair(options);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(pair.a.Write(i, {}, pair.b.identity(), 0), 0);
  }
  // Executed by a's housekeeper where the link was not there yet.
  EXPECT_EQ(pair.a.NextEvent(), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(pair.a.NextEvent(), IBV_EVENT_QP_FATAL);
  ibv_wc completion;
  EXPECT_LT(ibv_poll_cq(pair.a.cq, 1, &completion), 0);
  EXPECT_EQ(pair.a.State(), IBV_QPS_ERR);
}

TEST(Overrun, ByReceives) {
  EndpointOptions small;
  small.cqe = 4;
  Pair pair({}, small);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(pair.b.Receive(i, {}), 0);
  }
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(pair.a.Send(i, {}), 0);
    ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  }
  ExpectOverrun(pair.b);
}

}  // namespace
}  // namespace ringpipe::verbs::soft
