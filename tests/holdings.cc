#include "tests/holdings.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/thread_count.h"

namespace ringpipe::testing {
namespace {

namespace fs = std::filesystem;

// The kernel's tables of sockets, and the column that has the inode.
struct SocketTable {
  const char* kind;
  const char* path;
  std::size_t inode_column;
};
constexpr SocketTable kSocketTables[] = {
    {"unix socket", "/proc/net/unix", 6}, {"tcp socket", "/proc/net/tcp", 9},
    {"tcp socket", "/proc/net/tcp6", 9},  {"udp socket", "/proc/net/udp", 9},
    {"udp socket", "/proc/net/udp6", 9},
};

std::vector<std::string> Lines(const fs::path& file) {
  std::vector<std::string> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

// {inode: (kind, line)} of all sockets of this network namespace.
std::map<std::string, std::pair<std::string, std::string>> AllSockets() {
  std::map<std::string, std::pair<std::string, std::string>> all;
  for (const SocketTable& table : kSocketTables) {
    for (const std::string& line : Lines(table.path)) {
      const std::vector<std::string> words = Words(line);
      if (words.size() > table.inode_column) {
        all[words[table.inode_column]] = {table.kind, line};
      }
    }
  }
  return all;
}

// "socket:[123]" -> "123"; "" for what is no socket.
std::string SocketInode(const std::string& target) {
  constexpr std::string_view kPrefix = "socket:[";
  return target.starts_with(kPrefix)
             ? target.substr(kPrefix.size(), target.size() - kPrefix.size() - 1)
             : "";
}

// {descriptor's path: what it is} of a process; empty if it has gone.
std::map<fs::path, std::string> Descriptors(const std::string& process) {
  std::map<fs::path, std::string> found;
  std::error_code error;
  for (const auto& entry :
       fs::directory_iterator("/proc/" + process + "/fd", error)) {
    const fs::path target = fs::read_symlink(entry.path(), error);
    if (!error) {
      found[entry.path()] = target;
    }
  }
  return found;
}

bool IsMemoryFile(const std::string& name) {
  return name.find("/memfd:") != std::string::npos;
}

// {inode: name} of the memory files that a process has mapped, once for each
// mapping.
std::multimap<std::string, std::string> MappedMemoryFiles(
    const std::string& process) {
  std::multimap<std::string, std::string> found;
  for (const std::string& line : Lines("/proc/" + process + "/maps")) {
    if (IsMemoryFile(line)) {
      found.emplace(Words(line)[4], line.substr(line.find("/memfd:")));
    }
  }
  return found;
}

// Of an open memory file, which its link leads to although it names no path.
std::string InodeOf(const fs::path& descriptor) {
  struct stat info;
  return stat(descriptor.c_str(), &info) == 0 ? std::to_string(info.st_ino)
                                              : "";
}

std::string KindOf(const std::string& target) {
  if (const std::string inode = SocketInode(target); !inode.empty()) {
    const auto sockets = AllSockets();
    const auto found = sockets.find(inode);
    return found != sockets.end() ? found->second.first : "other socket";
  }
  return target.starts_with("pipe:") ? "pipe" : target;
}

std::vector<std::string> Processes() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (std::all_of(name.begin(), name.end(),
                    [](unsigned char c) { return std::isdigit(c) != 0; })) {
      all.push_back(name);
    }
  }
  return all;
}

bool HasInEnvironment(const std::string& process, const std::string& text) {
  std::ifstream stream("/proc/" + process + "/environ");
  const std::string all((std::istreambuf_iterator<char>(stream)), {});
  return all.find(text) != std::string::npos;
}

std::string ToText(const std::map<std::string, int>& counts) {
  std::string text;
  for (const auto& [kind, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " of " + kind;
  }
  return "{" + text + "}";
}

}  // namespace

Holdings::Holdings() {
  // A sanitizer starts a thread of its own at the first one of the process.
  std::thread([] {}).join();
  threads = CountThreads();
  for (const auto& [path, target] : Descriptors("self")) {
    // Not the one by which this looks.
    if (!target.ends_with("/fd")) {
      ++descriptors[KindOf(target)];
    }
  }
  for (const auto& [inode, name] : MappedMemoryFiles("self")) {
    ++mappings[name];
  }
}

std::string Holdings::ToString() const {
  return std::to_string(threads) + " threads, descriptors " +
         ToText(descriptors) + ", mappings " + ToText(mappings);
}

std::string CompareHoldings(const Holdings& before) {
  const Holdings after;
  return before == after
             ? "clean"
             : "left: " + after.ToString() + "; before: " + before.ToString();
}

std::string WhatIsLeft(const Holdings& before) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (true) {
    Holdings now;
    const std::string text = now.ToString();
    now.threads = std::max(now.threads, before.threads);
    if (now == before) {
      return "";
    }
    if (std::chrono::steady_clock::now() > end) {
      return text + "; before: " + before.ToString();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Footprint::Footprint(const std::vector<pid_t>& processes) {
  for (const pid_t pid : processes) {
    const std::string process = std::to_string(pid);
    for (const auto& [path, target] : Descriptors(process)) {
      if (const std::string inode = SocketInode(target); !inode.empty()) {
        sockets.insert(inode);
      } else if (IsMemoryFile(target)) {
        memory_files.insert(InodeOf(path));
      }
    }
    for (const auto& [inode, name] : MappedMemoryFiles(process)) {
      memory_files.insert(inode);
    }
  }
}

std::set<std::string> UnixNames(const Footprint& footprint) {
  std::set<std::string> names;
  for (const auto& [inode, socket] : AllSockets()) {
    const std::vector<std::string> words = Words(socket.second);
    if (footprint.sockets.count(inode) != 0 && words.back()[0] == '@') {
      names.insert(words.back());
    }
  }
  return names;
}

namespace {

std::vector<std::string> LeftNow(const std::string& job,
                                 const Footprint& footprint) {
  std::vector<std::string> left;
  for (const auto& [inode, socket] : AllSockets()) {
    if (footprint.sockets.count(inode) != 0) {
      left.push_back(socket.first + ": " + socket.second);
    }
  }
  for (const std::string& process : Processes()) {
    const std::string who = "process " + process;
    if (HasInEnvironment(process, job)) {
      left.push_back(who + " of the job");
    }
    for (const auto& [path, target] : Descriptors(process)) {
      if (IsMemoryFile(target) &&
          footprint.memory_files.count(InodeOf(path)) != 0) {
        left.push_back(who + " has open " + target);
      }
    }
    for (const auto& [inode, name] : MappedMemoryFiles(process)) {
      if (footprint.memory_files.count(inode) != 0) {
        left.push_back(who + " has mapped " + name);
      }
    }
  }
  return left;
}

}  // namespace

std::vector<std::string> LeftOnTheMachine(const std::string& job,
                                          const Footprint& footprint,
                                          std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  std::vector<std::string> left = LeftNow(job, footprint);
  while (!left.empty() && std::chrono::steady_clock::now() < end) {
    left = LeftNow(job, footprint);
  }
  return left;
}

}  // namespace ringpipe::testing
