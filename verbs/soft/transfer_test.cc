// Bytes arrive, complete and unchanged, by every way there is.
#include <string.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "base/peer_process.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

void Fill(std::byte* data, std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>(random());
  }
}

// (adversary seed, private memory)
class Transfer
    : public testing::TestWithParam<std::tuple<std::uint64_t, bool>> {
 protected:
  Transfer() {
    options_.adversary_seed = std::get<0>(GetParam());
    options_.private_memory = std::get<1>(GetParam());
  }
  EndpointOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Transfer,
                         testing::Combine(testing::Values(0, 11),
                                          testing::Bool()));

TEST_P(Transfer, SendGathersAndScatters) {
  Pair pair(options_);
  Fill(pair.a.data(), 10000, 1);
  ASSERT_EQ(pair.b.Receive(5, {pair.b.Sge(0, 100), pair.b.Sge(500, 0),
                               pair.b.Sge(1000, 5000), pair.b.Sge(8000, 9000)}),
            0);
  ASSERT_EQ(pair.a.Send(6, {pair.a.Sge(0, 3000), pair.a.Sge(4000, 1),
                            pair.a.Sge(5000, 4000)}),
            0);
  const auto sent = pair.a.Poll();
  const auto received = pair.b.Poll();
  ASSERT_TRUE(sent && received);
  EXPECT_EQ(sent->status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent->wr_id, 6u);
  EXPECT_EQ(sent->opcode, IBV_WC_SEND);
  EXPECT_EQ(received->status, IBV_WC_SUCCESS);
  EXPECT_EQ(received->wr_id, 5u);
  EXPECT_EQ(received->opcode, IBV_WC_RECV);
  EXPECT_EQ(received->byte_len, 7001u);
  EXPECT_EQ(received->qp_num, pair.b.qp->qp_num);
  EXPECT_EQ(received->src_qp, pair.a.qp->qp_num);
  EXPECT_EQ(received->wc_flags & IBV_WC_WITH_IMM, 0u);

  std::vector<std::byte> expected(pair.a.data(), pair.a.data() + 3000);
  expected.push_back(pair.a.data()[4000]);
  expected.insert(expected.end(), pair.a.data() + 5000, pair.a.data() + 9000);
  EXPECT_EQ(memcmp(pair.b.data(), expected.data(), 100), 0);
  EXPECT_EQ(memcmp(pair.b.data() + 1000, expected.data() + 100, 5000), 0);
  EXPECT_EQ(memcmp(pair.b.data() + 8000, expected.data() + 5100, 1901), 0);
  EXPECT_EQ(pair.b.data()[9901], std::byte{0});
}

TEST_P(Transfer, InlineSendMayReuseItsBufferAtOnce) {
  Pair pair(options_);
  ASSERT_EQ(pair.b.Receive(1, {pair.b.Sge(0, 64)}), 0);
  char text[64] = "inline";
  // No registered memory, no valid key: inline needs none.
  ASSERT_EQ(pair.a.Send(2, {{reinterpret_cast<std::uint64_t>(text), 64, 0}},
                        IBV_SEND_SIGNALED | IBV_SEND_INLINE),
            0);
  memset(text, 'x', sizeof text);
  ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.b.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_STREQ(reinterpret_cast<char*>(pair.b.data()), "inline");
}

TEST_P(Transfer, SendOfNothingWithImmediateArrives) {
  Pair pair(options_);
  ASSERT_EQ(pair.b.Receive(1, {}), 0);
  ASSERT_EQ(pair.a.Send(2, {}, IBV_SEND_SIGNALED, 0x12345678), 0);
  ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  const auto received = pair.b.Poll();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->status, IBV_WC_SUCCESS);
  EXPECT_EQ(received->byte_len, 0u);
  EXPECT_EQ(received->imm_data, 0x12345678u);
  EXPECT_NE(received->wc_flags & IBV_WC_WITH_IMM, 0u);
}

TEST_P(Transfer, WriteArrivesWithoutACompletionAtItsTarget) {
  Pair pair(options_);
  Fill(pair.a.data(), 100'000, 2);
  ASSERT_EQ(pair.b.Receive(9, {pair.b.Sge(0, 10)}), 0);
  ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, 100'000)}, pair.b.identity(), 77),
            0);
  const auto sent = pair.a.Poll();
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent->opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(memcmp(pair.b.data() + 77, pair.a.data(), 100'000), 0);
  EXPECT_TRUE(pair.b.Quiet());
}

TEST_P(Transfer, WriteWithImmediateTakesAReceive) {
  Pair pair(options_);
  Fill(pair.a.data(), 3000, 3);
  ASSERT_EQ(pair.b.Receive(9, {}), 0);
  ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, 3000)}, pair.b.identity(), 10,
                         IBV_SEND_SIGNALED, 0xabcd),
            0);
  ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  const auto received = pair.b.Poll();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received->byte_len, 3000u);
  EXPECT_EQ(received->imm_data, 0xabcdu);
  EXPECT_EQ(memcmp(pair.b.data() + 10, pair.a.data(), 3000), 0);
}

