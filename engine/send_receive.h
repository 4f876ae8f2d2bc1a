// One message between the ranks of each pair: how a single link of a job is
// measured and checked, over the very way that collectives take.
//
// Every rank makes the call, each with partners of its own. So no two ranks
// need have the same schedule, which is why its algorithm is not in the
// registry.
#ifndef RINGPIPE_ENGINE_SEND_RECEIVE_H_
#define RINGPIPE_ENGINE_SEND_RECEIVE_H_

#include "engine/algorithms/algorithm.h"
#include "engine/call.h"

namespace ringpipe {

// A schedule knows its rank and a root. A rank's partners, as that root, from
// 0: a number below 2^31 for partners up to this one.
inline constexpr int kLastPartner = (1 << 15) - 2;
int AsRoot(const Partners& partners);
Partners PartnersOf(int root);

// Input to output; its Member::root is AsRoot. A slot is enough: each send and
// each receive gives its slot back by itself.
const AlgorithmInfo& SendReceiveAlgorithm();

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_SEND_RECEIVE_H_
