// Descriptors, none of which a child of fork() keeps: one that lives on would
// hold the memory and the connections that are behind them. (One that another
// thread is about to get while this one forks may slip through, but for shared
// memory; so may one of Boost.Asio's that it is about to close.)
#ifndef RINGPIPE_BASE_FILE_DESCRIPTOR_H_
#define RINGPIPE_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/status.h"

namespace ringpipe {

// Which file `fd` stands for; 0: it is not open. Another part of the program
// may close numbers that it does not own (closefrom), and then get them for
// files of its own. All eventfds, epolls and timers are one file to this
// function. Does not change errno.
std::uint32_t FileOf(int fd);

// Whether `fd` is an eventfd, or another descriptor without a file (an epoll, a
// timer): no data of anybody else's are lost where one is taken for the other.
bool IsEvent(int fd);

// Why a communicator ends whose descriptors were closed so.
Status DescriptorsClosed();

// Children of fork() close `fd`, as long as it is kept from them. For who owns
// descriptors otherwise than by the classes below. Returns FileOf(fd).
// Thread-safe; does not change errno.
std::uint32_t KeepFromChildren(int fd);
// Before `fd`, which was `file` when it was kept, is closed or given away.
// False where the number is no longer this file's: in a child, which has closed
// it, or because somebody else has.
bool StopKeeping(int fd, std::uint32_t file);

// Owns a file descriptor; -1: none. A child of fork() has none. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd), file_(KeepFromChildren(fd)) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), file_(other.file_) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
      file_ = other.file_;
    }
    return *this;
  }
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Whether the number still stands for the file that this object was given. A
  // system call.
  bool IsOpen() const { return fd_ >= 0 && FileOf(fd_) == file_; }
  // The caller's from now on; kept from children until StopKeeping.
  int Release() { return std::exchange(fd_, -1); }

  // Not a file that has got the number since.
  void Close();

 private:
  int fd_ = -1;
  std::uint32_t file_ = 0;
};

// A socket or descriptor of Boost.Asio's that children of fork() do not have,
// and that closes no other file; what is assigned to it comes from a
// FileDescriptor.
template <typename Asio>
class KeptFromChildren : public Asio {
 public:
  using Asio::Asio;
  explicit KeptFromChildren(Asio&& other) : Asio(std::move(other)) { Keep(); }
  KeptFromChildren(KeptFromChildren&& other) noexcept = default;
  KeptFromChildren& operator=(KeptFromChildren&& other) noexcept {
    Stop();
    file_ = other.file_;
    Asio::operator=(std::move(other));
    return *this;
  }
  ~KeptFromChildren() { Stop(); }

  template <typename... Arguments>
  void open(Arguments&&... arguments) {
    Asio::open(std::forward<Arguments>(arguments)...);
    Keep();
  }
  template <typename... Arguments>
  void assign(Arguments&&... arguments) {
    Asio::assign(std::forward<Arguments>(arguments)...);
    Keep();
  }
  template <typename Error>
  void close(Error& error) {
    Stop();
    if (this->is_open()) {
      Asio::close(error);
    }
  }

 private:
  void Keep() {
    if (this->is_open()) {
      file_ = KeepFromChildren(this->native_handle());
    }
  }
  void Stop() {
    if (this->is_open() && !StopKeeping(this->native_handle(), file_)) {
      this->release();  // without closing what is not its own
    }
  }

  std::uint32_t file_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_FILE_DESCRIPTOR_H_
