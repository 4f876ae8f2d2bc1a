#include "verbs/soft/transitions.h"

namespace ringpipe::verbs::soft {
namespace {

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

// InfiniBand Architecture Specification 1.3, table 91 (Modify QP), RC rows.
constexpr int kAtRts = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH |
                       IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
                       IBV_QP_PATH_MIG_STATE;
constexpr int kAtInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kAtInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kAtInit},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC,
     kAtRts},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kAtRts},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kAtRts},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
         IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
         IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
};

}  // namespace

bool IsValidTransition(ibv_qp_state from, ibv_qp_state to, int mask) {
  mask &= ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
    return mask == 0;
  }
  for (const Transition& transition : kTransitions) {
    if (transition.from == from && transition.to == to) {
      return (mask & transition.required) == transition.required &&
             (mask & ~(transition.required | transition.optional)) == 0;
    }
  }
  return false;
}

}  // namespace ringpipe::verbs::soft
