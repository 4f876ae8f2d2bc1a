#ifndef RINGPIPE_REDUCTION_IEEE_ARITHMETIC_H_
#define RINGPIPE_REDUCTION_IEEE_ARITHMETIC_H_

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace ringpipe {

// While it is there, this thread computes as IEEE 754 says: it keeps denormal
// numbers, rounds to the nearest, and raises no signal. Then the thread has its
// own settings again. A program can set others (-ffast-math, fesetround,
// feenableexcept), and not every rank's program need do the same.
class IeeeArithmetic {
 public:
#if defined(__SSE__)
  IeeeArithmetic() : before_(_mm_getcsr()) {
    if ((before_ & ~kFlags) != kStandard) {
      _mm_setcsr(kStandard);
    }
  }
  ~IeeeArithmetic() {
    if ((before_ & ~kFlags) != kStandard) {
      _mm_setcsr(before_);
    }
  }
#else
  IeeeArithmetic() = default;
#endif
  IeeeArithmetic(const IeeeArithmetic&) = delete;
  IeeeArithmetic& operator=(const IeeeArithmetic&) = delete;

 private:
#if defined(__SSE__)
  static constexpr unsigned kFlags = 0x3f;  // what has happened so far
  static constexpr unsigned kStandard = 0x1f80;
  const unsigned before_;
#endif
};

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_IEEE_ARITHMETIC_H_
