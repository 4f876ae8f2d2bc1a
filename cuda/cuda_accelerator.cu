// The Accelerator of an NVIDIA GPU. Three streams, one a lane, so that copies
// in, reductions and copies out overlap; nothing on them waits for the host.
//
// Layout: errors as Status; RAII over the context, streams and events; the
// reduction kernel; the Accelerator. No Highway here: nvcc could not compile
// it.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda/accelerator.h"
#include "cuda/cuda_driver.h"
#include "cuda/cuda_memory.h"

namespace ringpipe {
namespace {

// ---------------------------------------------------------------------------
// Errors.

StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorDevicesUnavailable:
      return StatusCode::kUnavailable;
    case cudaErrorMemoryAllocation:
      return StatusCode::kResourceExhausted;
    case cudaErrorInvalidValue:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered:
      return StatusCode::kInvalidArgument;
    case cudaErrorNotPermitted:
      return StatusCode::kPermissionDenied;
    default:
      return StatusCode::kDeviceError;
  }
}

// What the user can do about it.
const char* AdviceFor(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return "is a GPU visible to this process (nvidia-smi, "
             "CUDA_VISIBLE_DEVICES)?";
    case cudaErrorInsufficientDriver:
      return "no NVIDIA driver, or one older than the CUDA toolkit that "
             "ringpipe was built with: install a newer one";
    case cudaErrorInitializationError:
      return "CUDA cannot be used after fork(): start the ranks with exec or "
             "spawn";
    case cudaErrorSystemNotReady:
      return "is the fabric manager of this host running "
             "(nvidia-fabricmanager)?";
    case cudaErrorSystemDriverMismatch:
      return "the kernel's and the library's driver differ: reboot, or "
             "reinstall the driver";
    case cudaErrorNoKernelImageForDevice:
      return "ringpipe was built for other GPUs: add this one's architecture "
             "in bazel/cuda/cuda.bzl";
    case cudaErrorDevicesUnavailable:
      return "the GPU is in exclusive mode and in use by another process "
             "(nvidia-smi -q -d COMPUTE)";
    case cudaErrorMemoryAllocation:
      return "not enough memory to pin or allocate: use fewer or smaller "
             "slots, or free memory";
    case cudaErrorOperatingSystem:
    case cudaErrorNotSupported:
      return "this system does not let CUDA use such memory: use host buffers, "
             "or look at the limits of the container or virtual machine";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "these slots were pinned before: each accelerator needs slots of "
             "its own";
    case cudaErrorIllegalAddress:
      return "a buffer was freed too early, is too small, or is another GPU's "
             "that this one cannot reach";
    default:
      return "the process's CUDA context may be unusable: see the kernel log "
             "(dmesg, Xid) and run under compute-sanitizer";
  }
}

// "CUDA: WHAT: an illegal memory access ... (cudaErrorIllegalAddress); ADVICE".
Status CudaStatus(const std::string& what, cudaError_t error) {
  if (error == cudaSuccess) {
    return Status::Ok();
  }
  // Else the next unrelated call of the user's would report it again.
  static_cast<void>(cudaGetLastError());
  return Status(CodeOf(error),
                "CUDA: " + what + ": " + cudaGetErrorString(error) + " (" +
                    cudaGetErrorName(error) + "); " + AdviceFor(error));
}

// ---------------------------------------------------------------------------
// RAII.

