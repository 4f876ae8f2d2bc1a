// The speed of the reductions of host memory, in and out of cache. Bytes are
// those of one operand, however many there are: in place the memory traffic is
// three times that, into other memory four times (a target is read before it is
// written), and each further source adds one.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "reduction/host_reduction.h"

namespace ringpipe {
namespace {

// Begins at a cache line, as slots do: otherwise the chance of where malloc
// puts the operands decides a fifth of the result. Zero is valid in every type
// and stays zero, however often it is reduced.
struct alignas(64) CacheLine {
  std::byte bytes[64];
};
using Memory = std::vector<CacheLine>;

Memory Zeroes(std::size_t bytes) { return Memory(bytes / sizeof(CacheLine)); }

// target = own OP received[0] OP ...; in place, target is own.
void Reduce(benchmark::State& state, DataType type, ReduceOp op, bool in_place,
            int sources) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Memory target = Zeroes(bytes);
  const Memory apart = Zeroes(in_place ? 0 : bytes);
  const std::vector<Memory> memory(sources, Zeroes(bytes));
  std::vector<const void*> received;
  for (const Memory& source : memory) {
    received.push_back(source.data());
  }
  const void* const own = in_place ? target.data() : apart.data();
  const ReduceFunction reduce = FindReduction(type, op);
  for (auto _ : state) {
    reduce(target.data(), own, received.data(), sources, bytes / SizeOf(type));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          state.range(0));
}

// What the memory can do: a copy moves two thirds of the bytes of a reduction
// in place.
void Copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Memory target = Zeroes(bytes);
  const Memory source = Zeroes(bytes);
  for (auto _ : state) {
    std::memcpy(target.data(), source.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          state.range(0));
}

void Finish(benchmark::State& state, DataType type) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Memory data = Zeroes(bytes);
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
      const auto add = [&](const char* kind, bool in_place, int sources) {
        auto* const reduce = benchmark::RegisterBenchmark(
            (kind + name).c_str(), Reduce, type, op, in_place, sources);
        reduce->Arg(kInCache)->Arg(kSubChunk);
        if (type == DataType::kFloat32) {
          reduce->Arg(kOutOfCache);
        }
      };
      add("reduce/", true, 1);
      add("reduce_apart/", false, 1);
      add("reduce_3_apart/", false, 3);
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
