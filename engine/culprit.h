// Whom an expired call has waited for in the end.
#ifndef RINGPIPE_ENGINE_CULPRIT_H_
#define RINGPIPE_ENGINE_CULPRIT_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/whereabouts.h"

namespace ringpipe {

// How long rank 0 may take to say where all ranks are; it waits 250 ms for
// them.
inline constexpr std::chrono::milliseconds kAnswerPatience(400);

// What a rank says to who asks where it is.
struct Answer {
  Whereabouts::Place place = Whereabouts::Place::kOutside;
  std::uint64_t calls = 0;
  std::chrono::milliseconds since{0};  // ago
  std::vector<int> waits_for;

  static Answer From(const Whereabouts& whereabouts);
  std::string Encode() const;
  // nullopt where `bytes` are no answer; "" is one of a rank that is silent.
  static std::optional<Answer> Decode(std::string_view bytes);
};

// Follows, from `asker`, which ranks wait for which, to one that does not wait:
// it is silent, destroys its communicator, has not made the call, or is at work
// in it; in this order where there are several. What is returned continues the
// sentence of an error: "; rank 5 does not answer ...".
std::string DescribeCulprit(const std::vector<std::optional<Answer>>& ranks,
                            int asker);

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_CULPRIT_H_
