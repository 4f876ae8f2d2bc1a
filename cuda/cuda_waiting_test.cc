// What the accelerator waits for, and what nobody has to wait for on its
// account: on the fake driver, as cuda_accelerator_test.
#include <atomic>
#include <chrono>
#include <cstdint>
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
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kUnknownError = 999;  // leaves the context alive

// A GPU that does what a test wants.
class CudaStuckTest : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (!fake_) {
      GTEST_SKIP() << "needs a GPU that can be stuck";
    }
    pattern_ = Pattern(1);
    source_ = std::make_unique<DeviceMemory>(*device_, kBytes);
    source_->Set(pattern_.data());
  }
  void TearDown() override {
    CudaDeviceTest::TearDown();
    source_.reset();
  }

  void Stick(bool stuck) { fake_->fake_cuda_stick(0, stuck ? 1 : 0); }
  // A copy that the GPU has not done yet.
  Ticket StartStuckCopy() {
    Stick(true);
    std::memset(slot(0), 0, kBytes);
    return accelerator_->CopyIn(slot(0), source_->get(), kBytes);
  }
  // What `wait` returns, which begins with a stuck GPU that is well 100 ms
  // later.
  bool OnceWell(const std::function<bool()>& wait) {
    std::thread well([this] {
      std::this_thread::sleep_for(milliseconds(100));
      Stick(false);
    });
    const bool waited = wait();
    const bool copied = std::memcmp(slot(0), pattern_.data(), kBytes) == 0;
    well.join();
    EXPECT_TRUE(copied) << "it still wrote afterwards";
    return waited;
  }
  bool DrainsOnceWell() {
    return OnceWell(
        [this] { return accelerator_->Drain(Deadline::After(seconds(20))); });
  }

  std::vector<std::uint8_t> pattern_;
  std::unique_ptr<DeviceMemory> source_;
};

TEST_F(CudaStuckTest, DrainWaitsForTheDeviceAfterAnErrorThatLeavesItAlive) {
  const Ticket copy = StartStuckCopy();
  fake_->fake_cuda_fail("cuEventQuery", 1, kUnknownError);
  EXPECT_EQ(accelerator_->Poll(copy), Progress::kFailed);
  EXPECT_TRUE(DrainsOnceWell());
}

TEST_F(CudaStuckTest, DrainWaitsForAnOperationWhoseEventFailed) {
  Stick(true);
  fake_->fake_cuda_fail("cuEventRecord", 1, kUnknownError);
  const Ticket copy = StartStuckCopy();
  EXPECT_EQ(accelerator_->Poll(copy), Progress::kFailed);
  EXPECT_TRUE(DrainsOnceWell());
}

// Whoever has released them may unmap them.
TEST_F(CudaStuckTest, SlotsAreReleasedOnceTheDeviceHasDoneWithThem) {
  StartStuckCopy();
  EXPECT_TRUE(
      OnceWell([this] { return accelerator_->ReleaseSlots(slots_.data()); }));
}

TEST_F(CudaStuckTest, DrainOfAContextThatHasEndedIsDone) {
  fake_->fake_cuda_fail("cuMemcpyAsync", 1, CudaDriver::kIllegalAddress);
  EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), source_->get(), 64)),
            Progress::kFailed);
  EXPECT_TRUE(accelerator_->Drain(Deadline::After(seconds(20))));
}

TEST_F(CudaStuckTest, DrainOfAStuckDeviceEndsInTimeAndThenNothingIsFreed) {
  StartStuckCopy();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(accelerator_->Drain(Deadline::After(milliseconds(300))));
  EXPECT_EQ(accelerator_->error().code(), StatusCode::kDeviceError);
  EXPECT_NE(accelerator_->error().message().find("has not done in time"),
            std::string::npos)
      << accelerator_->error().ToString();
  const int streams = fake_->fake_cuda_live("streams");
  const int events = fake_->fake_cuda_live("events");
  const long unpinned = fake_->fake_cuda_calls("cuMemHostUnregister");
  const long released = fake_->fake_cuda_calls("cuDevicePrimaryCtxRelease");
  EXPECT_FALSE(accelerator_->ReleaseSlots(slots_.data()));
  accelerator_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(2));
  EXPECT_EQ(fake_->fake_cuda_live("streams"), streams);
  EXPECT_EQ(fake_->fake_cuda_live("events"), events);
  EXPECT_EQ(fake_->fake_cuda_calls("cuMemHostUnregister"), unpinned);
  EXPECT_EQ(fake_->fake_cuda_calls("cuDevicePrimaryCtxRelease"), released);
  // The device goes on, and writes: the slots are there.
  Stick(false);
  ASSERT_EQ(device_->context_synchronize(), CudaDriver::kSuccess);
  EXPECT_EQ(std::memcmp(slot(0), pattern_.data(), kBytes), 0);
  // As long as the process lives, they have to be.
  static std::vector<std::uint8_t> kept;
  kept = std::move(slots_);
}

