// Connecting the queue pairs of an iWARP device, which rdma_cm must do: its
// connections are TCP connections, which ibv_modify_qp cannot make.
#ifndef RINGPIPE_VERBS_CONNECTION_MANAGER_H_
#define RINGPIPE_VERBS_CONNECTION_MANAGER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "verbs/ip_address.h"
#include "verbs/memory_region.h"
#include "verbs/queue_pair.h"
#include "verbs/rdmacm_library.h"

namespace ringpipe::verbs {

// Where a rank's device listens. Plain data, sent as it is between ranks of one
// version.
struct ConnectionManagerAddress {
  IpAddress ip;
  std::uint16_t port = 0;  // TCP, host byte order
  std::uint8_t reserved[6] = {};
  std::uint64_t token = 0;  // what tells a rank from a stranger

  // "192.168.77.1:4711".
  std::string Text() const;
};
static_assert(sizeof(ConnectionManagerAddress) == 32,
              "no padding, which would be sent too");

// One per iWARP device. It keeps the connections: destroyed before their queue
// pairs it puts those into ERR and closes their TCP connections. The destructor
// doesn't wait, with one exception: after a ConnectAll that gave up on a peer
// which listens but never looked, the kernel ends that handshake by its own
// timer (siw: 10 s), and whoever goes first, queue pair or manager, waits for
// it. One thread at a time.
class ConnectionManager {
 public:
  // One queue pair of the manager's protection domain, in INIT.
  struct Connection {
    QueuePair* queue_pair = nullptr;
    // Both ends use the same; no other connection to this peer does.
    std::uint32_t id = 0;
    int peer = -1;  // its rank, by which requests are matched; for messages too
    // True at exactly one end, which must be able to reach the other's address.
    bool active = false;
    ConnectionManagerAddress remote;
  };

  // The most entries of a queue pair's send queue that ConnectAll uses.
  static constexpr int kReadyWrites = 4;
  // The wr_id of those writes: one may fail together with the connection.
  static constexpr std::uint64_t kReadyWriteId = ~std::uint64_t{0};

  // Listens at `ip`, the address of the device's network interface, at a port
  // that the kernel chooses. kUnavailable without librdmacm or the kernel's
  // rdma_ucm, or where `ip` is not the device's; kInvalidArgument where the
  // device is not iWARP.
  static Result<std::unique_ptr<ConnectionManager>> Create(
      std::shared_ptr<ProtectionDomain> pd, const IpAddress& ip);
  // The same with a library of the caller's; for tests.
  static Result<std::unique_ptr<ConnectionManager>> Create(
      std::shared_ptr<const RdmacmLibrary> library,
      std::shared_ptr<ProtectionDomain> pd, const IpAddress& ip);
  ~ConnectionManager();
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  // What the peers need for their ConnectAll.
  ConnectionManagerAddress address() const { return address_; }

  // Connects all, active and passive at once. Ok: both ends of each are in RTS,
  // and either may send first. Once; both ends have to come within 10 s of each
  // other (a kernel's patience with a connection that nobody accepts).
  //
  // It posts up to kReadyWrites unsignaled writes of 8 bytes on each, by which
  // the ends learn of each other that they are ready (see connection_setup.h);
  // until a later, signaled send has completed they may count as outstanding.
  // Post the first receives before: an iWARP sender does not wait for them.
  //
  // What fails without harm to the queue pair is tried again until the
  // deadline. Otherwise the first failure ends it: kTimeout, kPeerLost,
  // kUnavailable (no route), kDeviceError, naming the peer, both addresses and
  // a likely cause; the queue pairs that are not connected are then in ERR.
  // kAborted as soon as `abort_fd` (-1: none) is readable.
  //
  // Linux's siw connects TCP within rdma_connect: a peer whose host answers ARP
  // but drops its SYN makes this call outlast the deadline by the kernel's
  // TCP timeout (net.ipv4.tcp_syn_retries).
  Status ConnectAll(int own_rank, std::span<const Connection> connections,
                    Deadline deadline, int abort_fd = -1);

  // Requests that were no peer's, or not expected; each was refused.
  int strangers() const { return strangers_; }

 private:
  ConnectionManager(std::shared_ptr<const RdmacmLibrary> library,
                    std::shared_ptr<ProtectionDomain> pd)
      : library_(std::move(library)), pd_(std::move(pd)) {}

  Status Listen(const IpAddress& ip);
  Status RegisterReadyWords(std::size_t connections);
  void StopListening();
  const Device& device() const { return *pd_->device(); }

  std::shared_ptr<const RdmacmLibrary> library_;
  std::shared_ptr<ProtectionDomain> pd_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  ConnectionManagerAddress address_;
  // See ConnectionSetup. Peers and the device may use them as long as the
  // connections live.
  std::vector<std::uint64_t> ready_words_;
  MemoryRegion ready_region_;
  std::vector<rdma_cm_id*> ids_;  // of the connections
  int strangers_ = 0;
  bool used_ = false;
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_CONNECTION_MANAGER_H_