TEST_P(Transfer, WriteOfNothingNeedsNoKey) {
  Pair pair(options_);
  ASSERT_EQ(pair.a.Write(1, {}, Identity{}, 0), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
}

TEST_P(Transfer, ReadScattersWhatThePeerHas) {
  Pair pair(options_);
  Fill(pair.b.data(), 200'000, 5);
  ASSERT_EQ(pair.a.Read(3,
                        {pair.a.Sge(10, 100), pair.a.Sge(700, 0),
                         pair.a.Sge(1000, 150'000)},
                        pair.b.identity(), 77),
            0);
  const auto read = pair.a.Poll();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->status, IBV_WC_SUCCESS);
  EXPECT_EQ(read->opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(read->wr_id, 3u);
  EXPECT_EQ(read->byte_len, 150'100u);
  EXPECT_EQ(memcmp(pair.a.data() + 10, pair.b.data() + 77, 100), 0);
  EXPECT_EQ(memcmp(pair.a.data() + 1000, pair.b.data() + 177, 150'000), 0);
  EXPECT_EQ(pair.a.data()[151'000], std::byte{0});
  EXPECT_TRUE(pair.b.Quiet());
}

TEST_P(Transfer, ReadOfNothingNeedsNoKey) {
  Pair pair(options_);
  ASSERT_EQ(pair.a.Read(1, {}, Identity{}, 0), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
}

TEST_P(Transfer, KeysOfARegionGoByItsIova) {
  Pair pair(options_);
  constexpr std::uint64_t kIova = 0x7000'0000'0000;
  Fill(pair.b.data(), 9000, 6);
  ibv_mr* mr =
      RegMrIova(pair.b.pd, pair.b.data() + 4096, 4096, kIova, kAllAccess);
  ASSERT_NE(mr, nullptr);
  Identity target = {pair.b.qp->qp_num, mr->rkey, kIova};
  ASSERT_EQ(pair.a.Read(1, {pair.a.Sge(0, 96)}, target, 4000), 0);
  ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(pair.a.data(), pair.b.data() + 8096, 96), 0);
  ASSERT_EQ(pair.a.Write(2, {pair.a.Sge(0, 8)}, target, 16), 0);
  ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(pair.b.data() + 4112, pair.a.data(), 8), 0);
  // Local keys too.
  ASSERT_EQ(pair.b.Read(3, {{kIova + 8, 8, mr->lkey}}, pair.a.identity(), 0),
            0);
  ASSERT_EQ(pair.b.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(pair.b.data() + 4104, pair.a.data(), 8), 0);
  // Its address is no longer one that the key knows.
  target.address = reinterpret_cast<std::uint64_t>(pair.b.data()) + 4096;
  ASSERT_EQ(pair.a.Read(4, {pair.a.Sge(0, 8)}, target, 0), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(pair.b.library().dereg_mr(mr), 0);
}

TEST_P(Transfer, UnsignaledSendsCompleteSilentlyAndInOrder) {
  Pair pair(options_);
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(pair.b.Receive(i, {pair.b.Sge(i * 8, 8)}), 0);
  }
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(pair.a.Send(i, {pair.a.Sge(i * 8, 8)},
                          i == 19 ? IBV_SEND_SIGNALED : 0, i),
              0);
  }
  EXPECT_EQ(pair.a.Poll().value().wr_id, 19u);
  EXPECT_TRUE(pair.a.Quiet());
  for (std::uint64_t i = 0; i < 20; ++i) {
    const auto received = pair.b.Poll();
    ASSERT_TRUE(received);
    EXPECT_EQ(received->wr_id, i);
    EXPECT_EQ(received->imm_data, i);
  }
}

TEST_P(Transfer, AQueuePairMayTalkToItself) {
  Endpoint self(options_);
  self.Connect(self.identity());
  Fill(self.data(), 1000, 4);
  ASSERT_EQ(self.Receive(1, {self.Sge(5000, 1000)}), 0);
  ASSERT_EQ(self.Send(2, {self.Sge(0, 1000)}), 0);
  ASSERT_EQ(self.Poll().value().status, IBV_WC_SUCCESS);
  ASSERT_EQ(self.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(self.data(), self.data() + 5000, 1000), 0);
}

// Sends `count` messages of `bytes`, checks each at the other process.
bool ReceiveAll(ValuePipe& pipe, const EndpointOptions& options, int count,
                std::uint32_t bytes) {
  constexpr int kDepth = 8;
  Endpoint endpoint(options);
  pipe.Put(endpoint.identity());
  endpoint.Connect(pipe.Get<Identity>());
  for (int i = 0; i < kDepth; ++i) {
    endpoint.Receive(i, {endpoint.Sge(i * bytes, bytes)});
  }
  pipe.Put(true);
  std::vector<std::byte> expected(bytes);
  bool right = true;
  for (int i = 0; i < count && right; ++i) {
    const auto received = endpoint.Poll();
    Fill(expected.data(), bytes, i);
    right = received && received->status == IBV_WC_SUCCESS &&
            received->byte_len == bytes &&
            memcmp(endpoint.data() + received->wr_id * bytes, expected.data(),
                   bytes) == 0;
    endpoint.Receive(received ? received->wr_id : 0,
                     {endpoint.Sge((i % kDepth) * bytes, bytes)});
  }
  pipe.Put(right);
  pipe.Get<bool>();  // the other end goes first
  return right;
}

TEST_P(Transfer, AnotherProcessReceivesEveryByte) {
  constexpr int kCount = 100;
  constexpr std::uint32_t kBytes = 20'000;
  const EndpointOptions options = options_;
  PeerProcess peer([options](ValuePipe& pipe) {
    return ReceiveAll(pipe, options, kCount, kBytes);
  });
  {
    Endpoint endpoint(options);
    const auto identity = peer.pipe().Get<Identity>();
    peer.pipe().Put(endpoint.identity());
    endpoint.Connect(identity);
    peer.pipe().Get<bool>();
    for (int i = 0; i < kCount; ++i) {
      Fill(endpoint.data(), kBytes, i);
      ASSERT_EQ(endpoint.Send(i, {endpoint.Sge(0, kBytes)}), 0);
      ASSERT_EQ(endpoint.Poll().value().status, IBV_WC_SUCCESS);
    }
    EXPECT_TRUE(peer.pipe().Get<bool>());
  }
  peer.pipe().Put(true);
  EXPECT_TRUE(peer.Join());
}

TEST_P(Transfer, AnotherProcessIsReadWithoutItsDoing) {
  const EndpointOptions options = options_;
  PeerProcess peer([options](ValuePipe& pipe) {
    Endpoint endpoint(options);
    Fill(endpoint.data(), 500'000, 8);
    pipe.Put(endpoint.identity());
    endpoint.Connect(pipe.Get<Identity>());
    pipe.Put(true);
    return pipe.Get<bool>();
  });
  {
    Endpoint endpoint(options);
    const auto identity = peer.pipe().Get<Identity>();
    peer.pipe().Put(endpoint.identity());
    endpoint.Connect(identity);
    peer.pipe().Get<bool>();
    std::vector<std::byte> expected(500'000);
    Fill(expected.data(), expected.size(), 8);
    for (std::uint32_t bytes : {1u, 8u, 4096u, 499'999u}) {
      memset(endpoint.data(), 0, 500'000);
      ASSERT_EQ(endpoint.Read(bytes,
                              {endpoint.Sge(0, bytes / 2),
                               endpoint.Sge(bytes / 2, bytes - bytes / 2)},
                              identity, 1),
                0);
      ASSERT_EQ(endpoint.Poll().value().status, IBV_WC_SUCCESS);
      EXPECT_EQ(memcmp(endpoint.data(), expected.data() + 1, bytes), 0);
    }
  }
  peer.pipe().Put(true);
  EXPECT_TRUE(peer.Join());
}

TEST(Adversary, ReadsTheSourceAtTheLastMoment) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "it breaks the rule that the adversary is to find out, and "
                  "sometimes the sanitizer is faster";
#endif
  EndpointOptions options;
  options.adversary_seed = 3;
  Pair pair(options);
  int overwritten = 0;
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(pair.b.Receive(1, {pair.b.Sge(0, 8)}), 0);
    pair.a.data()[0] = std::byte{1};
    ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 8)}), 0);
    pair.a.data()[0] = std::byte{2};  // too early: no completion yet
    ASSERT_TRUE(pair.a.Poll());
    ASSERT_TRUE(pair.b.Poll());
    overwritten += pair.b.data()[0] == std::byte{2} ? 1 : 0;
  }
  // All but those that a's housekeeper had time for between the two lines.
  EXPECT_GT(overwritten, 25);
}

TEST(Adversary, RequestsExecuteAlsoIfNobodyPolls) {
  EndpointOptions options;
  options.adversary_seed = 3;
  Pair pair(options);
  ASSERT_EQ(pair.b.Receive(1, {pair.b.Sge(0, 8)}), 0);
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 8)}), 0);
  EXPECT_TRUE(pair.b.Poll());  // a's housekeeper did it
}

}  // namespace
}  // namespace ringpipe::verbs::soft
