// What the ranks say to each other over the star's connections, once these are
// authenticated.
//
// The encoding of AbortNotice never changes: it must reach ranks of another
// version.
#ifndef RINGPIPE_BOOTSTRAP_MESSAGE_H_
#define RINGPIPE_BOOTSTRAP_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "auth/mac.h"
#include "base/status.h"

namespace ringpipe {

// Ranks of different versions do not join.
inline constexpr uint32_t kBootstrapVersion = 4;

inline constexpr size_t kMostBlobBytes = 1 << 20;
inline constexpr size_t kMostReplyBytes = 256;
// GatheredBlobs takes blobs until it has this many bytes; so one message has at
// most this, one blob more, and the fields before them.
inline constexpr size_t kBlobBatchBytes = 64 << 10;
inline constexpr size_t kMostMessageBytes =
    kMostBlobBytes + kBlobBatchBytes + 1024;

// Which process a rank is.
struct Identity {
  uint32_t pid = 0;
  std::string host;
  Nonce nonce{};             // drawn for this join
  std::string contact = "";  // where the rank below connects to (chain.h)

  // "pid 1234 on host x".
  std::string ToString() const;
  // The form in which the join gathers it as a blob.
  std::string Encode() const;
  static Result<Identity> Decode(std::string_view bytes);
};

// The collective that a Contribution belongs to.
enum class Gathering : uint8_t {
  kJoin = 0,
  kAllGather = 1,
  kBarrier = 2,
  kLeave = 3,
};

// "join", "all-gather", "barrier", "leave".
const char* GatheringName(Gathering gathering);

// To rank 0, first of all.
struct JoinRequest {
  uint32_t rank = 0;
  uint32_t size = 0;
  int64_t left_ms = -1;  // until this rank gives up; -1: never
  Identity identity;
};

// To rank 0: this rank has reached collective `sequence`.
struct Contribution {
  uint64_t sequence = 0;
  Gathering gathering = Gathering::kBarrier;
  int64_t left_ms = -1;  // as above
  std::string blob;
};

// From rank 0: the contributions of the ranks from `first_rank` on. A result
// comes as as many of these as it needs, in the order of ranks.
struct GatheredBlobs {
  uint64_t sequence = 0;
  uint32_t first_rank = 0;
  std::vector<std::string> blobs;

  // Gives the blobs of all ranks, by rank, to `send`, in messages that are not
  // too long.
  static void InMessages(uint64_t sequence,
                         const std::vector<std::string>& blobs,
                         const std::function<void(const GatheredBlobs&)>& send);
};

// To and from rank 0: the job has failed.
struct AbortNotice {
  Status reason;
};

// To rank 0 and to neighbours: the sender leaves; from rank 0: that rank has
// left.
struct Departure {
  static constexpr uint64_t kInOrder = std::numeric_limits<uint64_t>::max();
  uint32_t rank = 0;
  // Where it does not leave together with the others: how many calls (of the
  // bootstrap's user) it has ended.
  uint64_t calls = kInOrder;
  // Whether its process goes on.
  bool lives_on = false;
};

// To rank 0, and from there to all: what do you say? (Bootstrap::AskAll)
struct Question {};

// To rank 0.
struct Reply {
  std::string text;
};

// From rank 0 to who asked: what the ranks from `first_rank` on say, "" from
// who was silent. As many of these as it needs, in the order of ranks.
struct Replies {
  uint32_t first_rank = 0;
  std::vector<std::string> texts;

  static constexpr size_t kMostTexts = 256;
  // What all ranks say, by rank, in messages of at most kMostTexts.
  static std::vector<Replies> InMessages(const std::vector<std::string>& texts);
};

using Message = std::variant<JoinRequest, Contribution, GatheredBlobs,
                             AbortNotice, Departure, Question, Reply, Replies>;

std::string EncodeMessage(const Message& message);

// kInvalidArgument where `bytes` are no message: every field is checked against
// its limit and against the bytes that are there. Ranks and sequence numbers
// are not checked against the job.
Result<Message> DecodeMessage(std::string_view bytes);

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_MESSAGE_H_
