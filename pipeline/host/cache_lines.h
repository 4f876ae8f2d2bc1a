#ifndef RINGPIPE_PIPELINE_HOST_CACHE_LINES_H_
#define RINGPIPE_PIPELINE_HOST_CACHE_LINES_H_

#include <cstddef>

namespace ringpipe {

// Takes the lines of [data, data + bytes), which this core has read, from the
// core that wrote them and will write them again: on lines that both have, a
// store is several times as slow, most of all where the cores share no cache.
// Every word stays as it is; nobody else may be writing there.
void ClaimLines(std::byte* data, std::size_t bytes);

// Whether it pays, which is a matter of the processor's maker. AMD's ask all
// other caches before a store to a line that several have; of Intel's the
// line's home knows who has it, and a line that was claimed has to be fetched
// once more.
bool ClaimingPays();

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_CACHE_LINES_H_
