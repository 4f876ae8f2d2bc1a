// Descriptors, none of which a child of fork() keeps: one that lives on would
// hold the memory and the connections that are behind them. (One that another
// thread is about to get while this one forks may slip through, but for shared
// memory; so may one of Boost.Asio's that it is about to close.)
#ifndef RINGPIPE_BASE_FILE_DESCRIPTOR_H_
#define RINGPIPE_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace ringpipe {

// Children of fork() close `fd`, as long as it is kept from them. For who owns
// descriptors otherwise than by the classes below. Thread-safe; does not change
// errno.
void KeepFromChildren(int fd);
// Before `fd` is closed or given away. False in a child that has closed it; the
// number may be another file's by now.
bool StopKeeping(int fd);

// Owns a file descriptor; -1: none. A child of fork() has none. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) { KeepFromChildren(fd_); }
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
  // The caller's from now on; kept from children until StopKeeping.
  int Release() { return std::exchange(fd_, -1); }

  void Close();

 private:
  int fd_ = -1;
};

// A socket or descriptor of Boost.Asio's that children of fork() do not have;
// what is assigned to it comes from a FileDescriptor.
template <typename Asio>
class KeptFromChildren : public Asio {
 public:
  using Asio::Asio;
  explicit KeptFromChildren(Asio&& other) : Asio(std::move(other)) { Keep(); }
  KeptFromChildren(KeptFromChildren&& other) noexcept = default;
  KeptFromChildren& operator=(KeptFromChildren&& other) noexcept {
    Stop();
    Asio::operator=(std::move(other));
    return *this;
  }
  ~KeptFromChildren() { Stop(); }

  template <typename... Arguments>
  void open(Arguments&&... arguments) {
    Asio::open(std::forward<Arguments>(arguments)...);
    Keep();
  }
  template <typename Error>
  void close(Error& error) {
    Stop();
    Asio::close(error);
  }

 private:
  void Keep() {
    if (this->is_open()) {
      KeepFromChildren(this->native_handle());
    }
  }
  void Stop() {
    if (this->is_open()) {
      StopKeeping(this->native_handle());
    }
  }
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_FILE_DESCRIPTOR_H_
