// Whether descriptors may be opened: RLIMIT_NOFILE, before a peer is lost for
// want of one.
#ifndef RINGPIPE_VERBS_DESCRIPTOR_LIMIT_H_
#define RINGPIPE_VERBS_DESCRIPTOR_LIMIT_H_

#include "base/status.h"

namespace ringpipe::verbs {

// Whether this process can open `count` more now: kResourceExhausted with
// advice if not. Ok where /proc does not tell how many are open.
Status CheckDescriptors(int count);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_DESCRIPTOR_LIMIT_H_
