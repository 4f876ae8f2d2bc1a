#ifndef RINGPIPE_ENGINE_REASON_FOR_OTHERS_H_
#define RINGPIPE_ENGINE_REASON_FOR_OTHERS_H_

#include "base/status.h"

namespace ringpipe {

// Whether an error is a rank's own business, so that others have to be told
// whose it is.
bool IsOfOneRank(StatusCode code);

// What the other ranks are told of why rank `rank` ends the job: "rank 3: no
// power", unless `reason` says so already. Throws std::bad_alloc.
Status ReasonForOthers(const Status& reason, int rank);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_REASON_FOR_OTHERS_H_
