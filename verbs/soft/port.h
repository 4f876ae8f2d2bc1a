#ifndef RINGPIPE_VERBS_SOFT_PORT_H_
#define RINGPIPE_VERBS_SOFT_PORT_H_

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/file_descriptor.h"
#include "base/name_filter.h"
#include "verbs/soft/options.h"

namespace ringpipe::verbs::soft {

// The one port of a context: its GID table holds the addresses of this network
// namespace's interfaces, IPv4 ones mapped into IPv6; loopback's only where
// there is no other, or where it is named among the interfaces that may be
// used. The LID is the low half of the first IPv4 address, so that
// hosts of one /16 network reach each other without a GRH. Thread-safe.
class Port {
 public:
  static constexpr int kGidEntries = 16;

  Port(LinkLayer link_layer, NameFilter interfaces);

  // A descriptor that becomes readable when addresses or links change; -1
  // where the kernel gives none.
  int fd() const { return netlink_.get(); }
  // Reads it and the addresses anew. Returns the port's events, oldest first:
  // IBV_EVENT_PORT_ERR, PORT_ACTIVE, GID_CHANGE, LID_CHANGE.
  std::vector<ibv_event_type> Refresh();

  ibv_port_attr attributes() const;
  struct Entry {
    ibv_gid gid = {};
    std::uint32_t interface = 0;  // its index; 0: the entry is empty
    bool up = false;
    bool operator==(const Entry& other) const;
  };
  // False where there is no entry of that index. It may be empty.
  bool QueryGid(int index, Entry* entry) const;

  // The address to which a path leads; nullopt if this port has no such path:
  // no GRH on Ethernet, no GID or an empty one, no host with such a LID.
  std::optional<ibv_gid> Destination(const ibv_ah_attr& path) const;
  // The address from which it comes.
  ibv_gid Source(const ibv_ah_attr& path) const;
  // Whether `address` is one of this network namespace's, in the table or not.
  bool IsLocal(const ibv_gid& address) const;

 private:
  // All under the mutex.
  void Read();
  std::uint16_t Lid() const;
  bool Active() const;

  const LinkLayer link_layer_;
  const NameFilter interfaces_;
  FileDescriptor netlink_;
  mutable std::mutex mutex_;
  std::array<Entry, kGidEntries> gids_;
  std::vector<ibv_gid> local_;
};

bool SameGid(const ibv_gid& left, const ibv_gid& right);
bool IsIpv4(const ibv_gid& gid);
bool IsLoopback(const ibv_gid& gid);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_PORT_H_
