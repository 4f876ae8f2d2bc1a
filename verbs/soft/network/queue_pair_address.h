#ifndef RINGPIPE_VERBS_SOFT_QUEUE_PAIR_ADDRESS_H_
#define RINGPIPE_VERBS_SOFT_QUEUE_PAIR_ADDRESS_H_

#include <infiniband/verbs.h>
#include <string.h>

#include <cstdint>

namespace ringpipe::verbs::soft {

// Where a queue pair is in the world: which host, which of its queue pairs.
struct QueuePairAddress {
  ibv_gid gid = {};
  std::uint32_t qpn = 0;

  bool operator==(const QueuePairAddress& other) const {
    return Compare(other) == 0;
  }
  // Of two that are connected, the lesser one opens the TCP connection.
  bool operator<(const QueuePairAddress& other) const {
    return Compare(other) < 0;
  }

 private:
  int Compare(const QueuePairAddress& other) const {
    const int gids = memcmp(gid.raw, other.gid.raw, sizeof gid.raw);
    return gids != 0 ? gids : (qpn > other.qpn ? 1 : 0) - (qpn < other.qpn);
  }
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_QUEUE_PAIR_ADDRESS_H_
