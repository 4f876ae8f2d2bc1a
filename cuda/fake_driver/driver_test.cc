// The rules of the fake driver that other tests depend on.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/fake_driver/control_client.h"
#include "cuda/test_device.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Driver = CudaDriver;

constexpr int kInvalidPtx = 218;
constexpr int kInvalidHandle = 400;
constexpr int kMisaligned = 716;
constexpr int kCaptureInvalidated = 901;
constexpr int kCaptureImplicit = 906;
constexpr int kCapturedEvent = 907;
constexpr std::size_t kBytes = 64 << 10;

// k(pointer) stores 7 at pointer.
const char* const kModule =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry k(\n.param .u64 k_param_0\n)\n{\n"
    ".reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n"
    "ld.param.u64 %rd1, [k_param_0];\nmov.u32 %r1, 7;\n"
    "st.global.u32 [%rd1], %r1;\nret;\n\n}\n";

class FakeDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_ = fake_cuda::Control::Find().value();
    device_ = TestDevice::Open().value();
  }
  void TearDown() override { fake_.fake_cuda_reset(); }

  const Driver& driver() const { return device_->driver(); }
  Driver::Stream NewStream(unsigned flags = Driver::kStreamNonBlocking) {
    Driver::Stream stream = nullptr;
    EXPECT_EQ(driver().stream_create(&stream, flags, 0), 0);
    return stream;
  }
  Driver::Event NewEvent() {
    Driver::Event event = nullptr;
    EXPECT_EQ(driver().event_create(&event, 0), 0);
    return event;
  }
  static Driver::Pointer AddressOf(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  }

  // What became of k(pointer).
  int Launch(Driver::Pointer pointer) {
    Driver::Module module = nullptr;
    Driver::Function function = nullptr;
    EXPECT_EQ(driver().module_load(&module, kModule), 0);
    EXPECT_EQ(driver().module_get_function(&function, module, "k"), 0);
    void* parameters[] = {&pointer};
    EXPECT_EQ(driver().launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr,
                                     parameters, nullptr),
              0);
    return device_->context_synchronize();
  }

  // Puts work into `stream` that ends when the flag is set.
  void Block(Driver::Stream stream, std::atomic<bool>* released) {
    EXPECT_EQ(device_->launch_host_function(
                  stream,
                  [](void* flag) {
                    while (!static_cast<std::atomic<bool>*>(flag)->load()) {
                      std::this_thread::sleep_for(milliseconds(1));
                    }
                  },
                  released),
              0);
  }
  // Whether the event is done soon.
  bool Done(Driver::Event event, milliseconds within) {
    const auto end = std::chrono::steady_clock::now() + within;
    while (driver().event_query(event) == Driver::kNotReady) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  fake_cuda::Control fake_;
  std::unique_ptr<TestDevice> device_;
};

TEST_F(FakeDriverTest, EveryEntryPointFailsOnDemandOnce) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(library, nullptr);
  int entry_points = 0;
  while (const char* const name = fake_.fake_cuda_entry_point(entry_points)) {
    ++entry_points;
    if (std::string(name) == "cuGetProcAddress") {
      continue;  // finds the others
    }
    // All arguments are zero: it must not get as far as to use one.
    using AnyFunction = int (*)(long, long, long, long, long, long, long, long,
                                long, long, long);
    const auto function =
        reinterpret_cast<AnyFunction>(Driver::Find(name, name));
    ASSERT_NE(function, nullptr) << name;
    ASSERT_EQ(fake_.fake_cuda_fail(name, 1, 999), 1) << name;
    const long before = fake_.fake_cuda_calls(name);
    EXPECT_EQ(function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 999) << name;
    EXPECT_EQ(fake_.fake_cuda_calls(name), before + 1) << name;
  }
  EXPECT_GT(entry_points, 60);
  EXPECT_EQ(fake_.fake_cuda_fail("cuNothing", 1, 999), 0);
}

TEST_F(FakeDriverTest, TheNthCallFailsAndNoOther) {
  ASSERT_EQ(fake_.fake_cuda_fail("cuDeviceGetCount", 3, 999), 1);
  int count = 0;
  EXPECT_EQ(driver().device_get_count(&count), 0);
  EXPECT_EQ(driver().device_get_count(&count), 0);
  EXPECT_EQ(driver().device_get_count(&count), 999);
  EXPECT_EQ(driver().device_get_count(&count), 0);
}

