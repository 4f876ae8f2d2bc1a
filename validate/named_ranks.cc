#include "validate/named_ranks.h"

#include <charconv>
#include <cstddef>
#include <system_error>

namespace ringpipe::validate {
namespace {

constexpr std::string_view kList = "rank(s) ";
constexpr std::size_t kMostNamed = 8;

// Takes a rank's number from the beginning of `text`; -1: there is none.
int TakeRank(std::string_view& text, int size) {
  int rank = -1;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || rank < 0 || rank >= size) {
    return -1;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return rank;
}

bool TakeWord(std::string_view& text, std::string_view word) {
  const bool there = text.starts_with(word);
  text.remove_prefix(there ? word.size() : 0);
  return there;
}

// Takes "0, 2 to 4" (FormatRanks) likewise; none where it is no such list.
std::set<int> TakeRanks(std::string_view& text, int size) {
  std::set<int> ranks;
  std::string_view rest = text;
  do {
    const int first = TakeRank(rest, size);
    const int last = TakeWord(rest, " to ") ? TakeRank(rest, size) : first;
    if (first < 0 || last < first) {
      return {};
    }
    for (int rank = first; rank <= last; ++rank) {
      ranks.insert(rank);
    }
  } while (TakeWord(rest, ", "));
  text = rest;
  return ranks;
}

// "c00, c01 and 3 more"
std::string Names(const std::set<std::string>& hosts) {
  std::string names;
  std::size_t named = 0;
  for (const std::string& host : hosts) {
    if (named++ < kMostNamed) {
      names += (names.empty() ? "" : ", ") + host;
    }
  }
  return names + (named > kMostNamed
                      ? " and " + std::to_string(named - kMostNamed) + " more"
                      : std::string());
}

}  // namespace

std::set<int> ListedRanks(std::string_view message, int size) {
  std::set<int> listed;
  for (std::size_t at = message.find(kList); at != message.npos;
       at = message.find(kList, at + 1)) {
    std::string_view list = message.substr(at + kList.size());
    listed.merge(TakeRanks(list, size));
  }
  return listed;
}

std::string WithHosts(const Measurements& measured, std::string_view message) {
  std::string text;
  while (!message.empty()) {
    std::string_view rest = message;
    if (TakeWord(rest, kList)) {
      const std::set<int> ranks = TakeRanks(rest, measured.size());
      if (!ranks.empty()) {
        text += message.substr(0, message.size() - rest.size());
        text += " (" + Names(HostsOf(measured, ranks)) + ")";
        message = rest;
        continue;
      }
    } else if (TakeWord(rest, "rank ")) {
      if (const int rank = TakeRank(rest, measured.size()); rank >= 0) {
        text += measured.NameOf(rank);
        message = rest;
        continue;
      }
    }
    text += message.front();
    message.remove_prefix(1);
  }
  return text;
}

std::set<std::string> HostsOf(const Measurements& measured,
                              const std::set<int>& ranks) {
  std::set<std::string> hosts;
  for (const int rank : ranks) {
    hosts.insert(measured.ranks[rank].host);
  }
  return hosts;
}

}  // namespace ringpipe::validate
