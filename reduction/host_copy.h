// Copies of host memory, vectorised (Highway) for the CPU at hand: what the
// data path uses instead of memcpy.
//
// Their speed does not depend on where the ranges begin in their pages. That of
// memcpy does: glibc copies with `rep movsb` from 2 KiB on, which on AMD's Zen
// 3 and 4 is up to 16 times slower if the target begins a little past the
// source in its page (sourceware 30994, 30995). That is common: malloc puts a
// large block 16 bytes past the begin of a page, and a slot begins with a page.
//
// The ranges may overlap, as those of memmove, and the pointers may be null if
// `bytes` is 0. May be called from any thread.
#ifndef RINGPIPE_REDUCTION_HOST_COPY_H_
#define RINGPIPE_REDUCTION_HOST_COPY_H_

#include <cstddef>

namespace ringpipe {

// Copies through the caches: for a target that is read again soon.
void HostCopy(void* target, const void* source, std::size_t bytes);

// Copies with non-temporal stores, if the CPU has them: they bypass the caches,
// so that the target is not fetched only to be overwritten, and evicts nothing.
// Another thread that sees a later store of the caller's also sees the copy.
void NonTemporalCopy(void* target, const void* source, std::size_t bytes);

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_HOST_COPY_H_
