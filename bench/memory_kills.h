// Whether the kernel has killed processes for want of memory.
#ifndef RINGPIPE_BENCH_MEMORY_KILLS_H_
#define RINGPIPE_BENCH_MEMORY_KILLS_H_

#include <cstdint>
#include <string>

namespace ringpipe {

// How often the kernel has killed processes of this one's control group
// (cgroup), because they had reached its limit of memory; 0 where it does not
// say. `root`: of the file system, for tests.
std::uint64_t MemoryKills(const std::string& root = "");

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_MEMORY_KILLS_H_
