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
// where it is that long. Not part of core dumps. Unmaps itself. Move-only.
class SharedMapping {
 public:
  // Whether children of fork() have it too. In those who do not, data() is not
  // to be used, and may be an address of something else.
  enum class InChildren { kYes, kNo };

  SharedMapping() = default;
  // None, with errno, where it cannot be had. `protection` is mmap's.
  SharedMapping(const FileDescriptor& file, std::uint64_t bytes, int protection,
                InChildren in_children = InChildren::kYes);
  SharedMapping(SharedMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(other.bytes_),
        only_process_(other.only_process_) {}
  ~SharedMapping();

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  // False in a child that does not have it.
  bool IsInThisProcess() const;

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  pid_t only_process_ = 0;  // 0: children have it too
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_SHARED_MAPPING_H_
