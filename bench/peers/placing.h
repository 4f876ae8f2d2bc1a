// Where the peers' programs run and what their buffers are. C and C++; define
// _GNU_SOURCE before the first header.
#ifndef RINGPIPE_BENCH_PEERS_PLACING_H_
#define RINGPIPE_BENCH_PEERS_PLACING_H_

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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

// Where malloc puts a large block in its page: after its own 16 bytes.
static const int kMallocAlign = 16;

// The number of "align=NUMBER", how many bytes past a page a buffer of floats
// begins; -1 where `word` is something else or the number is not 0 to 4092 and
// a multiple of 4.
static inline int ParseAlign(const char* word) {
  int align = -1, length = 0;
  if (sscanf(word, "align=%d%n", &align, &length) != 1 || word[length] != 0) {
    return -1;
  }
  return align >= 0 && align < 4096 && align % 4 == 0 ? align : -1;
}

// Memory that is never given back; private, or shared with the processes that
// the caller forks. It begins `align` bytes past a page; with `huge` past a
// huge page, and asks for such. NULL where there is none.
static inline float* MapMemory(size_t bytes, int huge, int align, int sharing) {
  const size_t huge_page = (size_t)2 << 20;
  const size_t mapped = bytes + 1 + align + (huge ? huge_page : 0);
  void* const data = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                          sharing | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return NULL;
  char* begin = (char*)data;
  if (huge) {
    begin = (char*)(((uintptr_t)data + huge_page - 1) / huge_page * huge_page);
    if (madvise(begin, bytes + 1 + align, MADV_HUGEPAGE) != 0) return NULL;
  }
  return (float*)(void*)(begin + align);
}

static inline float* MapBuffer(size_t bytes, int huge, int align) {
  return MapMemory(bytes, huge, align, MAP_PRIVATE);
}

#endif  // RINGPIPE_BENCH_PEERS_PLACING_H_
