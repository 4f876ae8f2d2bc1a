#ifndef RINGPIPE_PIPELINE_ABILITIES_H_
#define RINGPIPE_PIPELINE_ABILITIES_H_

#include <cstdint>

namespace ringpipe {

// What a connection can do, the same at both ends. Plans are compiled against
// it, peer by peer.
struct Abilities {
  // A message arrives in the sender's memory, and the receiver reads it there;
  // the source is not free before that.
  bool reads_peer = false;
  // A message can arrive in the user's memory, where the connection reaches it.
  bool writes_peer = false;
  // It reaches memory that ranks share, not that which is registered.
  bool shares_memory = false;
  // The largest message that may be eager: it needs no receive, and its source
  // neither a slot nor registration.
  std::uint32_t eager_bytes = 0;
  // All peers of the same rank must get the same eager message.
  bool eager_to_all = false;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_ABILITIES_H_
