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

static inline float TestInput(size_t i, int rank) {
  return (float)(TestHash(i) + (uint32_t)rank * TestFactor(i));
}
// Over so many ranks.
static inline float TestSum(size_t i, int size) {
  const uint32_t ranks = (uint32_t)size;
  const uint32_t sum_of_ranks = ranks * (ranks - 1) / 2;
  return (float)(ranks * TestHash(i) + sum_of_ranks * TestFactor(i));
}

static inline void FillInput(float* data, size_t count, int rank) {
  for (size_t i = 0; i < count; ++i) {
    data[i] = TestInput(i, rank);
  }
}

// Returns how many of `output` are not the sum over `size` ranks, of what they
// have from `first` on.
static inline uint64_t CountWrongSums(const float* output, size_t first,
                                      size_t count, int size) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong += !(output[i] == TestSum(first + i, size));  // NaN is wrong too
  }
  return wrong;
}
// The same, where it is to be one rank's input.
static inline uint64_t CountWrongInputs(const float* output, size_t first,
                                        size_t count, int rank) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong += !(output[i] == TestInput(first + i, rank));
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
