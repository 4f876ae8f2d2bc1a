#ifndef RINGPIPE_ENGINE_LOST_RANK_H_
#define RINGPIPE_ENGINE_LOST_RANK_H_

#include "base/status.h"

namespace ringpipe {

// The rank that is gone, according to the failure of a communicator; -1: it is
// no loss (kPeerLost), or names no rank. What reaches the other ranks is the
// text of a reason, so it is taken from there.
int LostRank(const Status& failure);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_LOST_RANK_H_
