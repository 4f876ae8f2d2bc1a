#include "pipeline/call_check.h"

#include <cstring>
#include <utility>

namespace ringpipe {
namespace {

// "count and type": of two calls.
std::string Differences(const Digest& a, const Digest& b) {
  std::string names;
  for (const auto& [differs, name] :
       {std::pair(a.collective != b.collective, "collective"),
        std::pair(a.count != b.count, "count"),
        std::pair(a.counts != b.counts, "counts by rank"),
        std::pair(a.type != b.type, "type"),
        std::pair(a.op != b.op, "operation"),
        std::pair(a.root != b.root, "root"),
        std::pair(a.postscale != b.postscale, "postscale"),
        std::pair(a.algorithm != b.algorithm, "algorithm"),
        std::pair(a.subchunk_elements != b.subchunk_elements, "sub-chunks"),
        std::pair(a.depth != b.depth, "depth")}) {
    if (differs) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
  }
  return names;
}

}  // namespace

std::uint64_t CallCheck::WordOf(const Digest& digest) {
  std::array<std::uint64_t, sizeof digest / sizeof(std::uint64_t)> words;
  static_assert(sizeof words == sizeof digest);
  std::memcpy(words.data(), &digest, sizeof digest);
  // By different odd factors: calls that differ in one word never have the
  // same. No multiplication waits for another one of a word.
  std::uint64_t result = 0;
  std::uint64_t factor = 1;
  for (const std::uint64_t word : words) {
    factor *= 0x9e3779b97f4a7c15;  // 2^64 / phi
    result += word * factor;
  }
  return result;
}

Result<CallCheck::When> CallCheck::Compare(int peer,
                                           const Digest& digest) const {
  if (digest.sequence >= begun_) {
    return When::kLater;
  }
  const std::uint64_t now = begun_ - 1;
  if (now - digest.sequence >= last_.size()) {
    return Status(
        StatusCode::kMismatch,
        "rank " + std::to_string(peer) + " called " + describe_(digest) +
            " as collective call number " + std::to_string(digest.sequence) +
            ", and rank " + std::to_string(rank_) + " is at number " +
            std::to_string(now) + " already: it called something else there");
  }
  const Digest& own = last_[digest.sequence % last_.size()];
  if (digest != own) {
    return Status(StatusCode::kMismatch,
                  "collective call number " + std::to_string(digest.sequence) +
                      " differs between ranks in " + Differences(own, digest) +
                      ": rank " + std::to_string(rank_) + " called " +
                      describe_(own) + ", rank " + std::to_string(peer) +
                      " called " + describe_(digest) +
                      "; all ranks must make the same calls in the same "
                      "order, with the same RINGPIPE_ variables");
  }
  return digest.sequence == now ? When::kNow : When::kPast;
}

}  // namespace ringpipe
