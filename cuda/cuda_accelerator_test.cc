// What a GPU does: on the fake driver in "bazel test", on a GPU where the
// program is started where there is one. What needs the fake's control is
// skipped there.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "cuda/accelerator.h"
#include "cuda/cuda_device_fixture.h"
#include "cuda/cuda_driver.h"
#include "cuda/fake_driver/control_client.h"
#include "cuda/test_device.h"
#include "gtest/gtest.h"
#include "reduction/host_reduction.h"
#include "reduction/narrow_float.h"

namespace ringpipe {
namespace {

using std::chrono::seconds;

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
    case DataType::kFloat16:
      return SameValues<Float16>(a, b, bytes);
    case DataType::kBfloat16:
      return SameValues<Bfloat16>(a, b, bytes);
    default:
      return std::memcmp(a, b, bytes) == 0;
  }
}

TEST_F(CudaDeviceTest, CopiesInWithinAndOut) {
  const std::vector<std::uint8_t> pattern = Pattern(1);
  DeviceMemory source(*device_, kBytes);
  DeviceMemory target(*device_, kBytes);
  DeviceMemory second(*device_, kBytes);
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
  DeviceMemory own(*device_, kBytes);
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
                                           received, count, {.complete = 3})),
                Progress::kDone)
          << accelerator_->error().ToString();
      EXPECT_TRUE(SameValues(type, slot(0), expected.data(), kBytes))
          << Name(type) << " " << Name(op);
    }
  }
}

TEST_F(CudaDeviceTest, ScalesLikeTheHost) {
  const std::vector<std::uint8_t> a = Pattern(4);
  const std::vector<std::uint8_t> b = Pattern(5);
  const std::vector<std::uint8_t> c = Pattern(6);
  const Scaling scaling = {
      .own = 0.3, .received = 1e-3, .complete = 3, .result = -7.1};
  DeviceMemory own(*device_, kBytes);
  own.Set(a.data());
  for (const DataType type : {DataType::kFloat32, DataType::kFloat64,
                              DataType::kFloat16, DataType::kBfloat16}) {
    const std::size_t count = kBytes / SizeOf(type) - 1;
    for (const ReduceOp op : kReduceOps) {
      std::vector<std::uint8_t> expected = c;
      const void* const host[] = {b.data(), expected.data()};
      ReduceAndScale(type, op, expected.data(), a.data(), host, count, scaling);
      std::memcpy(slot(0), b.data(), kBytes);
      std::memcpy(slot(1), c.data(), kBytes);
      const void* const received[] = {slot(0), slot(1)};
      ASSERT_EQ(Await(accelerator_->Reduce(type, op, slot(1), own.get(),
                                           received, count, scaling)),
                Progress::kDone)
          << accelerator_->error().ToString();
      EXPECT_TRUE(SameValues(type, slot(1), expected.data(), kBytes))
          << Name(type) << " " << Name(op);
    }
    std::vector<std::uint8_t> expected = b;
    FindScale(type)(expected.data(), a.data(), count, 0.3);
    std::memcpy(slot(0), b.data(), kBytes);
    ASSERT_EQ(Await(accelerator_->Scale(Accelerator::Lane::kCopyIn, type,
                                        slot(0), own.get(), count, 0.3)),
              Progress::kDone)
        << accelerator_->error().ToString();
    EXPECT_TRUE(SameValues(type, slot(0), expected.data(), kBytes))
        << Name(type);
  }
}

// Device memory and slots together: the target is one that is only written, on
// the device, then a slot, then each of the operands.
TEST_F(CudaDeviceTest, ReducesSeveralSourcesIntoAnyMemoryLikeTheHost) {
  const std::vector<std::uint8_t> a = Pattern(7);
  const std::vector<std::uint8_t> b = Pattern(8);
  const std::vector<std::uint8_t> c = Pattern(9);
  DeviceMemory own(*device_, kBytes);
  DeviceMemory apart(*device_, kBytes);
  DeviceMemory second(*device_, kBytes);
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
                                             received, count, {.complete = 3})),
                  Progress::kDone)
            << accelerator_->error().ToString();
        std::vector<std::uint8_t> result(kBytes);
        ASSERT_TRUE(device_->Copy(result.data(), target, kBytes).ok());
        EXPECT_TRUE(SameValues(type, result.data(), expected.data(), kBytes))
            << Name(type) << " " << Name(op);
      }
    }
  }
}

