// What a communicator has done, in numbers.
#ifndef RINGPIPE_BASE_COUNTERS_H_
#define RINGPIPE_BASE_COUNTERS_H_

#include <cstdint>
#include <string_view>

namespace ringpipe {

// One stage of the pipeline, since the communicator was created.
struct StageCounters {
  // "copy in", "send", "receive", ...; a literal, with a 0 behind it.
  std::string_view stage;
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;
  std::uint64_t busy_ns = 0;  // time spent in the stage
  std::uint64_t waits = 0;    // times that the pipeline stood still for it
  std::uint64_t wait_ns = 0;  // and how long
};

// The pool of registered slots.
struct SlotCounters {
  std::uint64_t slots = 0;  // in the pool
  std::uint64_t in_use = 0;
  std::uint64_t high_water = 0;  // most in use at once
  std::uint64_t waits = 0;       // times that somebody found none free
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_COUNTERS_H_
