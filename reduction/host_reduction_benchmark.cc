// The speed of the reductions of host memory, in and out of cache. Bytes are
// those of one operand; the memory traffic is three times that.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "reduction/host_reduction.h"

namespace ringpipe {
namespace {

void Reduce(benchmark::State& state, DataType type, ReduceOp op) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  // Zero is valid in every type and stays zero, however often it is reduced.
  std::vector<std::uint64_t> accumulator(bytes / sizeof(std::uint64_t));
  const std::vector<std::uint64_t> source(accumulator.size());
  const ReduceFunction reduce = FindReduction(type, op);
  for (auto _ : state) {
    reduce(accumulator.data(), source.data(), bytes / SizeOf(type));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          state.range(0));
}

// What the memory can do: a copy moves two thirds of the bytes of a reduction.
void Copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<char> target(bytes);
  const std::vector<char> source(bytes);
  for (auto _ : state) {
    std::memcpy(target.data(), source.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          state.range(0));
}

void Finish(benchmark::State& state, DataType type) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::uint64_t> data(bytes / sizeof(std::uint64_t));
  const FinishFunction finish = FindFinish(type, ReduceOp::kAverage);
  for (auto _ : state) {
    finish(data.data(), bytes / SizeOf(type), 3);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          state.range(0));
}

constexpr std::int64_t kInCache = 32 << 10;
constexpr std::int64_t kSubChunk = 256 << 10;
constexpr std::int64_t kOutOfCache = 64 << 20;

const bool kRegistered = [] {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      const std::string name =
          std::string(Name(type)) + "/" + std::string(Name(op));
      if (op == ReduceOp::kAverage) {  // the sum is there already
        benchmark::RegisterBenchmark(("finish/" + name).c_str(), Finish, type)
            ->Arg(kSubChunk);
        continue;
      }
      auto* const reduce = benchmark::RegisterBenchmark(
          ("reduce/" + name).c_str(), Reduce, type, op);
      reduce->Arg(kInCache)->Arg(kSubChunk);
      if (type == DataType::kFloat32) {
        reduce->Arg(kOutOfCache);
      }
    }
  }
  benchmark::RegisterBenchmark("copy", Copy)
      ->Arg(kInCache)
      ->Arg(kSubChunk)
      ->Arg(kOutOfCache);
  return true;
}();

}  // namespace
}  // namespace ringpipe
