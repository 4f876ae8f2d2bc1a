// The exported functions that read sysfs; in no installed header.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "base/file_descriptor.h"

extern "C" {

const char* ibv_get_sysfs_path();
int ibv_read_sysfs_file(const char* directory, const char* file, char* buffer,
                        std::size_t bytes);

// Where sysfs is mounted; the variable is libibverbs' own.
const char* ibv_get_sysfs_path() {
  const char* const chosen = secure_getenv("SYSFS_PATH");
  return chosen != nullptr ? chosen : "/sys";
}

// Returns the length of what was read, less one newline at its end, or -1 with
// errno. Terminated by a 0 if there
// is room, except where the file is empty, as rdma-core's.
int ibv_read_sysfs_file(const char* directory, const char* file, char* buffer,
                        std::size_t bytes) {
  const std::string path = std::string(directory) + "/" + file;
  const ringpipe::FileDescriptor descriptor(
      open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor) {
    return -1;
  }
  ssize_t length = read(descriptor.get(), buffer, bytes);
  if (length <= 0) {
    return static_cast<int>(length);
  }
  if (buffer[length - 1] == '\n') {
    --length;
  }
  if (static_cast<std::size_t>(length) < bytes) {
    buffer[length] = '\0';
  }
  return static_cast<int>(length);
}

}  // extern "C"
