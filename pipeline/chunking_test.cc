#include "pipeline/chunking.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

// Every element is in exactly one sub-chunk of one chunk.
TEST(ChunkingTest, SubchunksCoverTheMessageOnce) {
  for (const Walk walk : {Walk::kChunks, Walk::kSegments}) {
    for (const std::uint64_t elements : {0, 1, 2, 7, 8, 9, 250, 1000}) {
      for (const int chunks : {1, 2, 3, 8, 16}) {
        const Chunking chunking(elements, chunks, 4, walk);
        std::vector<int> times(elements);
        for (int chunk = 0; chunk < chunks; ++chunk) {
          for (std::uint64_t s = 0; s < chunking.subchunks(); ++s) {
            const Extent extent = chunking.Subchunk(chunk, s);
            ASSERT_LE(extent.begin + extent.count, elements);
            EXPECT_LE(extent.count, 4U);
            for (std::uint64_t i = 0; i < extent.count; ++i) {
              ++times[extent.begin + i];
            }
          }
        }
        EXPECT_EQ(std::count(times.begin(), times.end(), 1), elements);
      }
    }
  }
}

TEST(ChunkingTest, ChunksAreContiguousAndDifferByOneElementAtMost) {
  const Chunking chunking(10, 4, 2, Walk::kChunks);
  EXPECT_EQ(chunking.subchunks(), 2U);
  EXPECT_EQ(chunking.Subchunk(0, 0), (Extent{0, 2}));
  EXPECT_EQ(chunking.Subchunk(0, 1), (Extent{2, 1}));
  EXPECT_EQ(chunking.Subchunk(1, 0), (Extent{3, 2}));
  EXPECT_EQ(chunking.Subchunk(1, 1), (Extent{5, 1}));
  EXPECT_EQ(chunking.Subchunk(2, 0), (Extent{6, 2}));
  EXPECT_EQ(chunking.Subchunk(2, 1), (Extent{8, 0}));
  EXPECT_EQ(chunking.Subchunk(3, 0), (Extent{8, 2}));
}

TEST(ChunkingTest, SegmentsHaveAPartOfEveryChunk) {
  const Chunking chunking(21, 4, 2, Walk::kSegments);
  EXPECT_EQ(chunking.subchunks(), 3U);  // of 8, 8 and 5 elements
  EXPECT_EQ(chunking.Subchunk(0, 0), (Extent{0, 2}));
  EXPECT_EQ(chunking.Subchunk(3, 0), (Extent{6, 2}));
  EXPECT_EQ(chunking.Subchunk(1, 1), (Extent{10, 2}));
  EXPECT_EQ(chunking.Subchunk(0, 2), (Extent{16, 2}));
  EXPECT_EQ(chunking.Subchunk(1, 2), (Extent{18, 1}));
  EXPECT_EQ(chunking.Subchunk(3, 2), (Extent{20, 1}));
}

TEST(ChunkingTest, ARangeOfASegmentIsContiguousUpToTheLastChunk) {
  const Chunking chunking(21, 4, 2, Walk::kSegments);
  EXPECT_EQ(chunking.Range(1, 3, 1)[0], (Extent{10, 6}));
  EXPECT_EQ(chunking.Range(1, 3, 1)[1].count, 0U);
  EXPECT_EQ(chunking.Range(3, 3, 2)[0], (Extent{20, 1}));
  EXPECT_EQ(chunking.Range(3, 3, 2)[1], (Extent{16, 3}));
  EXPECT_EQ(chunking.Count(3, 3, 2), 4U);
  EXPECT_EQ(chunking.Count(2, 4, 0), 8U);
}

TEST(ChunkingTest, WithOneSubchunkBothWalksAreTheSame) {
  for (const std::uint64_t elements : {0, 1, 13, 20}) {
    const Chunking chunks(elements, 5, 4, Walk::kChunks);
    const Chunking segments(elements, 5, 4, Walk::kSegments);
    ASSERT_EQ(chunks.subchunks(), 1U);
    for (int chunk = 0; chunk < 5; ++chunk) {
      for (int count = 1; count <= 5; ++count) {
        EXPECT_EQ(chunks.Range(chunk, count, 0),
                  segments.Range(chunk, count, 0));
      }
    }
  }
}

TEST(ChunkingTest, CountsPastTwoToTheThirtyOneDoNotWrap) {
  const std::uint64_t elements = (1ULL << 33) + 5;
  const Chunking chunks(elements, 2, 32'768, Walk::kChunks);
  EXPECT_EQ(chunks.subchunks(), (1ULL << 17) + 1);
  EXPECT_EQ(chunks.Subchunk(0, 1ULL << 17), (Extent{1ULL << 32, 3}));
  EXPECT_EQ(chunks.Subchunk(1, (1ULL << 17) - 1),
            (Extent{(1ULL << 33) + 3 - 32'768, 32'768}));
  const Chunking segments(elements, 2, 32'768, Walk::kSegments);
  EXPECT_EQ(segments.subchunks(), (1ULL << 17) + 1);
  EXPECT_EQ(segments.Subchunk(1, (1ULL << 17) - 1),
            (Extent{(1ULL << 33) - 32'768, 32'768}));
  EXPECT_EQ(segments.Subchunk(1, 1ULL << 17), (Extent{(1ULL << 33) + 3, 2}));
}

TEST(ChunkingTest, AnEmptyMessageHasOneEmptySubchunk) {
  for (const Walk walk : {Walk::kChunks, Walk::kSegments}) {
    const Chunking chunking(0, 8, 100, walk);
    EXPECT_EQ(chunking.subchunks(), 1U);
    EXPECT_EQ(chunking.Subchunk(7, 0), (Extent{0, 0}));
  }
}

TEST(ChunkingTest, ChunksHaveTheLengthsThatAreGiven) {
  const std::vector<std::uint64_t> borders = {0, 5, 5, 6, 18};
  const Chunking chunking(borders, 4);
  EXPECT_EQ(chunking.subchunks(), 3U);
  EXPECT_EQ(chunking.SubchunksOf(0), 2U);
  EXPECT_EQ(chunking.SubchunksOf(1), 0U);
  EXPECT_EQ(chunking.Subchunk(0, 1), (Extent{4, 1}));
  EXPECT_EQ(chunking.Subchunk(0, 2).count, 0U);
  EXPECT_EQ(chunking.Subchunk(1, 0), (Extent{5, 0}));
  EXPECT_EQ(chunking.Subchunk(2, 0), (Extent{5, 1}));
  EXPECT_EQ(chunking.Subchunk(3, 2), (Extent{14, 4}));
  // Ranges, where all is one sub-chunk.
  const Chunking whole(borders, 12);
  EXPECT_EQ(whole.subchunks(), 1U);
  EXPECT_EQ(whole.Range(2, 3, 0), (std::array{Extent{5, 13}, Extent{0, 5}}));
  EXPECT_EQ(whole.MostOf(2), 17U);  // the last and the first
}

TEST(ChunkingTest, WhereAllLengthsAreNothingThereIsOneSubchunk) {
  const std::vector<std::uint64_t> borders = {0, 0, 0};
  EXPECT_EQ(Chunking(borders, 4).subchunks(), 1U);
  EXPECT_EQ(Chunking(borders, 4).Subchunk(1, 0).count, 0U);
}

}  // namespace
}  // namespace ringpipe
