// Messages on unix sockets that carry file descriptors. Neither call blocks,
// whatever the socket.
#ifndef RINGPIPE_BASE_UNIX_MESSAGE_H_
#define RINGPIPE_BASE_UNIX_MESSAGE_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "base/file_descriptor.h"

namespace ringpipe {

inline constexpr std::size_t kMostMessageFiles = 3;

// False, with errno, where the message could not be sent whole: the peer is
// gone or does not read; or, where `files` go with it, ETOOMANYREFS: as many
// descriptors of this user's are sent and not received as this process may have
// open, and it is not root's. `files`: at most kMostMessageFiles.
bool SendMessage(int socket, std::string_view bytes,
                 std::span<const int> files = {});

struct ReceivedMessage {
  long bytes = -1;  // -1: none, with errno
  bool whole = false;
  std::size_t files = 0;
  // Files came for which there was no room: in the span, where too many were
  // sent, or in this process.
  bool lost_files = false;
};

// Takes one message into `buffer`, and the descriptors that came with it, in
// the order in which they were sent, into `files`, at most kMostMessageFiles.
// Where `files` is empty, none are taken: a stranger's never become this
// process's.
ReceivedMessage ReceiveMessage(int socket, std::span<char> buffer,
                               std::span<FileDescriptor> files = {});

// The address of the abstract socket `name`, which must be shorter than
// sun_path. Such a name lasts as long as a socket is bound to it, and a network
// namespace has its own.
socklen_t AbstractAddress(std::string_view name, sockaddr_un* address);
inline constexpr std::size_t kMostAbstractNameBytes =
    sizeof(sockaddr_un::sun_path) - 1;

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_UNIX_MESSAGE_H_
