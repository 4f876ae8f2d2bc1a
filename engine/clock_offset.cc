#include "engine/clock_offset.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>

namespace ringpipe {

ClockOffset EstimateOffset(std::span<const ClockSample> reference,
                           std::span<const ClockSample> other) {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < reference.size(); ++i) {
    least = std::max(least, other[i].entered_ns - reference[i].left_ns);
    most = std::min(most, other[i].left_ns - reference[i].entered_ns);
  }
  if (least <= 0 && most >= 0) {
    return {};
  }
  return {least + (most - least) / 2, std::abs(most - least) / 2};
}

}  // namespace ringpipe
