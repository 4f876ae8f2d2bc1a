#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "base/file_descriptor.h"
#include "base/memory_source.h"
#include "base/status.h"
namespace ringpipe {
class Region : public MemorySource {
 public:
  static Result<std::shared_ptr<Region>> Create(std::size_t header_bytes) {
    auto r = std::make_shared<Region>();
    r->header_bytes_ = (header_bytes + 4095) / 4096 * 4096;
    r->fd_ = FileDescriptor(memfd_create("x", MFD_CLOEXEC));
    static_cast<void>(!ftruncate(r->fd_.get(), 1L << 32));
    r->data_ = static_cast<std::byte*>(
        mmap(nullptr, 1L << 32, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_NORESERVE, r->fd_.get(), 0));
    r->end_ = (r->header_bytes_ + (2 << 20) - 1) / (2 << 20) * (2 << 20);
    return r;
  }
  static std::shared_ptr<Region> AttachStub(FileDescriptor f, long hb) {
    auto r = std::make_shared<Region>();
    r->fd_ = std::move(f);
    r->header_bytes_ = hb;
    r->end_ = 1L << 32;
    r->data_ = static_cast<std::byte*>(
        mmap(nullptr, 1L << 32, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_NORESERVE, r->fd_.get(), 0));
    return r;
  }
  ~Region() { munmap(data_, 1L << 32); }
  std::byte* header() { return data_; }
  std::size_t header_bytes() const { return header_bytes_; }
  int fd() const { return fd_.get(); }
  Result<Allocation> Allocate(std::size_t bytes) override {
    bytes = (bytes + 4095) / 4096 * 4096;
    if (bytes >= 2 << 20) end_ = (end_ + (2 << 20) - 1) / (2 << 20) * (2 << 20);
    auto* p = data_ + end_;
    end_ += bytes;
    return Allocation(shared_from_this(), p, bytes);
  }
  void Free(std::byte* p, std::size_t n) noexcept override {
    madvise(p, n, MADV_REMOVE);
  }
  void Keep(std::byte*, std::size_t) noexcept override {}
  std::optional<std::uint64_t> OffsetOf(const void* p,
                                        std::uint64_t bytes) const {
    auto o =
        static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - data_);
    if (o > end_ || bytes > end_ - o) return std::nullopt;
    return o;
  }
  std::byte* At(std::uint64_t o, std::uint64_t bytes) {
    return o <= (1L << 32) && bytes <= (1L << 32) - o ? data_ + o : nullptr;
  }
  std::byte* data_;
  std::size_t header_bytes_, end_;
  FileDescriptor fd_;
};
}  // namespace ringpipe
