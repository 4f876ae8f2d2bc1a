// A file that appears whole or not at all.
#ifndef RINGPIPE_BASE_ATOMIC_FILE_H_
#define RINGPIPE_BASE_ATOMIC_FILE_H_

#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace ringpipe {

// A new file beside a target, which replaces the target by Commit. Without
// Commit it is removed again. Not thread-safe.
class AtomicFile {
 public:
  // An error that names the path and the reason where its directory cannot be
  // written, or where it is there and no regular file. A symbolic link stays
  // one; its target is replaced.
  static Result<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Appends. Fails where the disk is full.
  Status Write(std::string_view text);
  // Once, after all of it.
  Status Commit();

 private:
  AtomicFile(int fd, std::string name, std::string target)
      : fd_(fd), name_(std::move(name)), target_(std::move(target)) {}

  int fd_;
  std::string name_;  // empty once renamed
  std::string target_;
};

// Create's error, if any. Leaves nothing behind.
Status CheckWritable(const std::string& path);

// The file with `text`.
Status WriteAtomically(const std::string& path, std::string_view text);

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_ATOMIC_FILE_H_
