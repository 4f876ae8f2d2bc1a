#include "pipeline/chunking.h"

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

TEST(ChunkingTest, ChunksCoverTheMessageOnceInOrder) {
  for (const std::uint64_t elements : {0, 1, 2, 7, 8, 9, 250, 1000}) {
    for (const int chunks : {1, 2, 3, 8, 16}) {
      const Chunking chunking(elements, chunks, 4);
      std::uint64_t next = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        EXPECT_EQ(chunking.Chunk(chunk).begin, next);
        std::uint64_t in_chunk = 0;
        for (std::uint64_t s = 0; s < chunking.subchunks(); ++s) {
          EXPECT_EQ(chunking.Subchunk(chunk, s).begin, next + in_chunk);
          in_chunk += chunking.Subchunk(chunk, s).count;
        }
        EXPECT_EQ(in_chunk, chunking.Chunk(chunk).count);
        next += in_chunk;
      }
      EXPECT_EQ(next, elements);
    }
  }
}

TEST(ChunkingTest, ChunkSizesDifferByOneElementAtMost) {
  const Chunking chunking(10, 4, 100);
  EXPECT_EQ(chunking.Chunk(0), (Extent{0, 3}));
  EXPECT_EQ(chunking.Chunk(1), (Extent{3, 3}));
  EXPECT_EQ(chunking.Chunk(2), (Extent{6, 2}));
  EXPECT_EQ(chunking.Chunk(3), (Extent{8, 2}));
}

TEST(ChunkingTest, CountsPastTwoToTheThirtyOneDoNotWrap) {
  const std::uint64_t elements = (1ULL << 33) + 5;
  const Chunking chunking(elements, 2, 32'768);
  EXPECT_EQ(chunking.Chunk(1), (Extent{(1ULL << 32) + 3, (1ULL << 32) + 2}));
  EXPECT_EQ(chunking.subchunks(), (1ULL << 17) + 1);
  EXPECT_EQ(chunking.Subchunk(0, 1ULL << 17), (Extent{1ULL << 32, 3}));
  EXPECT_EQ(chunking.Subchunk(1, (1ULL << 17) - 1),
            (Extent{(1ULL << 33) + 3 - 32'768, 32'768}));
}

TEST(ChunkingTest, AnEmptyMessageHasOneEmptySubchunk) {
  const Chunking chunking(0, 8, 100);
  EXPECT_EQ(chunking.subchunks(), 1U);
  EXPECT_EQ(chunking.Subchunk(7, 0), (Extent{0, 0}));
}

}  // namespace
}  // namespace ringpipe