TEST_F(CudaStuckTest, AnAcceleratorIsDestroyedInTimeAlthoughTheDeviceIsStuck) {
  StartStuckCopy();
  const auto start = std::chrono::steady_clock::now();
  accelerator_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
  static std::vector<std::uint8_t> kept;
  kept = std::move(slots_);
}

TEST_F(CudaStuckTest, DrainSleepsInsteadOfSpinning) {
  StartStuckCopy();
  const long before = fake_->fake_cuda_calls("cuEventQuery");
  EXPECT_FALSE(accelerator_->Drain(Deadline::After(milliseconds(300))));
  EXPECT_LT(fake_->fake_cuda_calls("cuEventQuery") - before, 1000);
  static std::vector<std::uint8_t> kept;
  kept = std::move(slots_);
}

// --- Streams and kernels ----------------------------------------------------

std::vector<int> priorities;
CudaDriver real_driver;

TEST_F(CudaDeviceTest, StreamsHaveTheGreatestPriority) {
  real_driver = device_->driver();
  CudaDriver driver = real_driver;
  driver.stream_create = [](CudaDriver::Stream* stream, unsigned flags,
                            int priority) {
    priorities.push_back(priority);
    return real_driver.stream_create(stream, flags, priority);
  };
  int least = 0;
  int greatest = 0;
  ASSERT_EQ(driver.context_get_stream_priority_range(&least, &greatest),
            CudaDriver::kSuccess);
  std::vector<std::uint8_t> slots(4096);
  auto accelerator = CreateCudaAccelerator(driver).value();
  ASSERT_TRUE(accelerator->PrepareSlots(slots.data(), slots.size()).ok());
  EXPECT_EQ(priorities, std::vector<int>(3, greatest));
}

// With lazy loading, a kernel's first launch waits for all that the context was
// given: for the user's work too.
TEST_F(CudaDeviceTest, NoReductionWaitsForTheUsersWork) {
  CudaDriver::Stream stream = nullptr;
  ASSERT_EQ(device_->driver().stream_create(&stream,
                                            CudaDriver::kStreamNonBlocking, 0),
            CudaDriver::kSuccess);
  std::atomic<bool> released = false;
  ASSERT_EQ(device_->launch_host_function(
                stream,
                [](void* flag) {
                  while (!static_cast<std::atomic<bool>*>(flag)->load()) {
                    std::this_thread::yield();
                  }
                },
                &released),
            CudaDriver::kSuccess);
  std::atomic<bool> done = false;
  std::thread liveness([&] {
    const Deadline deadline = Deadline::After(seconds(10));
    while (!done && !deadline.expired()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(done) << "it waited";
    released = true;
  });
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      const void* const received[] = {slot(0)};
      EXPECT_EQ(Await(accelerator_->Reduce(type, op, slot(0), slot(1), received,
                                           100, {.complete = 2})),
                Progress::kDone);
    }
  }
  done = true;
  liveness.join();
  EXPECT_EQ(device_->stream_synchronize(stream), CudaDriver::kSuccess);
  EXPECT_EQ(device_->driver().stream_destroy(stream), CudaDriver::kSuccess);
}

// --- The user's streams -----------------------------------------------------

// Host functions of streams that meet: one of them waits for all the others.
struct Meeting {
  const int others;
  std::atomic<int> come = 0;
  std::atomic<bool> met = false;

  static void Come(void* meeting) { ++static_cast<Meeting*>(meeting)->come; }
  // For 10 s.
  static void Await(void* meeting) {
    auto& self = *static_cast<Meeting*>(meeting);
    const Deadline deadline = Deadline::After(seconds(10));
    while (self.come < self.others && !deadline.expired()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    self.met = self.come == self.others;
  }
};

using CudaQueuesTest = CudaDeviceTest;  // skipped likewise

// Streams share the device's queues, in which all that comes behind a wait
// waits too. If a lane waited for the mark, then so would the stream that has
// its queue, for which the marked stream waits.
TEST_F(CudaQueuesTest, TheUsersStreamsMayWaitForEachOtherBehindTheLanes) {
  if (!fake_) {
    GTEST_SKIP() << "needs to know which streams share a queue";
  }
  constexpr int kQueues = 8;  // FAKE_CUDA_QUEUES, which streams take in turn
  Meeting meeting = {.others = kQueues - 1};
  std::vector<CudaDriver::Stream> streams(kQueues);
  const auto launch = [&](CudaDriver::Stream& stream, void (*function)(void*)) {
    ASSERT_EQ(device_->driver().stream_create(
                  &stream, CudaDriver::kStreamNonBlocking, 0),
              CudaDriver::kSuccess);
    ASSERT_EQ(device_->launch_host_function(stream, function, &meeting),
              CudaDriver::kSuccess);
  };
  launch(streams[0], &Meeting::Await);
  const auto mark = accelerator_->Mark(streams[0], /*own_memory=*/true);
  ASSERT_TRUE(mark.ok()) << mark.status().ToString();
  for (int i = 1; i < kQueues; ++i) {
    launch(streams[i], &Meeting::Come);
  }
  for (const CudaDriver::Stream stream : streams) {
    EXPECT_EQ(device_->stream_synchronize(stream), CudaDriver::kSuccess);
    EXPECT_EQ(device_->driver().stream_destroy(stream), CudaDriver::kSuccess);
  }
  EXPECT_TRUE(meeting.met) << "a stream waited for the one that waited for it";
  EXPECT_TRUE(mark.value()->Passed().value());
}

// Work in the legacy default stream of the device that is current on the thread
// that makes this, which goes on when it is let go.
class HeldLegacyStream {
 public:
  explicit HeldLegacyStream(const TestDevice& device) : device_(device) {
    EXPECT_EQ(device_.launch_host_function(
                  nullptr,
                  [](void* held) {
                    while (static_cast<std::atomic<bool>*>(held)->load()) {
                      std::this_thread::sleep_for(milliseconds(1));
                    }
                  },
                  &held_),
              CudaDriver::kSuccess);
  }
  ~HeldLegacyStream() {
    held_ = false;
    EXPECT_EQ(device_.stream_synchronize(nullptr), CudaDriver::kSuccess);
  }
  HeldLegacyStream(const HeldLegacyStream&) = delete;
  HeldLegacyStream& operator=(const HeldLegacyStream&) = delete;

