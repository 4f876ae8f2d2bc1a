#ifndef RINGPIPE_BASE_SHARED_MAPPING_H_
#define RINGPIPE_BASE_SHARED_MAPPING_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/file_descriptor.h"

namespace ringpipe {

// How much a mapping should be longer than its file, so that what the file's
// owner adds later appears in it by itself. Of address space, not of memory;
// less where that is limited (ulimit -v), for every rank of the host.
std::uint64_t MostGrowthBytes();

// A file's beginning, mapped for all who map it, at a multiple of a huge page
// where it is that long. Not part of core dumps, nor of children of fork(),
// where data() is not to be used, and may be an address of something else.
// Unmaps itself. Move-only.
class SharedMapping {
 public:
  SharedMapping() = default;
  // None, with errno, where it cannot be had. `protection` is mmap's.
  SharedMapping(const FileDescriptor& file, std::uint64_t bytes,
                int protection);
  SharedMapping(SharedMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(other.bytes_),
        process_(other.process_) {}
  ~SharedMapping();

  // Another mapping of the same file, without its descriptor; None, with errno,
  // where it cannot be had.
  SharedMapping Again(std::uint64_t bytes) const;

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  // False in a child.
  bool IsInThisProcess() const;

 private:
  // What `map` returns, as mmap does, given the place (nullptr: anywhere) and
  // the size.
  template <typename F>
  static SharedMapping Map(std::uint64_t bytes, F map);

  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  pid_t process_ = 0;  // that has it
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_SHARED_MAPPING_H_
