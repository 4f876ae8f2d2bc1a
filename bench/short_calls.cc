// How long each collective takes with few bytes, between ranks of this host:
//
//   short_calls RANKS [BYTES]
//
// Where there are no more ranks than cores, each is pinned to one of its own.
// The collectives take turns, kRounds times; a line gives the median of rank
// 0's rounds, and the fastest and the slowest. Floats, where there is a whole
// number of them.
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "bench/forked_ranks.h"
#include "engine/communicator.h"

namespace ringpipe {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr int kRounds = 15;
constexpr std::array<const char*, 5> kNames = {
    "allreduce", "broadcast", "all-gather", "reduce-scatter", "barrier"};

struct Times {
  int rank = 0;
  // Microseconds a call, by collective and round.
  std::array<std::array<double, kRounds>, kNames.size()> us = {};
};

void PinToCore(int rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(rank, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

// So that a round takes some milliseconds.
int CallsFor(int ranks) {
  const bool have_cores =
      ranks <= static_cast<int>(std::thread::hardware_concurrency());
  return have_cores ? 20'000 : 500;
}

Status Measure(const CommunicatorOptions& options, std::size_t bytes,
               Times& times) {
  times.rank = *options.rank;
  if (*options.size <= static_cast<int>(std::thread::hardware_concurrency())) {
    PinToCore(times.rank);
  }
  RINGPIPE_ASSIGN_OR_RETURN(const auto communicator,
                            Communicator::Create(options));
  Communicator& c = *communicator;
  const DataType type = bytes % 4 == 0 ? DataType::kFloat32 : DataType::kInt8;
  const std::size_t count = bytes / SizeOf(type);
  std::vector<std::byte> send(bytes * c.size());
  std::vector<std::byte> receive(bytes * c.size());
  const std::array<std::function<Status()>, kNames.size()> calls = {
      [&] {
        return c.AllReduce(send.data(), receive.data(), count, type,
                           ReduceOp::kSum);
      },
      [&] { return c.Broadcast(send.data(), receive.data(), count, type, 0); },
      [&] { return c.AllGather(send.data(), receive.data(), count, type); },
      [&] {
        return c.ReduceScatter(send.data(), receive.data(), count, type,
                               ReduceOp::kSum);
      },
      [&] { return c.Barrier(); }};
  const int calls_a_round = CallsFor(c.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t which = 0; which < calls.size(); ++which) {
      RINGPIPE_RETURN_IF_ERROR(c.Barrier());
      const auto start = steady_clock::now();
      for (int call = 0; call < calls_a_round; ++call) {
        RINGPIPE_RETURN_IF_ERROR(calls[which]());
      }
      times.us[which][round] =
          duration<double, std::micro>(steady_clock::now() - start).count() /
          calls_a_round;
    }
  }
  return Status::Ok();
}

int Main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  const int bytes = argc > 2 ? std::atoi(argv[2]) : 8;
  if (ranks < 1 || bytes < 1) {
    std::fprintf(stderr, "usage: short_calls RANKS [BYTES]\n");
    return 2;
  }
  auto all = RunForkedRanks<Times>(
      "short_calls", ranks,
      [bytes](const CommunicatorOptions& options, Times& times) {
        return Measure(options, bytes, times);
      });
  const auto first =
      std::find_if(all.begin(), all.end(),
                   [](const Times& times) { return times.rank == 0; });
  if (all.size() != static_cast<std::size_t>(ranks) || first == all.end()) {
    return 1;
  }
  std::printf("%d ranks, %d bytes, us: median (fastest to slowest of %d)\n",
              ranks, bytes, kRounds);
  for (std::size_t which = 0; which < kNames.size(); ++which) {
    auto& us = first->us[which];
    std::sort(us.begin(), us.end());
    std::printf("%-15s %8.2f  (%.2f to %.2f)\n", kNames[which], us[kRounds / 2],
                us.front(), us.back());
  }
  return 0;
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) { return ringpipe::Main(argc, argv); }
