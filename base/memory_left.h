#ifndef RINGPIPE_BASE_MEMORY_LEFT_H_
#define RINGPIPE_BASE_MEMORY_LEFT_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ringpipe {

// How much memory this process can still get before the kernel kills somebody:
// of the host, and of each control group that the process is in, which is how a
// container's memory is limited.
struct MemoryLeft {
  std::uint64_t bytes = 0;      // without swapping
  std::uint64_t with_swap = 0;  // no fewer
  bool by_group = false;  // it is a control group that leaves no more `bytes`
};

// nullopt where the system does not say. `root`: of the file system, for tests.
std::optional<MemoryLeft> LookUpMemoryLeft(const std::string& root = "");

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_MEMORY_LEFT_H_
