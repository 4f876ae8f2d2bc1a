// Whatever a real HCA refuses is refused, with its status at each side.
#include <tuple>

#include "base/deadline.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"

namespace ringpipe::verbs::soft {
namespace {

// (adversary seed, private memory)
class Protection
    : public testing::TestWithParam<std::tuple<std::uint64_t, bool>> {
 protected:
  Protection() {
    options_.adversary_seed = std::get<0>(GetParam());
    options_.private_memory = std::get<1>(GetParam());
  }

  // After an error: in ERR, and what is posted is flushed.
  static void ExpectDead(Endpoint& endpoint) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(10));
    while (endpoint.State() != IBV_QPS_ERR && !deadline.expired()) {
    }
    ASSERT_EQ(endpoint.State(), IBV_QPS_ERR);
    ASSERT_EQ(endpoint.Send(1001, {}, 0), 0);
    EXPECT_EQ(endpoint.Poll().value().status, IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(endpoint.Receive(1002, {}), 0);
    EXPECT_EQ(endpoint.Poll().value().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_TRUE(endpoint.Quiet());
  }

  // A write that the responder refuses.
  static void ExpectWriteRefused(Pair& pair, const Identity& target,
                                 std::uint64_t offset, std::uint32_t bytes) {
    ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, bytes)}, target, offset), 0);
    EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(pair.b.NextEvent(), IBV_EVENT_QP_ACCESS_ERR);
    ExpectDead(pair.a);
    ExpectDead(pair.b);
  }

  EndpointOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Protection,
                         testing::Combine(testing::Values(0, 11),
                                          testing::Bool()));

TEST_P(Protection, WrongLkeyOfASend) {
  Pair pair(options_);
  ASSERT_EQ(pair.b.Receive(9, {pair.b.Sge(0, 100)}), 0);
  ibv_sge sge = pair.a.Sge(0, 100);
  sge.lkey ^= 1;
  ASSERT_EQ(pair.a.Send(1, {sge}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_LOC_PROT_ERR);
  ExpectDead(pair.a);
  EXPECT_TRUE(pair.b.Quiet());  // nothing left the requester
  EXPECT_EQ(pair.b.State(), IBV_QPS_RTS);
}

TEST_P(Protection, SourceBeyondItsRegion) {
  Pair pair(options_);
  ASSERT_EQ(
      pair.a.Write(1, {pair.a.Sge((1 << 20) - 10, 11)}, pair.b.identity(), 0),
      0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_LOC_PROT_ERR);
  ExpectDead(pair.a);
}

TEST_P(Protection, SourceOfAnotherProtectionDomain) {
  Pair pair(options_);
  Endpoint& a = pair.a;
  ibv_pd* other = a.library().alloc_pd(a.context);
  ibv_mr* mr = a.library().reg_mr(other, a.data(), 100, 0);
  ASSERT_EQ(
      a.Write(1, {{reinterpret_cast<std::uint64_t>(a.data()), 10, mr->lkey}},
              pair.b.identity(), 0),
      0);
  EXPECT_EQ(a.Poll().value().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(a.library().dealloc_pd(other), EBUSY);
  EXPECT_EQ(a.library().dereg_mr(mr), 0);
  EXPECT_EQ(a.library().dealloc_pd(other), 0);
}

TEST_P(Protection, WrongRkey) {
  Pair pair(options_);
  Identity target = pair.b.identity();
  target.rkey ^= 1;
  ExpectWriteRefused(pair, target, 0, 100);
}

TEST_P(Protection, TargetBeyondItsRegion) {
  Pair pair(options_);
  ExpectWriteRefused(pair, pair.b.identity(), (1 << 20) - 10, 11);
}

TEST_P(Protection, TargetBeforeItsRegion) {
  Pair pair(options_);
  ExpectWriteRefused(pair, pair.b.identity(), ~std::uint64_t{0}, 11);
}

TEST_P(Protection, RegionWithoutRemoteWrite) {
  EndpointOptions target = options_;
  target.memory_access = IBV_ACCESS_LOCAL_WRITE;
  Pair pair(options_, target);
  ExpectWriteRefused(pair, pair.b.identity(), 0, 100);
}

TEST_P(Protection, QueuePairWithoutRemoteWrite) {
  EndpointOptions target = options_;
  target.qp_access = 0;
  Pair pair(options_, target);
  ExpectWriteRefused(pair, pair.b.identity(), 0, 100);
}

TEST_P(Protection, TargetOfAnotherProtectionDomain) {
  Pair pair(options_);
  Endpoint& b = pair.b;
  ibv_pd* other = b.library().alloc_pd(b.context);
  ibv_mr* mr = b.library().reg_mr(other, b.data(), 100, kAllAccess);
  Identity target = b.identity();
  target.rkey = mr->rkey;
  ExpectWriteRefused(pair, target, 0, 10);
  EXPECT_EQ(b.library().dereg_mr(mr), 0);
  EXPECT_EQ(b.library().dealloc_pd(other), 0);
}

TEST_P(Protection, DeregisteredTarget) {
  Pair pair(options_);
  const Identity target = pair.b.identity();
  ASSERT_EQ(pair.b.library().dereg_mr(pair.b.mr), 0);
  pair.b.mr = nullptr;
  ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, 8)}, target, 0), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Protection, MessageLongerThanItsReceive) {
  Pair pair(options_);
  ASSERT_EQ(pair.b.Receive(9, {pair.b.Sge(0, 50), pair.b.Sge(60, 49)}), 0);
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 100)}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_INV_REQ_ERR);
  const auto received = pair.b.Poll();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(received->wr_id, 9u);
  ExpectDead(pair.a);
  ExpectDead(pair.b);
}

