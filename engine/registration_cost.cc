#include "engine/registration_cost.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/deadline.h"

namespace ringpipe {
namespace {

constexpr int kTimes = 5;
using Times = std::array<std::chrono::nanoseconds, kTimes>;

std::chrono::nanoseconds Median(Times times) {
  std::sort(times.begin(), times.end());
  return times[kTimes / 2];
}

std::string Microseconds(std::chrono::nanoseconds time) {
  return std::to_string(
             std::chrono::duration_cast<std::chrono::microseconds>(time)
                 .count()) +
         " us";
}

}  // namespace

Result<RegistrationCost> MeasureRegistrationCost(Rails rails,
                                                 std::size_t bytes) {
  // Each time another piece, as in a run: what was copied a moment ago is in
  // the cache.
  std::vector<std::byte> from(bytes * kTimes, std::byte{1});
  std::vector<std::byte> to(bytes, std::byte{2});
  Times registered;
  Times copied;
  for (int i = 0; i < kTimes; ++i) {
    const std::byte* const piece = from.data() + i * bytes;
    Clock::time_point start = Clock::now();
    std::memcpy(to.data(), piece, bytes);
    copied[i] = Clock::now() - start;
    start = Clock::now();
    RINGPIPE_ASSIGN_OR_RETURN(
        Registration registration,
        Registration::Create(rails, piece, bytes, 0, /*relaxed=*/true));
    RINGPIPE_RETURN_IF_ERROR(registration.Release());
    registered[i] = Clock::now() - start;
  }
  RegistrationCost cost;
  cost.registered = Median(registered);
  cost.copied = Median(copied);
  cost.text = std::to_string(bytes) + " bytes: registered in " +
              Microseconds(cost.registered) + ", copied in " +
              Microseconds(cost.copied);
  return cost;
}

}  // namespace ringpipe
