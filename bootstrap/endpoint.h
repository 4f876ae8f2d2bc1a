// Sockets for the star: close-on-exec, never raising SIGPIPE, the same code for
// TCP and unix.
#ifndef RINGPIPE_BOOTSTRAP_ENDPOINT_H_
#define RINGPIPE_BOOTSTRAP_ENDPOINT_H_

#include <boost/asio/generic/stream_protocol.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
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
// on its own host, loopback's. Some may not exist. kUnavailable: the system
// does not say which addresses there are.
Result<std::vector<Endpoint>> ListeningEndpoints(const NameFilter& interfaces,
                                                 uint16_t port);

// The addresses, as text, at which others reach sockets that listen at
// `listening`: of one that listens at any address, all of the interfaces that
// `interfaces` admits. No link-local ones, which would need to say on which
// link. Where no other host can reach them, loopback's. kUnavailable as
// ListeningEndpoints.
Result<std::vector<std::string>> AddressesOf(
    const std::vector<Endpoint>& listening, const NameFilter& interfaces);

// A way to connect to an endpoint.
struct Route {
  Endpoint there;
  std::optional<Endpoint> source;  // of this host; none: the kernel chooses
};

// The ways to these endpoints, in the order in which to try them. Beyond this
// host a connection comes from an address of an interface that `interfaces`
// admits, unless that admits all: from the one that the kernel's own route to
// the endpoint has, or, if that may not be used, from each of the others.
// kUnavailable if there is no way; the message says which addresses there are.
Result<std::vector<Route>> RoutesTo(const std::vector<Endpoint>& endpoints,
                                    const NameFilter& interfaces);

// kUnavailable: no interface that may be used has an address that is not
// loopback's; the message says which addresses there are.
Status NoAddressForOthers();

// "eth0 10.0.0.1, lo 127.0.0.1": the addresses of this host; 8 at most.
std::string DescribeOwnAddresses();

// This end of a connection, or where a socket listens.
Endpoint OwnSide(int fd);
// The same, where it matters: the status of getsockname.
Result<Endpoint> FindOwnSide(int fd);

// Whether only this machine's processes can reach it. The address decides, not
// its interface: what a routing daemon announces may be an address of `lo`.
bool IsLocal(const Endpoint& endpoint);

// Whether only hosts of one link can reach it, who know the link.
bool IsLinkLocal(const Endpoint& endpoint);

// Whether it is an address of this host.
bool IsOwn(const Endpoint& endpoint);

// "10.0.0.1", without the port; "" for a unix socket.
std::string AddressOf(const Endpoint& endpoint);

// "10.0.0.1:29500", "unix:@NAME".
std::string ToString(const Endpoint& endpoint);

// Sockets for Asio to own. Non-blocking.
//
// kInvalidArgument: not an address of this host; kUnavailable: in use;
// kPermissionDenied: a port of root's; kResourceExhausted: no descriptors.
Result<FileDescriptor> OpenListening(const Endpoint& endpoint);
// kUnavailable: this host has no longer the address of `route`'s source.
Result<FileDescriptor> OpenConnecting(const Route& route);
// None, with errno set, where there is nothing to accept.
FileDescriptor AcceptFrom(int listening_fd);

// Whether TCP has connected the socket to itself: so it may where nobody
// listens at a port that the kernel also gives to those who connect. Where it
// has, the port is free again as soon as the socket is closed.
bool IsConnectedToItself(int connected_fd);

// Lets the kernel find out that the peer's host is gone: it has acknowledged
// nothing for `timeout`. A process that is stopped still acknowledges, by its
// kernel, and is not taken for lost.
void DetectDeadHost(int connected_fd, std::chrono::milliseconds timeout);

// Why a connection along `route` could not be made, for errno value `error`.
// ETIMEDOUT: nothing came back.
std::string DescribeConnectFailure(const Route& route, int error);

// As CheckLocalPeer (auth/local_peer.h), for jobs without a secret: the message
// says what a secret changes. Ok for TCP, which cannot tell.
Status CheckPeer(int connected_fd);

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_ENDPOINT_H_
