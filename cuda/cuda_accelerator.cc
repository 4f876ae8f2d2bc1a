// The Accelerator of an NVIDIA GPU. Three streams, one a lane, so that copies
// in, reductions and copies out overlap; nothing on them waits for the host.
#include <link.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/accelerator.h"
#include "cuda/cuda_context.h"
#include "cuda/cuda_driver.h"
#include "cuda/cuda_error.h"
#include "cuda/cuda_lane.h"
#include "cuda/cuda_memory.h"
#include "cuda/cuda_stream_mark.h"
#include "cuda/gpu_number.h"
#include "cuda/kernels/reduce_ptx.h"
#include "cuda/reduce_kernels.h"

namespace ringpipe {
namespace {

constexpr unsigned kThreadsPerBlock = 256;
// What a thread of a kernel handles at a time.
constexpr std::size_t kVectorBytes = 16;
// For whoever cannot say how long to wait for the GPU: a destructor.
constexpr std::chrono::seconds kEndTimeout(2);

// Whether somebody has loaded the driver is looked at no more often: from
// loading it to the first device memory it takes the driver ten times as long.
constexpr std::chrono::milliseconds kLookAgain(10);

// Since the process began. Allocates nothing, and takes 30 ns.
unsigned long long LibrariesEverLoaded() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<unsigned long long*>(to) = info->dlpi_adds;
        return 1;  // the first says it
      },
      &count);
  return count;
}

// Between two looks at the GPU: 50 us, doubling to 1 ms.
class Pause {
 public:
  void Wait() {
    const timespec length = {0, length_ns_};
    nanosleep(&length, nullptr);
    length_ns_ = std::min(2 * length_ns_, 1'000'000L);
  }

 private:
  long length_ns_ = 50'000;
};

// The kernels of a context.
class Kernels {
 public:
  explicit Kernels(const CudaDriver& driver) : driver_(driver) {}

  // With the context current.
  Status Load() {
    if (module_ == nullptr) {
      RINGPIPE_RETURN_IF_ERROR(
          CudaStatus(driver_, "loading the kernels",
                     driver_.module_load(&module_, kReducePtx)));
    }
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : kReduceOps) {
        const std::string name = ReduceKernelName(type, op);
        RINGPIPE_RETURN_IF_ERROR(CudaStatus(
            driver_, "looking for the kernel " + name,
            driver_.module_get_function(&at(type, op), module_, name.c_str())));
      }
    }
    return Status::Ok();
  }

  void Unload() {
    if (module_ != nullptr) {
      static_cast<void>(driver_.module_unload(std::exchange(module_, nullptr)));
    }
  }

  // nullptr for a type or operation outside the enumerations.
  CudaDriver::Function Find(DataType type, ReduceOp op) {
    return SizeOf(type) == 0 || !Exists(op) ? nullptr : at(type, op);
  }

  CudaDriver::Error Launch(CudaDriver::Function kernel, unsigned blocks,
                           ReduceParameters parameters,
                           CudaDriver::Stream stream) {
    void* pointers[] = {&parameters};
    return driver_.launch_kernel(kernel, blocks, 1, 1, kThreadsPerBlock, 1, 1,
                                 0, stream, pointers, nullptr);
  }

 private:
  CudaDriver::Function& at(DataType type, ReduceOp op) {
    return functions_[static_cast<std::size_t>(type) - 1]
                     [static_cast<std::size_t>(op)];
  }

  const CudaDriver& driver_;
  CudaDriver::Module module_ = nullptr;
  std::array<std::array<CudaDriver::Function, kReduceOps.size()>,
             kDataTypes.size()>
      functions_{};
};

class CudaAccelerator final : public Accelerator {
 public:
  // Loads the driver when it is needed.
  CudaAccelerator() = default;
  explicit CudaAccelerator(const CudaDriver& driver)
      : driver_(driver), loaded_(true) {}
  ~CudaAccelerator() override;

