// What a GPU does is tested where there is one, and visibly skipped elsewhere.
#include <memory>
#include <string>
#include <vector>

#include "cuda/accelerator.h"
#include "cuda/cuda_driver.h"
#include "gtest/gtest.h"

#ifdef RINGPIPE_WITH_CUDA
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/deadline.h"
#include "reduction/host_reduction.h"
#endif

namespace ringpipe {
namespace {

TEST(CudaAcceleratorTest, WithoutADeviceTheReasonAndAdviceAreGiven) {
  std::vector<char> slots(4096);
  auto accelerator = CreateCudaAccelerator();
  const Status status = accelerator.ok() ? accelerator.value()->PrepareSlots(
                                               slots.data(), slots.size())
                                         : accelerator.status();
  if (status.ok()) {
    GTEST_SKIP() << "there is a device: " << accelerator.value()->name();
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  const std::string& message = status.message();
  EXPECT_NE(message.find("CUDA: "), std::string::npos) << message;
  EXPECT_NE(message.find("; "), std::string::npos) << "no advice: " << message;
}

#ifdef RINGPIPE_WITH_CUDA

// A driver that counts, of a machine with memory of GPU 1 at any address.
struct Calls {
  int asked = 0;
  int initialised = 0;
  std::vector<int> contexts;
  int pushed = 0;
  int popped = 0;
};
Calls calls;

CudaDriver CountingDriver() {
  calls = {};
  CudaDriver driver;
  driver.pointer_get_attributes = [](unsigned, int*, void** values,
                                     unsigned long long) {
    ++calls.asked;
    *static_cast<unsigned*>(values[0]) = CudaDriver::kMemoryTypeDevice;
    *static_cast<int*>(values[2]) = 1;
    return CudaDriver::kSuccess;
  };
  driver.init = [](unsigned) {
    ++calls.initialised;
    return CudaDriver::kSuccess;
  };
  driver.device_get = [](int* device, int ordinal) {
    *device = ordinal;
    return CudaDriver::kSuccess;
  };
  driver.primary_context_retain = [](void** context, int device) {
    calls.contexts.push_back(device);
    *context = &calls;
    return CudaDriver::kSuccess;
  };
  driver.primary_context_release = [](int device) {
    EXPECT_EQ(calls.contexts, std::vector<int>{device});
    calls.contexts.clear();
    return CudaDriver::kSuccess;
  };
  driver.context_push = [](void* context) {
    EXPECT_EQ(context, &calls);
    ++calls.pushed;
    return CudaDriver::kSuccess;
  };
  driver.context_pop = [](void**) {
    ++calls.popped;
    return CudaDriver::kSuccess;
  };
  driver.get_error_name = [](int, const char**) { return 1; };
  return driver;
}

TEST(CudaAcceleratorTest, NoContextIsMadeBeforeTheFirstSlots) {
  const CudaDriver driver = CountingDriver();
  std::vector<char> slots(4096);
  {
    auto accelerator = CreateCudaAccelerator(driver);
    ASSERT_TRUE(accelerator.ok()) << accelerator.status().ToString();
    EXPECT_TRUE((*accelerator)->Owns(slots.data()).value());
    EXPECT_EQ((*accelerator)->name(), "cuda:1");
    EXPECT_EQ(calls.asked, 1);
    EXPECT_EQ(calls.initialised, 0);
    EXPECT_TRUE(calls.contexts.empty());
    EXPECT_EQ(calls.pushed, 0);
    // Whether the runtime, which is the real one, can go on depends on the
    // machine.
    static_cast<void>((*accelerator)->PrepareSlots(slots.data(), slots.size()));
    EXPECT_EQ(calls.contexts, std::vector<int>{1}) << "the buffer's device";
    EXPECT_GT(calls.pushed, 0);
    EXPECT_EQ(calls.pushed, calls.popped) << "left current";
  }
  EXPECT_TRUE(calls.contexts.empty()) << "not released";
  EXPECT_EQ(calls.pushed, calls.popped);
}

TEST(CudaAcceleratorTest, AContextThatCannotBeMadeIsAnErrorThatNamesTheDevice) {
  CudaDriver driver = CountingDriver();
  driver.primary_context_retain = [](void**, int) { return 2; };
  std::vector<char> slots(4096);
  auto accelerator = CreateCudaAccelerator(driver);
  ASSERT_TRUE(accelerator.ok()) << accelerator.status().ToString();
  ASSERT_TRUE((*accelerator)->Owns(slots.data()).value());
  const Status status =
      (*accelerator)->PrepareSlots(slots.data(), slots.size());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message().find("cuda:1: CUDA: making the context: "), 0U)
      << status.ToString();
}

using Progress = Accelerator::Progress;
using Ticket = Accelerator::Ticket;

using ContextFunction = CUresult (*)(CUcontext*);

template <typename Function>
Function FindInDriver(const char* name) {
  return reinterpret_cast<Function>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

ContextFunction CurrentContextFunction() {
  return FindInDriver<ContextFunction>("cuCtxGetCurrent");
}

// Whether any device has a primary context in this process.
bool HasContext() {
  const auto count = FindInDriver<CUresult (*)(int*)>("cuDeviceGetCount");
  const auto state = FindInDriver<CUresult (*)(CUdevice, unsigned*, int*)>(
      "cuDevicePrimaryCtxGetState");
  int devices = 0;
  // That the driver is not even initialised is best.
  static_cast<void>(count(&devices));
  for (CUdevice device = 0; device < devices; ++device) {
    unsigned flags = 0;
    int active = 0;
    static_cast<void>(state(device, &flags, &active));
    if (active != 0) {
      return true;
    }
  }
  return false;
}

// Memory of the device.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess);
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* get() const { return data_; }

  void Set(const void* host) {
    EXPECT_EQ(cudaMemcpy(data_, host, bytes_, cudaMemcpyHostToDevice),
              cudaSuccess);
    // The copy of memory that is not pinned may still be on its way, and the
    // accelerator's streams wait for no other.
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  std::vector<std::uint8_t> Get() const {
    std::vector<std::uint8_t> host(bytes_);
    EXPECT_EQ(cudaMemcpy(host.data(), data_, bytes_, cudaMemcpyDeviceToHost),
              cudaSuccess);
    return host;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

class CudaDeviceTest : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1 << 20;

  void SetUp() override {
    auto accelerator = CreateCudaAccelerator();
    if (!accelerator.ok()) {
      GTEST_SKIP() << accelerator.status().ToString();
    }
    accelerator_ = std::move(accelerator).value();
    const Status prepared =
        accelerator_->PrepareSlots(slots_.data(), slots_.size());
    if (prepared.code() == StatusCode::kUnavailable) {
      GTEST_SKIP() << prepared.ToString();
    }
    ASSERT_TRUE(prepared.ok()) << prepared.ToString();
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

  std::vector<std::uint8_t> slots_ = std::vector<std::uint8_t>(2 * kBytes);
  std::unique_ptr<Accelerator> accelerator_;
};

// Whether two buffers are equal, NaNs of any kind being equal to each other:
// which of two NaNs is kept differs between processors.
template <typename T>
bool SameValues(const std::uint8_t* a, const std::uint8_t* b,
                std::size_t bytes) {
  for (std::size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    T x;
    T y;
    std::memcpy(&x, a + i, sizeof(T));
    std::memcpy(&y, b + i, sizeof(T));
    if (!(x == y || (x != x && y != y))) {
      return false;
    }
  }
  return true;
}

bool SameValues(DataType type, const std::uint8_t* a, const std::uint8_t* b,
                std::size_t bytes) {
  switch (type) {
    case DataType::kFloat32:
      return SameValues<float>(a, b, bytes);
    case DataType::kFloat64:
      return SameValues<double>(a, b, bytes);
    default:
      return std::memcmp(a, b, bytes) == 0;
  }
}

TEST_F(CudaDeviceTest, CopiesInWithinAndOut) {
  const std::vector<std::uint8_t> pattern = Pattern(1);
  DeviceMemory source(kBytes);
  DeviceMemory target(kBytes);
  DeviceMemory second(kBytes);
  source.Set(pattern.data());
  ASSERT_EQ(Await(accelerator_->CopyIn(slot(0), source.get(), kBytes)),
            Progress::kDone)
      << accelerator_->error().ToString();
  EXPECT_EQ(std::memcmp(slot(0), pattern.data(), kBytes), 0);
  ASSERT_EQ(Await(accelerator_->CopyOut(target.get(), slot(0), kBytes)),
            Progress::kDone);
  EXPECT_EQ(target.Get(), pattern);
  ASSERT_EQ(Await(accelerator_->CopyWithin(second.get(), target.get(), kBytes)),
            Progress::kDone);
  EXPECT_EQ(second.Get(), pattern);
}

TEST_F(CudaDeviceTest, ReducesEveryTypeAndOperationLikeTheHost) {
  const std::vector<std::uint8_t> a = Pattern(2);
  const std::vector<std::uint8_t> b = Pattern(3);
  DeviceMemory own(kBytes);
  own.Set(b.data());
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      const std::size_t count = kBytes / SizeOf(type) - 1;
      std::vector<std::uint8_t> expected = a;
      const void* const host[] = {a.data()};
      FindReduction(type, op)(expected.data(), b.data(), host, 1, count);
      if (const FinishFunction finish = FindFinish(type, op)) {
        finish(expected.data(), count, 3);
      }
      std::memcpy(slot(0), a.data(), kBytes);
      const void* const received[] = {slot(0)};
      ASSERT_EQ(Await(accelerator_->Reduce(type, op, slot(0), own.get(),
                                           received, count, 3)),
                Progress::kDone)
          << accelerator_->error().ToString();
      EXPECT_TRUE(SameValues(type, slot(0), expected.data(), kBytes))
          << Name(type) << " " << Name(op);
    }
  }
}

// Device memory and slots together: the target is one that is only written, on
// the device, then a slot, then each of the operands.
TEST_F(CudaDeviceTest, ReducesSeveralSourcesIntoAnyMemoryLikeTheHost) {
  const std::vector<std::uint8_t> a = Pattern(7);
  const std::vector<std::uint8_t> b = Pattern(8);
  const std::vector<std::uint8_t> c = Pattern(9);
  DeviceMemory own(kBytes);
  DeviceMemory apart(kBytes);
  DeviceMemory second(kBytes);
  void* const targets[] = {apart.get(), slot(1), own.get(), slot(0),
                           second.get()};
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      const std::size_t count = kBytes / SizeOf(type);
      std::vector<std::uint8_t> expected(kBytes);
      const void* const host[] = {b.data(), c.data()};
      FindReduction(type, op)(expected.data(), a.data(), host, 2, count);
      if (const FinishFunction finish = FindFinish(type, op)) {
        finish(expected.data(), count, 3);
      }
      for (void* const target : targets) {
        own.Set(a.data());
        std::memcpy(slot(0), b.data(), kBytes);
        second.Set(c.data());
        const void* const received[] = {slot(0), second.get()};
        ASSERT_EQ(Await(accelerator_->Reduce(type, op, target, own.get(),
                                             received, count, 3)),
                  Progress::kDone)
            << accelerator_->error().ToString();
        std::vector<std::uint8_t> result(kBytes);
        ASSERT_EQ(cudaMemcpy(result.data(), target, kBytes, cudaMemcpyDefault),
                  cudaSuccess);
        EXPECT_TRUE(SameValues(type, result.data(), expected.data(), kBytes))
            << Name(type) << " " << Name(op);
      }
    }
  }
}

TEST_F(CudaDeviceTest, ReducesTheMostSourcesAndNoMore) {
  std::fill_n(slots_.begin(), 2 * kBytes, 1);
  const std::vector<const void*> most(Accelerator::kMostSources, slot(1));
  ASSERT_EQ(Await(accelerator_->Reduce(DataType::kUint8, ReduceOp::kSum,
                                       slot(0), slot(0), most, kBytes, 0)),
            Progress::kDone);
  EXPECT_EQ(
      std::count(slot(0), slot(0) + kBytes, Accelerator::kMostSources + 1),
      static_cast<std::ptrdiff_t>(kBytes));
  const std::vector<const void*> too_many(most.size() + 1, slot(1));
  EXPECT_EQ(Await(accelerator_->Reduce(DataType::kUint8, ReduceOp::kSum,
                                       slot(0), slot(0), too_many, kBytes, 0)),
            Progress::kFailed);
}

TEST_F(CudaDeviceTest, ReducesFromAnotherSlot) {
  std::memcpy(slot(0), Pattern(4).data(), kBytes);
  std::memcpy(slot(1), Pattern(5).data(), kBytes);
  const std::vector<std::uint8_t> a = Pattern(4);
  std::vector<std::uint8_t> expected = Pattern(5);
  const void* const host[] = {a.data()};
  FindReduction(DataType::kInt32, ReduceOp::kSum)(
      expected.data(), expected.data(), host, 1, kBytes / 4);
  const void* const received[] = {slot(0)};
  ASSERT_EQ(
      Await(accelerator_->Reduce(DataType::kInt32, ReduceOp::kSum, slot(0),
                                 slot(1), received, kBytes / 4, 0)),
      Progress::kDone);
  EXPECT_EQ(std::memcmp(slot(0), expected.data(), kBytes), 0);
}

TEST_F(CudaDeviceTest, MoreOperationsThanEventsAreAllDone) {
  DeviceMemory source(kBytes);
  source.Set(Pattern(6).data());
  std::vector<Ticket> tickets;
  for (int i = 0; i < 2000; ++i) {
    tickets.push_back(accelerator_->CopyIn(slot(0), source.get(), 64));
  }
  for (const Ticket ticket : tickets) {
    ASSERT_EQ(Await(ticket), Progress::kDone);
  }
}

TEST_F(CudaDeviceTest, OwnsDeviceAndManagedMemoryOnly) {
  const DeviceMemory device(64);
  void* managed = nullptr;
  ASSERT_EQ(cudaMallocManaged(&managed, 64), cudaSuccess);
  std::vector<std::uint8_t> host(64);
  EXPECT_TRUE(accelerator_->Owns(device.get()).value());
  EXPECT_TRUE(accelerator_->Owns(managed).value());
  EXPECT_FALSE(accelerator_->Owns(host.data()).value());
  EXPECT_FALSE(accelerator_->Owns(slot(0)).value());
  cudaFree(managed);
}

TEST_F(CudaDeviceTest, OwnsFromAThreadWithNoContext) {
  const DeviceMemory device(64);
  int host = 0;
  std::thread([&] {
    const auto current = CurrentContextFunction();
    CUcontext context = nullptr;
    ASSERT_EQ(current(&context), CUDA_SUCCESS);
    ASSERT_EQ(context, nullptr) << "this thread has one";
    const auto owns_device = accelerator_->Owns(device.get());
    ASSERT_TRUE(owns_device.ok()) << owns_device.status().ToString();
    EXPECT_TRUE(owns_device.value());
    const auto owns_host = accelerator_->Owns(&host);
    ASSERT_TRUE(owns_host.ok()) << owns_host.status().ToString();
    EXPECT_FALSE(owns_host.value());
    EXPECT_EQ(current(&context), CUDA_SUCCESS);
    EXPECT_EQ(context, nullptr) << "made one current";
  }).join();
}

TEST(CudaContextTest, AskingForHostMemoryMakesNoContextOnAnyDevice) {
  // In a process of its own: the other tests have made contexts.
  if (!CudaDriver::Load().ok()) {
    GTEST_SKIP() << CudaDriver::Load().status().ToString();
  }
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        auto accelerator = CreateCudaAccelerator();
        int value = 0;
        const bool owned = (*accelerator)->Owns(&value).value();
        std::_Exit(owned ? 1 : HasContext() ? 2 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CudaDeviceTest, LeavesTheThreadWithTheContextThatItHad) {
  CUcontext before = nullptr;
  CUcontext after = nullptr;
  const auto current = CurrentContextFunction();
  ASSERT_EQ(current(&before), CUDA_SUCCESS);
  DeviceMemory source(kBytes);
  ASSERT_EQ(current(&before), CUDA_SUCCESS);
  ASSERT_EQ(Await(accelerator_->CopyIn(slot(0), source.get(), kBytes)),
            Progress::kDone);
  accelerator_->Drain();
  ASSERT_EQ(current(&after), CUDA_SUCCESS);
  EXPECT_EQ(before, after);
}

TEST_F(CudaDeviceTest, AnotherThreadWithoutAContextMayDriveIt) {
  DeviceMemory source(kBytes);
  std::thread([&] {
    const auto current = CurrentContextFunction();
    CUcontext context = nullptr;
    EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), source.get(), kBytes)),
              Progress::kDone)
        << accelerator_->error().ToString();
    EXPECT_EQ(current(&context), CUDA_SUCCESS);
    EXPECT_EQ(context, nullptr) << "made one current";
  }).join();
}