TEST_P(Protection, WrongLkeyOfAReceive) {
  Pair pair(options_);
  ibv_sge sge = pair.b.Sge(0, 100);
  sge.lkey += 256;
  ASSERT_EQ(pair.b.Receive(9, {sge}), 0);
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 100)}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(pair.b.Poll().value().status, IBV_WC_LOC_PROT_ERR);
  ExpectDead(pair.a);
  ExpectDead(pair.b);
}

TEST_P(Protection, ReceiveIntoReadOnlyMemory) {
  EndpointOptions target = options_;
  target.memory_access = 0;
  Pair pair(options_, target);
  ASSERT_EQ(pair.b.Receive(9, {pair.b.Sge(0, 100)}), 0);
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 100)}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(pair.b.Poll().value().status, IBV_WC_LOC_PROT_ERR);
}

TEST_P(Protection, WhatIsOutstandingIsFlushedOnceAndInOrder) {
  Pair pair(options_);
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(pair.a.Receive(100 + i, {pair.a.Sge(0, 8)}), 0);
  }
  // No receive at the other end: these wait. Unsignaled ones flush too.
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(pair.a.Send(i, {pair.a.Sge(0, 8)}, i % 2 == 0 ? 0 : 2), 0);
  }
  pair.a.ToError();
  std::uint64_t next_send = 0;
  std::uint64_t next_receive = 100;
  for (int i = 0; i < 10; ++i) {
    const auto flushed = pair.a.Poll();
    ASSERT_TRUE(flushed);
    EXPECT_EQ(flushed->status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed->wr_id,
              flushed->wr_id >= 100 ? next_receive++ : next_send++);
  }
  EXPECT_TRUE(pair.a.Quiet());
}

TEST_P(Protection, RegistrationFollowsTheRules) {
  Endpoint endpoint(options_);
  const Library& library = endpoint.library();
  std::byte* data = endpoint.data();
  errno = 0;
  EXPECT_EQ(library.reg_mr(endpoint.pd, data, 8, IBV_ACCESS_REMOTE_WRITE),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(library.reg_mr(endpoint.pd, data, 0, kAllAccess), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(library.reg_mr(endpoint.pd, reinterpret_cast<void*>(4096), 8, 0),
            nullptr);
  EXPECT_EQ(errno, EFAULT);
}

}  // namespace
}  // namespace ringpipe::verbs::soft