TEST_F(FakeDriverTest, CopiesAndKernelsReachDeviceMemory) {
  void* const memory = device_->Allocate(kBytes).value();
  ASSERT_EQ(Launch(AddressOf(memory)), 0);
  int value = 0;
  ASSERT_TRUE(device_->Copy(&value, memory, sizeof(value)).ok());
  EXPECT_EQ(value, 7);
  device_->Free(memory);
}

TEST_F(FakeDriverTest, TheHostDoesNotReachDeviceMemory) {
  void* const memory = device_->Allocate(kBytes).value();
  EXPECT_DEATH(*static_cast<volatile char*>(memory) = 1, "");
  device_->Free(memory);
}

TEST_F(FakeDriverTest, AHostPointerInAKernelEndsTheContextForGood) {
  int host = 0;
  EXPECT_EQ(Launch(AddressOf(&host)), Driver::kIllegalAddress);
  Driver::Pointer pointer = 0;
  EXPECT_EQ(device_->memory_allocate(&pointer, 64), Driver::kIllegalAddress);
  EXPECT_EQ(device_->memory_allocate(&pointer, 64), Driver::kIllegalAddress);
}

TEST_F(FakeDriverTest, ARegisteredPointerIsAnotherOnTheDevice) {
  std::vector<int> slots(1024);
  ASSERT_EQ(driver().host_register(slots.data(), 4096,
                                   Driver::kHostRegisterDeviceMap),
            0);
  Driver::Pointer pointer = 0;
  ASSERT_EQ(driver().host_get_device_pointer(&pointer, slots.data() + 1, 0), 0);
  EXPECT_NE(pointer, AddressOf(slots.data() + 1));
  EXPECT_EQ(Launch(pointer), 0);
  EXPECT_EQ(slots[1], 7);
  EXPECT_EQ(driver().host_register(slots.data(), 64, 0),
            Driver::kHostMemoryAlreadyRegistered);
  EXPECT_EQ(driver().host_unregister(slots.data()), 0);
  EXPECT_EQ(driver().host_unregister(slots.data()),
            Driver::kHostMemoryNotRegistered);
}

TEST_F(FakeDriverTest, AMisalignedAccessIsAnErrorOfItsOwn) {
  void* const memory = device_->Allocate(kBytes).value();
  EXPECT_EQ(Launch(AddressOf(memory) + 2), kMisaligned);
}

TEST_F(FakeDriverTest, MemoryOfAnotherDeviceIsNotReached) {
  const auto other = TestDevice::Open(1).value();
  void* const memory = other->Allocate(kBytes).value();
  device_->MakeCurrent();
  EXPECT_EQ(Launch(AddressOf(memory)), Driver::kIllegalAddress);
}

TEST_F(FakeDriverTest, PtxThatItDoesNotKnowIsRefused) {
  std::string text = kModule;
  text.replace(text.find("mov.u32"), 7, "popc.b32");
  Driver::Module module = nullptr;
  EXPECT_EQ(driver().module_load(&module, text.c_str()), kInvalidPtx);
}

TEST_F(FakeDriverTest, WithoutAContextThereIsNoWork) {
  std::thread([this] {
    Driver::Pointer pointer = 0;
    Driver::Stream stream = nullptr;
    int mode = 2;
    EXPECT_EQ(device_->memory_allocate(&pointer, 64), Driver::kInvalidContext);
    EXPECT_EQ(driver().stream_create(&stream, 0, 0), Driver::kInvalidContext);
    EXPECT_EQ(driver().exchange_capture_mode(&mode), Driver::kInvalidContext);
    EXPECT_EQ(driver().context_get_device(&mode), Driver::kInvalidContext);
  }).join();
}

TEST_F(FakeDriverTest, AStuckDeviceDoesNothingUntilItIsWell) {
  const Driver::Stream stream = NewStream();
  const Driver::Event event = NewEvent();
  fake_.fake_cuda_stick(0, 1);
  ASSERT_EQ(driver().event_record(event, stream), 0);
  EXPECT_FALSE(Done(event, milliseconds(50)));
  EXPECT_EQ(fake_.fake_cuda_pending(), 1);
  fake_.fake_cuda_stick(0, 0);
  EXPECT_TRUE(Done(event, seconds(10)));
}

TEST_F(FakeDriverTest, AnEventThatWasNeverRecordedIsDone) {
  EXPECT_EQ(driver().event_query(NewEvent()), 0);
}

