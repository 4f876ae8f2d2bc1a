#ifndef RINGPIPE_REDUCTION_NON_TEMPORAL_COPY_H_
#define RINGPIPE_REDUCTION_NON_TEMPORAL_COPY_H_

#include <cstddef>

namespace ringpipe {

// Copies with non-temporal stores, if the processor has them: they bypass the
// caches, so that the target is not fetched only to be overwritten, and evicts
// nothing. Another thread that sees a later store of the caller's also sees the
// copy. The ranges do not overlap.
void NonTemporalCopy(std::byte* target, const std::byte* source,
                     std::size_t bytes);

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_NON_TEMPORAL_COPY_H_
