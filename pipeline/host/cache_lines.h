#ifndef RINGPIPE_PIPELINE_HOST_CACHE_LINES_H_
#define RINGPIPE_PIPELINE_HOST_CACHE_LINES_H_

#include <cstddef>

namespace ringpipe {

// Copies with stores that go past the caches where the processor has such: the
// target is not fetched to be overwritten, and pushes nothing out. What the
// caller stores afterwards is seen after it. The ranges do not overlap.
void StreamingCopy(std::byte* target, const std::byte* source,
                   std::size_t bytes);

// Takes the lines of [data, data + bytes), which this core has read, from the
// core that wrote them and will write them again: on lines that both have, a
// store is several times as slow, most of all where the cores share no cache.
// Every word stays as it is; nobody else may be writing there.
void ClaimLines(std::byte* data, std::size_t bytes);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_CACHE_LINES_H_