TEST_F(FakeDriverTest, AWorkingCopyIsSeenHalfDone) {
  // With long delays (see BUILD), a copy is found between its halves.
  std::vector<char> slots(kBytes);
  void* const memory = device_->Allocate(kBytes).value();
  const std::vector<char> ones(kBytes, 1);
  ASSERT_TRUE(device_->Copy(memory, ones.data(), kBytes).ok());
  ASSERT_EQ(driver().host_register(slots.data(), kBytes, 0), 0);
  const Driver::Stream stream = NewStream();
  const auto* const first = reinterpret_cast<std::atomic<char>*>(slots.data());
  const auto* const last = first + kBytes - 1;
  int half_done = 0;
  for (int i = 0; i < 200 && half_done == 0; ++i) {
    std::memset(slots.data(), 0, kBytes);
    ASSERT_EQ(driver().memcpy_async(AddressOf(slots.data()), AddressOf(memory),
                                    kBytes, stream),
              0);
    while (first->load() == 0) {
    }
    half_done += last->load() == 0 ? 1 : 0;
    ASSERT_EQ(device_->stream_synchronize(stream), 0);
  }
  EXPECT_GT(half_done, 0);
  EXPECT_EQ(driver().host_unregister(slots.data()), 0);
  device_->Free(memory);
}

TEST_F(FakeDriverTest, ACopyToMemoryThatWasUnmappedEndsTheProcessAndSaysSo) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        void* const slots = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        void* const memory = device_->Allocate(kBytes).value();
        driver().host_register(slots, kBytes, 0);
        fake_.fake_cuda_stick(0, 1);
        driver().memcpy_async(AddressOf(slots), AddressOf(memory), kBytes,
                              NewStream());
        munmap(slots, kBytes);
        fake_.fake_cuda_stick(0, 0);
        device_->context_synchronize();
      },
      "a copy reaches memory that the host has unmapped");
}

int QueuesOfADevice() {
  const char* const text = std::getenv("FAKE_CUDA_QUEUES");
  return text == nullptr ? 8 : std::atoi(text);
}

// Of FAKE_CUDA_QUEUES streams, each is in a queue of its own; one more is in
// the queue of the first.
TEST_F(FakeDriverTest, StreamsShareAsManyQueuesAsThereAre) {
  const int queues = QueuesOfADevice();
  std::vector<Driver::Stream> streams;
  for (int i = 0; i <= queues; ++i) {
    streams.push_back(NewStream());
  }
  std::atomic<bool> released = false;
  Block(streams[0], &released);
  for (int i = 1; i <= queues; ++i) {
    const Driver::Event event = NewEvent();
    ASSERT_EQ(driver().event_record(event, streams[i]), 0);
    EXPECT_EQ(Done(event, i < queues ? seconds(10) : milliseconds(50)),
              i < queues)
        << i;
  }
  released = true;
  ASSERT_EQ(device_->context_synchronize(), 0);
}

TEST_F(FakeDriverTest, TheLegacyStreamIsOrderedWithBlockingStreamsAlone) {
  if (QueuesOfADevice() < 8) {
    GTEST_SKIP() << "another queue may be in between";
  }
  const Driver::Stream blocking = NewStream(0);
  const Driver::Stream other = NewStream();
  std::atomic<bool> released = false;
  Block(nullptr, &released);
  const Driver::Event waits = NewEvent();
  const Driver::Event does_not = NewEvent();
  ASSERT_EQ(driver().event_record(waits, blocking), 0);
  ASSERT_EQ(driver().event_record(does_not, other), 0);
  EXPECT_TRUE(Done(does_not, seconds(10)));
  EXPECT_FALSE(Done(waits, milliseconds(50)));
  released = true;
  EXPECT_TRUE(Done(waits, seconds(10)));
}

TEST_F(FakeDriverTest, EachThreadHasADefaultStreamThatWaitsForTheLegacyOne) {
  if (QueuesOfADevice() < 8) {
    GTEST_SKIP() << "another queue may be in between";
  }
  auto* const per_thread = reinterpret_cast<Driver::Stream>(2);
  std::atomic<bool> released = false;
  Block(per_thread, &released);
  const Driver::Event own = NewEvent();
  const Driver::Event others = NewEvent();
  const Driver::Event legacy = NewEvent();
  ASSERT_EQ(driver().event_record(own, per_thread), 0);
  std::thread([&] {
    device_->MakeCurrent();
    EXPECT_EQ(driver().event_record(others, per_thread), 0);
  }).join();
  ASSERT_EQ(driver().event_record(legacy, nullptr), 0);
  EXPECT_TRUE(Done(others, seconds(10)));
  EXPECT_FALSE(Done(own, milliseconds(50)));
  EXPECT_FALSE(Done(legacy, milliseconds(50)));
  released = true;
  EXPECT_TRUE(Done(own, seconds(10)));
  EXPECT_TRUE(Done(legacy, seconds(10)));
}

