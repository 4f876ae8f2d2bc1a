#include "verbs/soft/link_message.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "auth/mac.h"

namespace ringpipe::verbs::soft {
namespace {

union ControlBuffer {
  char bytes[CMSG_SPACE(kMaxLinkFiles * sizeof(int))];
  cmsghdr align;
};

// Returns how many there were.
std::size_t TakeDescriptors(msghdr& header, LinkFiles* files) {
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
      if (used < kMaxLinkFiles) {
        (*files)[used++] = std::move(owned);
      }
    }
  }
  return used;
}

socklen_t AbstractAddress(const char* kind, const Options& options,
                          std::uint32_t block, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const Result<Mac> mac =
      ComputeMac(options.key, {"name of a software device", kind,
                               std::to_string(block), "/", options.host_id});
  if (!mac.ok()) {
    return 0;  // no address, which is what bind and connect then say
  }
  std::string name = "ringpipe-soft/";
  constexpr std::size_t kNameBytes = 16;  // enough that nobody guesses them
  for (std::size_t i = 0; i < kNameBytes; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(mac.value()[i]);
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  static_assert(sizeof "ringpipe-soft/" + 2 * kNameBytes <
                sizeof address->sun_path);
  memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                name.size());
}

}  // namespace

bool SendLinkMessage(int socket, const LinkMessage& message,
                     std::initializer_list<int> files) {
  iovec data = {const_cast<LinkMessage*>(&message), sizeof message};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  int fds[kMaxLinkFiles];
  const auto count = static_cast<std::size_t>(
      std::copy_if(files.begin(), files.end(), fds,
                   [](int file) { return file >= 0; }) -
      fds);
  ControlBuffer control = {};
  if (count > 0) {
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof message);
}

Received ReceiveLinkMessage(int socket, LinkMessage* message,
                            LinkFiles* files) {
  iovec data = {message, sizeof *message};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  ControlBuffer control = {};
  header.msg_control = control.bytes;
  header.msg_controllen = sizeof control.bytes;
  ssize_t got;
  do {
    got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    return errno == EAGAIN ? Received::kNothing : Received::kClosed;
  }
  // The kernel drops those for which there is no room: in the buffer, where too
  // many were sent, or in this process.
  if (TakeDescriptors(header, files) < kMaxLinkFiles &&
      (header.msg_flags & MSG_CTRUNC) != 0) {
    return Received::kNoDescriptors;
  }
  const bool whole = got == static_cast<ssize_t>(sizeof *message) &&
                     (header.msg_flags & MSG_TRUNC) == 0;
  return whole && message->magic == LinkMessage::kMagic ? Received::kMessage
                                                        : Received::kClosed;
}

socklen_t ContextAddress(const Options& options, std::uint32_t block,
                         sockaddr_un* address) {
  return AbstractAddress("context", options, block, address);
}

socklen_t DatagramAddress(const Options& options, std::uint32_t block,
                          sockaddr_un* address) {
  return AbstractAddress("datagrams", options, block, address);
}

}  // namespace ringpipe::verbs::soft
