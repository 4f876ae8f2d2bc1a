// Whose memory a buffer is, in all the ways in which programs use contexts:
// asked of a driver, the fake one in "bazel test".
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "cuda/accelerator.h"
#include "cuda/cuda_memory.h"
#include "cuda/fake_driver/control_client.h"
#include "cuda/test_device.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

constexpr std::size_t kMappedBytes = std::size_t{2} << 20;
constexpr int kIllegalAddress = 700;

class CudaContextsTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_ = fake_cuda::Control::Find();
    auto device = TestDevice::Open();
    if (!device.ok()) {
      ASSERT_EQ(std::getenv("FAKE_CUDA_SEED"), nullptr)
          << "no fake driver: " << device.status().ToString();
      GTEST_SKIP() << device.status().ToString();
    }
    device_ = std::move(device).value();
    memory_ = std::make_unique<CudaMemory>(device_->driver());
  }
  void TearDown() override {
    if (fake_) {
      fake_->fake_cuda_reset();
    }
  }

  void ExpectOwned(const void* pointer, bool owned) {
    const auto answer = memory_->Owns(pointer);
    ASSERT_TRUE(answer.ok()) << answer.status().ToString();
    EXPECT_EQ(answer.value(), owned);
  }
  void ExpectRefused(const void* pointer, StatusCode code,
                     const std::string& part) {
    const auto answer = memory_->Owns(pointer);
    ASSERT_FALSE(answer.ok()) << "owned: " << answer.value();
    EXPECT_EQ(answer.status().code(), code);
    EXPECT_NE(answer.status().message().find(part), std::string::npos)
        << answer.status().ToString();
  }

  std::optional<fake_cuda::Control> fake_;
  std::unique_ptr<TestDevice> device_;
  std::unique_ptr<CudaMemory> memory_;
  int host_ = 0;
};

TEST_F(CudaContextsTest, AThreadWithoutAContextIsAnsweredAndGetsNone) {
  void* const buffer = device_->Allocate(64).value();
  std::thread([&] {
    CudaDriver::Context context = nullptr;
    ExpectOwned(&host_, false);
    ExpectOwned(buffer, true);
    device_->context_get_current(&context);
    EXPECT_EQ(context, nullptr);
  }).join();
  device_->Free(buffer);
}

TEST_F(CudaContextsTest, WithoutAnyContextInTheProcessMemoryIsTheHosts) {
  const CudaDriver driver = device_->driver();
  device_.reset();
  CudaMemory memory(driver);
  const auto answer = memory.Owns(&host_);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_FALSE(answer.value());
  for (int i = 0; i < 2; ++i) {
    unsigned flags = 0;
    int active = 0;
    driver.primary_context_get_state(i, &flags, &active);
    EXPECT_EQ(active, 0) << "a context was made on device " << i;
  }
}

TEST_F(CudaContextsTest, MemoryOfAContextThatIsNotPrimaryIsRefused) {
  CudaDriver::Context context = nullptr;
  ASSERT_EQ(device_->context_create(&context, 0, 0), CudaDriver::kSuccess);
  void* const buffer = device_->Allocate(64).value();
  ExpectRefused(buffer, StatusCode::kInvalidArgument,
                "not the primary one of cuda:0");
  EXPECT_EQ(memory_->device(), CudaMemory::kNone)
      << "decided by what it refused";
  ExpectOwned(&host_, false);
  device_->Free(buffer);
  EXPECT_EQ(device_->context_destroy(context), CudaDriver::kSuccess);
}

TEST_F(CudaContextsTest, MemoryOfPoolsIsOwned) {
  CudaDriver::Pointer pointer = 0;
  ASSERT_EQ(device_->memory_allocate_async(&pointer, 64, nullptr),
            CudaDriver::kSuccess);
  ExpectOwned(reinterpret_cast<void*>(pointer), true);
  ASSERT_EQ(device_->memory_free_async(pointer, nullptr), CudaDriver::kSuccess);
  ASSERT_EQ(device_->context_synchronize(), CudaDriver::kSuccess);
}

TEST_F(CudaContextsTest, MappedMemoryIsOwned) {
  const AllocationProperties properties = {1, 0, {1, 0}, nullptr, {}};
  const AccessDescription access = {{1, 0}, 3};
  CudaDriver::Pointer pointer = 0;
  unsigned long long handle = 0;
  ASSERT_EQ(device_->address_reserve(&pointer, kMappedBytes, 0, 0, 0), 0);
  ASSERT_EQ(device_->physical_create(&handle, kMappedBytes, &properties, 0), 0);
  ASSERT_EQ(device_->memory_map(pointer, kMappedBytes, 0, handle, 0), 0);
  ASSERT_EQ(device_->memory_set_access(pointer, kMappedBytes, &access, 1), 0);
  ExpectOwned(reinterpret_cast<void*>(pointer + 4096), true);
  EXPECT_EQ(memory_->device(), 0);
  EXPECT_EQ(device_->memory_unmap(pointer, kMappedBytes), 0);
  EXPECT_EQ(device_->physical_release(handle), 0);
  EXPECT_EQ(device_->address_free(pointer, kMappedBytes), 0);
}

