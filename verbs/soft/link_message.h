// What a requester's context and a responder's context say to each other on
// their unix socket (SOCK_SEQPACKET): one of these at a time.
#ifndef RINGPIPE_VERBS_SOFT_LINK_MESSAGE_H_
#define RINGPIPE_VERBS_SOFT_LINK_MESSAGE_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/file_descriptor.h"
#include "base/unix_message.h"
#include "verbs/soft/options.h"

namespace ringpipe::verbs::soft {

struct LinkMessage {
  static constexpr std::uint32_t kMagic = 0x72706c32;  // version 2

  enum Kind : std::uint32_t {
    kAttach = 1,    // requester: I am connected to this queue pair of yours
    kAttached = 2,  // responder: with my segment's files, and the CQ's channel
    kNoSuchQueuePair = 3,
    kRing = 4,  // either: look at the segment
  };

  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint32_t requester_qpn = 0;
  std::uint32_t responder_qpn = 0;
  std::uint32_t incarnation = 0;
  // Names the completion channel within the responder's context; 0: none.
  std::uint32_t channel = 0;
  // kAttach: whether the segment is still needed; kAttached: whether it is
  // here.
  std::uint32_t segment = 0;
};

// Descriptors that go with a message, each if it is there, in this order: the
// segment's OwnedLayout and SharedLayout, the channel.
inline constexpr std::size_t kMaxLinkFiles = kMostMessageFiles;
using LinkFiles = std::array<FileDescriptor, kMaxLinkFiles>;

// Sends without blocking, with up to kMaxLinkFiles descriptors; -1s are left
// out. False if the peer is gone or does not read.
bool SendLinkMessage(int socket, const LinkMessage& message,
                     std::initializer_list<int> files = {});

enum class Received {
  kMessage,
  kNothing,
  kClosed,
  kNoDescriptors,  // this process has no room for those that came with it
};

// Takes one message without blocking. kClosed also for what is not a message.
// The descriptors are in the order in which they were sent.
Received ReceiveLinkMessage(int socket, LinkMessage* message, LinkFiles* files);

// The abstract socket at which the context of `block` listens, among those who
// have the same key and host id. Who does not have the key cannot take the name
// in advance. Names last as long as a socket is bound to them, and a network
// namespace has its own. 0 where OpenSSL makes no name.
socklen_t ContextAddress(const Options& options, std::uint32_t block,
                         sockaddr_un* address);

// Likewise the socket of its UD queue pairs.
socklen_t DatagramAddress(const Options& options, std::uint32_t block,
                          sockaddr_un* address);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_LINK_MESSAGE_H_