// The primary context of a device, which the runtime uses too.
class PrimaryContext {
 public:
  explicit PrimaryContext(const CudaDriver& driver) : driver_(driver) {}
  ~PrimaryContext() {
    if (context_ != nullptr) {
      static_cast<void>(driver_.primary_context_release(device_));
    }
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  // nullptr before Create.
  CudaDriver::Context get() const { return context_; }
  const CudaDriver& driver() const { return driver_; }

  Status Create(int ordinal) {
    CudaDriver::Error error = driver_.init(0);
    if (error == CudaDriver::kSuccess) {
      error = driver_.device_get(&device_, ordinal);
    }
    if (error == CudaDriver::kSuccess) {
      error = driver_.primary_context_retain(&context_, device_);
    }
    if (error == CudaDriver::kSuccess) {
      return Status::Ok();
    }
    context_ = nullptr;
    return Status(StatusCode::kUnavailable,
                  "CUDA: making the context: " + driver_.NameOf(error) +
                      "; is the GPU visible to this process, and is there "
                      "memory left on it (nvidia-smi, CUDA_VISIBLE_DEVICES)? "
                      "After fork() CUDA cannot be used without exec");
  }

 private:
  const CudaDriver& driver_;
  CudaDriver::Device device_ = 0;
  CudaDriver::Context context_ = nullptr;
};

// Makes a context current, and what was before again at the end: the thread may
// be the user's. Not by cudaSetDevice: see cuda_driver.h.
class ScopedContext {
 public:
  explicit ScopedContext(const PrimaryContext& context)
      : driver_(context.driver()),
        pushed_(context.get() != nullptr &&
                driver_.context_push(context.get()) == CudaDriver::kSuccess) {}
  ~ScopedContext() {
    CudaDriver::Context context = nullptr;
    if (pushed_) {
      static_cast<void>(driver_.context_pop(&context));
    }
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  cudaError_t error() const {
    return pushed_ ? cudaSuccess : cudaErrorDeviceUninitialized;
  }

 private:
  const CudaDriver& driver_;
  const bool pushed_;
};

// A stream of the current device, and a ring of events that mark the ends of
// the operations on it.
//
// Sequence s is marked by event s % kEvents. An event that was recorded again
// (for s + kEvents) before anybody polled s answers for the later operation,
// which follows s on the same stream: too late, never too early. So the ring
// bounds no one, and nothing waits for a free event.
class LaneStream {
 public:
  static constexpr std::uint64_t kEvents = 256;

  LaneStream() = default;
  // With the context current.
  ~LaneStream() { Destroy(); }
  void Destroy() {
    for (const cudaEvent_t event : events_) {
      static_cast<void>(cudaEventDestroy(event));
    }
    events_.clear();
    if (stream_ != nullptr) {
      static_cast<void>(cudaStreamDestroy(std::exchange(stream_, nullptr)));
    }
  }
  LaneStream(const LaneStream&) = delete;
  LaneStream& operator=(const LaneStream&) = delete;

  // Goes on where an earlier attempt failed.
  Status Create() {
    if (stream_ == nullptr) {
      // Not ordered with the legacy default stream, which would serialise all.
      RINGPIPE_RETURN_IF_ERROR(CudaStatus(
          "creating a stream",
          cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)));
    }
    events_.reserve(kEvents);
    while (events_.size() < kEvents) {
      cudaEvent_t event = nullptr;
      RINGPIPE_RETURN_IF_ERROR(
          CudaStatus("creating an event",
                     cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
      events_.push_back(event);
    }
    return Status::Ok();
  }

  cudaStream_t stream() const { return stream_; }

  // The sequence number of what is started next; Mark() ends it.
  std::uint64_t next() const { return started_ + 1; }

  cudaError_t Mark() {
    ++started_;
    return cudaEventRecord(events_[started_ % kEvents], stream_);
  }

  // Whether an earlier Query has seen that `sequence` is done.
  bool SeenDone(std::uint64_t sequence) const { return sequence <= completed_; }

  // cudaSuccess if `sequence` is done, cudaErrorNotReady if it is not.
  cudaError_t Query(std::uint64_t sequence) {
    const cudaError_t result = cudaEventQuery(events_[sequence % kEvents]);
    if (result == cudaSuccess) {
      completed_ = sequence;
    }
    return result;
  }

  cudaError_t Synchronize() { return cudaStreamSynchronize(stream_); }

 private:
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;
  std::uint64_t started_ = 0;    // sequences begin at 1
  std::uint64_t completed_ = 0;  // the last that is known to be done
};

// ---------------------------------------------------------------------------
// The kernel. Semantics as in reduction/host_reduction.h, to the bit.

// Integers wrap around: through unsigned arithmetic, as signed overflow is
// undefined.
template <typename T>
using Wrapping =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                std::type_identity<T>>::type;

struct SumOp {
  template <typename T>
  __device__ static T Apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) +
                          static_cast<Wrapping<T>>(b));
  }
};

struct ProdOp {
  template <typename T>
  __device__ static T Apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) *
                          static_cast<Wrapping<T>>(b));
  }
};

// b != b where b is NaN; where only a is, the comparison is false.
struct MinOp {
  template <typename T>
  __device__ static T Apply(T a, T b) {
    return b < a || b != b ? b : a;
  }
};

