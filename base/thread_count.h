// For tests: how many threads this process has.
#ifndef RINGPIPE_BASE_THREAD_COUNT_H_
#define RINGPIPE_BASE_THREAD_COUNT_H_

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace ringpipe {

// Without those that have ended: the kernel lists a joined thread for a moment
// more, which on a busy machine may be long.
inline int CountThreads() {
  constexpr unsigned long kExiting = 0x4;  // PF_EXITING, in proc(5)'s flags
  int threads = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) {
      continue;  // gone by now
    }
    // The name is in parentheses, and may have some itself.
    std::istringstream fields(line.substr(line.rfind(')') + 1));
    std::string state, parent, group, session, terminal, foreground;
    unsigned long flags = 0;
    fields >> state >> parent >> group >> session >> terminal >> foreground >>
        flags;
    threads += (flags & kExiting) == 0 ? 1 : 0;
  }
  return threads;
}

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_THREAD_COUNT_H_
