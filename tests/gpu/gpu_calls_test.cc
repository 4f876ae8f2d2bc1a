// What calls do with device memory while the GPU is slow, stuck, or has failed:
// with ranks as threads, on the fake driver.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/fake_driver/control_client.h"
#include "cuda/test_device.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRanks = 2;
constexpr std::size_t kCount = 100'000;

class GpuCallsTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override { fake_ = fake_cuda::Control::Find().value(); }
  void TearDown() override { fake_.fake_cuda_reset(); }

  // On each rank: makes buffers of device memory and one call, then `body`.
  // Device memory is not freed, for a stuck device may use it.
  std::vector<Status> Run(
      const std::function<Status(Communicator&, const float*, float*)>& body) {
    return RunRanks(GetParam(), kRanks, [&](Communicator& c) -> Status {
      RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
      RINGPIPE_ASSIGN_OR_RETURN(void* const send,
                                device->Allocate(kCount * sizeof(float)));
      RINGPIPE_ASSIGN_OR_RETURN(void* const receive,
                                device->Allocate(kCount * sizeof(float)));
      const std::vector<float> ones(kCount, 1);
      RINGPIPE_RETURN_IF_ERROR(
          device->Copy(send, ones.data(), kCount * sizeof(float)));
      RINGPIPE_RETURN_IF_ERROR(AllReduce(c, static_cast<const float*>(send),
                                         static_cast<float*>(receive)));
      return body(c, static_cast<const float*>(send),
                  static_cast<float*>(receive));
    });
  }

  static Status AllReduce(Communicator& c, const float* send, float* receive,
                          Timeout timeout = seconds(60)) {
    return c.AllReduce(send, receive, kCount, DataType::kFloat32,
                       ReduceOp::kSum, timeout);
  }

  fake_cuda::Control fake_;
};

INSTANTIATE_TEST_SUITE_P(Ways, GpuCallsTest,
                         ::testing::Values(Way::kHostMemory, Way::kRails),
                         NameOfWay);

// Of a rank's numbers, which are 1 larger on the next rank.
std::vector<float> NumbersOf(int rank) {
  std::vector<float> numbers(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    numbers[i] = static_cast<float>(i % 1000 + rank);
  }
  return numbers;
}

// The second half first, with a cut that each rank has elsewhere.
std::vector<Buffer> InPieces(const float* buffer, int rank) {
  float* const data = const_cast<float*>(buffer);
  const std::size_t half = kCount / 2, cut = 1000 + 7 * rank;
  return {{data + half, kCount - half}, {data, cut}, {data + cut, half - cut}};
}

TEST_P(GpuCallsTest, ListsOfDeviceMemoryAndPartsOfNothingAreRight) {
  const auto statuses = Run([&](Communicator& c, const float* send,
                                float* receive) -> Status {
    RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
    constexpr std::size_t kBytes = kCount * sizeof(float);
    std::vector<float> numbers = NumbersOf(c.rank());
    RINGPIPE_RETURN_IF_ERROR(
        device->Copy(const_cast<float*>(send), numbers.data(), kBytes));
    std::vector<Buffer> sends = InPieces(send, c.rank());
    const std::vector<Buffer> receives = InPieces(receive, c.rank());
    Call call = {.collective = Collective::kAllReduce,
                 .count = kCount,
                 .type = DataType::kFloat32,
                 .timeout = seconds(60),
                 .send_list = sends,
                 .receive_list = receives};
    RINGPIPE_RETURN_IF_ERROR(c.Run(call));
    std::vector<float> got(kCount);
    RINGPIPE_RETURN_IF_ERROR(device->Copy(got.data(), receive, kBytes));
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(got[i], 2 * static_cast<float>(i % 1000) + 1) << i;
    }
    sends[1].data = numbers.data();  // of the host
    const Status mixed = c.Run(call);
    EXPECT_EQ(mixed.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(mixed.message().find("use one kind for all"), std::string::npos)
        << mixed.ToString();
    // Rank 1 gives nothing, so that only its output is on the device.
    const std::vector<std::size_t> counts = {kCount, 0};
    RINGPIPE_RETURN_IF_ERROR(c.AllGatherV(c.rank() == 0 ? send : nullptr,
                                          receive, counts, DataType::kFloat32,
                                          seconds(60)));
    RINGPIPE_RETURN_IF_ERROR(device->Copy(got.data(), receive, kBytes));
    EXPECT_EQ(got, NumbersOf(0));
    return Status::Ok();
  });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST_P(GpuCallsTest, ACallOnAStuckGpuEndsInTimeAndSaysThatMemoryIsHeld) {
  std::atomic<long> longest_ms = 0;
  const auto statuses =
      Run([&](Communicator& c, const float* send, float* receive) -> Status {
        fake_.fake_cuda_stick(0, 1);
        const auto start = std::chrono::steady_clock::now();
        Status status = AllReduce(c, send, receive, milliseconds(500));
        const long took = std::chrono::duration_cast<milliseconds>(
                              std::chrono::steady_clock::now() - start)
                              .count();
        longest_ms = std::max(longest_ms.load(), took);
        return status;
      });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kMemoryHeld) << status.ToString();
  }
  // The timeout, and a second in which the GPU may end what it was given.
  EXPECT_LT(longest_ms, 5000);
}