struct MaxOp {
  template <typename T>
  __device__ static T Apply(T a, T b) {
    return a < b || b != b ? b : a;
  }
};

template <typename T>
__device__ T Divide(T value, int size) {
  using Wide =
      std::conditional_t<std::is_integral_v<T>, std::common_type_t<T, int>, T>;
  return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(size));
}

// What was received, as a parameter of the kernel: no memory that would have to
// outlive the launch. (__grid_constant__, or each thread copies it to its
// stack, in order to index it.)
struct Sources {
  const void* received[Accelerator::kMostSources];
  int count;
};

// target[i] = own[i] OP received[0][i] OP ..., divided by `divisor` if that is
// not 0. Slots are host memory: each element of one crosses the bus once when
// it is read, and once when it is written.
template <typename T, typename Op>
__global__ void ReduceKernel(T* target, const T* own,
                             const __grid_constant__ Sources sources,
                             std::size_t count, int divisor) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) *
                             static_cast<std::size_t>(blockDim.x);
  for (std::size_t i =
           static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < count; i += stride) {
    T value = own[i];
    for (int s = 0; s < sources.count; ++s) {
      value = Op::Apply(value, static_cast<const T*>(sources.received[s])[i]);
    }
    target[i] = divisor == 0 ? value : Divide(value, divisor);
  }
}

constexpr unsigned kThreadsPerBlock = 256;

// One launch; `count` > 0.
struct Launch {
  void* target;
  const void* own;
  Sources sources;
  std::size_t count;
  int divisor;
  unsigned most_blocks;
  cudaStream_t stream;
};
using LaunchFunction = cudaError_t (*)(const Launch& launch);

template <typename T, typename Op>
cudaError_t LaunchReduce(const Launch& launch) {
  const std::size_t blocks =
      (launch.count + kThreadsPerBlock - 1) / kThreadsPerBlock;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(
      static_cast<unsigned>(std::min<std::size_t>(blocks, launch.most_blocks)));
  config.blockDim = dim3(kThreadsPerBlock);
  config.stream = launch.stream;
  // Returns its own error, unlike <<<>>> with cudaGetLastError(), which might
  // be that of an earlier call of the user's.
  return cudaLaunchKernelEx(&config, ReduceKernel<T, Op>,
                            static_cast<T*>(launch.target),
                            static_cast<const T*>(launch.own), launch.sources,
                            launch.count, launch.divisor);
}

template <typename T>
LaunchFunction FindLaunchOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return &LaunchReduce<T, SumOp>;
    case ReduceOp::kMin:
      return &LaunchReduce<T, MinOp>;
    case ReduceOp::kMax:
      return &LaunchReduce<T, MaxOp>;
    case ReduceOp::kProd:
      return &LaunchReduce<T, ProdOp>;
  }
  return nullptr;
}

// nullptr for a type or operation outside the enumerations.
LaunchFunction FindLaunch(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kFloat32:
      return FindLaunchOf<float>(op);
    case DataType::kFloat64:
      return FindLaunchOf<double>(op);
    case DataType::kInt32:
      return FindLaunchOf<std::int32_t>(op);
    case DataType::kInt64:
      return FindLaunchOf<std::int64_t>(op);
    case DataType::kInt8:
      return FindLaunchOf<std::int8_t>(op);
    case DataType::kUint8:
      return FindLaunchOf<std::uint8_t>(op);
  }
  return nullptr;
}

// ---------------------------------------------------------------------------
// The accelerator.

class CudaAccelerator final : public Accelerator {
 public:
  explicit CudaAccelerator(const CudaDriver& driver)
      : driver_(driver), memory_(driver_), context_(driver_) {}
  ~CudaAccelerator() override;

  std::string name() const override { return memory_.name(); }
  Result<bool> Owns(const void* pointer) override {
    return memory_.Owns(pointer);
  }
  Status PrepareSlots(void* slots, std::size_t bytes) override;
  void ReleaseSlots(void* slots) override;
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
  Ticket Reduce(DataType type, ReduceOp op, void* target, const void* own,
                std::span<const void* const> received, std::size_t count,
                int finish_size) override;
  Progress Poll(Ticket ticket) override;
  Status error() const override { return error_; }
  void Drain() override;

 private:
  // Pinned memory, as the host and as the device address it.
  struct Slots {
    std::byte* host;
    std::byte* device;
    std::size_t bytes;
  };

