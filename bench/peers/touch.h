// What a program does around an allreduce: it writes the input and reads the
// output. The same code for ringpipe (bench/allreduce --touch), its peers and
// the floor, so that what it costs is the same for all. C and C++; compile with
// -O3, which makes vector instructions of the loops.
//
// Why: a call whose output nobody reads, and whose input nobody writes, leaves
// the caches as the next call likes them. Ordinary stores look better then than
// they are.
#ifndef RINGPIPE_BENCH_PEERS_TOUCH_H_
#define RINGPIPE_BENCH_PEERS_TOUCH_H_

#include <stddef.h>
#include <stdint.h>

// The buffers hold elements of other types, and begin anywhere.
typedef uint64_t __attribute__((may_alias, aligned(1))) TouchedWord;

// Writes every byte of `data`, each with the value that it has.
static inline void RewriteInput(void* data, size_t bytes) {
  // 0, but the compiler must not know it: it would drop the stores.
  volatile uint64_t unknown = 0;
  const uint64_t nothing = unknown;
  TouchedWord* const words = (TouchedWord*)data;
  for (size_t i = 0; i < bytes / sizeof *words; ++i) words[i] ^= nothing;
  unsigned char* const last = (unsigned char*)data;
  for (size_t i = bytes / sizeof *words * sizeof *words; i < bytes; ++i) {
    last[i] ^= (unsigned char)nothing;
  }
}

// Reads every byte of `data`.
static inline void ReadOutput(const void* data, size_t bytes) {
  const TouchedWord* const words = (const TouchedWord*)data;
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes / sizeof *words; ++i) sum += words[i];
  const unsigned char* const last = (const unsigned char*)data;
  for (size_t i = bytes / sizeof *words * sizeof *words; i < bytes; ++i) {
    sum += last[i];
  }
  volatile uint64_t seen = sum;
  (void)seen;
}

#endif  // RINGPIPE_BENCH_PEERS_TOUCH_H_
