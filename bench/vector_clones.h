// Compiles a function for several vector instruction sets; the best one that
// the processor has is chosen when the program is loaded.
#ifndef RINGPIPE_BENCH_VECTOR_CLONES_H_
#define RINGPIPE_BENCH_VECTOR_CLONES_H_

// Not with sanitizers: the loader chooses before their run-time is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_UNDEFINED__)
#define RINGPIPE_VECTOR_CLONES \
  __attribute__((target_clones("default", "avx2", "arch=skylake-avx512")))
#else
#define RINGPIPE_VECTOR_CLONES
#endif

#endif  // RINGPIPE_BENCH_VECTOR_CLONES_H_
