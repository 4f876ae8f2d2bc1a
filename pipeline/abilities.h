#ifndef RINGPIPE_PIPELINE_ABILITIES_H_
#define RINGPIPE_PIPELINE_ABILITIES_H_

#include <compare>
#include <cstdint>

namespace ringpipe {

// Whose memory a buffer is: the host's, a device's, or, of a list, some pieces
// one's and some the other's. Each touches its own memory and slots, and reads
// what lies at a peer (a device: where that is a slot).
enum class Owner : std::uint8_t { kHost, kDevice, kBoth };

// What a connection can do, the same at both ends. Plans are compiled against
// it, peer by peer.
struct Abilities {
  // A message arrives in the sender's memory, and the receiver reads it there;
  // the source is not free before that.
  bool reads_peer = false;
  // In how many pieces the source of a message may lie, unless it is eager.
  std::uint32_t pieces = 1;
  // The largest message that may be eager: it needs no receive, and its source
  // neither a slot nor registration.
  std::uint32_t eager_bytes = 0;
  // All peers of the same rank must get the same eager message.
  bool eager_to_all = false;
};

// What a connection can do with a piece of the user's memory. Each rank has its
// own: peers need not know it.
struct Reach {
  // Whether a message may be sent from it.
  enum class Sends : std::uint8_t { kNo, kAfterRegistering, kAtOnce };
  Sends sends = Sends::kNo;
  // Whether a message may arrive in it.
  bool receives = false;

  auto operator<=>(const Reach&) const = default;
};

inline constexpr Reach kReached = {Reach::Sends::kAtOnce, true};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_ABILITIES_H_
