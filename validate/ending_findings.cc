#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "validate/analysis_parts.h"

namespace ringpipe::validate {
namespace {

using Kind = Finding::Kind;

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

std::set<std::string> HostsOf(const Measurements& measured,
                              const std::set<int>& ranks) {
  std::set<std::string> hosts;
  for (const int rank : ranks) {
    hosts.insert(measured.ranks[rank].host);
  }
  return hosts;
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

// A communicator's message, which names ranks alone, with their hosts. `listed`
// gets the ranks of a list in it: those that were waited for.
std::string WithHosts(const Measurements& measured, std::string_view message,
                      std::set<int>* listed) {
  std::string text;
  while (!message.empty()) {
    std::string_view rest = message;
    if (TakeWord(rest, "rank(s) ")) {
      const std::set<int> ranks = TakeRanks(rest, measured.size());
      if (!ranks.empty()) {
        text += message.substr(0, message.size() - rest.size());
        text += " (" + Names(HostsOf(measured, ranks)) + ")";
        listed->insert(ranks.begin(), ranks.end());
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

}  // namespace

std::optional<Finding> FindEnding(const Measurements& measured) {
  if (!measured.ending || measured.ending->message.empty()) {
    return std::nullopt;
  }
  const Ending& ending = *measured.ending;
  std::set<int> listed;
  const std::string why = WithHosts(measured, ending.message, &listed);
  const std::set<std::string> hosts = HostsOf(measured, listed);
  std::string host, name;
  if (ending.lost_rank >= 0) {
    host = measured.ranks[ending.lost_rank].host;
    name = measured.NameOf(ending.lost_rank);
  } else if (hosts.size() == 1 && !measured.OnOneHost()) {
    host = name = *hosts.begin();
  }
  const std::string during = " while " + ending.phase + " was measured: " + why;
  Finding finding =
      host.empty() ? MakeFinding(Kind::kOther, false, "the test ended" + during)
                   : MakeFinding(Kind::kLost, true,
                                 "host " + name + " was lost" + during);
  finding.host = host;
  return finding;
}

std::vector<Finding> FindLost(const Measurements& measured) {
  std::vector<Finding> findings;
  for (const Lost& lost : measured.lost) {
    findings.push_back(MakeFinding(
        Kind::kLost, true,
        "host " + lost.host + " was lost while " + lost.phase +
            " was measured, which went on without it: " + lost.message));
    findings.back().host = lost.host;
  }
  return findings;
}

}  // namespace ringpipe::validate