// The call's other work goes on meanwhile: hence not only the number of looks,
// but that it ends well.
TEST_P(GpuCallsTest, ACallSleepsWhileTheGpuWorks) {
  std::atomic<int> inside = 0;
  const auto statuses =
      Run([&](Communicator& c, const float* send, float* receive) -> Status {
        RINGPIPE_RETURN_IF_ERROR(c.Barrier());
        if (++inside == kRanks) {
          fake_.fake_cuda_stick(0, 1);
        }
        RINGPIPE_RETURN_IF_ERROR(c.Barrier());
        const long before = fake_.fake_cuda_calls("cuEventQuery");
        std::thread well([&] {
          std::this_thread::sleep_for(milliseconds(500));
          fake_.fake_cuda_stick(0, 0);
        });
        Status status = AllReduce(c, send, receive);
        well.join();
        // Both ranks' looks: one a millisecond each, a spin, and what the call
        // needs anyway.
        const long looks = fake_.fake_cuda_calls("cuEventQuery") - before;
        if (status.ok() && looks > 10'000) {
          return {StatusCode::kInternal,
                  "looked " + std::to_string(looks) + " times at the GPU"};
        }
        return status;
      });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST_P(GpuCallsTest, AnErrorOfTheGpuEndsTheCallOfAllWithItsName) {
  const auto statuses =
      Run([&](Communicator& c, const float* send, float* receive) -> Status {
        if (c.rank() == 1) {
          fake_.fake_cuda_fail("cuMemcpyAsync", 1, 719);
        }
        return AllReduce(c, send, receive);
      });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kDeviceError) << status.ToString();
    EXPECT_NE(status.message().find("CUDA_ERROR_LAUNCH_FAILED"),
              std::string::npos)
        << status.ToString();
  }
}

// Of one rank alone: where the driver does not answer it, the other is in the
// call already, or makes it later.
TEST_P(GpuCallsTest, ADriverThatDoesNotAnswerEndsTheCallOfAll) {
  const auto statuses =
      Run([&](Communicator& c, const float* send, float* receive) -> Status {
        if (c.rank() == 1) {
          fake_.fake_cuda_fail("cuPointerGetAttributes", 1, 999);
        }
        return AllReduce(c, send, receive, seconds(60));
      });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kDeviceError) << status.ToString();
    EXPECT_NE(status.message().find("whose memory"), std::string::npos)
        << status.ToString();
  }
}

TEST_P(GpuCallsTest, RegisterOfDeviceMemoryIsRefusedByName) {
  const auto statuses = Run(
      [&](Communicator& c, const float* /*send*/, float* receive) -> Status {
        const Status refused = c.Register(receive, kCount * sizeof(float));
        const bool right =
            refused.code() == StatusCode::kInvalidArgument &&
            refused.message().find("memory of cuda:0") != std::string::npos;
        return right ? Status::Ok()
                     : Status(StatusCode::kInternal, refused.ToString());
      });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

}  // namespace
}  // namespace ringpipe::testing
