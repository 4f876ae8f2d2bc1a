#include "verbs/soft/link_message.h"

#include <errno.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "auth/mac.h"
#include "base/unix_message.h"

namespace ringpipe::verbs::soft {
namespace {

socklen_t NamedAddress(const char* kind, const Options& options,
                       std::uint32_t block, sockaddr_un* address) {
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
                kMostAbstractNameBytes);
  return AbstractAddress(name, address);
}

}  // namespace

bool SendLinkMessage(int socket, const LinkMessage& message,
                     std::initializer_list<int> files) {
  int fds[kMaxLinkFiles];
  const auto count = static_cast<std::size_t>(
      std::copy_if(files.begin(), files.end(), fds,
                   [](int file) { return file >= 0; }) -
      fds);
  return SendMessage(socket,
                     {reinterpret_cast<const char*>(&message), sizeof message},
                     {fds, count});
}

Received ReceiveLinkMessage(int socket, LinkMessage* message,
                            LinkFiles* files) {
  const ReceivedMessage received = ReceiveMessage(
      socket, {reinterpret_cast<char*>(message), sizeof *message}, *files);
  if (received.bytes < 0) {
    return errno == EAGAIN ? Received::kNothing : Received::kClosed;
  }
  if (received.files < kMaxLinkFiles && received.lost_files) {
    return Received::kNoDescriptors;
  }
  const bool whole =
      received.whole && received.bytes == static_cast<long>(sizeof *message);
  return whole && message->magic == LinkMessage::kMagic ? Received::kMessage
                                                        : Received::kClosed;
}

socklen_t ContextAddress(const Options& options, std::uint32_t block,
                         sockaddr_un* address) {
  return NamedAddress("context", options, block, address);
}

socklen_t DatagramAddress(const Options& options, std::uint32_t block,
                          sockaddr_un* address) {
  return NamedAddress("datagrams", options, block, address);
}

}  // namespace ringpipe::verbs::soft
