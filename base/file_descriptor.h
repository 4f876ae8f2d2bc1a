#ifndef RINGPIPE_BASE_FILE_DESCRIPTOR_H_
#define RINGPIPE_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace ringpipe {

// Owns a file descriptor; -1: none. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // The caller's from now on.
  int Release() { return std::exchange(fd_, -1); }

  void Close() {
    if (fd_ >= 0) {
      close(std::exchange(fd_, -1));
    }
  }

 private:
  int fd_ = -1;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_FILE_DESCRIPTOR_H_
