#ifndef RINGPIPE_VERBS_SOFT_PACKET_CHANNEL_H_
#define RINGPIPE_VERBS_SOFT_PACKET_CHANNEL_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <vector>

namespace ringpipe::verbs::soft {

// A stream of bytes to a peer, as a RemotePeer writes to it; the calls are made
// under its queue pair's mutex, and none blocks.
class PacketChannel {
 public:
  virtual ~PacketChannel() = default;

  // How many bytes were taken; 0: none for now; -1: none can be. Where the
  // connection has ended that is 0: what the peer said before is still to be
  // read.
  virtual ssize_t Send(const iovec* ranges, int count) = 0;
  // As UnacknowledgedFor of base/tcp_timeout.h.
  virtual std::chrono::milliseconds UnacknowledgedFor() const = 0;
  // Has RemotePeer::OnWritable called when Send may take more.
  virtual void NotifyWhenWritable() = 0;
  // The last call. Sends `rest`, and lets the peer have all that was sent
  // before it finds the connection closed. What still comes is thrown away.
  virtual void Finish(std::vector<std::byte> rest) = 0;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_PACKET_CHANNEL_H_
