// What a communicator costs besides its calls: its creation, the memory that it
// takes, and what it does while nobody calls. All ranks on this host:
//
//   lifecycle RANKS [IDLE_SECONDS]
//
// "created in": from when the last rank entered Communicator::Create to when
// the last one returned. "memory": by how much a rank's share of memory (Pss)
// has grown after allreduces of 16 MiB of its own. "idle": CPU time of all its
// threads meanwhile. Each the largest of the ranks'.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/forked_ranks.h"
#include "engine/communicator.h"

namespace ringpipe {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr std::size_t kElements = 4 << 20;

struct Life {
  steady_clock::time_point entered, returned;
  double memory_mib = 0;
  double idle_cpu_ms = 0;
};

double PssMib() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  while (file >> word && word != "Pss:") {
  }
  double kib = 0;
  file >> kib;
  return kib / 1024;
}

double CpuMs() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 +
         static_cast<double>(time.tv_nsec) / 1e6;
}

Status Live(const CommunicatorOptions& options, int idle_s, Life& life) {
  std::vector<float> data(kElements, 1);
  std::vector<float> sum(kElements, 0);
  const double before = PssMib();
  life.entered = steady_clock::now();
  RINGPIPE_ASSIGN_OR_RETURN(const auto communicator,
                            Communicator::Create(options));
  life.returned = steady_clock::now();
  for (int call = 0; call < 3; ++call) {
    RINGPIPE_RETURN_IF_ERROR(
        communicator->AllReduce(data.data(), sum.data(), kElements,
                                DataType::kFloat32, ReduceOp::kSum));
  }
  life.memory_mib = PssMib() - before;
  const double cpu = CpuMs();
  std::this_thread::sleep_for(std::chrono::seconds(idle_s));
  life.idle_cpu_ms = CpuMs() - cpu;
  return communicator->Barrier();
}

int Print(int ranks, int idle_s, const std::vector<Life>& lives) {
  Life all = lives.front();
  for (const Life& life : lives) {
    all.entered = std::max(all.entered, life.entered);
    all.returned = std::max(all.returned, life.returned);
    all.memory_mib = std::max(all.memory_mib, life.memory_mib);
    all.idle_cpu_ms = std::max(all.idle_cpu_ms, life.idle_cpu_ms);
  }
  std::printf(
      "%d ranks: created in %.1f ms; memory %.1f MiB; idle for %d s: "
      "%.1f ms of CPU\n",
      ranks, duration<double, std::milli>(all.returned - all.entered).count(),
      all.memory_mib, idle_s, all.idle_cpu_ms);
  return 0;
}

int Main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  const int idle_s = argc > 2 ? std::atoi(argv[2]) : 0;
  if (ranks < 1) {
    std::fprintf(stderr, "usage: lifecycle RANKS [IDLE_SECONDS]\n");
    return 2;
  }
  const auto lives = RunForkedRanks<Life>(
      "lifecycle", ranks,
      [idle_s](const CommunicatorOptions& options, Life& life) {
        return Live(options, idle_s, life);
      });
  return lives.size() == static_cast<std::size_t>(ranks)
             ? Print(ranks, idle_s, lives)
             : 1;
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) { return ringpipe::Main(argc, argv); }
