// Entry points about memory, and copies.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/fake_driver/driver.h"
#include "cuda/fake_driver/entry_points.h"

namespace fake_cuda {
namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

using Kind = Memory::Kind;

Address AddressOf(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

Result Allocate(Kind kind, std::size_t bytes, Address* address) {
  if (bytes == 0) {
    return kInvalidValue;
  }
  Context* const context = Contexts::Current();
  *address =
      Driver::Get().memory.Allocate(kind, bytes, context->device, context);
  return *address == 0 ? kOutOfMemory : kSuccess;
}

// Frees what nothing that was started can use any more: the driver waits for
// the device. Without a bound, where that is stuck.
Result Free(Address address, Kind kind) {
  Driver& driver = Driver::Get();
  const auto range = driver.memory.Find(address);
  if (!range || range->begin != address || range->kind != kind) {
    return kInvalidValue;
  }
  for (const auto& device : driver.devices) {
    device->AwaitAll();
  }
  return driver.memory.Free(address, kind) ? kSuccess : kInvalidValue;
}

// Ends the process where a piece of memory has been unmapped since the device
// was given it: with a message, which a segmentation fault has not.
void CheckMapped(const unsigned char* memory, std::size_t bytes) {
  const auto page = static_cast<Address>(sysconf(_SC_PAGESIZE));
  const Address begin = AddressOf(memory) / page * page;
  if (msync(reinterpret_cast<void*>(begin), AddressOf(memory) + bytes - begin,
            MS_ASYNC) != 0) {
    std::fprintf(stderr,
                 "fake CUDA: a copy reaches memory that the host has "
                 "unmapped\n");
    std::abort();
  }
}

// Copies half, lets time pass, and copies the rest: whoever reads too early, or
// writes too early, is found out.
void CopySlowly(unsigned char* target, const unsigned char* source,
                std::size_t bytes, const Queues::Dawdle& dawdle) {
  const std::size_t half = bytes / 2;
  CheckMapped(target, bytes);
  CheckMapped(source, bytes);
  std::memmove(target, source, half);
  dawdle();
  std::memmove(target + half, source + half, bytes - half);
}

// Synchronous or not with respect to the host: CUDA Driver API, 2. "API
// synchronization behavior". From pageable memory the source has been read when
// the call returns, the target may be written later; to pageable memory all is
// done.
Result Copy(Address target, Address source, std::size_t bytes, Stream* stream,
            bool* to_pageable) {
  Driver& driver = Driver::Get();
  const Memory::Place to = driver.memory.ForCopy(target, bytes);
  const Memory::Place from = driver.memory.ForCopy(source, bytes);
  if (bytes == 0) {
    return kSuccess;
  }
  if (to.data == nullptr || from.data == nullptr) {
    return kInvalidValue;
  }
  if (driver.captures.Of(stream) != nullptr && (to.pageable || from.pageable)) {
    driver.captures.Invalidate(driver.captures.Of(stream));
    return kCaptureUnsupported;
  }
  *to_pageable = to.pageable;
  Queues::Work work;
  if (from.pageable) {
    work = [to = to.data,
            staged = std::vector<unsigned char>(from.data, from.data + bytes)](
               const Queues::Dawdle& dawdle) {
      CopySlowly(to, staged.data(), staged.size(), dawdle);
    };
  } else {
    work = [to = to.data, from = from.data,
            bytes](const Queues::Dawdle& dawdle) {
      CopySlowly(to, from, bytes, dawdle);
    };
  }
  return driver.streams.Put(
      stream, [work = std::move(work), &driver](const Queues::Dawdle& dawdle) {
        // A context that has ended does nothing more.
        if (driver.calls.sticky() == kSuccess) {
          work(dawdle);
        }
      });
}

Result CopyAsync(Address target, Address source, std::size_t bytes,
                 Stream* handle) {
  Driver& driver = Driver::Get();
  Stream* const stream = driver.streams.Find(handle, Contexts::Current());
  if (stream == nullptr) {
    return kInvalidHandle;
  }
  bool to_pageable = false;
  const Result result = Copy(target, source, bytes, stream, &to_pageable);
  if (result == kSuccess && to_pageable) {
    return driver.streams.Synchronize(stream);
  }
  return result;
}

// Synchronous, but for what "API synchronization behavior" excepts: from
// pageable memory "the DMA to final destination may not have completed", and
// between two pieces of device memory "no host-side synchronization is
// performed".
Result CopyNow(Address target, Address source, std::size_t bytes) {
  Driver& driver = Driver::Get();
  const auto on_device = [&](Address address) {
    const auto range = driver.memory.Find(address);
    return range && !range->OfHost() && range->kind != Kind::kAlias;
  };
  const bool from_pageable = driver.memory.ForCopy(source, 1).pageable;
  Stream* const legacy = driver.streams.Find(nullptr, Contexts::Current());
  bool to_pageable = false;
  const Result result = Copy(target, source, bytes, legacy, &to_pageable);
  if (result != kSuccess || (!to_pageable && from_pageable) ||
      (on_device(target) && on_device(source))) {
    return result;
  }
  return driver.streams.Synchronize(legacy);
}

template <typename T>
void Put(void* to, T value) {
  *static_cast<T*>(to) = value;
}

Address DevicePointerOf(const Memory::Range& range, Address address) {
  return range.kind == Kind::kRegistered && range.partner != 0
             ? range.partner + (address - range.begin)
             : address;
}

// nullptr where the host cannot reach it.
void* HostPointerOf(const Memory::Range& range, Address address) {
  const bool reaches = range.OfHost() || range.kind == Kind::kManaged ||
                       range.kind == Kind::kAlias;
  return reaches ? range.data + (address - range.begin) : nullptr;
}

// Of pool and mapped memory the context is NULL: open-mpi #13773, ucx #10545.
Result PutAttribute(int attribute, const Memory::Range& range, Address address,
                    void* to) {
  switch (attribute) {
    case kPointerContext:
      Put<const Context*>(to, range.context);
      return kSuccess;
    case kPointerMemoryType:
      Put<unsigned>(to, range.OfHost() || range.kind == Kind::kAlias
                            ? kMemoryHost
                            : kMemoryDevice);
      return kSuccess;
    case kPointerDevicePointer:
      Put<Address>(to, DevicePointerOf(range, address));
      return kSuccess;
    case kPointerHostPointer:
      Put<void*>(to, HostPointerOf(range, address));
      return kSuccess;
    case kPointerIsManaged:
      Put<unsigned>(to, range.kind == Kind::kManaged ? 1 : 0);
      return kSuccess;
    case kPointerDeviceOrdinal:
      Put<int>(to, range.device);
      return kSuccess;
    case kPointerRangeStart:
      Put<Address>(to, range.begin);
      return kSuccess;
    case kPointerRangeSize:
      Put<std::size_t>(to, range.bytes);
      return kSuccess;
    case kPointerMapped:
      Put<unsigned char>(to, 1);
      return kSuccess;
    case kPointerPool:
      Put<Pool*>(to, range.pool);
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

// "The attributes are assigned default NULL values" (cuPointerGetAttributes);
// the ordinal is then -2 (CU_DEVICE_INVALID).
Result PutDefault(int attribute, void* to) {
  switch (attribute) {
    case kPointerMemoryType:
    case kPointerIsManaged:
      Put<unsigned>(to, 0);
      return kSuccess;
    case kPointerDeviceOrdinal:
      Put<int>(to, -2);
      return kSuccess;
    case kPointerMapped:
      Put<unsigned char>(to, 0);
      return kSuccess;
    case kPointerContext:
    case kPointerDevicePointer:
    case kPointerHostPointer:
    case kPointerRangeStart:
    case kPointerRangeSize:
    case kPointerPool:
      Put<std::uint64_t>(to, 0);
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

// That it wants a context is seen with some drivers and not with others:
// open-mpi #783, triton #5276.
unsigned NeedsOfAttributes() {
  return kInitialised | kLiving | (Settings::Get().strict ? kContext : 0u);
}

}  // namespace

// --- Allocations ------------------------------------------------------------

FAKE_CUDA_ENTRY Result cuMemAlloc_v2(Address* address, std::size_t bytes) {
  FAKE_CUDA_BEGIN("cuMemAlloc", kWork | kOutsideCapture)
  return Allocate(Kind::kDevice, bytes, address);
}

FAKE_CUDA_ENTRY Result cuMemFree_v2(Address address) {
  FAKE_CUDA_BEGIN("cuMemFree", kWork | kOutsideCapture)
  if (address == 0) {
    return kSuccess;
  }
  const auto range = Driver::Get().memory.Find(address);
  const Kind kind = range && range->kind == Kind::kManaged ? Kind::kManaged
                    : range && range->kind == Kind::kPool  ? Kind::kPool
                                                           : Kind::kDevice;
  return Free(address, kind);
}

FAKE_CUDA_ENTRY Result cuMemAllocManaged(Address* address, std::size_t bytes,
                                         unsigned flags) {
  FAKE_CUDA_BEGIN("cuMemAllocManaged", kWork | kOutsideCapture)
  return flags == kAttachGlobal ? Allocate(Kind::kManaged, bytes, address)
                                : kInvalidValue;
}

FAKE_CUDA_ENTRY Result cuMemHostAlloc(void** memory, std::size_t bytes,
                                      unsigned /*flags*/) {
  FAKE_CUDA_BEGIN("cuMemHostAlloc", kWork | kOutsideCapture)
  Address address = 0;
  const Result result = Allocate(Kind::kHost, bytes, &address);
  *memory = reinterpret_cast<void*>(address);
  return result;
}

FAKE_CUDA_ENTRY Result cuMemFreeHost(void* memory) {
  FAKE_CUDA_BEGIN("cuMemFreeHost", kWork | kOutsideCapture)
  return Free(AddressOf(memory), Kind::kHost);
}

FAKE_CUDA_ENTRY Result cuMemHostRegister_v2(void* memory, std::size_t bytes,
                                            unsigned flags) {
  FAKE_CUDA_BEGIN("cuMemHostRegister", kWork | kOutsideCapture)
  if (memory == nullptr || bytes == 0 || flags > 15) {
    return kInvalidValue;
  }
  Context* const context = Contexts::Current();
  return Driver::Get().memory.Register(memory, bytes, context->device, context);
}

FAKE_CUDA_ENTRY Result cuMemHostUnregister(void* memory) {
  FAKE_CUDA_BEGIN("cuMemHostUnregister", kWork | kOutsideCapture)
  for (const auto& device : Driver::Get().devices) {
    device->AwaitAll();
  }
  return Driver::Get().memory.Unregister(memory);
}

FAKE_CUDA_ENTRY Result cuMemHostGetDevicePointer_v2(Address* address,
                                                    void* memory,
                                                    unsigned /*flags*/) {
  FAKE_CUDA_BEGIN("cuMemHostGetDevicePointer", kWork)
  const auto range = Driver::Get().memory.Find(AddressOf(memory));
  if (!range || !range->OfHost()) {
    return kInvalidValue;
  }
  *address = DevicePointerOf(*range, AddressOf(memory));
  return kSuccess;
}

// Wants a context (cuda-samples #96).
FAKE_CUDA_ENTRY Result cuMemGetAddressRange_v2(Address* begin,
                                               std::size_t* bytes,
                                               Address address) {
  FAKE_CUDA_BEGIN("cuMemGetAddressRange", kWork)
  const auto range = Driver::Get().memory.Find(address);
  if (!range) {
    return kNotFound;
  }
  *begin = range->begin;
  *bytes = range->bytes;
  return kSuccess;
}

// --- Stream-ordered allocations ---------------------------------------------

FAKE_CUDA_ENTRY Result cuMemAllocAsync(Address* address, std::size_t bytes,
                                       Stream* stream) {
  FAKE_CUDA_BEGIN("cuMemAllocAsync", kWork)
  Driver& driver = Driver::Get();
  Context* const context = Contexts::Current();
  if (driver.streams.Find(stream, context) == nullptr) {
    return kInvalidHandle;
  }
  if (bytes == 0) {
    return kInvalidValue;
  }
  *address = driver.memory.Allocate(
      Kind::kPool, bytes, context->device, nullptr,
      &driver.pools[static_cast<std::size_t>(context->device)]);
  return *address == 0 ? kOutOfMemory : kSuccess;
}

// The memory is gone when the stream gets there.
FAKE_CUDA_ENTRY Result cuMemFreeAsync(Address address, Stream* stream) {
  FAKE_CUDA_BEGIN("cuMemFreeAsync", kWork)
  Driver& driver = Driver::Get();
  Stream* const found = driver.streams.Find(stream, Contexts::Current());
  const auto range = driver.memory.Find(address);
  if (found == nullptr || !range || range->begin != address ||
      range->kind != Kind::kPool) {
    return found == nullptr ? kInvalidHandle : kInvalidValue;
  }
  return driver.streams.Put(found, [address](const Queues::Dawdle&) {
    Driver::Get().memory.Free(address, Kind::kPool);
  });
}

// --- Virtual memory management ----------------------------------------------

FAKE_CUDA_ENTRY Result cuMemAddressReserve(Address* address, std::size_t bytes,
                                           std::size_t /*alignment*/,
                                           Address /*wanted*/,
                                           unsigned long long flags) {
  FAKE_CUDA_BEGIN("cuMemAddressReserve", kInitialised | kLiving)
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0) {
    return kInvalidValue;
  }
  *address = Driver::Get().memory.Reserve(bytes);
  return *address == 0 ? kOutOfMemory : kSuccess;
}

FAKE_CUDA_ENTRY Result cuMemAddressFree(Address address, std::size_t bytes) {
  FAKE_CUDA_BEGIN("cuMemAddressFree", kInitialised | kLiving)
  return Driver::Get().memory.FreeReserved(address, bytes);
}

FAKE_CUDA_ENTRY Result cuMemCreate(unsigned long long* handle,
                                   std::size_t bytes,
                                   const AllocationProperties* properties,
                                   unsigned long long flags) {
  FAKE_CUDA_BEGIN("cuMemCreate", kInitialised | kLiving)
  Driver& driver = Driver::Get();
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0 ||
      properties->type != 1 || properties->location.type != 1 ||
      !driver.Knows(properties->location.id)) {
    return kInvalidValue;
  }
  *handle = driver.memory.Create(bytes, properties->location.id);
  return *handle == 0 ? kOutOfMemory : kSuccess;
}

FAKE_CUDA_ENTRY Result cuMemRelease(unsigned long long handle) {
  FAKE_CUDA_BEGIN("cuMemRelease", kInitialised | kLiving)
  return Driver::Get().memory.Release(handle);
}

FAKE_CUDA_ENTRY Result cuMemMap(Address address, std::size_t bytes,
                                std::size_t offset, unsigned long long handle,
                                unsigned long long flags) {
  FAKE_CUDA_BEGIN("cuMemMap", kInitialised | kLiving)
  return flags != 0 ? kInvalidValue
                    : Driver::Get().memory.Map(address, bytes, offset, handle);
}

FAKE_CUDA_ENTRY Result cuMemUnmap(Address address, std::size_t bytes) {
  FAKE_CUDA_BEGIN("cuMemUnmap", kInitialised | kLiving)
  return Driver::Get().memory.Unmap(address, bytes);
}

FAKE_CUDA_ENTRY Result cuMemSetAccess(Address address, std::size_t bytes,
                                      const AccessDescription* access,
                                      std::size_t count) {
  FAKE_CUDA_BEGIN("cuMemSetAccess", kInitialised | kLiving)
  if (count != 1 || access->location.type != 1 || access->flags != 3) {
    return kInvalidValue;
  }
  return Driver::Get().memory.SetAccess(address, bytes, access->location.id);
}

// --- Pointers ---------------------------------------------------------------

FAKE_CUDA_ENTRY Result cuPointerGetAttributes(unsigned count, int* attributes,
                                              void** values, Address address) {
  FAKE_CUDA_BEGIN("cuPointerGetAttributes", NeedsOfAttributes())
  const auto range = Driver::Get().memory.Find(address);
  for (unsigned i = 0; i < count; ++i) {
    const Result result =
        range ? PutAttribute(attributes[i], *range, address, values[i])
              : PutDefault(attributes[i], values[i]);
    if (result != kSuccess) {
      return result;
    }
  }
  return kSuccess;
}

FAKE_CUDA_ENTRY Result cuPointerGetAttribute(void* value, int attribute,
                                             Address address) {
  FAKE_CUDA_BEGIN("cuPointerGetAttribute", NeedsOfAttributes())
  const auto range = Driver::Get().memory.Find(address);
  return range ? PutAttribute(attribute, *range, address, value)
               : kInvalidValue;
}

// --- Copies -----------------------------------------------------------------

FAKE_CUDA_ENTRY Result cuMemcpy(Address target, Address source,
                                std::size_t bytes) {
  FAKE_CUDA_BEGIN("cuMemcpy", kWork | kOutsideCapture)
  return CopyNow(target, source, bytes);
}

FAKE_CUDA_ENTRY Result cuMemcpyHtoD_v2(Address target, const void* source,
                                       std::size_t bytes) {
  FAKE_CUDA_BEGIN("cuMemcpyHtoD", kWork | kOutsideCapture)
  return CopyNow(target, AddressOf(source), bytes);
}

FAKE_CUDA_ENTRY Result cuMemcpyDtoH_v2(void* target, Address source,
                                       std::size_t bytes) {
  FAKE_CUDA_BEGIN("cuMemcpyDtoH", kWork | kOutsideCapture)
  return CopyNow(AddressOf(target), source, bytes);
}

FAKE_CUDA_ENTRY Result cuMemcpyAsync(Address target, Address source,
                                     std::size_t bytes, Stream* stream) {
  FAKE_CUDA_BEGIN("cuMemcpyAsync", kWork)
  return CopyAsync(target, source, bytes, stream);
}

FAKE_CUDA_ENTRY Result cuMemsetD8Async(Address target, unsigned char value,
                                       std::size_t bytes, Stream* stream) {
  FAKE_CUDA_BEGIN("cuMemsetD8Async", kWork)
  Driver& driver = Driver::Get();
  Stream* const found = driver.streams.Find(stream, Contexts::Current());
  const Memory::Place to = driver.memory.ForCopy(target, bytes);
  if (found == nullptr || to.data == nullptr || to.pageable) {
    return found == nullptr ? kInvalidHandle : kInvalidValue;
  }
  return driver.streams.Put(
      found, [data = to.data, value, bytes](const Queues::Dawdle&) {
        std::memset(data, value, bytes);
      });
}

}  // namespace fake_cuda
