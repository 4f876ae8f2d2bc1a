#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

namespace ringpipe {
namespace {

StatusCode CodeOf(int error) {
  return error == EACCES || error == EPERM || error == EROFS
             ? StatusCode::kPermissionDenied
             : StatusCode::kInvalidArgument;
}

Status Failed(const std::string& path, int error) {
  return ErrnoStatus(CodeOf(error), "cannot write " + path, error);
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Status(StatusCode::kInvalidArgument,
                  "cannot write " + path + ": it is not a regular file");
  }
  std::error_code error;
  std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  if (error) {
    return Failed(path, error.value());
  }
  // Not by mkostemp, whose files are for their owner alone: a result is like
  // any other file that a program writes, and only the kernel knows the umask.
  static std::atomic<unsigned> files = 0;
  std::string text = target.string();
  std::string name;
  int fd = -1;
  do {
    name =
        text + "." + std::to_string(getpid()) + "." + std::to_string(files++);
    fd = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EEXIST);
  if (fd < 0) {
    return Failed(path, errno);
  }
  return AtomicFile(fd, std::move(name), std::move(text));
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      name_(std::exchange(other.name_, "")),
      target_(std::move(other.target_)) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    close(fd_);
  }
  if (!name_.empty()) {
    unlink(name_.c_str());
  }
}

Status AtomicFile::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd_, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      return Failed(target_, errno);
    }
    text.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
  }
  return {};
}

Status AtomicFile::Commit() {
  if (fsync(fd_) != 0 || rename(name_.c_str(), target_.c_str()) != 0) {
    return Failed(target_, errno);
  }
  name_.clear();
  return {};
}

Status CheckWritable(const std::string& path) {
  return AtomicFile::Create(path).status();
}

Status WriteAtomically(const std::string& path, std::string_view text) {
  RINGPIPE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RINGPIPE_RETURN_IF_ERROR(file.Write(text));
  return file.Commit();
}

}  // namespace ringpipe