TEST_F(CudaDeviceTest, NothingIsDoneForNoBytes) {
  EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), nullptr, 0)), Progress::kDone);
  const void* const received[] = {slot(0)};
  EXPECT_EQ(Await(accelerator_->Reduce(DataType::kInt8, ReduceOp::kSum, slot(0),
                                       nullptr, received, 0, 0)),
            Progress::kDone);
}

TEST_F(CudaDeviceTest, PinningTheSameSlotsTwiceIsAnErrorWithAdvice) {
  const Status again = accelerator_->PrepareSlots(slots_.data(), kBytes);
  EXPECT_EQ(again.code(), StatusCode::kInvalidArgument) << again.ToString();
  EXPECT_NE(again.message().find("cudaErrorHostMemoryAlreadyRegistered"),
            std::string::npos)
      << again.ToString();
}

TEST_F(CudaDeviceTest, ACallThatFailsMakesLaterOnesFailToo) {
  // No user can do this: it is the one error that spares the CUDA context.
  const void* const received[] = {slot(0)};
  const Ticket bad =
      accelerator_->Reduce(static_cast<DataType>(99), ReduceOp::kSum, slot(0),
                           slot(1), received, 1, 0);
  EXPECT_EQ(Await(bad), Progress::kFailed);
  EXPECT_FALSE(accelerator_->error().ok());
  EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), slot(1), 64)),
            Progress::kFailed);
}

#endif  // RINGPIPE_WITH_CUDA

}  // namespace
}  // namespace ringpipe