  // Makes the context, the streams and the events, at the first PrepareSlots.
  Status Open();
  // The rest of it, with the context current.
  Status CreateStreams(int device);

  LaneStream& lane(Lane lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  Ticket Copy(Lane lane, const char* what, void* target, const void* source,
              std::size_t bytes);

  // Marks the end of what was started on `lane` with result `result`.
  Ticket Finish(Lane lane, const char* what, cudaError_t result);

  // As the device addresses it; memory that is not a slot as it is.
  std::byte* OnDevice(const void* pointer) const;
  // Likewise; at most kMostSources.
  Sources SourcesOf(std::span<const void* const> received) const;

  // Keeps the first error.
  void Fail(const char* what, cudaError_t error);

  const CudaDriver driver_;
  CudaMemory memory_;
  PrimaryContext context_;
  bool open_ = false;
  unsigned most_blocks_ = 0;
  std::array<LaneStream, 3> lanes_;  // by Lane
  std::vector<Slots> slots_;
  Status error_;
};

Status CudaAccelerator::Open() {
  int device = memory_.device();
  if (device == CudaMemory::kNone) {
    RINGPIPE_RETURN_IF_ERROR(
        CudaStatus("asking for the current device", cudaGetDevice(&device)));
    device = memory_.Decide(device);
  }
  if (context_.get() == nullptr) {
    RINGPIPE_RETURN_IF_ERROR(context_.Create(device).WithContext(name()));
  }
  const ScopedContext current(context_);
  RINGPIPE_RETURN_IF_ERROR(
      CudaStatus(name() + ": making the context current", current.error()));
  RINGPIPE_RETURN_IF_ERROR(CreateStreams(device).WithContext(name()));
  open_ = true;
  return Status::Ok();
}

Status CudaAccelerator::CreateStreams(int device) {
  int maps_host_memory = 0;
  RINGPIPE_RETURN_IF_ERROR(
      CudaStatus("asking whether the device maps host memory",
                 cudaDeviceGetAttribute(&maps_host_memory,
                                        cudaDevAttrCanMapHostMemory, device)));
  if (maps_host_memory == 0) {
    return Status(StatusCode::kUnavailable,
                  "CUDA: the device cannot map host memory, which the "
                  "reductions need; use another GPU");
  }
  int multiprocessors = 0;
  RINGPIPE_RETURN_IF_ERROR(CudaStatus(
      "asking for the number of multiprocessors",
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                             device)));
  // Two blocks on each keep the bus busy; more would only take the place of
  // the user's own kernels.
  most_blocks_ = 2u * static_cast<unsigned>(std::max(multiprocessors, 1));
  for (LaneStream& lane : lanes_) {
    RINGPIPE_RETURN_IF_ERROR(lane.Create());
  }
  return Status::Ok();
}

CudaAccelerator::~CudaAccelerator() {
  Drain();
  while (!slots_.empty()) {
    ReleaseSlots(slots_.back().host);
  }
  const ScopedContext current(context_);
  for (LaneStream& lane : lanes_) {
    lane.Destroy();
  }
}

Status CudaAccelerator::PrepareSlots(void* slots, std::size_t bytes) {
  if (!open_) {
    RINGPIPE_RETURN_IF_ERROR(Open());
  }
  const ScopedContext current(context_);
  RINGPIPE_RETURN_IF_ERROR(
      CudaStatus(name() + ": making the context current", current.error()));
  const std::string what = name() + ": pinning " + std::to_string(bytes) +
                           " bytes of slots (cudaHostRegister)";
  // Portable: pinned for every device of the process, so that a copy of managed
  // memory that lies on another GPU is asynchronous too.
  RINGPIPE_RETURN_IF_ERROR(CudaStatus(
      what,
      cudaHostRegister(slots, bytes,
                       cudaHostRegisterPortable | cudaHostRegisterMapped)));
  void* on_device = nullptr;
  if (const cudaError_t error = cudaHostGetDevicePointer(&on_device, slots, 0);
      error != cudaSuccess) {
    static_cast<void>(cudaHostUnregister(slots));
    return CudaStatus(name() + ": mapping the slots", error);
  }
  slots_.push_back({static_cast<std::byte*>(slots),
                    static_cast<std::byte*>(on_device), bytes});
  return Status::Ok();
}

