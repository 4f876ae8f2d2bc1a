#include "cuda/gpu_number.h"

#include <array>

namespace ringpipe {

std::uint64_t GpuNumber(const CudaDriver& driver, int ordinal) {
  CudaDriver::Device device = 0;
  std::array<std::uint64_t, 2> uuid = {};
  static_assert(sizeof(uuid) == 16);
  if (driver.device_get(&device, ordinal) != CudaDriver::kSuccess ||
      driver.device_get_uuid(uuid.data(), device) != CudaDriver::kSuccess) {
    return 0;
  }
  // Its 122 random bits, mixed so that UUIDs which differ in few bits of either
  // half do not meet: an odd factor keeps the second half's bits apart.
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  const std::uint64_t number = uuid[0] ^ (uuid[1] * kOdd);
  return number == 0 ? 1 : number;
}

}  // namespace ringpipe
