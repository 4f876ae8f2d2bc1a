#ifndef RINGPIPE_REDUCTION_SCALING_H_
#define RINGPIPE_REDUCTION_SCALING_H_

namespace ringpipe {

// What is done to values besides reducing them. A factor of 1 does nothing;
// others are for floating-point types alone.
struct Scaling {
  // Of the first operand and of the second, before they are reduced.
  double own = 1;
  double received = 1;
  // The contributions of so many ranks are complete: kAverage divides by it. 0:
  // more are to come.
  int complete = 0;
  // Of the result, after that.
  double result = 1;
};

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_SCALING_H_
