// What the stages between the wire and the user's memory cost on this machine,
// per byte, as the pipeline does them: a sub-chunk that has just been received
// is in a slot, one of a few that stay in cache, and the user's memory is
// walked through once a call. bench/compare_guest divides by these for its
// model of the engine.
//
//   stage_benchmark --benchmark_filter='/131072/16777216$'
//
// Names end in sub-chunk / user's bytes.
//
// With --offsets it prints instead how fast copies and reductions are by where
// their ranges begin in a page, beside memcpy, from 256 B to 4 MiB
// (offset_table.h); --offsets=MILLISECONDS is the time for each size.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string_view>
#include <vector>

#include "bench/offset_table.h"
#include "benchmark/benchmark.h"
#include "reduction/host_copy.h"
#include "reduction/host_reduction.h"

namespace ringpipe {
namespace {

constexpr std::size_t kSlots = 4;

// A rank's slots and the user's memory, and a walk through both.
class Walk {
 public:
  explicit Walk(const benchmark::State& state)
      : sub_chunk_(static_cast<std::size_t>(state.range(0))),
        slots_(kSlots * sub_chunk_),
        // At least one sub-chunk: a short message has shorter ones.
        user_(std::max(static_cast<std::size_t>(state.range(1)), sub_chunk_)) {}

  std::size_t sub_chunk() const { return sub_chunk_; }
  char* slot() { return slots_.data() + slot_ * sub_chunk_; }
  char* user() { return user_.data() + offset_; }

  void Next() {
    slot_ = (slot_ + 1) % kSlots;
    offset_ += sub_chunk_;
    if (offset_ + sub_chunk_ > user_.size()) {
      offset_ = 0;
    }
  }

  void Report(benchmark::State& state) const {
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                            static_cast<std::int64_t>(sub_chunk_));
  }

 private:
  const std::size_t sub_chunk_;
  // Zero is a valid float and stays zero, however often it is added.
  std::vector<char> slots_;
  std::vector<char> user_;
  std::size_t slot_ = 0;
  std::size_t offset_ = 0;
};

// slot = source + slot
void Reduce(benchmark::State& state) {
  Walk walk(state);
  const ReduceFunction reduce =
      FindReduction(DataType::kFloat32, ReduceOp::kSum);
  for (auto _ : state) {
    const void* const received[] = {walk.slot()};
    reduce(walk.slot(), walk.user(), received, 1,
           walk.sub_chunk() / sizeof(float));
    benchmark::ClobberMemory();
    walk.Next();
  }
  walk.Report(state);
}

// target = slot
void CopyOut(benchmark::State& state) {
  Walk walk(state);
  for (auto _ : state) {
    HostCopy(walk.user(), walk.slot(), walk.sub_chunk());
    benchmark::ClobberMemory();
    walk.Next();
  }
  walk.Report(state);
}

void Cases(benchmark::internal::Benchmark* benchmark) {
  for (std::int64_t sub_chunk = 16 << 10; sub_chunk <= 1 << 20;
       sub_chunk *= 2) {
    for (std::int64_t bytes = 64 << 10; bytes <= 256 << 20; bytes *= 4) {
      benchmark->Args({sub_chunk, bytes});
    }
  }
}

BENCHMARK(Reduce)->Apply(Cases);
BENCHMARK(CopyOut)->Apply(Cases);

// 0: `argument` is not of this kind, or wrong.
int MillisecondsOfOffsets(std::string_view argument) {
  constexpr std::string_view kName = "--offsets";
  if (argument == kName) {
    return 1000;
  }
  int milliseconds = 0;
  if (argument.starts_with("--offsets=")) {
    argument.remove_prefix(kName.size() + 1);
    std::from_chars(argument.data(), argument.data() + argument.size(),
                    milliseconds);
  }
  return milliseconds;
}

int Run(int argc, char** argv) {
  if (argc == 2) {
    if (const int milliseconds = MillisecondsOfOffsets(argv[1]);
        milliseconds > 0) {
      std::vector<std::size_t> sizes;
      for (std::size_t bytes = 256; bytes <= 4 << 20; bytes *= 2) {
        sizes.push_back(bytes);
      }
      PrintOffsetTable(std::cout, sizes,
                       std::chrono::milliseconds(milliseconds));
      return 0;
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) { return ringpipe::Run(argc, argv); }