TEST_F(FakeDriverTest, AStreamWaitsForAnEventOfAnother) {
  const Driver::Stream first = NewStream();
  const Driver::Stream second = NewStream();
  std::atomic<bool> released = false;
  Block(first, &released);
  const Driver::Event event = NewEvent();
  const Driver::Event after = NewEvent();
  ASSERT_EQ(driver().event_record(event, first), 0);
  ASSERT_EQ(device_->stream_wait_event(second, event, 0), 0);
  ASSERT_EQ(driver().event_record(after, second), 0);
  EXPECT_FALSE(Done(after, milliseconds(50)));
  released = true;
  EXPECT_TRUE(Done(after, seconds(10)));
}

// --- Capture ----------------------------------------------------------------

TEST_F(FakeDriverTest, AnEventQueryOnAnotherThreadInvalidatesAGlobalCapture) {
  const Driver::Stream stream = NewStream();
  const Driver::Event event = NewEvent();
  void* graph = nullptr;
  for (const int mode : {0, 1, 2}) {
    ASSERT_EQ(device_->begin_capture(stream, mode), 0);
    std::thread([&] {
      device_->MakeCurrent();
      EXPECT_EQ(driver().event_query(event),
                mode == 0 ? Driver::kStreamCaptureUnsupported : 0);
    }).join();
    EXPECT_EQ(device_->end_capture(stream, &graph),
              mode == 0 ? kCaptureInvalidated : 0);
    EXPECT_EQ(graph == nullptr, mode == 0);
    device_->graph_destroy(graph);
  }
}

TEST_F(FakeDriverTest, InRelaxedModeAnEventQueryDoesNoHarm) {
  const Driver::Stream stream = NewStream();
  const Driver::Event event = NewEvent();
  void* graph = nullptr;
  ASSERT_EQ(device_->begin_capture(stream, 0), 0);
  std::thread([&] {
    device_->MakeCurrent();
    int mode = Driver::kCaptureModeRelaxed;
    EXPECT_EQ(driver().exchange_capture_mode(&mode), 0);
    EXPECT_EQ(mode, 0) << "the mode was not global";
    EXPECT_EQ(driver().event_query(event), 0);
  }).join();
  EXPECT_EQ(device_->end_capture(stream, &graph), 0);
  device_->graph_destroy(graph);
}

TEST_F(FakeDriverTest, WhatIsCapturedIsNotDoneAndItsEventsCannotBeAsked) {
  const Driver::Stream stream = NewStream();
  const Driver::Event event = NewEvent();
  void* graph = nullptr;
  bool ran = false;
  ASSERT_EQ(device_->begin_capture(stream, 2), 0);
  ASSERT_EQ(
      device_->launch_host_function(
          stream, [](void* flag) { *static_cast<bool*>(flag) = true; }, &ran),
      0);
  ASSERT_EQ(driver().event_record(event, stream), 0);
  EXPECT_EQ(driver().event_query(event), kCapturedEvent);
  EXPECT_EQ(device_->end_capture(stream, &graph), kCaptureInvalidated);
  ASSERT_EQ(device_->context_synchronize(), 0);
  EXPECT_FALSE(ran);
}

TEST_F(FakeDriverTest, TheLegacyStreamInvalidatesABlockingStreamsCapture) {
  const Driver::Stream stream = NewStream(0);
  const Driver::Event event = NewEvent();
  void* graph = nullptr;
  ASSERT_EQ(device_->begin_capture(stream, 1), 0);
  std::thread([&] {
    device_->MakeCurrent();
    EXPECT_EQ(driver().event_record(event, nullptr), kCaptureImplicit);
  }).join();
  EXPECT_EQ(device_->end_capture(stream, &graph), kCaptureInvalidated);
}

TEST_F(FakeDriverTest, HandlesOfNothingAreRefused) {
  const Driver::Event event = NewEvent();
  ASSERT_EQ(driver().event_destroy(event), 0);
  EXPECT_EQ(driver().event_query(event), kInvalidHandle);
  const Driver::Stream stream = NewStream();
  ASSERT_EQ(driver().stream_destroy(stream), 0);
  EXPECT_EQ(device_->stream_synchronize(stream), kInvalidHandle);
}

}  // namespace
}  // namespace ringpipe