  std::string name() const override { return memory_.name(); }
  Gpus gpus() const override;
  Result<bool> Owns(const void* pointer) override;
  Result<std::shared_ptr<StreamMark>> Mark(void* stream,
                                           bool own_memory) override;
  Status PrepareSlots(void* slots, std::size_t bytes) override;
  bool ReleaseSlots(void* slots) override;
  bool IsSlot(const void* memory, std::size_t bytes) const override {
    const Slots* const slots = SlotsAt(memory);
    return slots != nullptr &&
           bytes <= slots->bytes -
                        (static_cast<const std::byte*>(memory) - slots->host);
  }
  Ticket CopyIn(void* slot, const void* user, std::size_t bytes) override {
    return Copy(Lane::kCopyIn, "copy to the host", slot, user, bytes);
  }
  Ticket CopyOut(void* user, const void* slot, std::size_t bytes) override {
    return Copy(Lane::kCopyOut, "copy to the device", user, slot, bytes);
  }
  Ticket CopyWithin(void* target, const void* source,
                    std::size_t bytes) override {
    return Copy(Lane::kCopyOut, "copy on the device", target, source, bytes);
  }
  Ticket Reduce(DataType type, ReduceOp op, Targets targets, const void* own,
                std::span<const void* const> received, std::size_t count,
                const Scaling& scaling) override;
  Ticket Scale(Lane lane, DataType type, void* target, const void* source,
               std::size_t count, double factor) override;
  Progress Poll(Ticket ticket) override;
  Status error() const override { return error_; }
  bool Drain(Deadline deadline) override;

 private:
  // Pinned memory, as the host and as the device address it.
  struct Slots {
    std::byte* host;
    std::byte* device;
    std::size_t bytes;
  };

  Status LoadDriver();
  // Whether there can be memory of a GPU in this process.
  bool DriverIsInUse();

  // Makes the context, the streams, the events and the kernels, at the first
  // PrepareSlots.
  Status Open();
  // Which device that is for, if no buffer has said so.
  Status DecideForCurrent();
  // The rest of it, with the context current.
  Status CreateStreams(int device);
  Status LoadKernels();

  CudaLane& lane(Lane lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  Ticket Copy(Lane lane, const char* what, void* target, const void* source,
              std::size_t bytes);
  CudaDriver::Error Launch(Lane lane, DataType type, ReduceOp op,
                           const ReduceParameters& parameters);

  // Marks the end of what was started on `lane` with result `result`.
  Ticket Finish(Lane lane, const char* what, CudaDriver::Error result);

  // Those in which it lies; nullptr: it is no slot.
  const Slots* SlotsAt(const void* pointer) const;
  // As the device addresses it; memory that is not a slot as it is.
  std::byte* OnDevice(const void* pointer) const;

  // Whether the device has done all that `lane` was given, now that it was
  // asked by a mark (`marked`).
  bool Drained(CudaLane& lane, bool& marked);

  // Nothing is destroyed, unpinned or released any more: the device might still
  // use it.
  void GiveUp();

  Status Check(const std::string& what, CudaDriver::Error error) const {
    return CudaStatus(driver_, name() + ": " + what, error);
  }
  // Keeps the first error.
  void Fail(const char* what, CudaDriver::Error error);

  // Guards driver_, which is no more written once loaded_ is true.
  std::mutex loading_mutex_;
  CudaDriver driver_;
  std::atomic<bool> loaded_ = false;
  // When it was last looked whether somebody has loaded the driver, and how
  // many libraries had been loaded then.
  std::atomic<Clock::time_point> looked_{};
  std::atomic<unsigned long long> libraries_ = 0;
  CudaMemory memory_{driver_};
  PrimaryContext context_{driver_};
  bool open_ = false;
  bool given_up_ = false;
  unsigned most_blocks_ = 0;
  std::array<CudaLane, 3> lanes_{CudaLane(driver_), CudaLane(driver_),
                                 CudaLane(driver_)};  // by Lane
  Kernels kernels_{driver_};
  std::vector<Slots> slots_;
  Status error_;
};

// --- The driver --------------------------------------------------------------

Status CudaAccelerator::LoadDriver() {
  const std::lock_guard lock(loading_mutex_);
  if (!loaded_.load()) {
    RINGPIPE_ASSIGN_OR_RETURN(driver_, CudaDriver::Load());
    loaded_.store(true);
  }
  return Status::Ok();
}

bool CudaAccelerator::DriverIsInUse() {
  const Clock::time_point now = CoarseNow();
  if (now - looked_.load() < kLookAgain) {
    return false;
  }
  looked_.store(now);
  const unsigned long long libraries = LibrariesEverLoaded();
  return libraries_.exchange(libraries) != libraries && CudaDriver::Loaded() &&
         LoadDriver().ok();
}

Result<bool> CudaAccelerator::Owns(const void* pointer) {
  if (!loaded_.load() && !DriverIsInUse()) {
    return false;
  }
  return memory_.Owns(pointer);
}

// NULL or CU_STREAM_LEGACY: each device has one.
bool IsLegacyStream(const void* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= 1;
}

// CU_STREAM_PER_THREAD: each device has one for each thread.
bool IsStreamOfThread(const void* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) == 2;
}

