// For tests of CUDA's accelerator: one that is ready for work, and memory of
// its device.
#ifndef RINGPIPE_CUDA_CUDA_DEVICE_FIXTURE_H_
#define RINGPIPE_CUDA_CUDA_DEVICE_FIXTURE_H_

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "cuda/accelerator.h"
#include "cuda/cuda_driver.h"
#include "cuda/fake_driver/control_client.h"
#include "cuda/test_device.h"
#include "gtest/gtest.h"

namespace ringpipe {

// The context that is current on this thread.
inline CudaDriver::Context Current(const TestDevice& device) {
  CudaDriver::Context context = nullptr;
  EXPECT_EQ(device.context_get_current(&context), CudaDriver::kSuccess);
  return context;
}

// Memory of the device.
class DeviceMemory {
 public:
  DeviceMemory(const TestDevice& device, std::size_t bytes)
      : device_(device), bytes_(bytes) {
    auto memory = device_.Allocate(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status().ToString();
    data_ = memory.ok() ? memory.value() : nullptr;
  }
  ~DeviceMemory() { device_.Free(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* get() const { return data_; }

  void Set(const void* host) {
    const Status copied = device_.Copy(data_, host, bytes_);
    EXPECT_TRUE(copied.ok()) << copied.ToString();
  }
  std::vector<std::uint8_t> Get() const {
    std::vector<std::uint8_t> host(bytes_);
    const Status copied = device_.Copy(host.data(), data_, bytes_);
    EXPECT_TRUE(copied.ok()) << copied.ToString();
    return host;
  }

 private:
  const TestDevice& device_;
  void* data_ = nullptr;
  std::size_t bytes_;
};

// Skips its tests where there is no GPU, unless the fake one was to be there.
class CudaDeviceTest : public testing::Test {
 protected:
  using Progress = Accelerator::Progress;
  using Ticket = Accelerator::Ticket;

  static constexpr std::size_t kBytes = 1 << 20;

  void SetUp() override {
    auto device = TestDevice::Open();
    if (!device.ok()) {
      ASSERT_EQ(std::getenv("FAKE_CUDA_SEED"), nullptr)
          << "no fake driver: " << device.status().ToString();
      GTEST_SKIP() << device.status().ToString();
    }
    device_ = std::move(device).value();
    fake_ = fake_cuda::Control::Find();
    auto accelerator = CreateCudaAccelerator();
    ASSERT_TRUE(accelerator.ok()) << accelerator.status().ToString();
    accelerator_ = std::move(accelerator).value();
    const Status prepared =
        accelerator_->PrepareSlots(slots_.data(), slots_.size());
    ASSERT_TRUE(prepared.ok()) << prepared.ToString();
  }
  void TearDown() override {
    if (fake_) {
      fake_->fake_cuda_reset();
    }
  }

  // Bytes that look random and differ with `seed`; as floating point numbers
  // they include NaN and denormals.
  static std::vector<std::uint8_t> Pattern(std::uint32_t seed) {
    std::vector<std::uint8_t> bytes(kBytes);
    for (std::uint8_t& byte : bytes) {
      seed = seed * 1664525u + 1013904223u;
      byte = static_cast<std::uint8_t>(seed >> 24);
    }
    return bytes;
  }

  Progress Await(Ticket ticket) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(20));
    Progress progress = accelerator_->Poll(ticket);
    while (progress == Progress::kPending && !deadline.expired()) {
      std::this_thread::yield();
      progress = accelerator_->Poll(ticket);
    }
    return progress;
  }

  std::uint8_t* slot(std::size_t index) {
    return slots_.data() + index * kBytes;
  }

  std::unique_ptr<TestDevice> device_;
  std::optional<fake_cuda::Control> fake_;
  std::vector<std::uint8_t> slots_ = std::vector<std::uint8_t>(2 * kBytes);
  std::unique_ptr<Accelerator> accelerator_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_CUDA_CUDA_DEVICE_FIXTURE_H_
