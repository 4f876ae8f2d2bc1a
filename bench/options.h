// The command line of bench/allreduce: nccl-tests' options, and a few more.
#ifndef RINGPIPE_BENCH_OPTIONS_H_
#define RINGPIPE_BENCH_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/statistics.h"
#include "pipeline/collective.h"
#include "reduction/data_type.h"

namespace ringpipe {

inline constexpr int kMaxRanks = 1024;

// Without -n: this many timed calls of each size out of place, and in place;
// fewer where they would take longer than the budget, but enough for a 95 %
// interval of the median.
inline constexpr int kDefaultIterations = 20;
inline constexpr int kFewestDefaultIterations = 6;
inline constexpr double kDefaultBudgetSeconds = 8;

// Where malloc puts a large block in its page: after its own 16 bytes.
inline constexpr int kMallocAlign = 16;

// Where the benchmark's buffers come from: -R.
enum class BufferKind {
  kPrivate,     // any memory
  kAllocated,   // Communicator::Allocate
  kRegistered,  // any memory, and Communicator::Register
};

// Whose memory they are: --memory. A GPU's is private (kPrivate).
enum class MemoryPlace { kHost, kDevice, kManaged };

// "host", "device", "managed".
std::string_view Name(MemoryPlace place);

// Options::algorithm: a run by each, of each collective.
inline constexpr const char* kAllAlgorithms = "all";

struct Options {
  // -b, -e: the sizes of the buffer, in bytes.
  std::uint64_t min_bytes = 32 << 20;
  std::uint64_t max_bytes = 32 << 20;
  // -i, or -f where it is not 0.
  std::uint64_t step_bytes = 1 << 20;
  std::uint64_t step_factor = 0;
  // -n, -w, -c.
  std::optional<int> iterations;
  int warmups = 1;
  int checks = 1;
  // -d, -o.
  std::vector<DataType> types = {DataType::kFloat32};
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  // --collective, -r: those that have buffers; the root.
  std::vector<Collective> collectives = {Collective::kAllReduce};
  int root = 0;
  // -a, -z, -R.
  AcrossRanks average = AcrossRanks::kAverage;
  bool blocking = true;
  BufferKind buffers = BufferKind::kPrivate;
  MemoryPlace memory = MemoryPlace::kHost;
  // -J, as an absolute path or relative to the working directory; empty: none;
  // "-": standard output, and the table goes to standard error.
  std::string json_path;
  // --trace: a path as that of -J; empty: as without the option.
  std::string trace_path;
  // --huge_pages: private memory asks for huge pages.
  bool huge_pages = false;
  // --align: how many bytes past a page private memory begins; a GPU's, past
  // what its driver gives.
  int align = kMallocAlign;
  // --rotate: so many buffers take turns, call by call.
  int rotate = 1;
  // --touch: a timed call begins with writing the input and ends with reading
  // the output.
  bool touch = false;
  // --tensors: a message has the gradients of this model, each in a piece of so
  // many elements (BufferList); empty: it lies together.
  std::string model;
  std::vector<std::size_t> tensors;
  // --algorithm: of the one collective, as the registry names it; empty: as
  // without the option; or kAllAlgorithms.
  std::string algorithm;
  std::uint64_t seed = 1;
  // --ranks; 0: one process of a job that some launcher has started.
  int ranks = 0;
  // --pin: the ranks that --ranks starts have a core each, as far as there are.
  bool pin = false;
  // Where a rank that --ranks started reports its errors; -1: to stderr.
  int error_fd = -1;
  // What --ranks found out about the host's cores, for the report; empty: not
  // known.
  std::string placement;

  // Not empty: print this and exit with status 0.
  std::string help;
  // --version: the same with the version.
  bool version = false;

  bool JsonToStandardOutput() const { return json_path == "-"; }

  // The size after `bytes`, or nullopt after the last one.
  std::optional<std::uint64_t> NextSize(std::uint64_t bytes) const;
  // How many sizes there are.
  std::uint64_t Sizes() const;
};

// "all-gather"; of several "all-gather, reduce".
std::string NameOfAll(const std::vector<Collective>& collectives);

// kInvalidArgument, saying what is allowed, for anything that is not. A
// relative path of -J or --trace is taken from `invocation_directory` where
// that is not empty
// ("bazel run" changes the working directory).
Result<Options> ParseOptions(int argc, const char* const* argv,
                             const std::string& invocation_directory);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_OPTIONS_H_
