// How fast this GPU copies and reduces between its memory and pinned slots, as
// the pipeline lets it: operations of one sub-chunk, a few in flight. A part of
// bench/gpu_suite.
//
//   gpu_bandwidth             rows of a markdown table: what, bytes, GB/s
//   gpu_bandwidth --device    the GPU in a line, and if its driver is the fake
//                             one, that in another; exit status 77 without a
//                             GPU, 78 where the suite cannot use it (busy,
//                             exclusive, broken, ...), with the reason
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "cuda/accelerator.h"
#include "cuda/cuda_driver.h"
#include "cuda/gpu_survey.h"
#include "cuda/test_device.h"
#include "info/gpu_report.h"
#include "pipeline/host_accelerator.h"
#include "tests/gpu/test_memory.h"

namespace ringpipe {
namespace {

using Seconds = std::chrono::duration<double>;
using testing::MemoryKind;
using testing::TestBuffer;
using testing::TestMemory;

constexpr int kNoGpu = 77;
constexpr int kUnusableGpu = 78;
constexpr std::size_t kInFlight = 4;
constexpr auto kBound = std::chrono::seconds(10);  // on one operation
// For each question to the driver, which compiles the kernels for one of them.
constexpr std::chrono::seconds kSurveyPatience(40);

struct Arguments {
  bool device = false;
  std::string memory = "cuda";
  std::vector<std::size_t> sizes = {128 << 10, 1 << 20, 16 << 20};
  double seconds = 0.2;  // for each row
};

int Unusable(const std::string& why) {
  std::printf("%s\n", why.c_str());
  return kUnusableGpu;
}

std::string NameOf(const SurveyedGpu& gpu) {
  return "cuda:" + std::to_string(gpu.ordinal) +
         (gpu.name.empty() ? "" : " (" + gpu.name + ")");
}

// Where the driver has told of no GPU.
int PrintNone(const info::GpuReport& report) {
  // Without its version there is none, or one that is too old; unless it has
  // ended the process that asked it, or has kept it waiting.
  const bool no_driver = report.driver_version == 0 &&
                         report.driver.code() == StatusCode::kUnavailable;
  const Status& why = report.driver.ok() ? report.none : report.driver;
  if (report.driver.ok() || no_driver) {
    std::printf("no GPU: %s\n", why.message().c_str());
    return kNoGpu;
  }
  return Unusable("the driver does not work: " + why.message());
}

// Where the first GPU cannot be used.
int PrintObstacle(const info::GpuReport& report) {
  const SurveyedGpu& first = report.gpus.front();
  std::string text = NameOf(first) + " is " + GpuStateName(first.state) + ": " +
                     first.usable.message();
  for (const SurveyedGpu& gpu : report.gpus) {
    if (gpu.usable.ok()) {
      text += "; " + NameOf(gpu) +
              " can be used: let CUDA_VISIBLE_DEVICES begin with it";
      break;
    }
  }
  return Unusable(text);
}

// Whether the first GPU lets no second process use it.
Result<bool> IsExclusive(const CudaDriver& driver) {
  CudaDriver::Device device = 0;
  int mode = 0;
  CudaDriver::Error error = driver.device_get(&device, 0);
  if (error == CudaDriver::kSuccess) {
    error =
        driver.device_get_attribute(&mode, CudaDriver::kComputeMode, device);
  }
  if (error != CudaDriver::kSuccess) {
    return Status(StatusCode::kDeviceError,
                  "asking for its compute mode: " + driver.NameOf(error));
  }
  return mode == CudaDriver::kComputeModeExclusiveProcess;
}

// Prints which GPU it would be: the first, on which all that the suite starts
// will run.
int PrintDevice() {
  const info::GpuReport report = info::AskAboutGpus(kSurveyPatience);
  if (report.gpus.empty()) {
    return PrintNone(report);
  }
  if (!report.gpus.front().usable.ok()) {
    return PrintObstacle(report);
  }
  const std::string name = NameOf(report.gpus.front());
  const auto device = TestDevice::Open();
  if (!device.ok()) {
    return Unusable(name + " is broken: " + device.status().message());
  }
  const Result<bool> exclusive = IsExclusive(device.value()->driver());
  if (!exclusive.ok()) {
    return Unusable(name + " is broken: " + exclusive.status().message());
  }
  if (*exclusive) {
    return Unusable(name +
                    " is exclusive: its compute mode lets one process at a "
                    "time use it, and the suite's ranks are several; change "
                    "that with nvidia-smi -c DEFAULT, or use another GPU");
  }
  std::printf("%s\n", device.value()->Describe().c_str());
  constexpr const char* kOnlyInTheFake = "fake_cuda_calls";
  if (CudaDriver::Find(kOnlyInTheFake, kOnlyInTheFake) != nullptr) {
    std::printf("the fake driver\n");
  }
  return 0;
}

class Bandwidth {
 public:
  Bandwidth(Accelerator& accelerator, const Arguments& arguments)
      : accelerator_(accelerator), arguments_(arguments) {}

