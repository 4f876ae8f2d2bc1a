// Whatever a real HCA refuses is refused, with its status at each side.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <optional>
#include <tuple>

#include "base/deadline.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"
#include "verbs/soft/verbs_functions.h"

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

  static void ExpectReadRefused(Pair& pair, const Identity& target,
                                std::uint64_t offset, std::uint32_t bytes) {
    ASSERT_EQ(pair.a.Read(1, {pair.a.Sge(0, bytes)}, target, offset), 0);
    EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(pair.b.NextEvent(), IBV_EVENT_QP_ACCESS_ERR);
    ExpectDead(pair.a);
    ExpectDead(pair.b);
  }

  // After a request that the responder does not support.
  static void ExpectInvalid(Pair& pair) {
    EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(pair.b.NextEvent(), IBV_EVENT_QP_REQ_ERR);
    ExpectDead(pair.a);
    ExpectDead(pair.b);
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
  ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, 100)}, pair.b.identity(), 0), 0);
  ExpectInvalid(pair);
}

TEST_P(Protection, ReadWithAWrongRkey) {
  Pair pair(options_);
  Identity target = pair.b.identity();
  target.rkey ^= 1;
  ExpectReadRefused(pair, target, 0, 100);
}

TEST_P(Protection, ReadBeyondItsRegion) {
  Pair pair(options_);
  ExpectReadRefused(pair, pair.b.identity(), (1 << 20) - 10, 11);
}

TEST_P(Protection, ReadOfARegionWithoutRemoteRead) {
  EndpointOptions target = options_;
  target.memory_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  Pair pair(options_, target);
  ExpectReadRefused(pair, pair.b.identity(), 0, 100);
}

TEST_P(Protection, ReadOnAQueuePairWithoutRemoteRead) {
  EndpointOptions target = options_;
  target.qp_access = IBV_ACCESS_REMOTE_WRITE;
  Pair pair(options_, target);
  ASSERT_EQ(pair.a.Read(1, {pair.a.Sge(0, 100)}, pair.b.identity(), 0), 0);
  ExpectInvalid(pair);
}

TEST_P(Protection, ReadFromWhoAnswersNone) {
  EndpointOptions target = options_;
  target.max_rd_atomic = 0;
  Pair pair(options_, target);
  ASSERT_EQ(pair.a.Read(1, {pair.a.Sge(0, 100)}, pair.b.identity(), 0), 0);
  ExpectInvalid(pair);
}

TEST_P(Protection, ReadIntoMemoryWithoutLocalWrite) {
  EndpointOptions source = options_;
  source.memory_access = 0;
  Pair pair(source, options_);
  ASSERT_EQ(pair.a.Read(1, {pair.a.Sge(0, 100)}, pair.b.identity(), 0), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_LOC_PROT_ERR);
  ExpectDead(pair.a);
  EXPECT_EQ(pair.b.State(), IBV_QPS_RTS);
}

TEST_P(Protection, AtomicOfAnotherLengthThanEight) {
  for (const std::uint32_t bytes : {0u, 4u, 16u}) {
    Pair pair(options_);
    ASSERT_EQ(
        pair.a.FetchAdd(1, {pair.a.Sge(0, bytes)}, pair.b.identity(), 0, 1), 0);
    EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_LOC_LEN_ERR);
    ExpectDead(pair.a);
    EXPECT_EQ(pair.b.State(), IBV_QPS_RTS);
  }
}

TEST_P(Protection, AtomicAtAnAddressThatIsNotAligned) {
  Pair pair(options_);
  ASSERT_EQ(pair.a.FetchAdd(1, {pair.a.Sge(0, 8)}, pair.b.identity(), 4, 1), 0);
  ExpectInvalid(pair);
}

