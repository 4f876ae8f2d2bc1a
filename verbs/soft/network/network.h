#ifndef RINGPIPE_VERBS_SOFT_NETWORK_H_
#define RINGPIPE_VERBS_SOFT_NETWORK_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/status.h"
#include "verbs/soft/network/remote_peer.h"
#include "verbs/soft/options.h"
#include "verbs/soft/port.h"

namespace ringpipe::verbs::soft {

class Context;
class NetworkLoop;

// A context's connections to other hosts, over TCP. A queue pair's number says
// at which port its context listens: (GID, QPN) is all that a peer must know.
//
//   port = first port of RINGPIPE_SOFT_PORTS + block of the QPN
//
// Costs nothing but the listening sockets until the first connection; then
// there is a thread. Thread-safe.
class Network {
 public:
  Network(Context* context, const Options& options, const Port* port,
          const Logger& logger);
  ~Network();  // Stop first
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Blocks below this have a port.
  std::uint32_t blocks() const;
  // Listens at the block's port; false with EADDRINUSE: somebody else has that
  // block. Only where the options have a key: on the addresses of the
  // interfaces where they admit other hosts, on loopback where they have a host
  // id. A host where nobody may listen has its queue pairs to itself; that is
  // no error.
  bool Listen(std::uint32_t block);
  // Whoever waits for something anyway waits for these to be readable, and then
  // says so: once.
  const std::vector<FileDescriptor>& listeners() const { return listeners_; }
  bool IsListener(int fd) const;
  // False where there is no thread to accept it.
  bool OnListenerReadable();

  // Whether queue pairs may be connected to that host; if not, an errno, and
  // the reason in the log: EACCES where no secret is set.
  int Check(const ibv_gid& peer) const;
  // Whether contexts of this host may be reached as if they were of another:
  // because host ids say so, or network namespaces have one address in common.
  bool ReachesThisHost() const;

  // Sees to it that `peer`, of the queue pair of index `qp_index`, gets a
  // connection, and a new one if that is lost, for as long as it exists.
  // 0, or an errno where there is no thread to do it.
  int Connect(const std::shared_ptr<RemotePeer>& peer, std::uint32_t qp_index);

  // Ends the thread. No RemotePeer may have a connection any more.
  void Stop();

  // For its own parts.
  void LogDebug(const std::string& line) const { logger_.Debug(line); }
  void LogWarning(const std::string& line) const { logger_.Warning(line); }
  // A connection that was no peer's: counted, and logged for the first times.
  void OnStranger(const Status& reason);
  const std::string& key() const { return options_.key; }
  std::uint16_t PortOf(std::uint32_t qpn) const;
  // For messages: "10.77.0.2:16391", where the queue pair's context listens;
  // "16384 to 32767 (RINGPIPE_SOFT_PORTS)"; "15 s (RINGPIPE_TCP_TIMEOUT_MS)".
  std::string Place(const QueuePairAddress& address) const;
  std::string PortsText() const;
  std::string TcpTimeoutText() const;
  bool IsLocal(const ibv_gid& gid) const { return port_->IsLocal(gid); }

 private:
  // The loop, which begins to run now if it has not; nullptr: it cannot.
  NetworkLoop* Loop();  // nullptr with errno
  // False where the address is in use.
  bool Keep(FileDescriptor listener);

  Context* const context_;
  const Options options_;
  const Port* const port_;
  const Logger logger_;
  std::vector<FileDescriptor> listeners_;
  std::atomic<int> strangers_{0};
  std::mutex mutex_;
  bool start_failed_ = false;
  std::unique_ptr<NetworkLoop> loop_;
  bool stopped_ = false;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_NETWORK_H_
