// What to say where a verbs object could not be created, often because of a
// limit.
#ifndef RINGPIPE_VERBS_CREATION_FAILURE_H_
#define RINGPIPE_VERBS_CREATION_FAILURE_H_

#include <string>

#include "base/status.h"
#include "verbs/device.h"

namespace ringpipe::verbs {

// The kinds of object of which a device has a limited number, shared by all
// processes that use it.
enum class LimitedObject {
  kProtectionDomain,
  kMemoryRegion,
  kCompletionQueue,
  kQueuePair,
};

// The status of `call`, which created no `object` and set errno to `error`. No
// errno tells a limit of the device's from too little locked memory, and
// devices disagree on which they set; where a limit is a likely cause
// (ENOMEM and its kin; EINVAL of a queue) the code is kResourceExhausted and
// the message names the device's limits, as it is asked for them now, and what
// to lower or raise. Otherwise Device::CallFailed's.
Status CreationFailed(const Device& device, LimitedObject object,
                      const std::string& call, int error);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_CREATION_FAILURE_H_
