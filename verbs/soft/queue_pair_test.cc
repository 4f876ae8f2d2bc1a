// The state machine, and what may be posted in which state.
#include <errno.h>

#include <vector>

#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"
#include "verbs/soft/transitions.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr int kInit =
    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

TEST(Transitions, OnlyThoseOfTheSpecificationExist) {
  constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                      IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_SQE,
                                      IBV_QPS_ERR};
  for (const ibv_qp_state from : kStates) {
    for (const ibv_qp_state to : kStates) {
      int mask = 0;
      if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) mask = kInit;
      if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) mask = kRtr;
      if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) mask = kRts;
      const bool same =
          from == to &&
          (from == IBV_QPS_INIT || from == IBV_QPS_RTS || from == IBV_QPS_SQD);
      const bool drain = (from == IBV_QPS_RTS && to == IBV_QPS_SQD) ||
                         (from == IBV_QPS_SQD && to == IBV_QPS_RTS);
      const bool expected = mask != 0 || same || drain || to == IBV_QPS_RESET ||
                            to == IBV_QPS_ERR;
      EXPECT_EQ(IsValidTransition(IBV_QPT_RC, from, to, mask | IBV_QP_STATE),
                expected)
          << from << " to " << to;
    }
  }
}

TEST(Transitions, EachRequiredAttributeIsRequiredAndNoOtherAllowed) {
  const struct {
    ibv_qp_state from, to;
    int required, optional;
  } kCases[] = {{IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
                {IBV_QPS_INIT, IBV_QPS_RTR, kRtr,
                 IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
                {IBV_QPS_RTR, IBV_QPS_RTS, kRts,
                 IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
                     IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE}};
  for (const auto& test : kCases) {
    EXPECT_TRUE(
        IsValidTransition(IBV_QPT_RC, test.from, test.to, test.required));
    for (int bit = 2; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
      const bool required = (test.required & bit) != 0;
      const bool allowed = required || (test.optional & bit) != 0;
      EXPECT_EQ(IsValidTransition(IBV_QPT_RC, test.from, test.to,
                                  test.required & ~bit),
                !required);
      EXPECT_EQ(IsValidTransition(IBV_QPT_RC, test.from, test.to,
                                  test.required | bit),
                allowed);
    }
  }
}

int Modify(Endpoint& endpoint, ibv_qp_attr attr, int mask) {
  return endpoint.library().modify_qp(endpoint.qp, &attr, mask);
}

TEST(QueuePair, RefusesValuesThatADeviceCannotHave) {
  Endpoint endpoint;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 2;
  EXPECT_EQ(Modify(endpoint, attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
  attr.port_num = 1;
  attr.pkey_index = 1;
  EXPECT_EQ(Modify(endpoint, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX), EINVAL);
  // RoCE without a GID.
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr.port_num = 1;
  EXPECT_EQ(Modify(endpoint, attr, kRtr), EINVAL);
  // A GID of another host, and no secret to share with it.
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid.raw[15] = 9;
  EXPECT_EQ(Modify(endpoint, attr, kRtr), EACCES);
  EXPECT_EQ(endpoint.State(), IBV_QPS_INIT);
}

TEST(QueuePair, PostingDependsOnTheState) {
  Endpoint endpoint;
  endpoint.ToReset();
  EXPECT_EQ(endpoint.Receive(1, {}), EINVAL);
  EXPECT_EQ(endpoint.Send(1, {}), EINVAL);
  endpoint.ToInit();
  EXPECT_EQ(endpoint.Receive(1, {}), 0);
  EXPECT_EQ(endpoint.Send(1, {}), EINVAL);
  endpoint.ToRtr(endpoint.identity());
  EXPECT_EQ(endpoint.Receive(2, {}), 0);
  EXPECT_EQ(endpoint.Send(1, {}), EINVAL);
  endpoint.ToRts();
  EXPECT_EQ(endpoint.Send(3, {}), 0);
  EXPECT_EQ(endpoint.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(endpoint.Poll().value().status, IBV_WC_SUCCESS);
  endpoint.ToError();
  EXPECT_EQ(endpoint.Poll().value().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(endpoint.Send(4, {}, 0), 0);
  EXPECT_EQ(endpoint.Poll().value().wr_id, 4u);
  EXPECT_EQ(endpoint.Receive(5, {}), 0);
  EXPECT_EQ(endpoint.Poll().value().wr_id, 5u);
}

TEST(QueuePair, RefusesMoreThanItsLimits) {
  EndpointOptions options;
  options.cap = {.max_send_wr = 2,
                 .max_recv_wr = 2,
                 .max_send_sge = 1,
                 .max_recv_sge = 1,
                 .max_inline_data = 16};
  Pair pair(options);
  const ibv_sge sge = pair.a.Sge(0, 8);
  EXPECT_EQ(pair.a.Receive(1, {sge, sge}), EINVAL);
  EXPECT_EQ(pair.a.Send(1, {sge, sge}), EINVAL);
  EXPECT_EQ(pair.a.Send(1, {pair.a.Sge(0, 17)}, IBV_SEND_INLINE), ENOMEM);
  ibv_send_wr read = {};
  read.opcode = IBV_WR_LOCAL_INV;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(pair.a.qp, &read, &bad), EINVAL);
  EXPECT_EQ(bad, &read);
  EXPECT_EQ(pair.a.Receive(1, {}), 0);
  EXPECT_EQ(pair.a.Receive(2, {}), 0);
  EXPECT_EQ(pair.a.Receive(3, {}), ENOMEM);
}

TEST(QueuePair, UnsignaledRequestsMakeRoomOnlyWhenALaterOneIsPolled) {
  EndpointOptions options;
  options.cap.max_send_wr = 3;
  Pair pair(options);
  constexpr int kRoom = 3;
  for (int i = 0; i < kRoom; ++i) {
    ASSERT_EQ(pair.b.Receive(i, {}), 0);
  }
  for (int i = 1; i < kRoom; ++i) {
    EXPECT_EQ(pair.a.Send(i, {}, 0), 0);
  }
  EXPECT_EQ(pair.a.Send(kRoom, {}), 0);
  for (int i = 0; i < kRoom; ++i) {
    EXPECT_TRUE(pair.b.Poll());  // executed, yet their places are taken
  }
  EXPECT_EQ(pair.a.Send(4, {}), ENOMEM);
  EXPECT_EQ(pair.a.Poll().value().wr_id, std::uint64_t{kRoom});
  EXPECT_EQ(pair.a.Send(4, {}), 0);
}

TEST(QueuePair, AChainStopsAtTheFirstBadRequest) {
  Pair pair;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(pair.b.Receive(i, {}), 0);
  }
  ibv_send_wr requests[3] = {};
  for (int i = 0; i < 3; ++i) {
    requests[i].wr_id = i;
    requests[i].opcode = i == 1 ? IBV_WR_LOCAL_INV : IBV_WR_SEND;
    requests[i].send_flags = IBV_SEND_SIGNALED;
    requests[i].next = i < 2 ? &requests[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(pair.a.qp, requests, &bad), EINVAL);
  EXPECT_EQ(bad, &requests[1]);
  EXPECT_EQ(pair.a.Poll().value().wr_id, 0u);
  EXPECT_TRUE(pair.a.Quiet());
}

TEST(QueuePair, ResetForgetsEverythingAndConnectsAgain) {
  Pair pair;
  ASSERT_EQ(pair.a.Receive(1, {}), 0);
  ASSERT_EQ(pair.b.Send(2, {}), 0);
  ASSERT_EQ(pair.b.Poll().value().status, IBV_WC_SUCCESS);
  pair.a.ToReset();
  pair.b.ToReset();
  EXPECT_TRUE(pair.a.Quiet());  // also the completion that nobody took
  for (Endpoint* end : {&pair.a, &pair.b}) {
    end->ToInit();
    end->Connect((end == &pair.a ? pair.b : pair.a).identity());
  }
  ASSERT_EQ(pair.a.Receive(3, {}), 0);
  ASSERT_EQ(pair.b.Send(4, {}), 0);
  EXPECT_EQ(pair.b.Poll().value().wr_id, 4u);
  EXPECT_EQ(pair.a.Poll().value().wr_id, 3u);
}

TEST(QueuePair, DrainedSendQueueHoldsItsRequestsBack) {
  Pair pair;
  ASSERT_EQ(pair.b.Receive(1, {}), 0);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(Modify(pair.a, attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  EXPECT_EQ(pair.a.NextEvent(), IBV_EVENT_SQ_DRAINED);
  ASSERT_EQ(pair.a.Send(2, {}), 0);
  EXPECT_TRUE(pair.a.Quiet());
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(Modify(pair.a, attr, IBV_QP_STATE), 0);
  EXPECT_EQ(pair.a.Poll().value().wr_id, 2u);
}

TEST(QueuePair, ObjectsInUseAreNotDestroyed) {
  Endpoint endpoint;
  EXPECT_EQ(endpoint.library().dealloc_pd(endpoint.pd), EBUSY);
  EXPECT_EQ(endpoint.library().destroy_cq(endpoint.cq), EBUSY);
  EXPECT_EQ(endpoint.library().destroy_comp_channel(endpoint.channel), EBUSY);
}

}  // namespace
}  // namespace ringpipe::verbs::soft
