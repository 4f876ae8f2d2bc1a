// What this process may still have of its own, before a peer is taken for lost
// for want of it.
#ifndef RINGPIPE_VERBS_PROCESS_LIMITS_H_
#define RINGPIPE_VERBS_PROCESS_LIMITS_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace ringpipe::verbs {

// Raises the soft limit of descriptors to the hard one where fewer than `count`
// are left; true where it did, with a sentence for the log.
bool RaiseDescriptorLimit(int count, std::string* notice);

// Whether this process can open `count` more descriptors now (RLIMIT_NOFILE):
// kResourceExhausted with advice if not. Ok where /proc does not tell how many
// are open.
Status CheckDescriptors(int count);

// The same of address space (RLIMIT_AS).
Status CheckAddressSpace(std::uint64_t bytes);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_PROCESS_LIMITS_H_
