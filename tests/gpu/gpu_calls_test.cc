// What calls do with device memory while the GPU is slow, stuck, or has failed:
// with ranks as threads, on the fake driver.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "cuda/cuda_driver.h"
#include "cuda/fake_driver/control_client.h"
#include "cuda/held_stream.h"
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
// Of a call on a GPU that is stuck. Its end: that, and a second in which the
// GPU may end what it was given.
constexpr milliseconds kShort(500);
constexpr long kInTimeMs = 20'000;

// An allreduce of it.
Call CallOf(const float* send, float* receive, Timeout timeout = seconds(60)) {
  return {.collective = Collective::kAllReduce,
          .send = send,
          .receive = receive,
          .count = kCount,
          .type = DataType::kFloat32,
          .timeout = timeout};
}

// The same after what `stream` was given.
Call CallAfter(void* stream, const float* send, float* receive,
               Timeout timeout = seconds(60)) {
  Call call = CallOf(send, receive, timeout);
  call.stream = stream;
  return call;
}

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
      // What `body` does to the device meets no rank that is still in that
      // call.
      RINGPIPE_RETURN_IF_ERROR(c.Barrier());
      return body(c, static_cast<const float*>(send),
                  static_cast<float*>(receive));
    });
  }

  static Status AllReduce(Communicator& c, const float* send, float* receive,
                          Timeout timeout = seconds(60)) {
    return c.Run(CallOf(send, receive, timeout));
  }

  // What `call` returns; how long it took, if none took longer.
  static Status Timed(std::atomic<long>& longest_ms,
                      const std::function<Status()>& call) {
    const auto start = std::chrono::steady_clock::now();
    Status status = call();
    const long took = std::chrono::duration_cast<milliseconds>(
                          std::chrono::steady_clock::now() - start)
                          .count();
    long longest = longest_ms;
    while (took > longest && !longest_ms.compare_exchange_weak(longest, took)) {
    }
    return status;
  }

  // The call of each rank ends in time, though the GPU has stopped before, and
  // says that the GPU may use its memory: which it does when it goes on.
  // `call_of` has a rank's buffers on the device.
  void ExpectHeldByAStuckGpu(
      const std::function<Call(int rank, const float* send, float* receive)>&
          call_of) {
    std::atomic<long> longest_ms = 0;
    const auto statuses =
        Run([&](Communicator& c, const float* send, float* receive) {
          const Call call = call_of(c.rank(), send, receive);
          fake_.fake_cuda_stick(0, 1);
          return Timed(longest_ms, [&] { return c.Run(call); });
        });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kMemoryHeld) << status.ToString();
    }
    EXPECT_LT(longest_ms, kInTimeMs);
    ExpectTheGpuGoesOn();
  }

  // With what it was given before it was stuck.
  void ExpectTheGpuGoesOn() {
    EXPECT_GT(fake_.fake_cuda_pending(), 0);
    fake_.fake_cuda_stick(0, 0);
    const auto device = TestDevice::Open();
    ASSERT_TRUE(device.ok()) << device.status().ToString();
    // Where it was given memory that is not mapped any more, this is the end of
    // the process.
    EXPECT_EQ((*device)->context_synchronize(), CudaDriver::kSuccess);
    EXPECT_EQ(fake_.fake_cuda_pending(), 0);
  }

  static void ExpectOk(const std::vector<Status>& statuses) {
    for (const Status& status : statuses) {
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }

  fake_cuda::Control fake_;
};

INSTANTIATE_TEST_SUITE_P(Ways, GpuCallsTest,
                         ::testing::Values(Way::kHostMemory, Way::kRails),
                         NameOfWay);