  Status Run(TestMemory& memory) {
    const std::size_t largest = *std::ranges::max_element(arguments_.sizes);
    // Zero stays zero, however often it is added or multiplied.
    std::vector<char> slots(2 * kInFlight * largest);
    RINGPIPE_ASSIGN_OR_RETURN(const TestBuffer user,
                              TestBuffer::Create(memory, slots.size()));
    RINGPIPE_RETURN_IF_ERROR(
        memory.Write(user.data(), slots.data(), slots.size()));
    // Decides for the device.
    RINGPIPE_RETURN_IF_ERROR(accelerator_.Owns(user.data()).status());
    RINGPIPE_RETURN_IF_ERROR(
        accelerator_.PrepareSlots(slots.data(), slots.size()));
    slots_ = slots.data();
    user_ = static_cast<char*>(user.data());
    Status status;
    for (const std::size_t bytes : arguments_.sizes) {
      status = Rows(bytes);
      if (!status.ok()) {
        break;
      }
    }
    if (!accelerator_.ReleaseSlots(slots.data())) {
      std::_Exit(1);  // the GPU might still write there
    }
    return status;
  }

 private:
  using Start = std::function<Accelerator::Ticket(std::size_t offset)>;

  Status Rows(std::size_t bytes) {
    const Start in = [&](std::size_t at) {
      return accelerator_.CopyIn(slots_ + at, user_ + at, bytes);
    };
    const Start out = [&](std::size_t at) {
      return accelerator_.CopyOut(user_ + at, slots_ + at, bytes);
    };
    RINGPIPE_RETURN_IF_ERROR(Row("copy to the host", bytes, {in}));
    RINGPIPE_RETURN_IF_ERROR(Row("copy to the device", bytes, {out}));
    RINGPIPE_RETURN_IF_ERROR(Row("copy both ways at once", bytes, {in, out}));
    RINGPIPE_RETURN_IF_ERROR(
        Row("copy on the device", bytes, {[&](std::size_t at) {
              // From the other half, so that they do not overlap.
              return accelerator_.CopyWithin(
                  user_ + at, user_ + at + kInFlight * bytes, bytes);
            }}));
    for (const DataType type : kDataTypes) {
      RINGPIPE_RETURN_IF_ERROR(Reduce(type, ReduceOp::kSum, user_, bytes));
    }
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd,
                              ReduceOp::kAverage}) {
      RINGPIPE_RETURN_IF_ERROR(Reduce(DataType::kFloat32, op, user_, bytes));
    }
    return Reduce(DataType::kFloat32, ReduceOp::kSum, slots_, bytes);
  }

  // As the pipeline does it: slot = own OP slot.
  Status Reduce(DataType type, ReduceOp op, const char* own,
                std::size_t bytes) {
    const std::string name =
        std::string(own == slots_ ? "slot = another slot "
                                  : "slot = device memory ") +
        std::string(Name(op)) + " slot, " + std::string(Name(type));
    return Row(name, bytes, {[&](std::size_t at) {
                 const void* const received[] = {slots_ + at};
                 return accelerator_.Reduce(
                     type, op, slots_ + at, own + at + kInFlight * bytes,
                     received, bytes / SizeOf(type), {.complete = 8});
               }});
  }

