// For tests: a process that can send no descriptors.
#ifndef RINGPIPE_BASE_DESCRIPTORS_IN_FLIGHT_H_
#define RINGPIPE_BASE_DESCRIPTORS_IN_FLIGHT_H_

#include <linux/capability.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "base/file_descriptor.h"
#include "base/unix_message.h"

namespace ringpipe {

// More descriptors of this user's are sent and not received than this process
// may have open, which is `limit` from now on: it can send no more. The calling
// thread, and those that it starts, lose the capabilities by which root is
// excepted. For a process of its own.
class DescriptorsInFlight {
 public:
  explicit DescriptorsInFlight(rlim_t limit) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      abort();
    }
    from_ = FileDescriptor(ends[0]);
    to_ = FileDescriptor(ends[1]);
    // All of this process's own: what other processes of the user have sent may
    // be received at any time.
    std::array<int, kMostMessageFiles> files;
    files.fill(from_.get());
    for (rlim_t sent = 0; sent <= limit; sent += files.size()) {
      if (!SendMessage(from_.get(), "x", files)) {
        abort();
      }
    }
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[2] = {};
    const rlimit limits = {limit, limit};
    if (syscall(SYS_capset, &header, none) != 0 ||
        setrlimit(RLIMIT_NOFILE, &limits) != 0) {
      abort();
    }
  }

 private:
  FileDescriptor from_;
  FileDescriptor to_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_DESCRIPTORS_IN_FLIGHT_H_
