// Sockets for the star: close-on-exec, never raising SIGPIPE, the same code for
// TCP and unix.
#ifndef RINGPIPE_BOOTSTRAP_ENDPOINT_H_
#define RINGPIPE_BOOTSTRAP_ENDPOINT_H_

#include <boost/asio/generic/stream_protocol.hpp>
#include <cstdint>
#include <string>
#include <utility>  // before Asio: Boost 1.74 needs it there
#include <vector>

#include "base/file_descriptor.h"
#include "base/name_filter.h"
#include "base/status.h"

namespace ringpipe {

using Endpoint = boost::asio::generic::stream_protocol::endpoint;

// An abstract unix socket's; the name has at most 107 bytes.
Endpoint UnixEndpoint(const std::string& name);

// The addresses at which rank 0 listens for other hosts: any, or those of the
// interfaces that `interfaces` admits (RINGPIPE_SOCKET_IFNAME) and, for ranks
// on its own host, loopback's. Some may not exist.
std::vector<Endpoint> ListeningEndpoints(const NameFilter& interfaces,
                                         uint16_t port);

// This end of a connection, or where a socket listens.
Endpoint OwnSide(int fd);

// Whether only this machine's processes can reach it.
bool IsLocal(const Endpoint& endpoint);

// Sockets for Asio to own. Non-blocking.
//
// kInvalidArgument: not an address of this host; kUnavailable: in use;
// kPermissionDenied: a port of root's; kResourceExhausted: no descriptors.
Result<FileDescriptor> OpenListening(const Endpoint& endpoint);
// Beyond this host it connects from an address of an interface that
// `interfaces` admits (RINGPIPE_SOCKET_IFNAME), unless that admits all;
// kUnavailable where none has an address of the endpoint's family.
Result<FileDescriptor> OpenConnecting(const Endpoint& endpoint,
                                      const NameFilter& interfaces);
// None, with errno set, where there is nothing to accept.
FileDescriptor AcceptFrom(int listening_fd);

// Whether TCP has connected the socket to itself: so it may where nobody
// listens at a port that the kernel also gives to those who connect. Where it
// has, the port is free again as soon as the socket is closed.
bool IsConnectedToItself(int connected_fd);

// Lets the kernel find out that the peer's host is gone: within about 20 s. A
// process that is stopped still acknowledges, by its kernel, and is not taken
// for lost.
void DetectDeadHost(int connected_fd);

// As CheckLocalPeer (auth/local_peer.h); ok for TCP, which cannot tell.
Status CheckPeer(int connected_fd);

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_ENDPOINT_H_
