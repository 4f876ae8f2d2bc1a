#include "auth/user_namespace.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

namespace ringpipe {
namespace {

constexpr const char* kOwn = "/proc/self/ns/user";

}  // namespace

int OpenUserNamespace() { return open(kOwn, O_RDONLY | O_CLOEXEC); }

bool IsOwnUserNamespace(int fd) {
  struct statfs system;
  struct stat own, shown;
  return fstatfs(fd, &system) == 0 && system.f_type == NSFS_MAGIC &&
         stat(kOwn, &own) == 0 && fstat(fd, &shown) == 0 &&
         own.st_dev == shown.st_dev && own.st_ino == shown.st_ino;
}

}  // namespace ringpipe
