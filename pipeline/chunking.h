// Which elements of a message make up a chunk and a sub-chunk. All counts are
// in elements and 64 bits wide.
#ifndef RINGPIPE_PIPELINE_CHUNKING_H_
#define RINGPIPE_PIPELINE_CHUNKING_H_

#include <algorithm>
#include <cstdint>

namespace ringpipe {

struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;

  bool operator==(const Extent&) const = default;
};

// `elements` in `chunks` contiguous chunks; where that does not divide evenly,
// the first ones are larger by one element. Depends on nothing else, so that
// results are the same bits however they are computed.
class Chunking {
 public:
  Chunking() = default;
  Chunking(std::uint64_t elements, int chunks, std::uint64_t subchunk_elements)
      : base_(elements / chunks),
        larger_(elements % chunks),
        subchunk_elements_(subchunk_elements) {
    const std::uint64_t largest = base_ + (larger_ > 0 ? 1 : 0);
    subchunks_ = std::max<std::uint64_t>(
        1, largest / subchunk_elements_ + (largest % subchunk_elements_ != 0));
  }

  Extent Chunk(int chunk) const {
    const std::uint64_t index = chunk;
    return {index * base_ + std::min(index, larger_),
            base_ + (index < larger_ ? 1 : 0)};
  }

  // Sub-chunks of every chunk, at least 1: an empty message still has one.
  std::uint64_t subchunks() const { return subchunks_; }

  // Empty where the chunk is shorter than others.
  Extent Subchunk(int chunk, std::uint64_t subchunk) const {
    const Extent whole = Chunk(chunk);
    const std::uint64_t skip =
        std::min(subchunk * subchunk_elements_, whole.count);
    return {whole.begin + skip,
            std::min(subchunk_elements_, whole.count - skip)};
  }

 private:
  std::uint64_t base_ = 0;
  std::uint64_t larger_ = 0;  // chunks that have base_ + 1 elements
  std::uint64_t subchunk_elements_ = 1;
  std::uint64_t subchunks_ = 1;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_CHUNKING_H_
