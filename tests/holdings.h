// What processes hold, and what they have left behind.
#ifndef RINGPIPE_TESTS_HOLDINGS_H_
#define RINGPIPE_TESTS_HOLDINGS_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ringpipe::testing {

// What this process holds now, by kind. Two are equal where nothing has been
// added and nothing is missing.
struct Holdings {
  Holdings();

  std::size_t threads = 0;
  // How many descriptors of each kind: "unix socket", "tcp socket",
  // "/memfd:ringpipe-soft (deleted)", "anon_inode:[eventfd]", "pipe", ...
  std::map<std::string, int> descriptors;
  // Mappings of memory files, by name.
  std::map<std::string, int> mappings;

  bool operator==(const Holdings&) const = default;
  std::string ToString() const;
};

// "clean" where this process holds now what it held before, and nothing else;
// otherwise both.
std::string CompareHoldings(const Holdings& before);

// What this process has more than before, or less; "": nothing. Threads that
// were joined are to be seen for a moment, now as then.
std::string WhatIsLeft(const Holdings& before);

// What the processes of a job have that others can see, and by which it can be
// recognised when they have ended.
struct Footprint {
  // Takes it from the running processes, which this one must be allowed to
  // look at.
  explicit Footprint(const std::vector<pid_t>& processes);

  std::set<std::string> sockets;       // inodes, as /proc writes them
  std::set<std::string> memory_files;  // likewise
};

// The names of the abstract unix sockets of a footprint that are bound, each
// once.
std::set<std::string> UnixNames(const Footprint& footprint);

// What is still there of an ended job: sockets that are in the kernel's tables,
// memory files that any process has open or mapped, and processes that have
// `job` in their environment. One line for each. Looks again for `patience`:
// the kernel closes what was on its way between two sockets when it gets to it.
std::vector<std::string> LeftOnTheMachine(const std::string& job,
                                          const Footprint& footprint,
                                          std::chrono::milliseconds patience);

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_HOLDINGS_H_