// The target is the slot of an operand; the other place is aligned, or not as a
// whole vector is.
TEST_F(CudaDeviceTest, ReducesIntoTwoPlacesAtOnce) {
  const std::vector<std::uint8_t> a = Pattern(10);
  const std::vector<std::uint8_t> b = Pattern(11);
  DeviceMemory own(*device_, kBytes);
  own.Set(a.data());
  DeviceMemory copy(*device_, kBytes);
  for (const DataType type : kDataTypes) {
    const std::size_t bytes = SizeOf(type);
    for (const std::size_t offset : {std::size_t{0}, bytes}) {
      const std::size_t count = kBytes / bytes - 2;
      copy.Set(std::vector<std::uint8_t>(kBytes, 0xee).data());
      std::memcpy(slot(0), b.data(), kBytes);
      const void* const received[] = {slot(0)};
      ASSERT_EQ(Await(accelerator_->Reduce(
                    type, ReduceOp::kSum,
                    {slot(0), static_cast<std::uint8_t*>(copy.get()) + offset},
                    own.get(), received, count, {})),
                Progress::kDone)
          << accelerator_->error().ToString();
      EXPECT_NE(std::memcmp(slot(0), b.data(), kBytes), 0);
      const std::vector<std::uint8_t> got = copy.Get();
      EXPECT_EQ(std::memcmp(got.data() + offset, slot(0), count * bytes), 0)
          << Name(type);
      EXPECT_EQ(std::count(got.begin(), got.begin() + offset, 0xee), offset);
      EXPECT_EQ(got[offset + count * bytes], 0xee);
    }
  }
}

TEST_F(CudaDeviceTest, KnowsWhatIsASlot) {
  EXPECT_TRUE(accelerator_->IsSlot(slot(0), slots_.size()));
  EXPECT_TRUE(accelerator_->IsSlot(slot(1) + kBytes - 1, 1));
  EXPECT_FALSE(accelerator_->IsSlot(slot(1), kBytes + 1));
  EXPECT_FALSE(accelerator_->IsSlot(slots_.data() + slots_.size(), 1));
  std::vector<std::uint8_t> other(1);
  EXPECT_FALSE(accelerator_->IsSlot(other.data(), 1));
}

TEST_F(CudaDeviceTest, ReducesTheMostSourcesAndNoMore) {
  std::fill_n(slots_.begin(), 2 * kBytes, 1);
  const std::vector<const void*> most(Accelerator::kMostSources, slot(1));
  ASSERT_EQ(Await(accelerator_->Reduce(DataType::kUint8, ReduceOp::kSum,
                                       slot(0), slot(0), most, kBytes, {})),
            Progress::kDone);
  EXPECT_EQ(
      std::count(slot(0), slot(0) + kBytes, Accelerator::kMostSources + 1),
      static_cast<std::ptrdiff_t>(kBytes));
  const std::vector<const void*> too_many(most.size() + 1, slot(1));
  EXPECT_EQ(Await(accelerator_->Reduce(DataType::kUint8, ReduceOp::kSum,
                                       slot(0), slot(0), too_many, kBytes, {})),
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
                                 slot(1), received, kBytes / 4, {})),
      Progress::kDone);
  EXPECT_EQ(std::memcmp(slot(0), expected.data(), kBytes), 0);
}

TEST_F(CudaDeviceTest, MoreOperationsThanEventsAreAllDone) {
  DeviceMemory source(*device_, kBytes);
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
  const DeviceMemory device(*device_, 64);
  const auto managed = device_->AllocateManaged(64);
  ASSERT_TRUE(managed.ok()) << managed.status().ToString();
  std::vector<std::uint8_t> host(64);
  EXPECT_TRUE(accelerator_->Owns(device.get()).value());
  EXPECT_TRUE(accelerator_->Owns(managed.value()).value());
  EXPECT_FALSE(accelerator_->Owns(host.data()).value());
  EXPECT_FALSE(accelerator_->Owns(slot(0)).value());
  device_->Free(managed.value());
}

TEST_F(CudaDeviceTest, OwnsFromAThreadWithNoContext) {
  const DeviceMemory device(*device_, 64);
  int host = 0;
  std::thread([&] {
    ASSERT_EQ(Current(*device_), nullptr) << "this thread has one";
    const auto owns_device = accelerator_->Owns(device.get());
    ASSERT_TRUE(owns_device.ok()) << owns_device.status().ToString();
    EXPECT_TRUE(owns_device.value());
    const auto owns_host = accelerator_->Owns(&host);
    ASSERT_TRUE(owns_host.ok()) << owns_host.status().ToString();
    EXPECT_FALSE(owns_host.value());
    EXPECT_EQ(Current(*device_), nullptr) << "made one current";
  }).join();
}

