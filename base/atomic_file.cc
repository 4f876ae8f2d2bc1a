#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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
  std::string name = target.string() + ".XXXXXX";
  const int fd = mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) {
    return Failed(path, errno);
  }
  return AtomicFile(fd, std::move(name), target.string());
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
  // mkostemp gives 0600; a result file is like any other that a program
  // writes.
  const mode_t mask = umask(0);
  umask(mask);
  if (fchmod(fd_, 0666 & ~mask) != 0 || fsync(fd_) != 0 ||
      rename(name_.c_str(), target_.c_str()) != 0) {
    return Failed(target_, errno);
  }
  name_.clear();
  return {};
}

Status CheckWritable(const std::string& path) {
  return AtomicFile::Create(path).status();
}

Status WriteAtomically(const std::string& path, std::string_view text) {
  auto file = AtomicFile::Create(path);
  if (!file.ok()) {
    return file.status();
  }
  RINGPIPE_RETURN_IF_ERROR(file->Write(text));
  return file->Commit();
}

}  // namespace ringpipe