// A handle says itself of which device the stream is: it has to be the one
// whose memory the buffers are. The legacy default stream is that device's. If
// the buffers are the host's, nobody has named a device, and the legacy stream
// of the current one may not be the one that is meant.
Result<std::shared_ptr<StreamMark>> CudaAccelerator::Mark(void* stream,
                                                          bool own_memory) {
  if (const Status loaded = LoadDriver(); !loaded.ok()) {
    return Status(StatusCode::kInvalidArgument,
                  "the call has a stream, but " + loaded.message());
  }
  int current = CudaMemory::kNone;
  if (driver_.context_get_device(&current) != CudaDriver::kSuccess) {
    current = CudaMemory::kNone;
  }
  const int device =
      memory_.device() == CudaMemory::kNone ? current : memory_.device();
  const bool of_current =
      IsStreamOfThread(stream) || (IsLegacyStream(stream) && !own_memory);
  if (device == CudaMemory::kNone || (of_current && current != device)) {
    return Status(
        StatusCode::kInvalidArgument,
        "the call's stream is of the CUDA device that is current on this "
        "thread, which is " +
            (current == CudaMemory::kNone ? std::string("none")
                                          : "cuda:" + std::to_string(current)) +
            "; make the communicator's current (cudaSetDevice)");
  }
  auto mark = std::make_shared<CudaStreamMark>(driver_);
  RINGPIPE_RETURN_IF_ERROR(mark->Record(device, stream));
  return std::shared_ptr<StreamMark>(std::move(mark));
}

Accelerator::Gpus CudaAccelerator::gpus() const {
  Gpus gpus;
  int count = 0;
  if (!open_ || driver_.device_get_count(&count) != CudaDriver::kSuccess) {
    return gpus;
  }
  gpus.own = GpuNumber(driver_, memory_.device());
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    if (const std::uint64_t number = GpuNumber(driver_, ordinal)) {
      gpus.visible.push_back(number);
    }
  }
  return gpus;
}

// --- Beginning and end ------------------------------------------------------

Status CudaAccelerator::DecideForCurrent() {
  int device = 0;
  const CudaDriver::Error error = driver_.context_get_device(&device);
  if (error != CudaDriver::kSuccess && error != CudaDriver::kInvalidContext) {
    return CudaStatus(driver_, "asking for the current device", error);
  }
  memory_.Decide(device);
  return Status::Ok();
}