TEST_P(GpuCallsTest, TheDeviceIsNamedOnceItsMemoryWasUsed) {
  const std::string part =
      "; device memory: cuda:0 (by copies to pinned slots)";
  const auto statuses =
      RunRanks(GetParam(), kRanks, [&](Communicator& c) -> Status {
        EXPECT_EQ(c.device().find("device memory"), std::string::npos)
            << c.device();
        RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
        RINGPIPE_ASSIGN_OR_RETURN(void* const memory, device->Allocate(4));
        RINGPIPE_RETURN_IF_ERROR(
            c.Broadcast(memory, memory, 1, DataType::kFloat32, 0));
        EXPECT_TRUE(c.device().ends_with(part)) << c.device();
        device->Free(memory);
        return Status::Ok();
      });
  ExpectOk(statuses);
}

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
  const auto statuses =
      Run([&](Communicator& c, const float* send, float* receive) -> Status {
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
        // Rank 1 gives nothing, so that only its output is on the device.
        const std::vector<std::size_t> counts = {kCount, 0};
        RINGPIPE_RETURN_IF_ERROR(c.AllGatherV(c.rank() == 0 ? send : nullptr,
                                              receive, counts,
                                              DataType::kFloat32, seconds(60)));
        RINGPIPE_RETURN_IF_ERROR(device->Copy(got.data(), receive, kBytes));
        EXPECT_EQ(got, NumbersOf(0));
        return Status::Ok();
      });
  ExpectOk(statuses);
}

// Not only until the call ends: the communicators are gone when the GPU goes
// on.
TEST_P(GpuCallsTest, ACallOnAStuckGpuEndsInTimeAndItsMemoryIsHeld) {
  ExpectHeldByAStuckGpu([](int /*rank*/, const float* send, float* receive) {
    return CallOf(send, receive, kShort);
  });
}

TEST_P(GpuCallsTest, ACallFromTheHostToAStuckGpuEndsInTimeAndItsMemoryIsHeld) {
  std::array<std::vector<float>, kRanks> on_host;
  on_host.fill(std::vector<float>(kCount, 1));
  ExpectHeldByAStuckGpu([&](int rank, const float* /*send*/, float* receive) {
    // The GPU has nothing to do before the other rank's message is there.
    return CallOf(on_host[rank].data(), receive, seconds(5));
  });
}

TEST_P(GpuCallsTest, ACallFromAStuckGpuToTheHostEndsInTimeAndItsMemoryIsHeld) {
  std::array<std::vector<float>, kRanks> on_host;
  on_host.fill(std::vector<float>(kCount));
  ExpectHeldByAStuckGpu([&](int rank, const float* send, float* /*receive*/) {
    return CallOf(send, on_host[rank].data(), kShort);
  });
}

// Half of a buffer on the device, and half of one of the host's.
std::vector<Buffer> HalfOfEach(const float* on_device,
                               std::vector<float>& on_host) {
  constexpr std::size_t kHalf = kCount / 2;
  return {{const_cast<float*>(on_device), kHalf},
          {on_host.data() + kHalf, kCount - kHalf}};
}

TEST_P(GpuCallsTest, ACallOfListsPartlyOnAStuckGpuEndsInTimeAndMemoryIsHeld) {
  std::array<std::vector<float>, kRanks> inputs, outputs;
  std::array<std::vector<Buffer>, kRanks> sends, receives;
  inputs.fill(std::vector<float>(kCount, 1));
  outputs.fill(std::vector<float>(kCount));
  ExpectHeldByAStuckGpu([&](int rank, const float* send, float* receive) {
    sends[rank] = HalfOfEach(send, inputs[rank]);
    receives[rank] = HalfOfEach(receive, outputs[rank]);
    Call call = CallOf(nullptr, nullptr, kShort);
    call.send_list = sends[rank];
    call.receive_list = receives[rank];
    return call;
  });
}

// Which has no memory on the GPU in this call, and a minute's time for it.
TEST_P(GpuCallsTest, ARankWithHostMemoryAloneHearsOfAnothersStuckGpu) {
  std::vector<float> input(kCount, 1), output(kCount), target(kCount);
  std::atomic<long> longest_ms = 0;
  const auto statuses =
      Run([&](Communicator& c, const float* send, float* /*receive*/) {
        fake_.fake_cuda_stick(0, 1);
        return Timed(longest_ms, [&] {
          return c.Run(c.rank() == 0 ? CallOf(input.data(), output.data())
                                     : CallOf(send, target.data(), kShort));
        });
      });
  EXPECT_EQ(statuses[1].code(), StatusCode::kMemoryHeld)
      << statuses[1].ToString();
  // As the other's call failed, without its memory.
  EXPECT_EQ(statuses[0].code(), StatusCode::kTimeout) << statuses[0].ToString();
  EXPECT_NE(statuses[0].message().find("rank 1"), std::string::npos)
      << statuses[0].ToString();
  EXPECT_LT(longest_ms, kInTimeMs);
  ExpectTheGpuGoesOn();
}

