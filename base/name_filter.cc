#include "base/name_filter.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <optional>
#include <utility>

namespace ringpipe {
namespace {

// Devices' and interfaces' names are shorter.
constexpr std::size_t kMaxNameBytes = 63;
// Ports are numbered from 1 in eight bits.
constexpr int kMaxPort = 255;

Status Bad(std::string_view entry, const std::string& why) {
  return {StatusCode::kInvalidArgument, "'" + std::string(entry) + "' " + why};
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isgraph(c) != 0 && c != '/' && c != '^' && c != '=';
         });
}

std::optional<int> ToPort(std::string_view text) {
  int port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  if (error != std::errc() || stop != end || port < 1 || port > kMaxPort) {
    return std::nullopt;
  }
  return port;
}

Result<NameFilter::Entry> ParseEntry(std::string_view text,
                                     NameFilter::Ports ports) {
  NameFilter::Entry entry;
  const std::size_t colon = ports == NameFilter::Ports::kAllowed
                                ? text.find(':')
                                : std::string_view::npos;
  entry.name = text.substr(0, colon);
  if (!IsName(entry.name)) {
    return Bad(text,
               text.front() == '^' || text.front() == '='
                   ? "has a sign: '^' and '=' stand once, before the whole list"
                   : "is not a name");
  }
  if (colon != std::string_view::npos) {
    const std::optional<int> port = ToPort(text.substr(colon + 1));
    if (!port) {
      return Bad(text, "needs a port from 1 to 255 behind its colon");
    }
    entry.port = *port;
  }
  return entry;
}

}  // namespace

std::string NameFilter::Entry::ToString() const {
  return port == 0 ? name : name + ":" + std::to_string(port);
}

Result<NameFilter> NameFilter::Parse(const std::string& text, Ports ports) {
  NameFilter filter;
  std::string_view rest = text;
  filter.excludes_ = rest.starts_with('^');
  rest.remove_prefix(filter.excludes_ ? 1 : 0);
  filter.exact_ = rest.starts_with('=');
  rest.remove_prefix(filter.exact_ ? 1 : 0);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size()
                                                       : comma + 1);
    if (!part.empty()) {
      RINGPIPE_ASSIGN_OR_RETURN(Entry entry, ParseEntry(part, ports));
      filter.entries_.push_back(std::move(entry));
    }
  }
  if (filter.entries_.empty() && !text.empty()) {
    return Bad(text, "has no entry");
  }
  return filter;
}

bool NameFilter::Matches(const Entry& entry, std::string_view name,
                         int port) const {
  const bool same = exact_ ? name == entry.name : name.starts_with(entry.name);
  return same && (entry.port == 0 || port == 0 || entry.port == port);
}

bool NameFilter::Admits(std::string_view name, int port) const {
  if (admits_all()) {
    return true;
  }
  const bool found = std::any_of(
      entries_.begin(), entries_.end(),
      [&](const Entry& entry) { return Matches(entry, name, port); });
  return found != excludes_;
}

}  // namespace ringpipe
