// Queue pairs on different hosts: here those of contexts with different host
// ids, which talk over TCP on loopback.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/liveness_bound.h"
#include "base/peer_process.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"

namespace ringpipe::verbs::soft {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Remote : public testing::TestWithParam<std::uint64_t> {
 protected:
  Remote() {
    here_.adversary_seed = GetParam();
    here_.host_id = "here";
    here_.qp_access = here_.memory_access =
        kAllAccess | IBV_ACCESS_REMOTE_ATOMIC;
    // Long enough for a machine that is busy with other tests.
    here_.timeout = 17;  // 0.54 s
    here_.retry_count = 3;
  }
  EndpointOptions There() const {
    EndpointOptions there = here_;
    there.host_id = "there";
    return there;
  }
  EndpointOptions here_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Remote, testing::Values(0, 5));

void Fill(std::byte* data, std::size_t bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>((i * 2654435761u >> 13) + seed);
  }
}

// Sizes around what fits in one packet, and large ones.
const std::vector<std::uint32_t> kSizes = {0,       1,       8,       4095,
                                           131071,  131072,  131073,  262144,
                                           1000003, 1 << 20, 8 << 20, 32 << 20};

TEST_P(Remote, SendsOfAnySizeArriveWhole) {
  here_.buffer_bytes = 32 << 20;
  Pair pair(here_, There());
  for (const std::uint32_t bytes : kSizes) {
    Fill(pair.a.data(), bytes, bytes);
    memset(pair.b.data(), 0, bytes);
    ASSERT_EQ(pair.b.Receive(2, {pair.b.Sge(0, bytes)}), 0);
    ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, bytes)}, IBV_SEND_SIGNALED, 77), 0);
    const ibv_wc received = pair.b.Poll().value();
    ASSERT_EQ(received.status, IBV_WC_SUCCESS) << bytes;
    EXPECT_EQ(received.byte_len, bytes);
    EXPECT_EQ(received.imm_data, 77u);
    EXPECT_EQ(memcmp(pair.a.data(), pair.b.data(), bytes), 0);
    EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  }
}

TEST_P(Remote, WritesOfAnySizeLandWhole) {
  here_.buffer_bytes = 32 << 20;
  Pair pair(here_, There());
  for (const std::uint32_t bytes : kSizes) {
    Fill(pair.a.data(), bytes, bytes + 1);
    memset(pair.b.data(), 0, bytes);
    ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, bytes)}, pair.b.identity(), 0), 0);
    ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS) << bytes;
    EXPECT_EQ(memcmp(pair.a.data(), pair.b.data(), bytes), 0);
  }
}

TEST_P(Remote, WritesWithImmediateTakeAReceiveWhenAllHasLanded) {
  Pair pair(here_, There());
  Fill(pair.a.data(), 300'000, 3);
  ASSERT_EQ(pair.b.Receive(2, {}), 0);
  ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, 300'000)}, pair.b.identity(), 8,
                         IBV_SEND_SIGNALED, 9),
            0);
  const ibv_wc received = pair.b.Poll().value();
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.imm_data, 9u);
  EXPECT_EQ(received.byte_len, 300'000u);
  EXPECT_EQ(memcmp(pair.a.data(), pair.b.data() + 8, 300'000), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
}

TEST_P(Remote, ReadsOfAnySizeArriveWhole) {
  here_.buffer_bytes = 32 << 20;
  Pair pair(here_, There());
  for (const std::uint32_t bytes : kSizes) {
    Fill(pair.b.data(), bytes, bytes + 2);
    memset(pair.a.data(), 0, bytes);
    ASSERT_EQ(pair.a.Read(1, {pair.a.Sge(0, bytes)}, pair.b.identity(), 0), 0);
    ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS) << bytes;
    EXPECT_EQ(memcmp(pair.a.data(), pair.b.data(), bytes), 0);
  }
}

TEST_P(Remote, AtomicsReturnWhatWasThere) {
  Pair pair(here_, There());
  std::uint64_t value = 40;
  memcpy(pair.b.data() + 64, &value, sizeof value);
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(pair.a.FetchAdd(1, {pair.a.Sge(0, 8)}, pair.b.identity(), 64, 2),
              0);
    ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
    memcpy(&value, pair.a.data(), sizeof value);
    EXPECT_EQ(value, 40 + 2 * i);
  }
  ASSERT_EQ(pair.a.CompareSwap(2, {pair.a.Sge(8, 8)}, pair.b.identity(), 64, 60,
                               1234),
            0);
  ASSERT_EQ(pair.a.Poll().value().opcode, IBV_WC_COMP_SWAP);
  memcpy(&value, pair.a.data() + 8, sizeof value);
  EXPECT_EQ(value, 60u);
  memcpy(&value, pair.b.data() + 64, sizeof value);
  EXPECT_EQ(value, 1234u);
}

