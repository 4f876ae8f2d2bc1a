#ifndef RINGPIPE_PIPELINE_INSTANCE_H_
#define RINGPIPE_PIPELINE_INSTANCE_H_

#include <cstdint>

namespace ringpipe {

// One step for one sub-chunk in flight.
struct Instance {
  std::uint32_t lane = 0;  // below Flow::lanes()
  std::uint32_t step = 0;  // of the plan

  bool operator==(const Instance&) const = default;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_INSTANCE_H_