// Those of this name are skipped where the driver is not the fake one.
using CudaContextsOfFakeTest = CudaContextsTest;

TEST_F(CudaContextsOfFakeTest, AnAddressIsOfTheDeviceThatHasItNow) {
  if (!fake_) {
    GTEST_SKIP() << "needs two devices";
  }
  void* const first = device_->Allocate(64).value();
  ExpectOwned(first, true);
  device_->Free(first);
  const auto other = TestDevice::Open(1).value();
  void* const second = other->Allocate(64).value();
  ASSERT_EQ(first, second) << "the address was not given out again";
  ExpectRefused(second, StatusCode::kInvalidArgument, "memory of cuda:1");
  other->Free(second);
}

// The message comes from the child.
TEST_F(CudaContextsTest, DeviceMemoryInAChildOfForkIsRefusedHostMemoryIsNot) {
  void* const buffer = device_->Allocate(64).value();
  const pid_t child = fork();
  if (child == 0) {
    CudaMemory memory(device_->driver());
    const auto host = memory.Owns(&host_);
    const auto device = memory.Owns(buffer);
    const bool right =
        host.ok() && !host.value() && !device.ok() &&
        device.status().message().find("fork") != std::string::npos;
    std::_Exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  device_->Free(buffer);
}

TEST_F(CudaContextsOfFakeTest, OfAContextThatHasEndedEvenHostMemoryIsAnError) {
  if (!fake_) {
    GTEST_SKIP() << "would end the context";
  }
  fake_->fake_cuda_fail("cuCtxGetDevice", 1, kIllegalAddress);
  int device = 0;
  EXPECT_EQ(device_->driver().context_get_device(&device), kIllegalAddress);
  ExpectRefused(&host_, StatusCode::kDeviceError, "ILLEGAL_ADDRESS");
}

TEST_F(CudaContextsTest, ManagedMemoryIsOfTheDeviceWhoseContextAllocatedIt) {
  void* const managed = device_->AllocateManaged(64).value();
  ExpectOwned(managed, true);
  EXPECT_EQ(memory_->device(), 0);
  device_->Free(managed);
}

// As the driver says it of memory that no device has allocated.
TEST_F(CudaContextsTest, ManagedMemoryOfNoDeviceIsTheCurrentOnesOrRefused) {
  CudaDriver driver = device_->driver();
  driver.pointer_get_attributes = [](unsigned, int*, void** values,
                                     unsigned long long) {
    *static_cast<unsigned*>(values[0]) = CudaDriver::kMemoryTypeDevice;
    *static_cast<unsigned*>(values[1]) = 1;
    *static_cast<int*>(values[2]) = -2;
    return CudaDriver::kSuccess;
  };
  memory_ = std::make_unique<CudaMemory>(driver);
  std::thread([&] {
    ExpectRefused(&host_, StatusCode::kInvalidArgument, "cudaSetDevice");
    EXPECT_EQ(memory_->device(), CudaMemory::kNone);
  }).join();
  ExpectOwned(&host_, true);
  EXPECT_EQ(memory_->device(), 0);
}

// In a process of its own: this one has loaded the driver. Where there is none,
// and need not be, the process ends well.
TEST(CudaLoadingTest,
     TheDriverIsNotLoadedForHostMemoryAndSeenWhenAnotherLoadsIt) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const int host = 0;
        auto accelerator = CreateCudaAccelerator().value();
        const bool owned = accelerator->Owns(&host).value();
        const bool loaded = CudaDriver::Loaded();
        auto device = TestDevice::Open();
        if (!device.ok()) {
          std::_Exit(std::getenv("FAKE_CUDA_SEED") == nullptr ? 0 : 8);
        }
        void* const buffer = device.value()->Allocate(64).value();
        const Deadline deadline = Deadline::After(std::chrono::seconds(10));
        bool seen = false;
        while (!seen && !deadline.expired()) {
          seen = accelerator->Owns(buffer).value();
        }
        std::_Exit((owned ? 1 : 0) | (loaded ? 2 : 0) | (seen ? 0 : 4));
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ringpipe
