#ifndef RINGPIPE_CUDA_FAKE_DRIVER_MEMORY_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_MEMORY_H_

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "cuda/fake_driver/abi.h"
#include "cuda/fake_driver/interpreter.h"

namespace fake_cuda {

// All memory that the driver knows. Thread-safe.
//
// Device memory is at addresses that the host can neither read nor write
// (PROT_NONE), and so is the device's view of registered host memory: a host
// dereference, and a host pointer that is given to a kernel, are found. Its
// bytes are elsewhere; only copies and kernels get there.
//
// A freed address is the first to be given out again, to whichever device asks:
// so do the real driver's (unified addressing, CUDA Programming Guide 3.2.7).
class Memory {
 public:
  enum class Kind {
    kDevice,      // cuMemAlloc
    kManaged,     // cuMemAllocManaged: host and devices at one address
    kHost,        // cuMemHostAlloc: pinned, one address
    kRegistered,  // cuMemHostRegister, as the host addresses it
    kAlias,       // the same, as devices address it
    kPool,        // cuMemAllocAsync
    kMapped,      // cuMemMap
  };
  struct Range {
    Kind kind;
    Address begin;
    std::size_t bytes;
    unsigned char* data;  // the bytes
    Device device;
    Context* context;        // nullptr: kPool, kMapped
    Address partner = 0;     // of kRegistered and kAlias: the other
    bool accessible = true;  // kMapped: whether cuMemSetAccess was called
    Pool* pool = nullptr;

    bool Has(Address address, std::size_t count) const {
      return address >= begin && address - begin <= bytes &&
             count <= bytes - (address - begin);
    }
    bool OfHost() const {
      return kind == Kind::kHost || kind == Kind::kRegistered;
    }
  };

  // kDevice, kManaged, kHost or kPool; 0: no memory.
  Address Allocate(Kind kind, std::size_t bytes, Device device,
                   Context* context, Pool* pool = nullptr);
  // What begins at `address` and is of `kind`. False: nothing.
  bool Free(Address address, Kind kind);
  // All of a context that is destroyed.
  void FreeAllOf(const Context* context);

  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED where a part of it is known.
  Result Register(void* memory, std::size_t bytes, Device device,
                  Context* context);
  Result Unregister(void* memory);
  void UnregisterAll();

  // Virtual memory management: addresses, and the memory behind them.
  Address Reserve(std::size_t bytes);
  Result FreeReserved(Address address, std::size_t bytes);
  unsigned long long Create(std::size_t bytes, Device device);
  Result Release(unsigned long long handle);
  Result Map(Address address, std::size_t bytes, std::size_t offset,
             unsigned long long handle);
  Result Unmap(Address address, std::size_t bytes);
  Result SetAccess(Address address, std::size_t bytes, Device device);

  std::optional<Range> Find(Address address) const;

  // What a kernel of `device` reaches at `address`. There is no access to
  // peers' memory.
  Window OnDevice(Address address, Device device) const;

  // What a copy reads or writes at `address`; unified addressing lets it find
  // registered memory by the host's address too.
  struct Place {
    unsigned char* data;  // nullptr: not all of it is one piece of memory
    bool pageable;        // the driver does not know it
  };
  Place ForCopy(Address address, std::size_t bytes) const;

  int live() const;

 private:
  struct Physical {
    unsigned char* data;
    std::size_t bytes;
    Device device;
    int uses;  // mappings, and the handle
  };

  const Range* FindLocked(Address address) const;
  Address TakeAddresses(std::size_t bytes);
  void GiveAddresses(Address address, std::size_t bytes);
  void DropLocked(std::map<Address, Range>::iterator found);
  void DropUse(unsigned long long handle);

  mutable std::mutex mutex_;
  std::map<Address, Range> ranges_;  // by `begin`
  // PROT_NONE, not in use; the last is taken first.
  std::map<std::size_t, std::vector<Address>> free_;  // by bytes
  std::map<Address, std::size_t> reserved_;
  std::map<unsigned long long, Physical> physical_;
  std::map<Address, unsigned long long> mappings_;  // the handles of kMapped
  unsigned long long next_handle_ = 1;
};

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_MEMORY_H_
