#include "verbs/soft/transitions.h"

namespace ringpipe::verbs::soft {
namespace {

struct Transition {
  ibv_qp_type type;
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

// InfiniBand Architecture Specification 1.3, table 91 (Modify QP).
constexpr int kRcAtRts = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH |
                         IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
                         IBV_QP_PATH_MIG_STATE;
constexpr int kUcAtRts = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH |
                         IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int kUdAtRts = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr int kAtInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kUdAtInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kPath = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN;
constexpr int kAtSqd = IBV_QP_PORT | IBV_QP_AV | IBV_QP_ALT_PATH |
                       IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
                       IBV_QP_PATH_MIG_STATE;
constexpr Transition kTransitions[] = {
    {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kAtInit, 0},
    {IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, kAtInit, 0},
    {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kUdAtInit, 0},

    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0, kAtInit},
    {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_INIT, 0, kAtInit},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, kUdAtInit},

    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR,
     kPath | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kPath | IBV_QP_RQ_PSN,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},

    {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC,
     kRcAtRts},
    {IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kUcAtRts},
    {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kUdAtRts},

    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0, kRcAtRts},
    {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS, 0, kUcAtRts},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, kUdAtRts},

    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},

    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, kRcAtRts},
    {IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_RTS, 0, kUcAtRts},
    {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS, 0, kUdAtRts},

    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
     kAtSqd | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER},
    {IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_SQD, 0, kAtSqd},
    {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},

    // An error of the send queue alone; RC has none.
    {IBV_QPT_UC, IBV_QPS_SQE, IBV_QPS_RTS, 0, kUcAtRts},
    {IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0, kUdAtRts},
};

}  // namespace

bool IsValidTransition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                       int mask) {
  mask &= ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
    return mask == 0;
  }
  for (const Transition& transition : kTransitions) {
    if (transition.type == type && transition.from == from &&
        transition.to == to) {
      return (mask & transition.required) == transition.required &&
             (mask & ~(transition.required | transition.optional)) == 0;
    }
  }
  return false;
}

}  // namespace ringpipe::verbs::soft
