#ifndef RINGPIPE_PIPELINE_CALL_CHECK_H_
#define RINGPIPE_PIPELINE_CALL_CHECK_H_

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace ringpipe {

// The identity of a collective call. All ranks must have the same one for the
// same sequence number. Plain data between ranks of one version.
struct Digest {
  std::uint64_t sequence = 0;  // calls on this communicator, from 0
  std::uint64_t count = 0;     // elements, as the caller gave them
  // Of counts that are not the same for all ranks: a hash, and `count` is their
  // sum. 0: there are none.
  static constexpr std::uint64_t kOfPairs = 1;  // each pair has its own
  std::uint64_t counts = 0;
  std::uint16_t collective = 0;
  std::uint16_t algorithm = 0;
  std::uint16_t type = 0;
  std::uint16_t op = 0;
  std::uint32_t subchunk_elements = 0;
  std::uint16_t root = 0;
  std::uint16_t depth = 0;
  // By what the result is multiplied: its bits that are not those of 1.
  std::uint64_t postscale = 0;

  static std::uint64_t BitsOf(double scale) {
    return std::bit_cast<std::uint64_t>(scale) ^
           std::bit_cast<std::uint64_t>(1.0);
  }
  double Postscale() const {
    return std::bit_cast<double>(postscale ^ std::bit_cast<std::uint64_t>(1.0));
  }

  bool operator==(const Digest&) const = default;
};

// Whether two ranks make the same calls. Each connection compares what its peer
// says with what this rank has begun. One thread at a time.
class CallCheck {
 public:
  // A digest in words, for the message of a mismatch.
  using Describe = std::string (*)(const Digest&);

  CallCheck(int rank, Describe describe) : rank_(rank), describe_(describe) {}

  // This rank begins a call.
  void Begin(const Digest& digest) {
    last_[digest.sequence % last_.size()] = digest;
    begun_ = digest.sequence + 1;
    word_ = WordOf(digest);
  }
  // The call that it has begun last.
  const Digest& running() const { return last_[(begun_ - 1) % last_.size()]; }
  // Of that call: another one than other calls have, but for chance. A peer
  // that says the same makes the same call, and need not be compared.
  std::uint64_t word() const { return word_; }

  // What the peer's call is to this rank.
  enum class When { kPast, kNow, kLater };
  // kMismatch, with both calls, where the peer makes another one than this rank
  // at the same number. A later call than this rank's is not compared: the
  // connection keeps what came with it until then.
  Result<When> Compare(int peer, const Digest& digest) const;

 private:
  static std::uint64_t WordOf(const Digest& digest);

  const int rank_;
  const Describe describe_;
  std::uint64_t begun_ = 0;
  std::uint64_t word_ = 0;
  // By sequence modulo their number: a peer that disagrees may be behind.
  std::array<Digest, 64> last_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_CALL_CHECK_H_
