// The software RDMA device: the verbs ABI in user space.
#ifndef RINGPIPE_VERBS_SOFT_SOFT_LIBRARY_H_
#define RINGPIPE_VERBS_SOFT_SOFT_LIBRARY_H_

#include <memory>

#include "base/log.h"
#include "verbs/library.h"
#include "verbs/soft/options.h"

namespace ringpipe::verbs::soft {

// A library with one device, "soft0", for processes (and threads) of one host,
// that is, of one network namespace, and one user; and of other hosts where the
// options say so. Options and `logger` hold for contexts opened through this
// table.
//
// Fork: a child does not inherit open contexts. It must not use them, and must
// exec or exit soon: while it lives, peers do not learn of its parent's death.
std::shared_ptr<const Library> CreateSoftLibrary(
    const Options& options, const Logger& logger = Logger());

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_SOFT_LIBRARY_H_
