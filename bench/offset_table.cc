#include "bench/offset_table.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iomanip>
#include <limits>
#include <vector>

#include "bench/byte_size.h"
#include "reduction/host_copy.h"
#include "reduction/host_reduction.h"

namespace ringpipe {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::array<std::size_t, 7> kOffsets = {0, 4, 16, 32, 48, 64, 4080};
constexpr std::size_t kPage = 4096;
// Shorter than this the clock would be a part of what is measured.
constexpr std::size_t kBytesOfASample = 64 << 10;

// `own` begins where the target does, in memory of its own.
struct Ranges {
  std::byte* target;
  const std::byte* source;
  const std::byte* own;
};

struct Operation {
  const char* name;
  void (*run)(const Ranges& ranges, std::size_t bytes);
};

void Sum(std::byte* target, const std::byte* own, const void* source,
         std::size_t bytes) {
  static const ReduceFunction sum =
      FindReduction(DataType::kFloat32, ReduceOp::kSum);
  sum(target, own, &source, 1, bytes / sizeof(float));
}

constexpr std::array<Operation, 5> kOperations = {{
    {"HostCopy",
     [](const Ranges& ranges, std::size_t bytes) {
       HostCopy(ranges.target, ranges.source, bytes);
     }},
    {"memcpy",
     [](const Ranges& ranges, std::size_t bytes) {
       std::memcpy(ranges.target, ranges.source, bytes);
     }},
    {"NonTemporalCopy",
     [](const Ranges& ranges, std::size_t bytes) {
       NonTemporalCopy(ranges.target, ranges.source, bytes);
     }},
    {"target += source",
     [](const Ranges& ranges, std::size_t bytes) {
       Sum(ranges.target, ranges.target, ranges.source, bytes);
     }},
    {"target = own + source",
     [](const Ranges& ranges, std::size_t bytes) {
       Sum(ranges.target, ranges.own, ranges.source, bytes);
     }},
}};

// Zero is a valid float and stays zero, however often it is added.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes + 3 * kPage) {}

  std::byte* At(std::size_t offset) {
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (kPage - begin % kPage) + offset;
  }

 private:
  std::vector<std::byte> bytes_;
};

// Seconds by the offsets of target and source: the least of all samples.
using Times = std::array<std::array<double, kOffsets.size()>, kOffsets.size()>;

double Sample(const Operation& operation, const Ranges& ranges,
              std::size_t bytes) {
  const std::size_t times = std::max<std::size_t>(kBytesOfASample / bytes, 1);
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < times; ++i) {
    operation.run(ranges, bytes);
  }
  return Seconds(Clock::now() - begin).count() / static_cast<double>(times);
}

std::array<Times, kOperations.size()> Measure(std::size_t bytes,
                                              std::chrono::milliseconds time) {
  Memory target(bytes);
  Memory source(bytes);
  Memory own(bytes);
  std::array<Times, kOperations.size()> least;
  for (Times& times : least) {
    for (auto& row : times) {
      row.fill(std::numeric_limits<double>::infinity());
    }
  }
  const Clock::time_point end = Clock::now() + time;
  do {
    for (std::size_t t = 0; t < kOffsets.size(); ++t) {
      for (std::size_t s = 0; s < kOffsets.size(); ++s) {
        const Ranges ranges = {target.At(kOffsets[t]), source.At(kOffsets[s]),
                               own.At(kOffsets[t])};
        for (std::size_t i = 0; i < kOperations.size(); ++i) {
          double& best = least[i][t][s];
          best = std::min(best, Sample(kOperations[i], ranges, bytes));
        }
      }
    }
  } while (Clock::now() < end);
  return least;
}

struct Spread {
  double slowest_over_fastest = 0;
  std::size_t target = 0;  // offsets of the slowest
  std::size_t source = 0;
};

Spread SpreadOf(const Times& times) {
  double fastest = std::numeric_limits<double>::infinity();
  double slowest = 0;
  Spread spread;
  for (std::size_t t = 0; t < kOffsets.size(); ++t) {
    for (std::size_t s = 0; s < kOffsets.size(); ++s) {
      fastest = std::min(fastest, times[t][s]);
      if (times[t][s] > slowest) {
        slowest = times[t][s];
        spread = {0, kOffsets[t], kOffsets[s]};
      }
    }
  }
  spread.slowest_over_fastest = slowest / fastest;
  return spread;
}

void PrintTimes(std::ostream& out, const Operation& operation,
                std::size_t bytes, const Times& times) {
  out << FormatByteSize(bytes) << ", " << operation.name << ", GB/s\n       ";
  for (const std::size_t offset : kOffsets) {
    out << std::setw(7) << offset;
  }
  out << "\n";
  for (std::size_t t = 0; t < kOffsets.size(); ++t) {
    out << std::setw(7) << kOffsets[t];
    for (const double seconds : times[t]) {
      out << std::setw(7) << static_cast<double>(bytes) / seconds * 1e-9;
    }
    out << "\n";
  }
  out << "\n";
}

}  // namespace

void PrintOffsetTable(std::ostream& out, std::span<const std::size_t> sizes,
                      std::chrono::milliseconds time) {
  out << std::fixed << std::setprecision(1)
      << "A row is where the target begins in its page, a column where the "
         "source does.\n\n";
  std::vector<std::array<Spread, kOperations.size()>> spreads;
  for (const std::size_t bytes : sizes) {
    const auto least = Measure(bytes, time);
    auto& spread = spreads.emplace_back();
    for (std::size_t i = 0; i < kOperations.size(); ++i) {
      PrintTimes(out, kOperations[i], bytes, least[i]);
      spread[i] = SpreadOf(least[i]);
    }
  }
  out << std::setprecision(2)
      << "The slowest pair of offsets, in times of the fastest (where target "
         "and source begin)\n       ";
  for (const Operation& operation : kOperations) {
    out << std::setw(23) << operation.name;
  }
  out << "\n";
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    out << std::setw(7) << FormatByteSize(sizes[i]);
    for (const Spread& spread : spreads[i]) {
      out << std::setw(9) << spread.slowest_over_fastest << " (" << std::setw(4)
          << spread.target << ", " << std::setw(4) << spread.source << ")";
    }
    out << "\n";
  }
}

}  // namespace ringpipe