// In processes of their own: the other tests have made contexts.
class CudaContextTest : public testing::Test {
 protected:
  void SetUp() override {
    const Status loaded = CudaDriver::Load().status();
    if (!loaded.ok()) {
      ASSERT_EQ(std::getenv("FAKE_CUDA_SEED"), nullptr) << loaded.ToString();
      GTEST_SKIP() << loaded.ToString();
    }
    ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  }

  // The devices that have a primary context in this process, as bits.
  static int ContextsOf(const CudaDriver& driver) {
    int devices = 0;
    int contexts = 0;
    // That the driver is not even initialised is best.
    static_cast<void>(driver.device_get_count(&devices));
    for (int device = 0; device < devices; ++device) {
      unsigned flags = 0;
      int active = 0;
      static_cast<void>(
          driver.primary_context_get_state(device, &flags, &active));
      contexts |= active != 0 ? 1 << device : 0;
    }
    return contexts;
  }
};

TEST_F(CudaContextTest, AskingForHostMemoryMakesNoContextOnAnyDevice) {
  EXPECT_EXIT(
      {
        const CudaDriver driver = CudaDriver::Load().value();
        auto accelerator = CreateCudaAccelerator(driver);
        int value = 0;
        const bool owned = (*accelerator)->Owns(&value).value();
        const int contexts = ContextsOf(driver);
        std::_Exit(owned ? 1 : contexts != 0 ? 2 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

using CudaTwoDevicesTest = CudaContextTest;

TEST_F(CudaTwoDevicesTest, OnlyTheDeviceOfTheBufferGetsAContextAndLosesIt) {
  if (!fake_cuda::Control::Find()) {
    GTEST_SKIP() << "needs two devices";
  }
  EXPECT_EXIT(
      {
        const CudaDriver driver = CudaDriver::Load().value();
        std::vector<char> slots(4096);
        int status = 0;
        {
          auto device = TestDevice::Open(1).value();
          void* const buffer = device->Allocate(64).value();
          auto accelerator = CreateCudaAccelerator().value();
          status |= accelerator->Owns(buffer).value() ? 0 : 1;
          status |= accelerator->name() == "cuda:1" ? 0 : 2;
          status |= accelerator->PrepareSlots(slots.data(), slots.size()).ok()
                        ? 0
                        : 4;
          status |= ContextsOf(driver) == 2 ? 0 : 8;
          device->Free(buffer);
        }
        std::_Exit(status | (ContextsOf(driver) == 0 ? 0 : 16));
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(CudaContextTest, AContextThatCannotBeMadeIsAnErrorThatNamesTheDevice) {
  CudaDriver driver = CudaDriver::Load().value();
  driver.primary_context_retain = [](void**, int) { return 2; };
  std::vector<char> slots(4096);
  auto accelerator = CreateCudaAccelerator(driver).value();
  const Status status = accelerator->PrepareSlots(slots.data(), slots.size());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message().find("cuda:0: CUDA: making the context: "), 0U)
      << status.ToString();
}

TEST_F(CudaContextTest, WithoutADeviceTheReasonAndAdviceAreGiven) {
  CudaDriver driver = CudaDriver::Load().value();
  driver.init = [](unsigned) { return CudaDriver::kNoDevice; };
  std::vector<char> slots(4096);
  auto accelerator = CreateCudaAccelerator(driver).value();
  const Status status = accelerator->PrepareSlots(slots.data(), slots.size());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_NE(status.message().find("CUDA_VISIBLE_DEVICES"), std::string::npos)
      << status.ToString();
}

TEST_F(CudaDeviceTest, LeavesTheThreadWithTheContextThatItHad) {
  const CudaDriver::Context before = Current(*device_);
  DeviceMemory source(*device_, kBytes);
  ASSERT_EQ(Await(accelerator_->CopyIn(slot(0), source.get(), kBytes)),
            Progress::kDone);
  EXPECT_TRUE(accelerator_->Drain(Deadline::Infinite()));
  EXPECT_EQ(before, Current(*device_));
}

TEST_F(CudaDeviceTest, AnotherThreadWithoutAContextMayDriveIt) {
  DeviceMemory source(*device_, kBytes);
  std::thread([&] {
    EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), source.get(), kBytes)),
              Progress::kDone)
        << accelerator_->error().ToString();
    EXPECT_EQ(Current(*device_), nullptr) << "made one current";
  }).join();
}

TEST_F(CudaDeviceTest, NothingIsDoneForNoBytes) {
  EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), nullptr, 0)), Progress::kDone);
  const void* const received[] = {slot(0)};
  EXPECT_EQ(Await(accelerator_->Reduce(DataType::kInt8, ReduceOp::kSum, slot(0),
                                       nullptr, received, 0, {})),
            Progress::kDone);
}