  // Runs all of `starts` for a while, with kInFlight of each in flight, and
  // prints how many bytes each handled a second, together.
  Status Row(const std::string& what, std::size_t bytes,
             const std::vector<Start>& starts) {
    RINGPIPE_RETURN_IF_ERROR(Cycle(bytes, starts, kInFlight).status());
    std::size_t operations = 0;
    Seconds elapsed{0};
    for (std::size_t count = kInFlight; elapsed.count() < arguments_.seconds;
         count *= 2) {
      RINGPIPE_ASSIGN_OR_RETURN(elapsed, Cycle(bytes, starts, count));
      operations = count * starts.size();
    }
    std::printf("| %s | %zu | %.2f |\n", what.c_str(), bytes,
                static_cast<double>(operations) * static_cast<double>(bytes) /
                    elapsed.count() / 1e9);
    std::fflush(stdout);
    return Status::Ok();
  }

  // How long `count` operations of each take.
  Result<Seconds> Cycle(std::size_t bytes, const std::vector<Start>& starts,
                        std::size_t count) {
    const auto begin = std::chrono::steady_clock::now();
    std::deque<Accelerator::Ticket> tickets;
    for (std::size_t i = 0; i < count; ++i) {
      for (const Start& start : starts) {
        tickets.push_back(start(i % kInFlight * bytes));
      }
      while (tickets.size() >= kInFlight * starts.size()) {
        RINGPIPE_RETURN_IF_ERROR(AwaitFront(tickets));
      }
    }
    while (!tickets.empty()) {
      RINGPIPE_RETURN_IF_ERROR(AwaitFront(tickets));
    }
    return Seconds(std::chrono::steady_clock::now() - begin);
  }

  Status AwaitFront(std::deque<Accelerator::Ticket>& tickets) {
    const auto deadline = std::chrono::steady_clock::now() + kBound;
    while (true) {
      switch (accelerator_.Poll(tickets.front())) {
        case Accelerator::Progress::kDone:
          tickets.pop_front();
          return Status::Ok();
        case Accelerator::Progress::kFailed:
          return accelerator_.error();
        case Accelerator::Progress::kPending:
          break;
      }
      if (std::chrono::steady_clock::now() > deadline) {
        return {StatusCode::kTimeout, "an operation has not ended after 10 s"};
      }
    }
  }

  Accelerator& accelerator_;
  const Arguments& arguments_;
  char* slots_ = nullptr;
  char* user_ = nullptr;
};

Status Measure(const Arguments& arguments) {
  const bool on_host = arguments.memory == "host";
  RINGPIPE_ASSIGN_OR_RETURN(const auto memory,
                            TestMemory::Create(on_host ? MemoryKind::kPageable
                                                       : MemoryKind::kDevice));
  std::unique_ptr<Accelerator> accelerator;
  if (on_host) {
    accelerator = CreateHostAccelerator();
  } else {
    RINGPIPE_ASSIGN_OR_RETURN(accelerator, CreateCudaAccelerator());
  }
  return Bandwidth(*accelerator, arguments).Run(*memory);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Bandwidth of a GPU's copies and reductions");
  app.add_flag("--device", arguments.device, "print which GPU, and end");
  app.add_option("--memory", arguments.memory,
                 "cuda, or host (to try this program)")
      ->check(CLI::IsMember({"cuda", "host"}));
  app.add_option("--sizes", arguments.sizes,
                 "bytes of each operation, multiples of 8")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{8}, std::size_t{1} << 28))
      ->check([](const std::string& text) {
        return std::stoull(text) % 8 == 0 ? "" : text + " is no multiple of 8";
      });
  app.add_option("--seconds", arguments.seconds, "at least, for each row")
      ->check(CLI::Range(0.0001, 10.0));
  CLI11_PARSE(app, argc, argv);
  if (arguments.device) {
    return PrintDevice();
  }
  const Status status = Measure(arguments);
  if (!status.ok()) {
    std::fprintf(stderr, "gpu_bandwidth: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) { return ringpipe::Main(argc, argv); }
