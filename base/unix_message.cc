#include "base/unix_message.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "base/hold_forks.h"

namespace ringpipe {
namespace {

union ControlBuffer {
  char bytes[CMSG_SPACE(kMostMessageFiles * sizeof(int))];
  cmsghdr align;
};

// Returns how many there were. Those that do not fit are closed.
std::size_t TakeDescriptors(msghdr& header, std::span<FileDescriptor> files) {
  std::size_t used = 0;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(control) + i * sizeof fd, sizeof fd);
      FileDescriptor owned(fd);
      if (used < files.size()) {
        files[used++] = std::move(owned);
      }
    }
  }
  return used;
}

}  // namespace

bool SendMessage(int socket, std::string_view bytes,
                 std::span<const int> files) {
  iovec data = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  ControlBuffer control = {};
  const std::size_t count = std::min(files.size(), kMostMessageFiles);
  if (count > 0) {
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(rights), files.data(), count * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

ReceivedMessage ReceiveMessage(int socket, std::span<char> buffer,
                               std::span<FileDescriptor> files) {
  iovec data = {buffer.data(), buffer.size()};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  ControlBuffer control = {};
  if (!files.empty()) {
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
  }
  ReceivedMessage received;
  const HoldForks held;
  do {
    received.bytes = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received.bytes < 0 && errno == EINTR);
  if (received.bytes < 0) {
    return received;
  }
  received.files = TakeDescriptors(header, files);
  received.whole = (header.msg_flags & MSG_TRUNC) == 0;
  // The kernel drops those for which there is no room.
  received.lost_files = (header.msg_flags & MSG_CTRUNC) != 0;
  return received;
}

socklen_t AbstractAddress(std::string_view name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                name.size());
}

}  // namespace ringpipe