// Rank 1 sends from a GPU of its own, and more than rank 0 has slots for, while
// rank 0's stands still: what it has not read from its slots yet stays there.
TEST_P(GpuCallsTest, ASlotIsUsedAgainOnlyWhenTheGpuHasReadIt) {
  const auto statuses = RunRanks(
      GetParam(), kRanks,
      [&](Communicator& c) -> Status {
        RINGPIPE_ASSIGN_OR_RETURN(const auto device,
                                  TestDevice::Open(1 - c.rank()));
        constexpr std::size_t kBytes = kCount * sizeof(float);
        RINGPIPE_ASSIGN_OR_RETURN(void* const data, device->Allocate(kBytes));
        std::vector<float> numbers(c.rank() == 0 ? 0 : kCount);
        std::iota(numbers.begin(), numbers.end(), 0.0F);
        numbers.resize(kCount);
        RINGPIPE_RETURN_IF_ERROR(device->Copy(data, numbers.data(), kBytes));
        // Once for the streams and kernels, then on a GPU that stands still.
        RINGPIPE_RETURN_IF_ERROR(
            c.Broadcast(data, data, 1, DataType::kFloat32, 1));
        std::thread well;
        if (c.rank() == 0) {
          fake_.fake_cuda_stick(1, 1);
          well = std::thread([&] {
            std::this_thread::sleep_for(milliseconds(500));
            fake_.fake_cuda_stick(1, 0);
          });
        }
        Status status =
            c.Broadcast(data, data, kCount, DataType::kFloat32, 1, seconds(60));
        if (well.joinable()) {
          well.join();
        }
        RINGPIPE_RETURN_IF_ERROR(status);
        std::vector<float> got(kCount);
        RINGPIPE_RETURN_IF_ERROR(device->Copy(got.data(), data, kBytes));
        for (std::size_t i = 0; i < kCount; ++i) {
          got[i] -= static_cast<float>(i);
        }
        EXPECT_EQ(std::ranges::count(got, 0.0F), kCount);
        return Status::Ok();
      },
      [](int /*rank*/, CommunicatorOptions& options) {
        options.environment.subchunk_bytes = 4096;
        options.environment.slots = 32;
      });
  ExpectOk(statuses);
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
  ExpectOk(statuses);
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

// Numbers that the device copies while the host goes on.
class Pinned {
 public:
  Pinned(const TestDevice& device, std::vector<float> numbers)
      : device_(device), numbers_(std::move(numbers)) {
    const Status status = device_.Check(
        "pinning", device_.driver().host_register(
                       numbers_.data(), numbers_.size() * sizeof(float), 0));
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  ~Pinned() {
    static_cast<void>(device_.driver().host_unregister(numbers_.data()));
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  float* data() { return numbers_.data(); }

 private:
  const TestDevice& device_;
  std::vector<float> numbers_;
};

// What the stream copies there is not there yet when the call is made.
Status CallAfterACopy(Communicator& c, const TestDevice& device,
                      const float* from, float* send, float* receive) {
  constexpr std::size_t kBytes = kCount * sizeof(float);
  RINGPIPE_ASSIGN_OR_RETURN(const auto held, HeldStream::Create(device));
  RINGPIPE_RETURN_IF_ERROR(device.Check(
      "copy",
      device.driver().memcpy_async(reinterpret_cast<std::uintptr_t>(send),
                                   reinterpret_cast<std::uintptr_t>(from),
                                   kBytes, held->stream())));
  RINGPIPE_ASSIGN_OR_RETURN(Request request,
                            c.Start(CallAfter(held->stream(), send, receive)));
  EXPECT_EQ(request.Wait(milliseconds(50)).code(), StatusCode::kWaitOver);
  held->LetGo();
  RINGPIPE_RETURN_IF_ERROR(request.Wait());
  std::vector<float> got(kCount);
  RINGPIPE_RETURN_IF_ERROR(device.Copy(got.data(), receive, kBytes));
  for (std::size_t i = 0; i < kCount; ++i) {
    got[i] -= 2 * static_cast<float>(i % 1000) + 1;
  }
  EXPECT_EQ(std::ranges::count(got, 0.0F), kCount);
  return Status::Ok();
}

// With buffers of the device, and of the host.
TEST_P(GpuCallsTest, ACallBeginsWhenItsStreamHasDoneWhatItWasGiven) {
  const auto statuses = Run([&](Communicator& c, const float* send,
                                float* receive) -> Status {
    RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
    float* const on_device = const_cast<float*>(send);
    Pinned numbers(*device, NumbersOf(c.rank()));
    RINGPIPE_RETURN_IF_ERROR(
        CallAfterACopy(c, *device, numbers.data(), on_device, receive));
    Pinned on_host(*device, std::vector<float>(kCount));
    Pinned result(*device, std::vector<float>(kCount));
    return CallAfterACopy(c, *device, on_device, on_host.data(), result.data());
  });
  ExpectOk(statuses);
}

// Nobody's memory is held: the call has not begun.
TEST_P(GpuCallsTest, ACallWhoseStreamStandsStillEndsAtItsDeadline) {
  const auto statuses = Run([&](Communicator& c, const float* send,
                                float* receive) -> Status {
    RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
    RINGPIPE_ASSIGN_OR_RETURN(const auto held, HeldStream::Create(*device));
    return c.Run(CallAfter(held->stream(), send, receive, milliseconds(300)));
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
    EXPECT_NE(status.message().find("its stream had not done"),
              std::string::npos)
        << status.ToString();
  }
}

// The other rank, which waits in the call, hears for whom.
TEST_P(GpuCallsTest, ARankWhoseStreamIsLateIsNamedToTheOthers) {
  std::atomic<bool> is_late = false;
  const auto statuses =
      Run([&](Communicator& c, const float* send, float* receive) -> Status {
        RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
        if (c.rank() == 1) {
          while (!is_late && c.failure().ok()) {
            std::this_thread::yield();
          }
          return AllReduce(c, send, receive, milliseconds(1000));
        }
        RINGPIPE_ASSIGN_OR_RETURN(const auto held, HeldStream::Create(*device));
        RINGPIPE_ASSIGN_OR_RETURN(
            Request request, c.Start(CallAfter(held->stream(), send, receive)));
        is_late = true;
        return request.Wait();
      });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
    EXPECT_NE(status.message().find("rank 0 has waited for "),
              std::string::npos)
        << status.ToString();
    EXPECT_NE(status.message().find("for its stream"), std::string::npos)
        << status.ToString();
  }
}

TEST_P(GpuCallsTest, AStreamThatFailsBeforeItsCallEndsTheCallOfAll) {
  const auto statuses =
      Run([&](Communicator& c, const float* send, float* receive) -> Status {
        RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
        RINGPIPE_ASSIGN_OR_RETURN(const auto held, HeldStream::Create(*device));
        RINGPIPE_ASSIGN_OR_RETURN(
            Request request, c.Start(CallAfter(held->stream(), send, receive)));
        if (c.rank() == 0) {
          // An invalid argument, as drivers have it.
          fake_.fake_cuda_fail("cuEventQuery", 1, 1);
        }
        return request.Wait();
      });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kDeviceError) << status.ToString();
    EXPECT_NE(status.message().find("the call's stream was given"),
              std::string::npos)
        << status.ToString();
  }
}

// As of a framework's thread, on which another device is current: the buffers
// say which device's legacy stream it is. Empty ones need none.
TEST_P(GpuCallsTest, TheLegacyStreamIsThatOfTheBuffersDevice) {
  const auto statuses =
      Run([&](Communicator& c, const float* send, float* receive) -> Status {
        RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
        // A blocking stream: the legacy one comes after it.
        RINGPIPE_ASSIGN_OR_RETURN(
            const auto held, HeldStream::Create(*device, /*blocking=*/true));
        RINGPIPE_ASSIGN_OR_RETURN(const auto other, TestDevice::Open(1));
        RINGPIPE_ASSIGN_OR_RETURN(Request request,
                                  c.Start(CallAfter(nullptr, send, receive)));
        EXPECT_EQ(request.Wait(milliseconds(100)).code(), StatusCode::kWaitOver)
            << "it did not wait for the legacy stream of cuda:0";
        held->LetGo();
        RINGPIPE_RETURN_IF_ERROR(request.Wait());
        Call empty = CallAfter(nullptr, send, receive);
        empty.count = 0;
        return c.Run(empty);
      });
  ExpectOk(statuses);
}

// Nothing says that another device's is meant.
TEST_P(GpuCallsTest, DefaultStreamsOfAnotherDeviceAreRefusedByName) {
  const auto statuses = Run([&](Communicator& c, const float* send,
                                float* receive) -> Status {
    void* const per_thread = reinterpret_cast<void*>(2);
    const Call on_device = CallAfter(per_thread, send, receive);
    std::vector<float> numbers(kCount, 1), sums(kCount);
    const Call on_host = CallAfter(nullptr, numbers.data(), sums.data());
    Call barrier = {.collective = Collective::kBarrier, .timeout = seconds(60)};
    barrier.stream = nullptr;
    {
      RINGPIPE_ASSIGN_OR_RETURN(const auto other, TestDevice::Open(1));
      for (const Call& call : {on_device, on_host, barrier}) {
        const Status refused = c.Run(call);
        EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
        EXPECT_NE(refused.message().find("which is cuda:1"), std::string::npos)
            << refused.ToString();
      }
    }
    RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
    RINGPIPE_RETURN_IF_ERROR(c.Run(on_device));
    RINGPIPE_RETURN_IF_ERROR(c.Run(barrier));
    return c.Run(on_host);
  });
  ExpectOk(statuses);
}

// And the capture goes on: nothing of the call is in it.
TEST_P(GpuCallsTest, ACallInAStreamThatIsCapturedIsRefusedByName) {
  const auto statuses =
      Run([&](Communicator& c, const float* send, float* receive) -> Status {
        RINGPIPE_ASSIGN_OR_RETURN(const auto device, TestDevice::Open());
        const CudaDriver& driver = device->driver();
        Call call = CallOf(send, receive);
        CudaDriver::Stream stream = nullptr;
        RINGPIPE_RETURN_IF_ERROR(
            device->Check("stream", driver.stream_create(&stream, 0, 0)));
        RINGPIPE_RETURN_IF_ERROR(device->Check(
            "capture",
            device->begin_capture(stream, CudaDriver::kCaptureModeRelaxed)));
        // The legacy default stream is ordered with it.
        for (void* const captured : {stream, CudaDriver::Stream()}) {
          call.stream = captured;
          const Status refused = c.Run(call);
          EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
          EXPECT_NE(refused.message().find("a graph is being captured"),
                    std::string::npos)
              << refused.ToString();
        }
        void* graph = nullptr;
        RINGPIPE_RETURN_IF_ERROR(
            device->Check("its end", device->end_capture(stream, &graph)));
        static_cast<void>(device->graph_destroy(graph));
        // Both ranks' captures are of one context.
        RINGPIPE_RETURN_IF_ERROR(c.Barrier());
        call.stream = stream;
        Status status = c.Run(call);
        static_cast<void>(driver.stream_destroy(stream));
        return status;
      });
  ExpectOk(statuses);
}

TEST_P(GpuCallsTest, AStreamOfAnotherContextIsRefusedByName) {
  const auto statuses = Run([&](Communicator& c, const float* send,
                                float* receive) -> Status {
    RINGPIPE_ASSIGN_OR_RETURN(const auto other, TestDevice::Open(1));
    CudaDriver::Stream stream = nullptr;
    RINGPIPE_RETURN_IF_ERROR(
        other->Check("stream", other->driver().stream_create(&stream, 0, 0)));
    const Status refused = c.Run(CallAfter(stream, send, receive));
    static_cast<void>(other->driver().stream_destroy(stream));
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find("none of the primary context of cuda:0"),
              std::string::npos)
        << refused.ToString();
    return AllReduce(c, send, receive);
  });
  ExpectOk(statuses);
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
  ExpectOk(statuses);
}

}  // namespace
}  // namespace ringpipe::testing
