// The software RDMA device: the verbs ABI in user space.
#ifndef RINGPIPE_VERBS_SOFT_SOFT_LIBRARY_H_
#define RINGPIPE_VERBS_SOFT_SOFT_LIBRARY_H_

#include <memory>

#include "verbs/library.h"
#include "verbs/soft/options.h"

namespace ringpipe::verbs::soft {

// A library with one device, "soft0", for processes (and threads) of one host,
// that is, of one network namespace, and one user (or root); and of other hosts
// where the options have a secret. Options hold for contexts opened through
// this table. nullptr where libraries with more than 32 different options exist
// at once.
//
// Fork: a child does not inherit open contexts. It must not use them, and must
// exec or exit soon: while it lives, peers do not learn of its parent's death.
std::shared_ptr<const Library> CreateSoftLibrary(const Options& options);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_SOFT_LIBRARY_H_
