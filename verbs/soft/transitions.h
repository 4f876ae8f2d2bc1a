#ifndef RINGPIPE_VERBS_SOFT_TRANSITIONS_H_
#define RINGPIPE_VERBS_SOFT_TRANSITIONS_H_

#include <infiniband/verbs.h>

namespace ringpipe::verbs::soft {

// Whether a queue pair of `type` may go from `from` to `to` with attributes
// `mask` (of ibv_qp_attr_mask): all that are required and none that are not
// allowed.
bool IsValidTransition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                       int mask);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_TRANSITIONS_H_