TEST_F(CudaDeviceTest, PinningTheSameSlotsTwiceIsAnErrorWithAdvice) {
  const Status again = accelerator_->PrepareSlots(slots_.data(), kBytes);
  EXPECT_EQ(again.code(), StatusCode::kInvalidArgument) << again.ToString();
  EXPECT_NE(again.message().find("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"),
            std::string::npos)
      << again.ToString();
}

TEST_F(CudaDeviceTest, ReleasedSlotsCanBePinnedAgain) {
  ASSERT_TRUE(accelerator_->ReleaseSlots(slots_.data()));
  const Status again = accelerator_->PrepareSlots(slots_.data(), slots_.size());
  EXPECT_TRUE(again.ok()) << again.ToString();
}

TEST_F(CudaDeviceTest, ACallThatFailsMakesLaterOnesFailToo) {
  // No user can do this: it is the one error that spares the CUDA context.
  const void* const received[] = {slot(0)};
  const Ticket bad =
      accelerator_->Reduce(static_cast<DataType>(99), ReduceOp::kSum, slot(0),
                           slot(1), received, 1, {});
  EXPECT_EQ(Await(bad), Progress::kFailed);
  EXPECT_FALSE(accelerator_->error().ok());
  EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), slot(1), 64)),
            Progress::kFailed);
}

// --- Capture of graphs ------------------------------------------------------

class CudaCaptureTest : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (device_ != nullptr) {
      ASSERT_EQ(device_->driver().stream_create(
                    &stream_, CudaDriver::kStreamNonBlocking, 0),
                CudaDriver::kSuccess);
    }
  }
  void TearDown() override {
    if (stream_ != nullptr) {
      device_->driver().stream_destroy(stream_);
    }
    CudaDeviceTest::TearDown();
  }

  // This thread captures, in global mode, while `function` runs on another.
  void CaptureWhile(const std::function<void()>& function) {
    ASSERT_EQ(device_->begin_capture(stream_, 0), CudaDriver::kSuccess);
    std::thread(function).join();
    void* graph = nullptr;
    EXPECT_EQ(device_->end_capture(stream_, &graph), CudaDriver::kSuccess)
        << "the capture was invalidated";
    if (graph != nullptr) {
      device_->graph_destroy(graph);
    }
  }

  CudaDriver::Stream stream_ = nullptr;
};

TEST_F(CudaCaptureTest, OperationsWorkAndLeaveAnotherThreadsCaptureValid) {
  DeviceMemory source(*device_, kBytes);
  source.Set(Pattern(1).data());
  CaptureWhile([&] {
    EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), source.get(), kBytes)),
              Progress::kDone)
        << accelerator_->error().ToString();
    const void* const received[] = {slot(0)};
    EXPECT_EQ(
        Await(accelerator_->Reduce(DataType::kUint8, ReduceOp::kSum, slot(1),
                                   source.get(), received, kBytes, {})),
        Progress::kDone)
        << accelerator_->error().ToString();
    EXPECT_TRUE(accelerator_->Owns(source.get()).value());
    EXPECT_TRUE(accelerator_->Drain(Deadline::After(seconds(20))));
  });
}

TEST_F(CudaCaptureTest, BeginningAndEndLeaveAnotherThreadsCaptureValid) {
  std::vector<std::uint8_t> slots(4096);
  CaptureWhile([&] {
    auto another = CreateCudaAccelerator().value();
    const Status prepared = another->PrepareSlots(slots.data(), slots.size());
    EXPECT_TRUE(prepared.ok()) << prepared.ToString();
    EXPECT_TRUE(another->ReleaseSlots(slots.data()));
  });
}

TEST_F(CudaCaptureTest, TheThreadKeepsItsModeOfCapture) {
  int mode = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
  ASSERT_EQ(device_->driver().exchange_capture_mode(&mode),
            CudaDriver::kSuccess);
  EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), slot(1), 64)), Progress::kDone);
  ASSERT_EQ(device_->driver().exchange_capture_mode(&mode),
            CudaDriver::kSuccess);
  EXPECT_EQ(mode, 1);
}

}  // namespace
}  // namespace ringpipe