  void LetGo() { held_ = false; }

 private:
  const TestDevice& device_;
  std::atomic<bool> held_ = true;
};

// NULL and CU_STREAM_LEGACY, on a thread of a framework's.
class CudaLegacyStreamTest : public CudaDeviceTest {
 protected:
  static constexpr CudaDriver::Stream kNull = nullptr;
  static inline const CudaDriver::Stream kLegacy =
      reinterpret_cast<CudaDriver::Stream>(1);
  static inline const CudaDriver::Stream kPerThread =
      reinterpret_cast<CudaDriver::Stream>(2);

  void ExpectRefused(CudaDriver::Stream stream, bool own_memory,
                     const std::string& current) {
    const auto mark = accelerator_->Mark(stream, own_memory);
    ASSERT_FALSE(mark.ok()) << "marked a stream of another device";
    EXPECT_EQ(mark.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(mark.status().message().find("which is " + current),
              std::string::npos)
        << mark.status().ToString();
  }

  // The mark is behind the work that the legacy stream of the accelerator's
  // device was given by this thread, whatever is current on another.
  void ExpectBehindItsWork(
      CudaDriver::Stream stream,
      const std::function<std::unique_ptr<TestDevice>()>& make_current) {
    HeldLegacyStream held(*device_);
    std::thread([&] {
      const auto other = make_current();
      const CudaDriver::Context before = Current(*device_);
      const auto mark = accelerator_->Mark(stream, /*own_memory=*/true);
      EXPECT_EQ(Current(*device_), before) << "left another one current";
      ASSERT_TRUE(mark.ok()) << mark.status().ToString();
      EXPECT_FALSE(mark.value()->Passed().value())
          << "not of the stream with the work";
      held.LetGo();
      const Deadline deadline = Deadline::After(seconds(20));
      while (!mark.value()->Passed().value() && !deadline.expired()) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      EXPECT_TRUE(mark.value()->Passed().value());
    }).join();
  }
};

TEST_F(CudaLegacyStreamTest, IsTheAcceleratorsWhereNoDeviceIsCurrent) {
  for (const CudaDriver::Stream stream : {kNull, kLegacy}) {
    ExpectBehindItsWork(stream, [] { return nullptr; });
  }
}

TEST_F(CudaLegacyStreamTest, IsTheAcceleratorsWhereAnotherDeviceIsCurrent) {
  if (!fake_) {
    GTEST_SKIP() << "needs two devices";
  }
  for (const CudaDriver::Stream stream : {kNull, kLegacy}) {
    ExpectBehindItsWork(stream, [] { return TestDevice::Open(1).value(); });
  }
}

// Nobody has said of which device it is.
TEST_F(CudaLegacyStreamTest, OfACallOnHostMemoryIsTheCurrentDevicesOrRefused) {
  std::thread([&] {
    ExpectRefused(kNull, /*own_memory=*/false, "none");
    ExpectRefused(kLegacy, /*own_memory=*/false, "none");
  }).join();
  EXPECT_TRUE(accelerator_->Mark(kNull, /*own_memory=*/false).ok());
  if (fake_) {
    const auto other = TestDevice::Open(1).value();
    ExpectRefused(kNull, /*own_memory=*/false, "cuda:1");
  }
}

// The thread has one on each device.
TEST_F(CudaLegacyStreamTest, TheThreadsOwnDefaultStreamIsTheCurrentDevices) {
  std::thread([&] {
    ExpectRefused(kPerThread, /*own_memory=*/true, "none");
  }).join();
  EXPECT_TRUE(accelerator_->Mark(kPerThread, /*own_memory=*/true).ok());
  if (fake_) {
    const auto other = TestDevice::Open(1).value();
    ExpectRefused(kPerThread, /*own_memory=*/true, "cuda:1");
  }
}

}  // namespace
}  // namespace ringpipe