void CudaAccelerator::ReleaseSlots(void* slots) {
  const auto found =
      std::find_if(slots_.begin(), slots_.end(),
                   [slots](const Slots& s) { return s.host == slots; });
  if (found == slots_.end()) {
    return;
  }
  const ScopedContext current(context_);
  Fail("unpinning the slots", cudaHostUnregister(slots));
  slots_.erase(found);
}

Accelerator::Ticket CudaAccelerator::Copy(Lane lane, const char* what,
                                          void* target, const void* source,
                                          std::size_t bytes) {
  if (!error_.ok()) {
    return {lane, this->lane(lane).next()};
  }
  const ScopedContext current(context_);
  cudaError_t result = current.error();
  if (result == cudaSuccess && bytes > 0) {
    // Which side is where follows from the addresses (unified addressing).
    result = cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault,
                             this->lane(lane).stream());
  }
  return Finish(lane, what, result);
}

Accelerator::Ticket CudaAccelerator::Reduce(
    DataType type, ReduceOp op, void* target, const void* own,
    std::span<const void* const> received, std::size_t count, int finish_size) {
  if (!error_.ok()) {
    return {Lane::kReduce, lane(Lane::kReduce).next()};
  }
  const ScopedContext current(context_);
  cudaError_t result = current.error();
  if (result == cudaSuccess && count > 0) {
    const LaunchFunction launch = FindLaunch(type, op);
    const bool divide = op == ReduceOp::kAverage && finish_size > 0;
    if (launch == nullptr || received.empty() ||
        received.size() > kMostSources) {
      result = cudaErrorInvalidValue;
    } else {
      result = launch({OnDevice(target), OnDevice(own), SourcesOf(received),
                       count, divide ? finish_size : 0, most_blocks_,
                       lane(Lane::kReduce).stream()});
    }
  }
  return Finish(Lane::kReduce, "reduction", result);
}

Accelerator::Ticket CudaAccelerator::Finish(Lane lane, const char* what,
                                            cudaError_t result) {
  const Ticket ticket{lane, this->lane(lane).next()};
  if (result == cudaSuccess) {
    result = this->lane(lane).Mark();
  }
  Fail(what, result);
  return ticket;
}

std::byte* CudaAccelerator::OnDevice(const void* pointer) const {
  std::byte* const address =
      static_cast<std::byte*>(const_cast<void*>(pointer));
  for (const Slots& slots : slots_) {
    if (address >= slots.host && address < slots.host + slots.bytes) {
      return slots.device + (address - slots.host);
    }
  }
  return address;
}

Sources CudaAccelerator::SourcesOf(
    std::span<const void* const> received) const {
  Sources sources{};
  for (const void* const pointer : received) {
    sources.received[sources.count++] = OnDevice(pointer);
  }
  return sources;
}

void CudaAccelerator::Fail(const char* what, cudaError_t error) {
  if (error != cudaSuccess && error_.ok()) {
    static_cast<void>(error_ = CudaStatus(name() + ": " + what, error));
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
  if (current.error() != cudaSuccess) {
    Fail("making the context current", current.error());
    return Progress::kFailed;
  }
  const cudaError_t result = lane(ticket.lane).Query(ticket.sequence);
  if (result == cudaSuccess) {
    return Progress::kDone;
  }
  // As an error, "not ready" would stay behind for the user's next call.
  static_cast<void>(cudaGetLastError());
  if (result == cudaErrorNotReady) {
    return Progress::kPending;
  }
  Fail("an operation that was started earlier", result);
  return Progress::kFailed;
}

void CudaAccelerator::Drain() {
  const ScopedContext current(context_);
  for (LaneStream& lane : lanes_) {
    if (lane.stream() != nullptr) {
      Fail("waiting for a stream", lane.Synchronize());
    }
  }
}

}  // namespace

Result<std::unique_ptr<Accelerator>> CreateCudaAccelerator() {
  RINGPIPE_ASSIGN_OR_RETURN(const CudaDriver driver, CudaDriver::Load());
  return CreateCudaAccelerator(driver);
}

Result<std::unique_ptr<Accelerator>> CreateCudaAccelerator(
    const CudaDriver& driver) {
  return std::unique_ptr<Accelerator>(new CudaAccelerator(driver));
}

}  // namespace ringpipe
