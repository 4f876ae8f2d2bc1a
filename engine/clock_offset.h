// How far the clocks of two ranks are apart, from steps that all ranks take
// together.
#ifndef RINGPIPE_ENGINE_CLOCK_OFFSET_H_
#define RINGPIPE_ENGINE_CLOCK_OFFSET_H_

#include <cstdint>
#include <span>

namespace ringpipe {

// One step on one rank, by its own clock. No rank leaves the step before every
// rank has entered it.
struct ClockSample {
  std::int64_t entered_ns = 0;
  std::int64_t left_ns = 0;
};

struct ClockOffset {
  std::int64_t offset_ns = 0;  // the other clock is so much ahead
  std::int64_t error_ns = 0;   // at most
};

// From the same steps, one or more, on the rank with the reference clock and on
// the other. In each step the other rank leaves after the reference has
// entered, and the reference leaves after the other has entered: that bounds
// the offset from both sides, and of all steps the closest bounds count. The
// middle of them is returned; but 0, which then is exact, if the bounds allow
// it, because ranks of one host have one clock, and clocks of two hosts are not
// equal by chance.
ClockOffset EstimateOffset(std::span<const ClockSample> reference,
                           std::span<const ClockSample> other);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_CLOCK_OFFSET_H_
