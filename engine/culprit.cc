#include "engine/culprit.h"

#include <algorithm>
#include <cstdio>
#include <deque>

#include "auth/byte_stream.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;
using Place = Whereabouts::Place;

constexpr std::uint64_t kLongestMs = 365ULL * 24 * 60 * 60 * 1000;

// From what explains most to what explains least.
enum class Kind { kSilent, kLeaving, kBehind, kAwaitsStream, kAtWork, kWaits };

std::string Seconds(milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s",
                static_cast<double>(time.count()) / 1000);
  return text;
}

// In words from the asker's point of view, which is in call number `calls`.
Kind KindOf(const std::optional<Answer>& answer, std::uint64_t calls) {
  if (!answer) {
    return Kind::kSilent;
  }
  switch (answer->place) {
    case Place::kLeaving:
      return Kind::kLeaving;
    case Place::kOutside:
      return answer->calls < calls ? Kind::kBehind : Kind::kWaits;
    case Place::kAwaitsStream:
      return answer->calls <= calls ? Kind::kAwaitsStream : Kind::kWaits;
    case Place::kInCall:
      break;
  }
  return answer->waits_for.empty() ? Kind::kAtWork : Kind::kWaits;
}

class Search {
 public:
  Search(const std::vector<std::optional<Answer>>& ranks, int asker)
      : ranks_(ranks), asker_(asker), from_(ranks.size(), -1) {
    from_[asker] = asker;
    if (!ranks[0]) {
      // Whoever else does not answer may not have been asked.
      Note(0, Kind::kSilent);
      return;
    }
    Follow();
    // Who waits for whom is not told in full, but all have been asked.
    for (std::size_t rank = 0; kind_ == Kind::kWaits && rank < ranks.size();
         ++rank) {
      const Kind kind = KindOf(ranks[rank], calls());
      if (kind < Kind::kAtWork) {
        Note(static_cast<int>(rank), kind);
      }
    }
  }

  std::string Describe() const {
    switch (kind_) {
      case Kind::kSilent:
        return "; " + Rank() + " does not answer" +
               (culprit_ == 0 ? " (and only rank 0 can ask the others)" : "") +
               Waited() +
               ": its process is stopped, or its host hangs or has too "
               "much to do" +
               Way();
      case Kind::kLeaving:
        return "; " + Rank() + " has been destroying its communicator for " +
               Seconds(ranks_[culprit_]->since) +
               " while others are in a call" + Way();
      case Kind::kBehind:
        return "; " + Rank() + " has not made this call: it has been outside " +
               "of calls for " + Seconds(ranks_[culprit_]->since) + Way();
      case Kind::kAwaitsStream:
        return "; " + Rank() + " has waited for " +
               Seconds(ranks_[culprit_]->since) +
               " for its stream to do what it was given before this call" +
               Way();
      case Kind::kAtWork:
        return "; " + Rank() + " has been at work in a call for " +
               Seconds(ranks_[culprit_]->since) + Way();
      case Kind::kWaits:
        break;
    }
    return "; no rank is silent or behind";
  }

 private:
  std::uint64_t calls() const {
    return ranks_[asker_] ? ranks_[asker_]->calls : 0;
  }
  void Follow() {
    std::deque<int> next = {asker_};
    for (; !next.empty(); next.pop_front()) {
      for (const int rank : WaitsOf(next.front())) {
        if (from_[rank] < 0) {
          from_[rank] = next.front();
          Note(rank, KindOf(ranks_[rank], calls()));
          next.push_back(rank);
        }
      }
    }
  }
  // Those that there are: a rank of another version may say anything.
  std::vector<int> WaitsOf(int rank) const {
    std::vector<int> waits;
    if (ranks_[rank]) {
      for (const int other : ranks_[rank]->waits_for) {
        if (other >= 0 && static_cast<std::size_t>(other) < ranks_.size()) {
          waits.push_back(other);
        }
      }
    }
    return waits;
  }
  // Of several of a kind, the nearest.
  void Note(int rank, Kind kind) {
    if (kind < kind_) {
      kind_ = kind;
      culprit_ = rank;
    }
  }
  std::string Rank() const { return "rank " + std::to_string(culprit_); }
  // How long others have waited for it.
  std::string Waited() const {
    milliseconds longest(0);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::vector<int> waits = WaitsOf(static_cast<int>(rank));
      if (std::find(waits.begin(), waits.end(), culprit_) != waits.end()) {
        longest = std::max(longest, ranks_[rank]->since);
      }
    }
    return longest > milliseconds(0)
               ? ", and others have waited for it for " + Seconds(longest)
               : "";
  }
  // By which ranks it was found.
  std::string Way() const {
    std::string way;
    for (int rank = from_[culprit_]; rank >= 0 && rank != asker_;
         rank = from_[rank]) {
      way = (way.empty() ? "" : ", which waits for ") + way;
      way = "rank " + std::to_string(rank) + way;
    }
    return way.empty() ? "" : " (found by way of " + way + ")";
  }

  const std::vector<std::optional<Answer>>& ranks_;
  const int asker_;
  std::vector<int> from_;  // who waits for a rank, on the way to it; -1: nobody
  Kind kind_ = Kind::kWaits;
  int culprit_ = 0;
};

}  // namespace

Answer Answer::From(const Whereabouts& whereabouts) {
  Answer answer;
  answer.place = whereabouts.place;
  answer.calls = whereabouts.calls;
  answer.since = std::chrono::duration_cast<milliseconds>(Clock::now() -
                                                          whereabouts.since);
  answer.waits_for.assign(
      whereabouts.waits_for.begin(),
      whereabouts.waits_for.begin() + whereabouts.waits_for_count);
  return answer;
}

std::string Answer::Encode() const {
  ByteWriter writer;
  writer.U8(static_cast<std::uint8_t>(place));
  writer.U64(calls);
  writer.U64(static_cast<std::uint64_t>(since.count()));
  writer.U8(static_cast<std::uint8_t>(waits_for.size()));
  for (const int rank : waits_for) {
    writer.U32(static_cast<std::uint32_t>(rank));
  }
  return writer.Take();
}

std::optional<Answer> Answer::Decode(std::string_view bytes) {
  ByteReader reader(bytes);
  Answer answer;
  const std::uint8_t place = reader.U8();
  answer.calls = reader.U64();
  answer.since = milliseconds(std::min(reader.U64(), kLongestMs));
  for (std::uint8_t left = reader.U8(); left > 0 && reader.ok(); --left) {
    answer.waits_for.push_back(static_cast<int>(reader.U32()));
  }
  if (!reader.finished() ||
      place > static_cast<std::uint8_t>(Place::kAwaitsStream)) {
    return std::nullopt;
  }
  answer.place = static_cast<Place>(place);
  return answer;
}

std::string DescribeCulprit(const std::vector<std::optional<Answer>>& ranks,
                            int asker) {
  return Search(ranks, asker).Describe();
}

}  // namespace ringpipe
