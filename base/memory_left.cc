#include "base/memory_left.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>

#include "base/file_descriptor.h"

namespace ringpipe {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

std::uint64_t Minus(std::uint64_t whole, std::uint64_t part) {
  return whole - std::min(whole, part);
}

std::uint64_t Plus(std::uint64_t left, std::uint64_t right) {
  return left + std::min(right, kNoLimit - left);
}

// The whole of a file; empty where it cannot be read. (A stream would hide that
// memory has run out.)
std::string ReadFile(const std::string& path) {
  std::string text;
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    return text;
  }
  std::array<char, 4096> bytes;
  while (true) {
    const ssize_t count = read(file.get(), bytes.data(), bytes.size());
    if (count <= 0) {
      return count == 0 ? text : "";
    }
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

// Cuts the first piece off `text`, which ends at `end`, or with the text.
std::string_view Take(std::string_view& text, char end) {
  const std::string_view piece = text.substr(0, text.find(end));
  text.remove_prefix(std::min(piece.size() + 1, text.size()));
  return piece;
}

std::string_view TakeWord(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return Take(text, ' ');
}

std::optional<std::uint64_t> ToNumber(std::string_view text) {
  std::uint64_t number = 0;
  const auto result =
      std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() ? std::optional(number) : std::nullopt;
}

// The number after `name` in a file of lines "name number ...".
std::optional<std::uint64_t> NumberOf(const std::string& path,
                                      std::string_view name) {
  const std::string file = ReadFile(path);
  for (std::string_view lines = file; !lines.empty();) {
    std::string_view line = Take(lines, '\n');
    if (TakeWord(line) == name) {
      return ToNumber(TakeWord(line));
    }
  }
  return std::nullopt;
}

// A file with one number. No limit where there is no such file, or it has
// "max".
std::uint64_t LimitIn(const std::string& path) {
  return ToNumber(ReadFile(path)).value_or(kNoLimit);
}

std::uint64_t UsageIn(const std::string& path) {
  return ToNumber(ReadFile(path)).value_or(0);
}

// A version of control groups: the names of its files.
struct Version {
  const char* file_system;
  const char* controller;  // in the lists of both tables; "": there is one tree
  const char* limit;
  const char* usage;
  const char* inactive_file;  // in memory.stat
  const char* active_file;
};

constexpr Version kVersions[] = {
    {"cgroup2", "", "memory.max", "memory.current", "inactive_file",
     "active_file"},
    {"cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file", "total_active_file"}};

// Whether "cpu,memory" has it. Version 2 has no list: "" is what is looked for.
bool HasWord(std::string_view list, std::string_view word) {
  bool found = word.empty() && list.empty();
  while (!found && !list.empty()) {
    found = Take(list, ',') == word;
  }
  return found;
}

// Of a line "4:memory:/path" of /proc/self/cgroup; version 2's is "0::/path".
std::optional<std::string> OwnPath(const std::string& root,
                                   const Version& version) {
  const std::string file = ReadFile(root + "/proc/self/cgroup");
  for (std::string_view lines = file; !lines.empty();) {
    std::string_view line = Take(lines, '\n');
    Take(line, ':');
    if (HasWord(Take(line, ':'), version.controller)) {
      return std::string(line);
    }
  }
  return std::nullopt;
}

struct Mount {
  std::string group;  // that is to be seen at `place`
  std::string place;
};

// Of lines "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory".
std::optional<Mount> FindMount(const std::string& root,
                               const Version& version) {
  const std::string file = ReadFile(root + "/proc/self/mountinfo");
  for (std::string_view lines = file; !lines.empty();) {
    std::string_view line = Take(lines, '\n');
    for (int skipped = 0; skipped < 3; ++skipped) {
      TakeWord(line);
    }
    const std::string_view group = TakeWord(line);
    const std::string_view place = TakeWord(line);
    while (!line.empty() && TakeWord(line) != "-") {
    }
    const std::string_view file_system = TakeWord(line);
    TakeWord(line);
    if (file_system == version.file_system &&
        (*version.controller == '\0' ||
         HasWord(TakeWord(line), version.controller))) {
      return Mount{std::string(group), std::string(place)};
    }
  }
  return std::nullopt;
}

// What a group leaves to those in it. What it keeps of files is given back
// before anybody is killed.
MemoryLeft LeftIn(const std::string& group, const Version& version,
                  std::uint64_t swap) {
  const std::string stat = group + "/memory.stat";
  const std::uint64_t files =
      Plus(NumberOf(stat, version.inactive_file).value_or(0),
           NumberOf(stat, version.active_file).value_or(0));
  const std::uint64_t limit = LimitIn(group + "/" + version.limit);
  if (limit == kNoLimit) {
    return {kNoLimit, kNoLimit, true};
  }
  const std::uint64_t used = Minus(UsageIn(group + "/" + version.usage), files);
  const std::uint64_t swap_of_group =
      Minus(LimitIn(group + "/memory.swap.max"),
            UsageIn(group + "/memory.swap.current"));
  // Version 1 limits memory and swap together.
  const std::uint64_t together =
      Minus(LimitIn(group + "/memory.memsw.limit_in_bytes"),
            Minus(UsageIn(group + "/memory.memsw.usage_in_bytes"), files));
  const std::uint64_t left = Minus(limit, used);
  return {left,
          std::min(Plus(left, std::min(swap, swap_of_group)),
                   std::max(left, together)),
          true};
}

// From the process's own group up to that which is mounted.
void LimitByGroups(const std::string& root, const Version& version,
                   std::uint64_t swap, MemoryLeft& least) {
  const std::optional<std::string> path = OwnPath(root, version);
  const std::optional<Mount> mount = FindMount(root, version);
  if (!path || !mount) {
    return;
  }
  // Where the group that is mounted is none above it, as in a container that
  // has the names of its host, it is the process's own.
  const std::string above = mount->group == "/" ? "" : mount->group;
  std::string below = path->starts_with(above + "/") && *path != "/"
                          ? path->substr(above.size())
                          : "";
  if (below.find("/..") != std::string::npos) {
    below.clear();
  }
  const std::string top = root + mount->place;
  while (true) {
    const MemoryLeft left = LeftIn(top + below, version, swap);
    least.by_group = left.bytes < least.bytes || least.by_group;
    least.bytes = std::min(least.bytes, left.bytes);
    least.with_swap = std::min(least.with_swap, left.with_swap);
    if (below.empty()) {
      return;
    }
    below.resize(below.rfind('/'));
  }
}

}  // namespace

std::optional<MemoryLeft> LookUpMemoryLeft(const std::string& root) {
  constexpr std::uint64_t kKib = 1024;
  const std::string meminfo = root + "/proc/meminfo";
  const auto available = NumberOf(meminfo, "MemAvailable:");
  if (!available) {
    return std::nullopt;
  }
  const std::uint64_t swap = NumberOf(meminfo, "SwapFree:").value_or(0) * kKib;
  MemoryLeft least = {*available * kKib, *available * kKib + swap, false};
  for (const Version& version : kVersions) {
    LimitByGroups(root, version, swap, least);
  }
  return least;
}

}  // namespace ringpipe
