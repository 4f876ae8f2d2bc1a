// Where the peers' programs run and what their buffers are. C and C++; define
// _GNU_SOURCE before the first header.
#ifndef RINGPIPE_BENCH_PEERS_PLACING_H_
#define RINGPIPE_BENCH_PEERS_PLACING_H_

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

// Pins the calling thread, and those that it starts, to one core: of those that
// it may use, the one of this number modulo their number. Returns 0, or -1.
static inline int PinToCore(int number) {
  cpu_set_t usable, one;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return -1;
  int left = number % CPU_COUNT(&usable);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &usable) && left-- == 0) {
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      return sched_setaffinity(0, sizeof one, &one);
    }
  }
  return -1;
}

// Memory that is never given back; private, or shared with the processes that
// the caller forks. With `huge` it is aligned to huge pages and asks for them.
// NULL where there is none.
static inline float* MapMemory(size_t bytes, int huge, int sharing) {
  const size_t huge_page = (size_t)2 << 20;
  const size_t mapped = bytes + 1 + (huge ? huge_page : 0);
  void* const data = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                          sharing | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return NULL;
  if (!huge) return (float*)data;
  void* const aligned =
      (void*)(((uintptr_t)data + huge_page - 1) / huge_page * huge_page);
  return madvise(aligned, bytes + 1, MADV_HUGEPAGE) == 0 ? (float*)aligned
                                                         : NULL;
}

static inline float* MapBuffer(size_t bytes, int huge) {
  return MapMemory(bytes, huge, MAP_PRIVATE);
}

#endif  // RINGPIPE_BENCH_PEERS_PLACING_H_
