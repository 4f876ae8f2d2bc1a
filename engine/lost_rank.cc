#include "engine/lost_rank.h"

#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <vector>

namespace ringpipe {
namespace {

// "rank 3" in a text.
struct Mention {
  int rank;
  std::string_view before;
  std::string_view after;
};

// What follows each `word` that is followed by a number. (Not by std::regex,
// whose locale's tables threads fill without a lock.)
std::vector<Mention> Mentions(std::string_view text, std::string_view word) {
  constexpr std::ptrdiff_t kMostDigits = 6;
  std::vector<Mention> mentions;
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::string_view rest = text.substr(at + word.size());
    int rank = 0;
    const auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), rank);
    const std::ptrdiff_t digits = end - rest.data();
    if (error == std::errc() && rank >= 0 && digits <= kMostDigits) {
      mentions.push_back({rank, text.substr(0, at),
                          rest.substr(static_cast<std::size_t>(digits))});
    }
  }
  return mentions;
}

}  // namespace

int LostRank(const Status& failure) {
  if (failure.code() != StatusCode::kPeerLost) {
    return -1;
  }
  const std::vector<Mention> mentions = Mentions(failure.message(), "rank ");
  // "the connection of rank 0 to rank 3 failed"
  for (std::size_t i = 0; i + 1 < mentions.size(); ++i) {
    if (mentions[i].before.ends_with("connection of ") &&
        mentions[i].after.starts_with(" to rank ")) {
      return mentions[i + 1].rank;
    }
  }
  for (const char* const after : {" does not answer", " ("}) {
    for (const Mention& mention : mentions) {
      if (mention.after.starts_with(after)) {
        return mention.rank;
      }
    }
  }
  if (const auto listed = Mentions(failure.message(), "rank(s) ");
      !listed.empty()) {
    return listed.front().rank;
  }
  // Not the rank that says so: "rank 1: ..."
  for (const Mention& mention : mentions) {
    if (!mention.after.starts_with(':')) {
      return mention.rank;
    }
  }
  return -1;
}

}  // namespace ringpipe
