// How long a test gives what is promised to happen within some time.
#ifndef RINGPIPE_BASE_LIVENESS_BOUND_H_
#define RINGPIPE_BASE_LIVENESS_BOUND_H_

namespace ringpipe {

// A promise such as "ends within 2 s" holds on a machine that has time for it.
// Tests run beside anything, also beside programs that keep every core busy,
// and must be green there; so they allow this multiple of it. What they are to
// find, a rank that waits for nobody, lasts to the deadline of its call (a
// minute) or for ever, and is far beyond. (tests/launch/job.py has the same.)
inline constexpr int kLivenessFactor = 6;

template <typename Duration>
constexpr Duration LivenessBound(Duration promise) {
  return promise * kLivenessFactor;
}

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_LIVENESS_BOUND_H_
