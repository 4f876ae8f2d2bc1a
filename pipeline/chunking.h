// Which elements of a message make up a chunk and a sub-chunk. All counts are
// in elements and 64 bits wide.
#ifndef RINGPIPE_PIPELINE_CHUNKING_H_
#define RINGPIPE_PIPELINE_CHUNKING_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace ringpipe {

struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;

  bool operator==(const Extent&) const = default;
};

// How a message is walked, a sub-chunk of every chunk at a time.
enum class Walk {
  // A chunk is a contiguous part of the message (the interface ties chunks to
  // ranks), and a sub-chunk a part of it.
  kChunks,
  // The message is cut into segments, and each of them into chunks: sub-chunk s
  // of chunk c is part c of segment s. So one sub-chunk of several chunks that
  // follow each other is contiguous.
  kSegments,
};

// Chunks have given lengths (Walk::kChunks), or are alike: where things do not
// divide evenly, the first are larger by one element; the last segment, and the
// last sub-chunk of a contiguous chunk, may be shorter than the others. Depends
// on nothing else, so that results are the same bits however they are computed.
class Chunking {
 public:
  Chunking() = default;
  Chunking(std::uint64_t elements, int chunks, std::uint64_t subchunk_elements,
           Walk walk)
      : walk_(walk),
        chunks_(chunks),
        subchunk_elements_(subchunk_elements),
        subchunks_(std::max<std::uint64_t>(
            1, walk == Walk::kSegments
                   ? DivideUp(elements, SegmentElements())
                   : DivideUp(DivideUp(elements, chunks), subchunk_elements))) {
    const std::uint64_t divided = elements - BeginOfLast();
    base_ = divided / chunks;
    larger_ = divided % chunks;
  }

  // Of chunks of which each begins where the one before ends, at these
  // elements; after the last, the message ends. Kept by reference.
  Chunking(const std::vector<std::uint64_t>& borders,
           std::uint64_t subchunk_elements)
      : walk_(Walk::kChunks),
        borders_(&borders),
        chunks_(borders.size() - 1),
        subchunk_elements_(subchunk_elements) {
    for (std::uint64_t chunk = 0; chunk < chunks_; ++chunk) {
      subchunks_ = std::max(subchunks_, SubchunksOf(static_cast<int>(chunk)));
    }
  }

  bool operator==(const Chunking&) const = default;

  // Sub-chunks of every chunk, at least 1: an empty message still has one.
  std::uint64_t subchunks() const { return subchunks_; }

  // Those of one chunk that have an element, where lengths are given.
  std::uint64_t SubchunksOf(int chunk) const {
    return DivideUp((*borders_)[chunk + 1] - (*borders_)[chunk],
                    subchunk_elements_);
  }

  // Empty where the chunk is shorter than others.
  Extent Subchunk(int chunk, std::uint64_t subchunk) const {
    const std::uint64_t index = chunk;
    if (walk_ == Walk::kSegments && subchunk + 1 < subchunks_) {
      return {subchunk * SegmentElements() + index * subchunk_elements_,
              subchunk_elements_};
    }
    const Extent part =
        borders_ != nullptr
            ? Extent{(*borders_)[index],
                     (*borders_)[index + 1] - (*borders_)[index]}
            : Extent{BeginOfLast() + index * base_ + std::min(index, larger_),
                     base_ + (index < larger_ ? 1 : 0)};
    if (walk_ == Walk::kSegments) {
      return part;
    }
    const std::uint64_t skip =
        std::min(subchunk * subchunk_elements_, part.count);
    return {part.begin + skip, std::min(subchunk_elements_, part.count - skip)};
  }

  // One sub-chunk of `count` chunks from `chunk`, going on at the first after
  // the last: what lies together, and the rest, empty where there is none. More
  // than one chunk only where the walk is by segments or has one sub-chunk.
  std::array<Extent, 2> Range(int chunk, int count,
                              std::uint64_t subchunk) const {
    if (count == 1) {
      return {Subchunk(chunk, subchunk), Extent()};
    }
    const int together = std::min(count, static_cast<int>(chunks_) - chunk);
    return {Together(chunk, together, subchunk),
            Together(0, count - together, subchunk)};
  }

  // The most that a sub-chunk of so many chunks has.
  std::uint64_t MostOf(int count) const {
    std::uint64_t most = Count(0, count, 0);
    for (int chunk = 1;
         borders_ != nullptr && chunk < static_cast<int>(chunks_); ++chunk) {
      most = std::max(most, Count(chunk, count, 0));
    }
    return most;
  }

  // How much that is.
  std::uint64_t Count(int chunk, int count, std::uint64_t subchunk) const {
    const std::array<Extent, 2> range = Range(chunk, count, subchunk);
    return range[0].count + range[1].count;
  }

 private:
  static std::uint64_t DivideUp(std::uint64_t a, std::uint64_t b) {
    return a / b + (a % b != 0);
  }
  std::uint64_t SegmentElements() const { return chunks_ * subchunk_elements_; }
  // Where the last segment begins, which is the whole message where there are
  // no segments.
  std::uint64_t BeginOfLast() const {
    return walk_ == Walk::kSegments ? (subchunks_ - 1) * SegmentElements() : 0;
  }

  Extent Together(int chunk, int count, std::uint64_t subchunk) const {
    if (count == 0) {
      return {};
    }
    const Extent first = Subchunk(chunk, subchunk);
    const Extent last = Subchunk(chunk + count - 1, subchunk);
    return {first.begin, last.begin + last.count - first.begin};
  }

  Walk walk_ = Walk::kSegments;
  const std::vector<std::uint64_t>* borders_ = nullptr;  // given lengths
  std::uint64_t chunks_ = 1;
  std::uint64_t subchunk_elements_ = 1;
  std::uint64_t subchunks_ = 1;
  // Of the last segment.
  std::uint64_t base_ = 0;
  std::uint64_t larger_ = 0;  // chunks that have base_ + 1 elements
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_CHUNKING_H_
