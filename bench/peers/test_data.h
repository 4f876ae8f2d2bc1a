// Inputs of the peers' programs, whose sums are known without adding: small
// whole numbers, exact in any order of additions. C and C++.
#ifndef RINGPIPE_BENCH_PEERS_TEST_DATA_H_
#define RINGPIPE_BENCH_PEERS_TEST_DATA_H_

#include <stddef.h>
#include <stdint.h>

// The input of rank r at index i is TestHash(i) + r * TestFactor(i).
static inline uint32_t TestHash(size_t i) {
  return ((uint32_t)i * 2654435761u >> 21) % 1021;
}
static inline uint32_t TestFactor(size_t i) { return 1 + (uint32_t)(i % 7); }

static inline void FillInput(float* data, size_t count, int rank) {
  for (size_t i = 0; i < count; ++i) {
    data[i] = (float)(TestHash(i) + (uint32_t)rank * TestFactor(i));
  }
}

// Returns how many of `output` are not the sum over `size` ranks.
static inline uint64_t CountWrong(const float* output, size_t count, int size) {
  const uint32_t ranks = (uint32_t)size;
  const uint32_t sum_of_ranks = ranks * (ranks - 1) / 2;
  uint64_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    const float expected =
        (float)(ranks * TestHash(i) + sum_of_ranks * TestFactor(i));
    wrong += !(output[i] == expected);  // NaN is wrong too
  }
  return wrong;
}

// In place, each call adds up the result of the one before: after so many the
// input has to be filled again, well before a float overflows.
static inline int CallsUntilRefill(int size) {
  int bits = 1;
  while ((1 << bits) < size) ++bits;
  return 100 / bits;
}

#endif  // RINGPIPE_BENCH_PEERS_TEST_DATA_H_
