#include "bench/memory_kills.h"

#include <fstream>
#include <vector>

namespace ringpipe {

std::uint64_t MemoryKills(const std::string& root) {
  const std::string all = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" (version 2), "4:memory:/path" (version 1). A container may
    // have its own cgroup at the root, whatever the path says.
    const bool is_v2 = line.starts_with("0::");
    const std::size_t at = line.find(":memory:/");
    if (!is_v2 && at == std::string::npos) {
      continue;
    }
    const std::string path =
        line.substr(line.find(':', line.find(':') + 1) + 1);
    for (const std::string& folder :
         is_v2 ? std::vector<std::string>{all + path, all}
               : std::vector<std::string>{all + "/memory" + path,
                                          all + "/memory"}) {
      std::ifstream events(folder +
                           (is_v2 ? "/memory.events" : "/memory.oom_control"));
      std::string name;
      for (std::uint64_t count = 0; events >> name >> count;) {
        if (name == "oom_kill") {
          return count;
        }
      }
    }
  }
  return 0;
}

}  // namespace ringpipe