TEST_P(Remote, RequestsOfAllKindsCompleteInOrder) {
  here_.max_rd_atomic = 4;
  Pair pair(here_, There());
  for (int round = 0; round < 20; ++round) {
    for (std::uint64_t i = 0; i < 12; ++i) {
      const Identity peer = pair.b.identity();
      switch (i % 4) {
        case 0:
          ASSERT_EQ(pair.b.Receive(100 + i, {pair.b.Sge(0, 100'000)}), 0);
          ASSERT_EQ(pair.a.Send(i, {pair.a.Sge(0, 100'000)}), 0);
          break;
        case 1:
          ASSERT_EQ(pair.a.Read(i, {pair.a.Sge(200'000, 150'000)}, peer, 0), 0);
          break;
        case 2:
          ASSERT_EQ(pair.a.Write(i, {pair.a.Sge(0, 7)}, peer, 500'000), 0);
          break;
        case 3:
          ASSERT_EQ(
              pair.a.FetchAdd(i, {pair.a.Sge(400'000, 8)}, peer, 600'000, 1),
              0);
          break;
      }
    }
    for (std::uint64_t i = 0; i < 12; ++i) {
      const ibv_wc completion = pair.a.Poll().value();
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      ASSERT_EQ(completion.wr_id, i);
    }
    for (std::uint64_t i = 0; i < 12; i += 4) {
      ASSERT_EQ(pair.b.Poll().value().wr_id, 100 + i);
    }
  }
  std::uint64_t sum;
  memcpy(&sum, pair.b.data() + 600'000, sizeof sum);
  EXPECT_EQ(sum, 60u);
}

TEST_P(Remote, BothEndsSendAtOnceWithFullSocketsAndNoneWaitsForTheOther) {
  // | source | written by the peer | read from the peer |
  constexpr std::uint32_t kPart = 32 << 20;
  constexpr std::uint32_t kBytes = kPart / 4;
  here_.buffer_bytes = std::size_t{3} * kPart;
  Pair pair(here_, There());
  Fill(pair.a.data(), kPart, 1);
  Fill(pair.b.data(), kPart, 2);
  for (std::uint64_t i = 0; i < 4; ++i) {
    for (Endpoint* end : {&pair.a, &pair.b}) {
      const Endpoint& other = end == &pair.a ? pair.b : pair.a;
      const std::uint64_t at = i * kBytes;
      ASSERT_EQ(
          end->Write(i, {end->Sge(at, kBytes)}, other.identity(), kPart + at),
          0);
      ASSERT_EQ(end->Read(10 + i, {end->Sge(2 * kPart + at, kBytes)},
                          other.identity(), at),
                0);
    }
  }
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
    ASSERT_EQ(pair.b.Poll().value().status, IBV_WC_SUCCESS);
  }
  for (Endpoint* end : {&pair.a, &pair.b}) {
    Endpoint& other = end == &pair.a ? pair.b : pair.a;
    EXPECT_EQ(memcmp(other.data(), end->data() + kPart, kPart), 0);
    EXPECT_EQ(memcmp(other.data(), end->data() + 2 * kPart, kPart), 0);
  }
}

TEST_P(Remote, EventsOfACompletionChannelWakeTheReceiver) {
  Pair pair(here_, There());
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 0), 0);
  ASSERT_EQ(pair.b.Receive(1, {}), 0);
  ASSERT_EQ(pair.a.Send(2, {}), 0);
  // The sender polls only where the adversary waits for that.
  if (GetParam() != 0) {
    EXPECT_EQ(pair.a.Poll().value().wr_id, 2u);
  }
  pollfd readable = {pair.b.channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 10'000), 1);
  EXPECT_EQ(pair.b.Poll().value().wr_id, 1u);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(pair.b.library().get_cq_event(pair.b.channel, &cq, &cq_context), 0);
  pair.b.library().ack_cq_events(cq, 1);
}

// --- NAKs --------------------------------------------------------------------

TEST_P(Remote, ReceiverNotReadyIsWaitedFor) {
  here_.rnr_retry = 7;
  Pair pair(here_, There());
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 300'000)}), 0);
  ASSERT_EQ(pair.a.Send(2, {pair.a.Sge(0, 8)}), 0);
  EXPECT_TRUE(pair.a.Quiet());
  ASSERT_EQ(pair.b.Receive(3, {pair.b.Sge(0, 300'000)}), 0);
  ASSERT_EQ(pair.b.Receive(4, {pair.b.Sge(0, 300'000)}), 0);
  EXPECT_EQ(pair.b.Poll().value().wr_id, 3u);
  EXPECT_EQ(pair.b.Poll().value().byte_len, 8u);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
}

TEST_P(Remote, ReceiverNotReadyIsExhaustedWithoutTheReceiversKnowledge) {
  here_.rnr_retry = 2;
  Pair pair(here_, There());
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 8)}), 0);
  ASSERT_EQ(pair.a.Send(2, {pair.a.Sge(0, 8)}, 0), 0);
  const ibv_wc failed = pair.a.Poll().value();
  EXPECT_EQ(failed.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(failed.wr_id, 1u);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.b.State(), IBV_QPS_RTS);
  EXPECT_TRUE(pair.b.Quiet());
}

TEST_P(Remote, WrongKeyIsRefusedAtBothEnds) {
  Pair pair(here_, There());
  Identity wrong = pair.b.identity();
  wrong.rkey ^= 0x100;
  memset(pair.b.data(), 1, 64);
  ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, 64)}, wrong, 0), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(pair.a.State(), IBV_QPS_ERR);
  EXPECT_EQ(pair.b.NextEvent(), IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(pair.b.State(), IBV_QPS_ERR);
  EXPECT_EQ(std::count(pair.b.data(), pair.b.data() + 64, std::byte{1}), 64);
}

TEST_P(Remote, OutOfBoundsReadIsRefused) {
  Pair pair(here_, There());
  ASSERT_EQ(pair.a.Read(1, {pair.a.Sge(0, 64)}, pair.b.identity(),
                        here_.buffer_bytes - 63),
            0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(pair.b.NextEvent(), IBV_EVENT_QP_ACCESS_ERR);
}

TEST_P(Remote, MessageLongerThanItsReceiveFailsAtBothEnds) {
  Pair pair(here_, There());
  ASSERT_EQ(pair.b.Receive(1, {pair.b.Sge(0, 200'000)}), 0);
  ASSERT_EQ(pair.a.Send(2, {pair.a.Sge(0, 200'001)}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(pair.b.Poll().value().status, IBV_WC_LOC_LEN_ERR);
}

TEST_P(Remote, WrongLocalKeyFailsAfterTheRequestsBeforeIt) {
  Pair pair(here_, There());
  ibv_sge wrong = pair.a.Sge(0, 64);
  wrong.lkey ^= 0x100;
  ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, 1 << 20)}, pair.b.identity(), 0), 0);
  ASSERT_EQ(pair.a.Write(2, {wrong}, pair.b.identity(), 0), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  const ibv_wc failed = pair.a.Poll().value();
  EXPECT_EQ(failed.wr_id, 2u);
  EXPECT_EQ(failed.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.b.State(), IBV_QPS_RTS);
}

// --- Connections -------------------------------------------------------------

TEST_P(Remote, PeerThatConnectsLaterIsWaitedFor) {
  Endpoint a(here_);
  Endpoint b(There());
  for (Endpoint* first : {&a, &b}) {  // one of them opens the connection
    Endpoint& second = first == &a ? b : a;
    first->Connect(second.identity());
    ASSERT_EQ(first->Send(1, {}), 0);
    EXPECT_TRUE(first->Quiet());
    ASSERT_EQ(second.Receive(2, {}), 0);
    second.Connect(first->identity());
    EXPECT_EQ(first->Poll().value().status, IBV_WC_SUCCESS);
    EXPECT_EQ(second.Poll().value().status, IBV_WC_SUCCESS);
    for (Endpoint* end : {&a, &b}) {
      end->ToReset();
      end->ToInit();
    }
  }
}

TEST_P(Remote, NobodyThereExhaustsTheRetries) {
  here_.timeout = 14;
  here_.retry_count = 1;
  Endpoint a(here_);
  Identity nobody = a.identity();
  nobody.qpn ^= 0x5400;  // a context that does not exist
  a.Connect(nobody);
  const Clock::time_point start = Clock::now();
  ASSERT_EQ(a.Send(1, {}), 0);
  EXPECT_EQ(a.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(Clock::now() - start, milliseconds(134));  // 4.096 us * 2^14 * 2
  EXPECT_EQ(a.State(), IBV_QPS_ERR);
}

TEST_P(Remote, AnotherSecretKeepsPeersApart) {
  here_.timeout = 14;
  here_.secret = "one";
  EndpointOptions there = There();
  there.secret = "two";
  Pair pair(here_, there);
  ASSERT_EQ(pair.b.Receive(1, {}), 0);
  ASSERT_EQ(pair.a.Send(2, {}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(pair.b.Quiet());
}

TEST(RemoteWithoutSecret, AnotherHostIsRefusedAtRtr) {
  for (const std::string secret : {"", "one"}) {
    EndpointOptions options;
    options.secret = secret;
    Endpoint a(options);
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = 5000;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    ibv_gid& gid = attr.ah_attr.grh.dgid;  // ::ffff:192.0.2.1, nobody's
    gid.raw[10] = gid.raw[11] = 0xff;
    gid.raw[12] = 192;
    gid.raw[14] = 2;
    gid.raw[15] = 1;
    EXPECT_EQ(a.library().modify_qp(a.qp, &attr,
                                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                        IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                        IBV_QP_MAX_DEST_RD_ATOMIC |
                                        IBV_QP_MIN_RNR_TIMER),
              secret.empty() ? EACCES : 0);
  }
}

TEST_P(Remote, TheSameSecretConnects) {
  here_.secret = "one";
  Pair pair(here_, There());
  ASSERT_EQ(pair.b.Receive(1, {}), 0);
  ASSERT_EQ(pair.a.Send(2, {}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
}

TEST_P(Remote, PeerConnectedToSomebodyElseDoesNotAnswer) {
  here_.timeout = 14;
  Pair pair(here_, There());
  EndpointOptions third = here_;
  third.host_id = "elsewhere";
  Endpoint stranger(third);
  stranger.Connect(pair.b.identity());
  ASSERT_EQ(pair.b.Receive(1, {}), 0);
  ASSERT_EQ(stranger.Send(1, {}), 0);
  EXPECT_EQ(stranger.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(pair.b.Quiet());
}

TEST_P(Remote, PacketSequenceNumbersMustAgree) {
  here_.timeout = 14;
  Endpoint a(here_);
  Endpoint b(There());
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

TEST_P(Remote, PacketSequenceNumbersWrapAround) {
  Endpoint a(here_);
  Endpoint b(There());
  a.send_psn = b.receive_psn = 0xfffffe;
  a.Connect(b.identity());
  b.Connect(a.identity());
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(b.Receive(i, {}), 0);
    ASSERT_EQ(a.Send(i, {}), 0);
    ASSERT_EQ(a.Poll().value().status, IBV_WC_SUCCESS);
    ASSERT_EQ(b.Poll().value().wr_id, i);
  }
}

TEST_P(Remote, PeerThatStartsOverIsLostUnlessNothingWasSent) {
  here_.timeout = 14;
  here_.retry_count = 7;
  Pair pair(here_, There());
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

TEST_P(Remote, ErrorStateFlushesAndIsSilenceForThePeer) {
  here_.timeout = 14;
  Pair pair(here_, There());
  ASSERT_EQ(pair.b.Receive(1, {}), 0);
  pair.b.ToError();
  EXPECT_EQ(pair.b.Poll().value().status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(pair.a.Send(2, {}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_P(Remote, AnswerArrivesAlthoughTheReceiverIsDestroyedAtOnce) {
  for (int i = 0; i < 5; ++i) {
    Endpoint a(here_);
    auto b = std::make_unique<Endpoint>(There());
    a.Connect(b->identity());
    b->Connect(a.identity());
    ASSERT_EQ(b->Receive(1, {b->Sge(0, 500'000)}), 0);
    ASSERT_EQ(a.Send(2, {a.Sge(0, 500'000)}), 0);
    if (GetParam() != 0) {
      ASSERT_EQ(a.Poll().value().status, IBV_WC_SUCCESS);
    }
    ASSERT_EQ(b->Poll().value().status, IBV_WC_SUCCESS);
    b.reset();
    if (GetParam() == 0) {
      EXPECT_EQ(a.Poll().value().status, IBV_WC_SUCCESS);
    }
  }
}

TEST_P(Remote, UnreliableMessagesArriveOrAreLostInSilence) {
  here_.type = IBV_QPT_UC;
  Pair pair(here_, There());
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 8)}), 0);  // no receive
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(pair.b.Quiet());
  Fill(pair.a.data(), 300'000, 8);
  std::optional<ibv_wc> received;
  // Again where it is late, and the receive got the first one, or none.
  for (int i = 0; i < 10 && !(received && received->byte_len == 300'000); ++i) {
    ASSERT_EQ(pair.b.Receive(2, {pair.b.Sge(0, 300'000)}), 0);
    ASSERT_EQ(pair.a.Send(3, {pair.a.Sge(0, 300'000)}), 0);
    EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
    received = pair.b.Poll(seconds(1));
  }
  ASSERT_TRUE(received && received->byte_len == 300'000);
  EXPECT_EQ(memcmp(pair.a.data(), pair.b.data(), 300'000), 0);
}

// --- Another process ---------------------------------------------------------

// Connects and then sleeps until it is killed.
bool ConnectAndSleep(ValuePipe& pipe, const EndpointOptions& options) {
  Endpoint endpoint(options);
  pipe.Put(endpoint.identity());
  const auto peer = pipe.Get<Identity>();
  endpoint.Connect(peer);
  // A first exchange, so that the connection is there.
  endpoint.Write(99, {endpoint.Sge(0, 8)}, peer, 0);
  const auto done = endpoint.Poll(seconds(30));
  pipe.Put(done && done->status == IBV_WC_SUCCESS);
  pipe.Get<bool>();
  return true;
}

class RemoteProcess : public Remote {
 protected:
  void Start() {
    EndpointOptions options = There();
    options.timeout = 20;  // the connection may take its time
    peer_.emplace(
        [options](ValuePipe& pipe) { return ConnectAndSleep(pipe, options); });
    endpoint_.emplace(here_);
    identity_ = peer_->pipe().Get<Identity>();
    peer_->pipe().Put(endpoint_->identity());
    endpoint_->Connect(identity_);
    ASSERT_TRUE(peer_->pipe().Get<bool>());
  }
  // Returns when none of its threads runs any more.
  void StopPeer() {
    int status = 0;
    ASSERT_EQ(kill(peer_->pid(), SIGSTOP), 0);
    ASSERT_EQ(waitpid(peer_->pid(), &status, WUNTRACED), peer_->pid());
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  Endpoint& endpoint() { return *endpoint_; }
  std::optional<PeerProcess> peer_;
  std::optional<Endpoint> endpoint_;
  Identity identity_;
};

INSTANTIATE_TEST_SUITE_P(Modes, RemoteProcess, testing::Values(0, 5));

TEST_P(RemoteProcess, KilledPeerShowsWithinTheTimeoutToWhoHasRequests) {
  here_.timeout = 14;
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_EQ(endpoint().Receive(7, {}), 0);
  ASSERT_EQ(endpoint().Send(1, {}), 0);  // RNR: stays outstanding
  peer_->Kill();
  const Clock::time_point killed = Clock::now();
  const ibv_wc failed = endpoint().Poll().value();
  EXPECT_EQ(failed.wr_id, 1u);
  EXPECT_EQ(failed.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_LT(Clock::now() - killed, LivenessBound(seconds(2)));
  EXPECT_EQ(endpoint().Poll().value().wr_id, 7u);
}

TEST_P(RemoteProcess, KilledPeerShowsWhileAMessageIsOnItsWay) {
  here_.timeout = 14;
  here_.buffer_bytes = 64 << 20;
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(StopPeer());  // the sockets fill up
  ASSERT_EQ(endpoint().Write(1, {endpoint().Sge(0, 64 << 20)}, identity_, 0),
            0);
  peer_->Kill();
  EXPECT_EQ(endpoint().Poll().value().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_P(RemoteProcess, StoppedPeerShowsWithinTheTimeoutToWhoHasRequests) {
  here_.timeout = 14;
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(StopPeer());
  const Clock::time_point start = Clock::now();
  ASSERT_EQ(endpoint().Write(1, {endpoint().Sge(0, 8)}, identity_, 0), 0);
  EXPECT_EQ(endpoint().Poll().value().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(Clock::now() - start, milliseconds(268));  // 4.096 us * 2^14 * 4
  EXPECT_LT(Clock::now() - start, LivenessBound(seconds(2)));
}

// --- Where TCP is believed ---------------------------------------------------

TEST_P(RemoteProcess, WhereTcpIsBelievedAStoppedPeerIsWaitedFor) {
  here_.timeout = 14;
  here_.tcp_timeout = milliseconds(100);  // its kernel answers at once
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(StopPeer());
  ASSERT_EQ(endpoint().Write(1, {endpoint().Sge(0, 8)}, identity_, 0), 0);
  EXPECT_FALSE(endpoint().Poll(milliseconds(600)));  // 268 ms by the retries
  ASSERT_EQ(kill(peer_->pid(), SIGCONT), 0);
  EXPECT_EQ(endpoint().Poll().value().status, IBV_WC_SUCCESS);
}

TEST_P(RemoteProcess, WhereTcpIsBelievedAKilledPeerShowsAtOnceAndForGood) {
  here_.timeout = 22;  // 17 s a try
  here_.tcp_timeout = seconds(60);
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_EQ(endpoint().Send(1, {}), 0);  // RNR: stays outstanding
  peer_->Kill();
  EXPECT_EQ(endpoint().Poll().value().status, IBV_WC_RETRY_EXC_ERR);
  const auto [kind, why] = endpoint().library().describe_loss(endpoint().qp);
  EXPECT_EQ(kind, PeerLoss::Kind::kEnded);
  EXPECT_NE(why.find("the TCP connection to "), std::string::npos) << why;
  EXPECT_NE(why.find(" was c"), std::string::npos) << why;  // closed, or cut
}

TEST_P(Remote, WhereTcpIsBelievedTheFirstConnectionHasUntilItsTime) {
  here_.timeout = 14;
  here_.tcp_timeout = seconds(60);
  here_.connect_by = Clock::now() + milliseconds(900);
  Endpoint a(here_);
  Identity nobody = a.identity();
  nobody.qpn ^= 0x5400;  // a context that does not exist
  a.Connect(nobody);
  ASSERT_EQ(a.Send(1, {}), 0);
  EXPECT_EQ(a.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(Clock::now(), here_.connect_by);
  const auto [kind, why] = a.library().describe_loss(a.qp);
  EXPECT_EQ(kind, PeerLoss::Kind::kUnknown);
  EXPECT_NE(why.find("no TCP connection "), std::string::npos) << why;
  EXPECT_NE(why.find("RINGPIPE_SOFT_PORTS"), std::string::npos) << why;
}

TEST_P(RemoteProcess, KilledPeerShowsNothingToWhoOnlyReceives) {
  here_.timeout = 14;
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_EQ(endpoint().Receive(7, {}), 0);
  peer_->Kill();
  EXPECT_FALSE(endpoint().Poll(milliseconds(500)));
  EXPECT_FALSE(endpoint().NextEvent(milliseconds(0)));
  EXPECT_EQ(endpoint().State(), IBV_QPS_RTS);
}

}  // namespace
}  // namespace ringpipe::verbs::soft
