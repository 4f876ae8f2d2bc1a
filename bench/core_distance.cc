#include "bench/core_distance.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "base/deadline.h"

namespace ringpipe {
namespace {

constexpr std::chrono::milliseconds kTakes(20);
constexpr std::chrono::seconds kTakesAtMost(2);
constexpr int kFewestBatches = 20;
constexpr int kRoundTrips = 50;  // in a batch
constexpr std::uint64_t kEnd = std::numeric_limits<std::uint64_t>::max();

// Each in a cache line of its own, and in a pair of lines of its own where the
// processor fetches them in pairs.
struct Lines {
  alignas(128) std::atomic<std::uint64_t> there = 0;
  alignas(128) std::atomic<std::uint64_t> back = 0;
};

bool RunOn(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

void Echo(Lines& lines) {
  std::uint64_t last = 0;
  while (last != kEnd) {
    const std::uint64_t now = lines.there.load(std::memory_order_acquire);
    if (now != last) {
      last = now;
      lines.back.store(now, std::memory_order_release);
    }
  }
}

// The fastest batch, or a negative number where there were too few of them.
double FastestNs(Lines& lines) {
  const Clock::time_point start = Clock::now();
  double best_ns = std::numeric_limits<double>::max();
  std::uint64_t value = 0;
  int batches = 0;
  while (batches < kFewestBatches || Clock::now() - start < kTakes) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kRoundTrips; ++i) {
      lines.there.store(++value, std::memory_order_release);
      for (unsigned spins = 1;
           lines.back.load(std::memory_order_acquire) != value; ++spins) {
        if (spins % 4096 == 0 && Clock::now() - start > kTakesAtMost) {
          return -1;
        }
      }
    }
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    best_ns = std::min(best_ns, took.count() / kRoundTrips);
    ++batches;
  }
  return best_ns;
}

}  // namespace

std::vector<int> UsableCores() {
  std::vector<int> cores;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

Status RunOnCore(int number) {
  const std::vector<int> cores = UsableCores();
  if (cores.empty() || !RunOn(cores[number % cores.size()])) {
    return {StatusCode::kUnavailable, "cannot run on one core alone (--pin)"};
  }
  return Status::Ok();
}

Result<double> CacheLineRoundTripNs(int core, int other) {
  const std::vector<int> usable = UsableCores();
  for (const int one : {core, other}) {
    if (std::find(usable.begin(), usable.end(), one) == usable.end()) {
      return Status(StatusCode::kInvalidArgument,
                    "core " + std::to_string(one) +
                        " does not exist, or this process may not run on it");
    }
  }
  // Not on the stack, whose alignment AddressSanitizer's does not keep.
  const auto owned_lines = std::make_unique<Lines>();
  Lines& lines = *owned_lines;
  double best_ns = -1;
  // Threads of their own, so that the caller's may still run anywhere.
  std::thread echo([&lines, other] {
    RunOn(other);
    Echo(lines);
  });
  std::thread sender([&lines, &best_ns, core] {
    RunOn(core);
    best_ns = FastestNs(lines);
    lines.there.store(kEnd, std::memory_order_release);
  });
  sender.join();
  echo.join();
  if (best_ns < 0) {
    return Status(StatusCode::kUnavailable,
                  "cores " + std::to_string(core) + " and " +
                      std::to_string(other) +
                      " are too busy with other work to measure the way "
                      "between them; try again when they are not");
  }
  return best_ns;
}

std::string_view PlacementName(double round_trip_ns) {
  constexpr double kSiblingsBelowNs = 75;
  constexpr double kOneCacheBelowNs = 180;
  return round_trip_ns < kSiblingsBelowNs   ? "siblings"
         : round_trip_ns < kOneCacheBelowNs ? "one L3"
                                            : "far";
}

std::string FormatPlacement(double round_trip_ns) {
  return std::string(PlacementName(round_trip_ns)) + " " +
         std::to_string(std::lround(round_trip_ns)) + " ns";
}

}  // namespace ringpipe