Status CudaAccelerator::Open() {
  RINGPIPE_RETURN_IF_ERROR(Check("starting the driver", driver_.init(0)));
  if (memory_.device() == CudaMemory::kNone) {
    RINGPIPE_RETURN_IF_ERROR(DecideForCurrent());
  }
  const int device = memory_.device();
  if (context_.get() == nullptr) {
    RINGPIPE_RETURN_IF_ERROR(context_.Create(device).WithContext(name()));
  }
  const ScopedContext current(context_);
  RINGPIPE_RETURN_IF_ERROR(
      Check("making the context current", current.error()));
  RINGPIPE_RETURN_IF_ERROR(CreateStreams(device).WithContext(name()));
  RINGPIPE_RETURN_IF_ERROR(LoadKernels().WithContext(name()));
  open_ = true;
  return Status::Ok();
}

Status CudaAccelerator::CreateStreams(int device) {
  int maps_host_memory = 0;
  RINGPIPE_RETURN_IF_ERROR(CudaStatus(
      driver_, "asking whether the device maps host memory",
      driver_.device_get_attribute(&maps_host_memory,
                                   CudaDriver::kCanMapHostMemory, device)));
  if (maps_host_memory == 0) {
    return Status(StatusCode::kUnavailable,
                  "CUDA: the device cannot map host memory, which the "
                  "reductions need; use another GPU");
  }
  int multiprocessors = 0;
  RINGPIPE_RETURN_IF_ERROR(CudaStatus(
      driver_, "asking for the number of multiprocessors",
      driver_.device_get_attribute(&multiprocessors,
                                   CudaDriver::kMultiprocessorCount, device)));
  // Two blocks on each keep the bus busy; more would only take the place of
  // the user's own kernels.
  most_blocks_ = 2u * static_cast<unsigned>(std::max(multiprocessors, 1));
  int least = 0;
  int greatest = 0;
  RINGPIPE_RETURN_IF_ERROR(
      CudaStatus(driver_, "asking for the priorities of streams",
                 driver_.context_get_stream_priority_range(&least, &greatest)));
  for (CudaLane& lane : lanes_) {
    RINGPIPE_RETURN_IF_ERROR(lane.Create(greatest));
  }
  return Status::Ok();
}

// Each kernel is launched once, for no elements. With lazy loading the driver
// loads it only then, and waits for the whole context to do so, which must not
// be in the middle of a call.
Status CudaAccelerator::LoadKernels() {
  RINGPIPE_RETURN_IF_ERROR(kernels_.Load());
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      RINGPIPE_RETURN_IF_ERROR(CudaStatus(
          driver_, "launching " + ReduceKernelName(type, op),
          kernels_.Launch(kernels_.Find(type, op), 1, ReduceParameters{},
                          lane(Lane::kReduce).stream())));
    }
  }
  return Status::Ok();
}

CudaAccelerator::~CudaAccelerator() {
  if (!Drain(Deadline::After(kEndTimeout))) {
    return;
  }
  while (!slots_.empty()) {
    ReleaseSlots(slots_.back().host);
  }
  const ScopedContext current(context_);
  if (current.error() != CudaDriver::kSuccess) {
    return;
  }
  kernels_.Unload();
  for (CudaLane& lane : lanes_) {
    lane.Destroy();
  }
}

void CudaAccelerator::GiveUp() {
  given_up_ = true;
  context_.GiveUp();
  slots_.clear();
}

Status CudaAccelerator::PrepareSlots(void* slots, std::size_t bytes) {
  RINGPIPE_RETURN_IF_ERROR(error_);
  if (!open_) {
    RINGPIPE_RETURN_IF_ERROR(LoadDriver());
    RINGPIPE_RETURN_IF_ERROR(Open());
  }
  const ScopedContext current(context_);
  RINGPIPE_RETURN_IF_ERROR(
      Check("making the context current", current.error()));
  slots_.reserve(slots_.size() + 1);
  // Portable: pinned for every device of the process, so that a copy of managed
  // memory that lies on another GPU is asynchronous too.
  RINGPIPE_RETURN_IF_ERROR(
      Check("pinning " + std::to_string(bytes) +
                " bytes of slots (cuMemHostRegister)",
            driver_.host_register(slots, bytes,
                                  CudaDriver::kHostRegisterPortable |
                                      CudaDriver::kHostRegisterDeviceMap)));
  CudaDriver::Pointer on_device = 0;
  if (const CudaDriver::Error error =
          driver_.host_get_device_pointer(&on_device, slots, 0);
      error != CudaDriver::kSuccess) {
    static_cast<void>(driver_.host_unregister(slots));
    return Check("mapping the slots", error);
  }
  slots_.push_back({static_cast<std::byte*>(slots),
                    reinterpret_cast<std::byte*>(on_device), bytes});
  return Status::Ok();
}

