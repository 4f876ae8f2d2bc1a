#include "verbs/soft/libibverbs/user_key.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/mac.h"
#include "base/file_descriptor.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::size_t kKeyBytes = sizeof(Nonce);

// Empty where the file is not there, or is not one that this user alone has.
std::string ReadKey(const std::string& path) {
  const FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found = {};
  if (!file || fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
      found.st_uid != geteuid() || (found.st_mode & 077) != 0) {
    return "";
  }
  std::string key(kKeyBytes, '\0');
  return read(file.get(), key.data(), key.size()) ==
                 static_cast<ssize_t>(key.size())
             ? key
             : "";
}

// Appears under its name at once and whole; the first of several wins.
void MakeKey(const std::string& folder, const std::string& path) {
  const Result<Nonce> random = RandomNonce();
  std::string draft = folder + "/key.XXXXXX";
  const FileDescriptor file(mkostemp(draft.data(), O_CLOEXEC));  // mode 0600
  if (!file || !random.ok()) {
    return;
  }
  if (write(file.get(), random.value().data(), kKeyBytes) ==
      static_cast<ssize_t>(kKeyBytes)) {
    (void)!link(draft.c_str(), path.c_str());
  }
  unlink(draft.c_str());
}

}  // namespace

std::string UserKey(const std::string& home) {
  if (home.empty()) {
    return "";
  }
  const std::string cache = home + "/.cache";
  const std::string folder = cache + "/ringpipe";
  const std::string path = folder + "/key";
  if (std::string key = ReadKey(path); !key.empty()) {
    return key;
  }
  mkdir(cache.c_str(), 0700);
  mkdir(folder.c_str(), 0700);
  MakeKey(folder, path);
  return ReadKey(path);
}

std::string UserHome() {
  char text[4096];
  passwd entry = {};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, text, sizeof text, &found) != 0 ||
      found == nullptr || entry.pw_dir == nullptr) {
    return "";
  }
  return entry.pw_dir;
}

}  // namespace ringpipe::verbs::soft
