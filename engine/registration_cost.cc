#include "engine/registration_cost.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "reduction/host_copy.h"

namespace ringpipe {
namespace {

std::chrono::nanoseconds Median(std::vector<std::chrono::nanoseconds> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::string Microseconds(std::chrono::nanoseconds time) {
  return std::to_string(
             std::chrono::duration_cast<std::chrono::microseconds>(time)
                 .count()) +
         " us";
}

}  // namespace

Result<RegistrationCost> MeasureRegistrationCost(ProtectionDomains domains,
                                                 std::size_t bytes,
                                                 int at_once) {
  // Each time another piece, as in a run: what was copied a moment ago is in
  // the cache.
  std::vector<std::byte> from(bytes * at_once, std::byte{1});
  std::vector<std::byte> to(bytes, std::byte{2});
  std::vector<Registration> registrations(at_once);
  std::vector<std::chrono::nanoseconds> registered(at_once);
  std::vector<std::chrono::nanoseconds> copied(at_once);
  for (int i = 0; i < at_once; ++i) {
    const std::byte* const piece = from.data() + i * bytes;
    Clock::time_point start = Clock::now();
    HostCopy(to.data(), piece, bytes);
    copied[i] = Clock::now() - start;
    start = Clock::now();
    RINGPIPE_ASSIGN_OR_RETURN(
        registrations[i],
        Registration::Create(domains, piece, bytes, 0, /*relaxed=*/true));
    registered[i] = Clock::now() - start;
  }
  for (int i = 0; i < at_once; ++i) {
    const Clock::time_point start = Clock::now();
    RINGPIPE_RETURN_IF_ERROR(registrations[i].Release());
    registered[i] += Clock::now() - start;
  }
  const auto to_register = Median(registered);
  const auto to_copy = Median(copied);
  return RegistrationCost{to_register < to_copy,
                          std::to_string(bytes) + " bytes: registered in " +
                              Microseconds(to_register) + ", copied in " +
                              Microseconds(to_copy)};
}

}  // namespace ringpipe
