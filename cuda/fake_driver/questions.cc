// What the driver does where the fake one had to decide, beside what the fake
// one does. For the day when a GPU is at hand: a part of bench/gpu_suite.
//
//   questions           a markdown table, and what the fake is wrong about
//   questions --same    exit status 1 where it is wrong about anything
//
// Exit status 77 without a GPU. Of the runtime (cudart), which ringpipe does
// not use, nothing is asked.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/accelerator.h"
#include "cuda/cuda_driver.h"
#include "cuda/held_stream.h"
#include "cuda/kernels/reduce_ptx.h"
#include "cuda/test_device.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kNoGpu = 77;
constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr milliseconds kQuiet(1000);
constexpr std::chrono::seconds kPatience(10);
constexpr int kCaptureGlobal = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL

// Of a question that could not be put.
std::string Failed(const Status& status) { return status.ToString(); }

std::string OnAnotherThread(const std::function<std::string()>& ask) {
  std::string answer;
  std::thread([&] { answer = ask(); }).join();
  return answer;
}

std::string PointerWithoutContext(const TestDevice& device) {
  const auto memory = device.Allocate(kBytes);
  if (!memory.ok()) {
    return Failed(memory.status());
  }
  std::string answer = OnAnotherThread([&] {
    unsigned type = 0;
    int attributes[] = {CudaDriver::kMemoryType};
    void* values[] = {&type};
    const CudaDriver::Error error = device.driver().pointer_get_attributes(
        1, attributes, values, reinterpret_cast<std::uintptr_t>(*memory));
    return error == CudaDriver::kSuccess
               ? "that its type is " + std::to_string(type)
               : device.driver().NameOf(error);
  });
  device.Free(*memory);
  return answer;
}

std::string DeviceWithoutContext(const TestDevice& device) {
  return OnAnotherThread([&] {
    int ordinal = 0;
    return device.driver().NameOf(device.driver().context_get_device(&ordinal));
  });
}

std::string CaptureModeWithoutContext(const TestDevice& device) {
  return OnAnotherThread([&] {
    int mode = CudaDriver::kCaptureModeRelaxed;
    return device.driver().NameOf(device.driver().exchange_capture_mode(&mode));
  });
}

// What `ask` says while a blocking stream captures in global mode on this
// thread, and what becomes of the capture.
std::string WhileCapturing(const TestDevice& device,
                           const std::function<CudaDriver::Error()>& ask) {
  const CudaDriver& driver = device.driver();
  CudaDriver::Stream stream = nullptr;
  CudaDriver::Error error = driver.stream_create(&stream, 0, 0);
  if (error == CudaDriver::kSuccess) {
    error = device.begin_capture(stream, kCaptureGlobal);
  }
  if (error != CudaDriver::kSuccess) {
    return "no capture: " + driver.NameOf(error);
  }
  const CudaDriver::Error said = ask();
  void* graph = nullptr;
  const bool valid = device.end_capture(stream, &graph) == CudaDriver::kSuccess;
  if (graph != nullptr) {
    static_cast<void>(device.graph_destroy(graph));
  }
  static_cast<void>(driver.stream_destroy(stream));
  return driver.NameOf(said) + ", and the capture is " +
         (valid ? "valid" : "invalid");
}

// By another thread, of an event that the capture knows nothing of.
std::string QueryDuringCapture(const TestDevice& device, bool relaxed) {
  const CudaDriver& driver = device.driver();
  CudaDriver::Event event = nullptr;
  if (const CudaDriver::Error error =
          driver.event_create(&event, CudaDriver::kEventDisableTiming);
      error != CudaDriver::kSuccess) {
    return driver.NameOf(error);
  }
  std::string answer = WhileCapturing(device, [&] {
    CudaDriver::Error said = CudaDriver::kSuccess;
    std::thread([&] {
      device.MakeCurrent();
      int mode = relaxed ? CudaDriver::kCaptureModeRelaxed : kCaptureGlobal;
      static_cast<void>(driver.exchange_capture_mode(&mode));
      said = driver.event_query(event);
    }).join();
    return said;
  });
  static_cast<void>(driver.event_destroy(event));
  return answer;
}

std::string LegacyStreamDuringCapture(const TestDevice& device) {
  return WhileCapturing(device, [&] {
    int capturing = 0;
    return device.driver().stream_is_capturing(nullptr, &capturing);
  });
}

