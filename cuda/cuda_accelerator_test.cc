// What a GPU does is tested where there is one, and visibly skipped elsewhere.
#include <memory>
#include <string>

#include "cuda/accelerator.h"
#include "gtest/gtest.h"

#ifdef RINGPIPE_WITH_CUDA
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "reduction/host_reduction.h"
#endif

namespace ringpipe {
namespace {

TEST(CudaAcceleratorTest, WithoutADeviceTheReasonAndAdviceAreGiven) {
  const auto accelerator = CreateCudaAccelerator();
  if (accelerator.ok()) {
    GTEST_SKIP() << "there is a device: " << accelerator.value()->name();
  }
  EXPECT_EQ(accelerator.status().code(), StatusCode::kUnavailable);
  const std::string& message = accelerator.status().message();
  EXPECT_EQ(message.find("CUDA: "), 0u) << message;
  EXPECT_NE(message.find("; "), std::string::npos) << "no advice: " << message;
}

#ifdef RINGPIPE_WITH_CUDA

using Progress = Accelerator::Progress;
using Ticket = Accelerator::Ticket;

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
  DeviceMemory source(kBytes);
  source.Set(b.data());
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      const std::size_t count = kBytes / SizeOf(type) - 1;
      std::vector<std::uint8_t> expected = a;
      FindReduction(type, op)(expected.data(), b.data(), count);
      if (const FinishFunction finish = FindFinish(type, op)) {
        finish(expected.data(), count, 3);
      }
      std::memcpy(slot(0), a.data(), kBytes);
      ASSERT_EQ(Await(accelerator_->Reduce(type, op, slot(0), source.get(),
                                           count, 3)),
                Progress::kDone)
          << accelerator_->error().ToString();
      EXPECT_TRUE(SameValues(type, slot(0), expected.data(), kBytes))
          << Name(type) << " " << Name(op);
    }
  }
}

TEST_F(CudaDeviceTest, ReducesFromAnotherSlot) {
  std::memcpy(slot(0), Pattern(4).data(), kBytes);
  std::memcpy(slot(1), Pattern(5).data(), kBytes);
  std::vector<std::uint8_t> expected = Pattern(4);
  FindReduction(DataType::kInt32, ReduceOp::kSum)(
      expected.data(), Pattern(5).data(), kBytes / 4);
  ASSERT_EQ(Await(accelerator_->Reduce(DataType::kInt32, ReduceOp::kSum,
                                       slot(0), slot(1), kBytes / 4, 0)),
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
  EXPECT_TRUE(accelerator_->Owns(device.get()));
  EXPECT_TRUE(accelerator_->Owns(managed));
  EXPECT_FALSE(accelerator_->Owns(host.data()));
  EXPECT_FALSE(accelerator_->Owns(slot(0)));
  cudaFree(managed);
}

TEST_F(CudaDeviceTest, NothingIsDoneForNoBytes) {
  EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), nullptr, 0)), Progress::kDone);
  EXPECT_EQ(Await(accelerator_->Reduce(DataType::kInt8, ReduceOp::kSum, slot(0),
                                       nullptr, 0, 0)),
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
  const Ticket bad = accelerator_->Reduce(
      static_cast<DataType>(99), ReduceOp::kSum, slot(0), slot(1), 1, 0);
  EXPECT_EQ(Await(bad), Progress::kFailed);
  EXPECT_FALSE(accelerator_->error().ok());
  EXPECT_EQ(Await(accelerator_->CopyIn(slot(0), slot(1), 64)),
            Progress::kFailed);
}

#endif  // RINGPIPE_WITH_CUDA

}  // namespace
}  // namespace ringpipe
