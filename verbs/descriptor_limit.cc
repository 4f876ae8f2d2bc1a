#include "verbs/descriptor_limit.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

namespace ringpipe::verbs {

Status CheckDescriptors(int count) {
  std::vector<int> opened;
  opened.reserve(count);
  int error = 0;
  while (error == 0 && static_cast<int>(opened.size()) < count) {
    const int descriptor =
        opened.empty() ? eventfd(0, EFD_CLOEXEC)
                       : fcntl(opened.front(), F_DUPFD_CLOEXEC, 0);
    if (descriptor >= 0) {
      opened.push_back(descriptor);
    } else {
      error = errno;
    }
  }
  for (const int descriptor : opened) {
    close(descriptor);
  }
  return error == 0
             ? Status::Ok()
             : ErrnoStatus(StatusCode::kResourceExhausted,
                           std::to_string(count) +
                               " more descriptors are needed and " +
                               std::to_string(opened.size()) +
                               " are left; raise 'ulimit -n'",
                           error);
}

}  // namespace ringpipe::verbs