std::string PinsMemfd(const TestDevice& device) {
  const int file = memfd_create("questions", MFD_CLOEXEC);
  void* memory = MAP_FAILED;
  if (file >= 0 && ftruncate(file, kBytes) == 0) {
    memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (file >= 0) {
    close(file);
  }
  if (memory == MAP_FAILED) {
    return "no memfd here";
  }
  const CudaDriver& driver = device.driver();
  const CudaDriver::Error error = driver.host_register(
      memory, kBytes,
      CudaDriver::kHostRegisterPortable | CudaDriver::kHostRegisterDeviceMap);
  if (error == CudaDriver::kSuccess) {
    static_cast<void>(driver.host_unregister(memory));
  }
  munmap(memory, kBytes);
  return driver.NameOf(error);
}

std::string ContextOfPoolMemory(const TestDevice& device) {
  CudaDriver::Pointer pointer = 0;
  if (const CudaDriver::Error error =
          device.memory_allocate_async(&pointer, kBytes, nullptr);
      error != CudaDriver::kSuccess) {
    return device.driver().NameOf(error);
  }
  static_cast<void>(device.stream_synchronize(nullptr));
  CudaDriver::Context context = nullptr;
  int attributes[] = {CudaDriver::kContext};
  void* values[] = {static_cast<void*>(&context)};
  const CudaDriver::Error error =
      device.driver().pointer_get_attributes(1, attributes, values, pointer);
  static_cast<void>(device.memory_free_async(pointer, nullptr));
  return error != CudaDriver::kSuccess ? device.driver().NameOf(error)
         : context == nullptr          ? "none"
                                       : "one";
}

std::string EventNeverRecorded(const TestDevice& device) {
  CudaDriver::Event event = nullptr;
  static_cast<void>(device.driver().event_create(&event, 0));
  const CudaDriver::Error error = device.driver().event_query(event);
  static_cast<void>(device.driver().event_destroy(event));
  return device.driver().NameOf(error);
}

// By ringpipe's own kernel.
std::string SumWithNan(const TestDevice& device) {
  const auto accelerator = CreateCudaAccelerator();
  std::vector<float> slots(1024);
  const auto memory = device.Allocate(kBytes);
  if (!accelerator.ok() || !memory.ok() ||
      !(*accelerator)->Owns(*memory).ok()) {
    return "no accelerator";
  }
  if (const Status status =
          (*accelerator)
              ->PrepareSlots(slots.data(), slots.size() * sizeof(float));
      !status.ok()) {
    return Failed(status);
  }
  slots[0] = std::bit_cast<float>(std::uint32_t{0xffc00123});
  slots[1] = 1;
  const void* const received[] = {&slots[1]};
  const Accelerator::Ticket ticket =
      (*accelerator)
          ->Reduce(DataType::kFloat32, ReduceOp::kSum, slots.data(),
                   slots.data(), received, 1, {});
  const auto start = steady_clock::now();
  while ((*accelerator)->Poll(ticket) == Accelerator::Progress::kPending) {
    if (steady_clock::now() - start > kPatience) {
      return "none in 10 s";
    }
    std::this_thread::yield();
  }
  char bits[20];
  std::snprintf(bits, sizeof(bits), "0x%08x",
                std::bit_cast<std::uint32_t>(slots[0]));
  std::string answer =
      (*accelerator)->error().ok() ? bits : Failed((*accelerator)->error());
  static_cast<void>((*accelerator)->ReleaseSlots(slots.data()));
  device.Free(*memory);
  return answer;
}

std::string LoadsKernels(const TestDevice& device) {
  const CudaDriver& driver = device.driver();
  CudaDriver::Module module = nullptr;
  const auto start = steady_clock::now();
  const CudaDriver::Error error = driver.module_load(&module, kReducePtx);
  const double took =
      std::chrono::duration<double>(steady_clock::now() - start).count();
  if (error != CudaDriver::kSuccess) {
    return driver.NameOf(error);
  }
  static_cast<void>(driver.module_unload(module));
  std::fprintf(stderr, "questions: loading the kernels took %.3f s\n", took);
  return "yes";
}

// How many of 16 streams do a copy while another stream waits for the host.
std::string StreamsBesideOneThatWaits(const TestDevice& device) {
  constexpr int kStreams = 16;
  struct Beside {
    CudaDriver::Stream stream = nullptr;
    CudaDriver::Event event = nullptr;
  };
  const CudaDriver& driver = device.driver();
  const auto memory = device.Allocate(kBytes);
  if (!memory.ok()) {
    return Failed(memory.status());
  }
  const auto address = reinterpret_cast<std::uintptr_t>(*memory);
  std::vector<Beside> beside(kStreams);
  int done = 0;
  {
    const auto held = HeldStream::Create(device);
    if (!held.ok()) {
      return Failed(held.status());
    }
    for (Beside& one : beside) {
      static_cast<void>(
          driver.stream_create(&one.stream, CudaDriver::kStreamNonBlocking, 0));
      static_cast<void>(
          driver.event_create(&one.event, CudaDriver::kEventDisableTiming));
      static_cast<void>(
          driver.memcpy_async(address, address + kBytes / 2, 64, one.stream));
      static_cast<void>(driver.event_record(one.event, one.stream));
    }
    // Until no further one has come for a while.
    for (auto last = steady_clock::now(); steady_clock::now() - last < kQuiet;
         std::this_thread::sleep_for(milliseconds(1))) {
      const auto now_done = static_cast<int>(
          std::ranges::count_if(beside, [&](const Beside& one) {
            return driver.event_query(one.event) == CudaDriver::kSuccess;
          }));
      if (now_done > std::exchange(done, now_done)) {
        last = steady_clock::now();
      }
    }
  }
  for (const Beside& one : beside) {
    static_cast<void>(device.stream_synchronize(one.stream));
    static_cast<void>(driver.event_destroy(one.event));
    static_cast<void>(driver.stream_destroy(one.stream));
  }
  device.Free(*memory);
  return std::to_string(done) + " of " + std::to_string(kStreams);
}

struct Question {
  const char* text;
  const char* fake;  // its answer
  std::string (*ask)(const TestDevice& device);
};

// With 8 queues, which is the driver's default.
constexpr Question kQuestions[] = {
    {"What does `cuPointerGetAttributes` say of device memory on a thread "
     "without a context?",
     "CUDA_ERROR_INVALID_CONTEXT (201)", &PointerWithoutContext},
    {"And `cuCtxGetDevice`?", "CUDA_ERROR_INVALID_CONTEXT (201)",
     &DeviceWithoutContext},
    {"And `cuThreadExchangeStreamCaptureMode`?",
     "CUDA_ERROR_INVALID_CONTEXT (201)", &CaptureModeWithoutContext},
    {"`cuEventQuery`, while another thread captures in global mode?",
     "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900), and the capture is invalid",
     [](const TestDevice& device) {
       return QueryDuringCapture(device, /*relaxed=*/false);
     }},
    {"The same where the asking thread's mode is relaxed?",
     "CUDA_SUCCESS (0), and the capture is valid",
     [](const TestDevice& device) {
       return QueryDuringCapture(device, /*relaxed=*/true);
     }},
    {"`cuStreamIsCapturing` of the legacy default stream, while a blocking "
     "stream captures?",
     "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (906), and the capture is valid",
     &LegacyStreamDuringCapture},
    {"`cuEventQuery` of an event that was never recorded?", "CUDA_SUCCESS (0)",
     &EventNeverRecorded},
    {"Can a shared mapping of a memfd be pinned?", "CUDA_SUCCESS (0)",
     &PinsMemfd},
    {"Which context has memory of a pool?", "none", &ContextOfPoolMemory},
    {"Which NaN is 1 and the NaN 0xffc00123?", "0x7fffffff", &SumWithNan},
    {"Does it take the kernels that clang has made?", "yes", &LoadsKernels},
    {"How many of 16 streams go on while another one waits for the host?",
     "14 of 16", &StreamsBesideOneThatWaits},
};

int Run(bool same) {
  const auto device = TestDevice::Open();
  if (!device.ok()) {
    std::fprintf(stderr, "questions: no GPU: %s\n",
                 device.status().message().c_str());
    return kNoGpu;
  }
  std::printf("| question | the fake driver | this one |\n");
  std::printf("| --- | --- | --- |\n");
  int wrong = 0, asked = 0;
  for (const Question& question : kQuestions) {
    const std::string answer = question.ask(**device);
    const bool right = answer == question.fake;
    std::printf("| %s | %s | %s%s |\n", question.text, question.fake,
                right ? "" : "**the fake is wrong:** ", answer.c_str());
    std::fflush(stdout);
    wrong += right ? 0 : 1;
    ++asked;
  }
  std::printf("\nThe fake driver is wrong about %d of %d.\n", wrong, asked);
  return same && wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) {
  const bool same = argc == 2 && std::string_view(argv[1]) == "--same";
  if (argc > 1 && !same) {
    std::fprintf(stderr, "usage: questions [--same]\n");
    return 2;
  }
  return ringpipe::Run(same);
}
