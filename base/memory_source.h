// Where memory comes from that somebody besides this process's threads uses:
// an RDMA device, or peers on this host.
#ifndef RINGPIPE_BASE_MEMORY_SOURCE_H_
#define RINGPIPE_BASE_MEMORY_SOURCE_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "base/status.h"

namespace ringpipe {

class Allocation;

// Thread-safe.
class MemorySource : public std::enable_shared_from_this<MemorySource> {
 public:
  virtual ~MemorySource() = default;

  // Zeroed memory of `bytes`, rounded up to whole pages, one at least.
  // kResourceExhausted if there is none. Slow path.
  virtual Result<Allocation> Allocate(std::size_t bytes) = 0;

 private:
  friend class Allocation;

  virtual void Free(std::byte* data, std::size_t bytes) noexcept = 0;
  // Nobody gets the memory any more before the source ends.
  virtual void Keep(std::byte* data, std::size_t bytes) noexcept = 0;
};

// Memory of a source's; frees itself. Move-only; keeps the source.
class Allocation {
 public:
  Allocation() = default;  // none: data() is nullptr
  Allocation(std::shared_ptr<MemorySource> source, std::byte* data,
             std::size_t bytes)
      : source_(std::move(source)), data_(data), bytes_(bytes) {}
  Allocation(Allocation&& other) noexcept { *this = std::move(other); }
  Allocation& operator=(Allocation&& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Allocation() {
    if (data_ != nullptr) {
      source_->Free(data_, bytes_);
    }
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // For memory that somebody may still write: nobody else gets it before the
  // source ends, which is when that stops. Then this is none.
  void Keep() noexcept {
    if (data_ != nullptr) {
      source_->Keep(data_, bytes_);
    }
    data_ = nullptr;
    bytes_ = 0;
    source_.reset();
  }

 private:
  std::shared_ptr<MemorySource> source_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_MEMORY_SOURCE_H_