TEST_P(Protection, AtomicOnARegionWithoutRemoteAtomic) {
  EndpointOptions target = options_;
  target.memory_access = kAllAccess & ~IBV_ACCESS_REMOTE_ATOMIC;
  Pair pair(options_, target);
  ASSERT_EQ(
      pair.a.CompareSwap(1, {pair.a.Sge(0, 8)}, pair.b.identity(), 0, 0, 1), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(pair.b.NextEvent(), IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(pair.b.data()[0], std::byte{0});
}

TEST_P(Protection, AtomicOnAQueuePairWithoutRemoteAtomic) {
  EndpointOptions target = options_;
  target.qp_access = kAllAccess & ~IBV_ACCESS_REMOTE_ATOMIC;
  Pair pair(options_, target);
  ASSERT_EQ(pair.a.FetchAdd(1, {pair.a.Sge(0, 8)}, pair.b.identity(), 0, 1), 0);
  ExpectInvalid(pair);
}

// --- UC ----------------------------------------------------------------------

class Unreliable : public Protection {
 protected:
  Unreliable() { options_.type = IBV_QPT_UC; }

  // A message arrives. The first ones may be lost, where the receiver's process
  // got no core while its memory was to be attached; none after one has
  // arrived.
  static void ExpectArrives(Endpoint& from, Endpoint& to, int most_sends) {
    ASSERT_EQ(to.Receive(77, {to.Sge(0, 100)}), 0);
    std::optional<ibv_wc> received;
    for (int sends = 0; sends < most_sends && !received; ++sends) {
      ASSERT_EQ(from.Send(78, {from.Sge(0, 100)}), 0);
      EXPECT_EQ(from.Poll().value().status, IBV_WC_SUCCESS);
      received = to.Poll(std::chrono::seconds(1));
    }
    ASSERT_TRUE(received);
    EXPECT_EQ(received->status, IBV_WC_SUCCESS);
    EXPECT_EQ(received->wr_id, 77u);
  }
  static void ExpectAttaches(Endpoint& from, Endpoint& to) {
    ExpectArrives(from, to, /*most_sends=*/10);
  }
  static void ExpectAlive(Pair& pair) {
    ExpectArrives(pair.a, pair.b, /*most_sends=*/1);
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, Unreliable,
                         testing::Combine(testing::Values(0, 11),
                                          testing::Bool()));

TEST_P(Unreliable, SendWithoutAReceiveIsLost) {
  Pair pair(options_);
  ExpectAttaches(pair.a, pair.b);
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  ExpectAlive(pair);
}

TEST_P(Unreliable, WriteWithAWrongKeyIsLost) {
  Pair pair(options_);
  ExpectAttaches(pair.a, pair.b);
  Identity target = pair.b.identity();
  target.rkey ^= 1;
  memset(pair.a.data(), 1, 8);
  ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, 8)}, target, 0), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.data()[0], std::byte{0});
  EXPECT_FALSE(pair.b.NextEvent(std::chrono::milliseconds(0)));
  ExpectAlive(pair);
}

TEST_P(Unreliable, WriteArrives) {
  Pair pair(options_);
  ExpectAttaches(pair.a, pair.b);
  memset(pair.a.data(), 1, 1000);
  ASSERT_EQ(pair.a.Write(1, {pair.a.Sge(0, 1000)}, pair.b.identity(), 5), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(pair.a.data(), pair.b.data() + 5, 1000), 0);
  ExpectAlive(pair);
}

TEST_P(Unreliable, MessageLongerThanItsReceiveEndsOnlyTheReceiver) {
  Pair pair(options_);
  ExpectAttaches(pair.a, pair.b);
  ASSERT_EQ(pair.b.Receive(9, {pair.b.Sge(0, 50)}), 0);
  ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 100)}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.Poll().value().status, IBV_WC_LOC_LEN_ERR);
  ExpectDead(pair.b);
  EXPECT_EQ(pair.a.State(), IBV_QPS_RTS);
}

TEST_P(Unreliable, NobodyThereIsNoError) {
  Endpoint a(options_);
  Identity nobody = a.identity();
  nobody.qpn ^= 0x3ff;
  a.Connect(nobody);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(a.Send(i, {}), 0);
    EXPECT_EQ(a.Poll().value().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(a.State(), IBV_QPS_RTS);
}

TEST_P(Unreliable, LocalErrorStopsOnlyTheSendQueue) {
  Pair pair(options_);
  ExpectAttaches(pair.a, pair.b);
  ExpectAttaches(pair.b, pair.a);
  ibv_sge wrong = pair.a.Sge(0, 100);
  wrong.lkey ^= 1;
  ASSERT_EQ(pair.a.Send(1, {wrong}), 0);
  ASSERT_EQ(pair.a.Send(2, {pair.a.Sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.a.State(), IBV_QPS_SQE);
  ASSERT_EQ(pair.a.Receive(3, {pair.a.Sge(0, 8)}), 0);
  ASSERT_EQ(pair.b.Send(4, {pair.b.Sge(0, 8)}), 0);
  EXPECT_EQ(pair.b.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(pair.a.library().modify_qp(pair.a.qp, &attr, IBV_QP_STATE), 0);
  ExpectAlive(pair);
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
  // As pinning the pages for writing would say.
  void* constant =
      mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = 0;
  EXPECT_EQ(library.reg_mr(endpoint.pd, constant, 8192, kAllAccess), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ibv_mr* readable =
      library.reg_mr(endpoint.pd, constant, 8192, IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(readable, nullptr);
  EXPECT_EQ(library.dereg_mr(readable), 0);
  mprotect(static_cast<std::byte*>(constant) + 4096, 4096,
           PROT_READ | PROT_WRITE);
  EXPECT_EQ(library.reg_mr(endpoint.pd, constant, 8192, kAllAccess), nullptr);
  munmap(constant, 8192);
  // An iova is at the same place in its page.
  EXPECT_EQ(RegMrIova(endpoint.pd, data, 8, 0x10001, kAllAccess), nullptr);
}

}  // namespace
}  // namespace ringpipe::verbs::soft
