#ifndef RINGPIPE_REDUCTION_STREAMING_COPY_H_
#define RINGPIPE_REDUCTION_STREAMING_COPY_H_

#include <cstddef>

namespace ringpipe {

// Copies with stores that go past the caches where the processor has such: the
// target is not fetched to be overwritten, and pushes nothing out. What the
// caller stores afterwards is seen after it. The ranges do not overlap.
void StreamingCopy(std::byte* target, const std::byte* source,
                   std::size_t bytes);

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_STREAMING_COPY_H_