bool CudaAccelerator::ReleaseSlots(void* slots) {
  // Unpinning waits for the device, without a bound.
  if (!Drain(Deadline::After(kEndTimeout))) {
    return false;
  }
  const auto found =
      std::find_if(slots_.begin(), slots_.end(),
                   [slots](const Slots& s) { return s.host == slots; });
  if (found == slots_.end()) {
    return true;
  }
  const ScopedContext current(context_);
  Fail("unpinning the slots", driver_.host_unregister(slots));
  slots_.erase(found);
  return true;
}

// --- Operations -------------------------------------------------------------

Accelerator::Ticket CudaAccelerator::Copy(Lane lane, const char* what,
                                          void* target, const void* source,
                                          std::size_t bytes) {
  if (!error_.ok()) {
    return {lane, this->lane(lane).next()};
  }
  const ScopedContext current(context_);
  CudaDriver::Error result = current.error();
  if (result == CudaDriver::kSuccess && bytes > 0) {
    // Which side is where follows from the addresses (unified addressing).
    result = driver_.memcpy_async(reinterpret_cast<std::uintptr_t>(target),
                                  reinterpret_cast<std::uintptr_t>(source),
                                  bytes, this->lane(lane).stream());
  }
  return Finish(lane, what, result);
}

Accelerator::Ticket CudaAccelerator::Reduce(
    DataType type, ReduceOp op, Targets targets, const void* own,
    std::span<const void* const> received, std::size_t count,
    const Scaling& scaling) {
  if (!error_.ok()) {
    return {Lane::kReduce, lane(Lane::kReduce).next()};
  }
  const ScopedContext current(context_);
  CudaDriver::Error result = current.error();
  if (result == CudaDriver::kSuccess && count > 0) {
    if (received.empty() || received.size() > kMostSources) {
      result = CudaDriver::kInvalidValue;
    } else {
      ReduceParameters parameters{
          .target = OnDevice(targets.first),
          .copy = OnDevice(targets.second),
          .own = OnDevice(own),
          .received = {},
          .count = count,
          .sources = 0,
          .divisor = op == ReduceOp::kAverage ? scaling.complete : 0,
          .own_factor = scaling.own,
          .received_factor = scaling.received,
          .result_factor = scaling.result};
      for (const void* const source : received) {
        parameters.received[parameters.sources++] = OnDevice(source);
      }
      result = Launch(Lane::kReduce, type, op, parameters);
    }
  }
  return Finish(Lane::kReduce, "reduction", result);
}

Accelerator::Ticket CudaAccelerator::Scale(Lane lane, DataType type,
                                           void* target, const void* source,
                                           std::size_t count, double factor) {
  if (!error_.ok()) {
    return {lane, this->lane(lane).next()};
  }
  const ScopedContext current(context_);
  CudaDriver::Error result = current.error();
  if (result == CudaDriver::kSuccess && count > 0) {
    result = Launch(lane, type, ReduceOp::kSum,
                    {.target = OnDevice(target),
                     .copy = nullptr,
                     .own = OnDevice(source),
                     .received = {},
                     .count = count,
                     .sources = 0,
                     .divisor = 0,
                     .own_factor = factor});
  }
  return Finish(lane, "scaling", result);
}

