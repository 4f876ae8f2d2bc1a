// The software RDMA device: the verbs ABI in user space.
#ifndef RINGPIPE_VERBS_SOFT_SOFT_LIBRARY_H_
#define RINGPIPE_VERBS_SOFT_SOFT_LIBRARY_H_

#include <cstdint>
#include <memory>

#include "verbs/library.h"

namespace ringpipe::verbs::soft {

struct Options {
  // Seed of the adversarial mode; 0: off. On, work requests execute late,
  // their sources are read at the last moment, and completions of different
  // queue pairs interleave at will, all by this seed.
  std::uint64_t adversary_seed = 0;
};

// A library with one device, "soft0", for processes (and threads) of one host,
// that is, of one network namespace, and one user (or root). Options hold for
// contexts opened through this table. nullptr where libraries with more than 32
// different options exist at once.
//
// Fork: a child does not inherit open contexts. It must not use them, and must
// exec or exit soon: while it lives, peers do not learn of its parent's death.
std::shared_ptr<const Library> CreateSoftLibrary(const Options& options);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_SOFT_LIBRARY_H_