CudaDriver::Error CudaAccelerator::Launch(Lane lane, DataType type, ReduceOp op,
                                          const ReduceParameters& parameters) {
  const CudaDriver::Function kernel = kernels_.Find(type, op);
  if (kernel == nullptr) {
    return CudaDriver::kInvalidValue;
  }
  constexpr std::size_t kBlockBytes = kThreadsPerBlock * kVectorBytes;
  const std::size_t blocks =
      (parameters.count * SizeOf(type) + kBlockBytes - 1) / kBlockBytes;
  return kernels_.Launch(
      kernel,
      static_cast<unsigned>(std::min<std::size_t>(blocks, most_blocks_)),
      parameters, this->lane(lane).stream());
}

Accelerator::Ticket CudaAccelerator::Finish(Lane lane, const char* what,
                                            CudaDriver::Error result) {
  const Ticket ticket{lane, this->lane(lane).next()};
  if (result == CudaDriver::kSuccess) {
    result = this->lane(lane).Mark();
  }
  Fail(what, result);
  return ticket;
}

const CudaAccelerator::Slots* CudaAccelerator::SlotsAt(
    const void* pointer) const {
  const auto found =
      std::find_if(slots_.begin(), slots_.end(), [pointer](const Slots& slots) {
        return pointer >= slots.host && pointer < slots.host + slots.bytes;
      });
  return found == slots_.end() ? nullptr : &*found;
}

std::byte* CudaAccelerator::OnDevice(const void* pointer) const {
  std::byte* const address =
      static_cast<std::byte*>(const_cast<void*>(pointer));
  const Slots* const slots = SlotsAt(pointer);
  return slots == nullptr ? address : slots->device + (address - slots->host);
}

void CudaAccelerator::Fail(const char* what, CudaDriver::Error error) {
  if (error != CudaDriver::kSuccess && error_.ok()) {
    static_cast<void>(error_ = Check(what, error));
  }
}

Accelerator::Progress CudaAccelerator::Poll(Ticket ticket) {
  if (!error_.ok()) {
    return Progress::kFailed;
  }
  if (lane(ticket.lane).SeenDone(ticket.sequence)) {
    return Progress::kDone;
  }
  const ScopedContext current(context_);
  if (current.error() != CudaDriver::kSuccess) {
    Fail("making the context current", current.error());
    return Progress::kFailed;
  }
  const CudaDriver::Error result = lane(ticket.lane).Query(ticket.sequence);
  if (result == CudaDriver::kSuccess) {
    return Progress::kDone;
  }
  if (result == CudaDriver::kNotReady) {
    return Progress::kPending;
  }
  Fail("an operation that was started earlier", result);
  return Progress::kFailed;
}

// --- Waiting for all of it --------------------------------------------------

bool CudaAccelerator::Drained(CudaLane& lane, bool& marked) {
  CudaDriver::Error result = CudaDriver::kSuccess;
  if (!marked) {
    result = lane.DrainMark();
    marked = result == CudaDriver::kSuccess;
  }
  if (marked) {
    result = lane.QueryDrainMark();
  }
  if (result != CudaDriver::kNotReady) {
    Fail("waiting for a stream", result);
  }
  return result == CudaDriver::kSuccess || EndsContext(result);
}

bool CudaAccelerator::Drain(Deadline deadline) {
  if (given_up_) {
    return false;
  }
  if (!open_) {
    return true;
  }
  const ScopedContext current(context_);
  std::array<bool, 3> marked{};
  Pause pause;
  for (std::size_t i = 0; i < lanes_.size();) {
    if (current.error() == CudaDriver::kSuccess &&
        Drained(lanes_[i], marked[i])) {
      ++i;
    } else if (EndsContext(current.error())) {
      return true;
    } else if (deadline.expired()) {
      Fail("the GPU has not done in time what it was given",
           CudaDriver::kNotReady);
      GiveUp();
      return false;
    } else {
      pause.Wait();
    }
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Accelerator>> CreateCudaAccelerator() {
  return std::unique_ptr<Accelerator>(new CudaAccelerator);
}

Result<std::unique_ptr<Accelerator>> CreateCudaAccelerator(
    const CudaDriver& driver) {
  return std::unique_ptr<Accelerator>(new CudaAccelerator(driver));
}

}  // namespace ringpipe
