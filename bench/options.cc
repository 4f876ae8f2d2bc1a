#include "bench/options.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/byte_size.h"
#include "bench/command_line.h"
#include "bench/tensors.h"

namespace ringpipe {
namespace {

constexpr char kDescription[] =
    "Measures and verifies an allreduce: every rank has a buffer, and ends "
    "with "
    "the sum (or another reduction) of all of them; or another collective. "
    "Options and output are those of nccl-tests.\n"
    "Ranks are started by --ranks on this host, or by mpirun, torchrun or "
    "srun.";

constexpr char kFooter[] =
    "Sizes are bytes, with K, M, G or T for powers of 1024. Bandwidths are in "
    "GB/s, GB = 1e9 bytes.\n"
    "Exit status: 0; 1 where an argument or a result is wrong, the output "
    "cannot be written or a rank failed; 128 + signal where a rank was "
    "killed. Ctrl-C and SIGTERM end the program by that signal; with -J what "
    "was measured so far is written before.\n"
    "\n"
    "A size is measured in this order, out of place and then in place: the "
    "first call, the warm-ups, the timed calls, the checked calls. The table "
    "shows the mean time of the timed calls (see -a); the lines below it the "
    "median over the timed calls of the slowest rank's time, with a 95 % "
    "confidence interval (order statistics), and the first call apart.";

struct Texts {
  std::string min_bytes, max_bytes, step_bytes,
      type = "float", op = "sum", collective = "allreduce", memory = "host";
  int average = 1, blocking = 1, registered = 0, iterations = 0;
};

std::string Names(std::span<const DataType> types) {
  std::string names;
  for (const DataType type : types) {
    names += std::string(Name(type)) + ", ";
  }
  return names;
}

std::string Names(std::span<const ReduceOp> ops) {
  std::string names;
  for (const ReduceOp op : ops) {
    names += std::string(Name(op)) + ", ";
  }
  return names;
}

// Those that have buffers, and are no matter of pairs.
std::vector<Collective> AllCollectives() {
  std::vector<Collective> all;
  for (int i = 0; i < kCollectives; ++i) {
    if (static_cast<Collective>(i) != Collective::kBarrier) {
      all.push_back(static_cast<Collective>(i));
    }
  }
  return all;
}

void AddOptions(CLI::App& app, Options& options, Texts& texts) {
  constexpr int kMany = 10'000'000;
  app.add_option("--ranks", options.ranks,
                 "start this many ranks on this host (1 to 1024)")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_flag("--pin", options.pin,
               "rank r runs on core r modulo their number, as under MPI's "
               "launchers (with --ranks)");
  app.add_option("-b,--minbytes", texts.min_bytes, "smallest size [32M]");
  app.add_option("-e,--maxbytes", texts.max_bytes,
                 "largest size [32M, or -b if that is larger]");
  app.add_option("--tensors", options.model,
                 "one size, that of this model's gradients, each of which is "
                 "a piece of a list: resnet50 (161 tensors) [buffers that lie "
                 "together]")
      ->excludes("--minbytes")
      ->excludes("--maxbytes");
  auto* step = app.add_option("-i,--stepbytes", texts.step_bytes,
                              "from one size to the next, add this [1M]");
  app.add_option("-f,--stepfactor", options.step_factor,
                 "from one size to the next, multiply by this (2 or more)")
      ->check(CLI::Range(2, kMany))
      ->excludes(step);
  app.add_option("-n,--iters", texts.iterations,
                 "timed calls [20; where these would take more than 8 s, as "
                 "many as take 8 s, but at least 6]")
      ->check(CLI::Range(1, kMany));
  app.add_option("-w,--warmup_iters", options.warmups,
                 "calls before them that are not timed, besides the first [1]")
      ->check(CLI::Range(0, kMany));
  app.add_option("-d,--datatype", texts.type,
                 "one of " + Names(kDataTypes) + "or all [float]");
  app.add_option("-o,--op", texts.op,
                 "one of " + Names(kReduceOps) + "or all [sum]");
  app.add_option("--collective", texts.collective,
                 "one of " + NameOfAll(AllCollectives()) +
                     ", or all; sizes are those of the whole message "
                     "[allreduce]");
  app.add_option("-r,--root", options.root,
                 "the root, where the collective has one [0]")
      ->check(CLI::Range(0, kMaxRanks - 1));
  app.add_option("-c,--check", options.checks,
                 "calls whose result is checked; 0: no check [1]")
      ->check(CLI::Range(0, kMany));
  app.add_option("-a,--average", texts.average,
                 "time shown, of the ranks' mean times: 0 rank 0's, 1 average, "
                 "2 min, 3 max [1]")
      ->check(CLI::Range(0, 3));
  app.add_option("-z,--blocking", texts.blocking,
                 "1: blocking calls; 0: asynchronous ones, each waited for "
                 "[1; 0 in nccl-tests]")
      ->check(CLI::Range(0, 1));
  app.add_option("-R,--local_register", texts.registered,
                 "1: buffers from Communicator::Allocate; 2: any memory, given "
                 "to Communicator::Register; 0: any memory [0]")
      ->check(CLI::Range(0, 2));
  app.add_option("--memory", texts.memory,
                 "whose memory the buffers are: host; or device or managed, of "
                 "the GPU that has the rank's number on its host, or that "
                 "number modulo that of the GPUs [host]");
  app.add_flag("--huge_pages", options.huge_pages,
               "ask the system for huge pages for the buffers (not with -R 1)");
  app.add_option("--align", options.align,
                 "private buffers begin so many bytes past a page, 0 to 4095 "
                 "(not with -R 1) [16, as malloc's; of a GPU 0]")
      ->check(CLI::Range(0, 4095));
  app.add_option("--rotate", options.rotate,
                 "each call takes the next of so many pairs of buffers: for "
                 "memory that is in no cache, as many as are larger together "
                 "than the caches [1]")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--touch", options.touch,
               "in every call's time, write the input before the call and "
               "read the output after it, as a program does");
  app.add_option("--algorithm", options.algorithm,
                 "which algorithm the collective takes, such as rabenseifner; "
                 "a wrong name lists the right ones; all: each of them, in a "
                 "table of its own [by size]");
  app.add_option("-J,--json,--output_file", options.json_path,
                 "write every sample to this file, as JSON; -: to standard "
                 "output, and the table to standard error");
  app.add_option("--trace", options.trace_path,
                 "write a timeline of the last calls to this file "
                 "(RINGPIPE_TRACE; see docs/timeline.md)");
  app.add_option("--seed", options.seed, "of the input data [1]");
  app.add_flag("--version", options.version, "print the version");
  // Not in the help: what a launcher tells its ranks.
  app.add_option("--error-fd", options.error_fd)->group("");
  app.add_option("--placement", options.placement)->group("");
}

Status Invalid(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

Status ParseSize(const char* option, const std::string& text,
                 std::uint64_t& bytes) {
  if (!text.empty()) {
    const auto parsed = ParseByteSize(text);
    if (!parsed.ok()) {
      return parsed.status().WithContext(option);
    }
    bytes = parsed.value();
  }
  return {};
}

Status ParseSizes(const Texts& texts, Options& options) {
  RINGPIPE_RETURN_IF_ERROR(
      ParseSize("-b (--minbytes)", texts.min_bytes, options.min_bytes));
  if (texts.max_bytes.empty()) {
    options.max_bytes = std::max(options.max_bytes, options.min_bytes);
  }
  RINGPIPE_RETURN_IF_ERROR(
      ParseSize("-e (--maxbytes)", texts.max_bytes, options.max_bytes));
  if (texts.min_bytes.empty()) {
    options.min_bytes = std::min(options.max_bytes, options.min_bytes);
  }
  RINGPIPE_RETURN_IF_ERROR(
      ParseSize("-i (--stepbytes)", texts.step_bytes, options.step_bytes));
  if (options.min_bytes > options.max_bytes) {
    return Invalid("-b (--minbytes) " + FormatByteSize(options.min_bytes) +
                   " is more than -e (--maxbytes) " +
                   FormatByteSize(options.max_bytes) +
                   "; the smallest size must not be above the largest");
  }
  if (options.step_bytes == 0) {
    return Invalid("-i (--stepbytes) 0: the step must be at least 1 byte");
  }
  if (options.step_factor != 0 && options.min_bytes == 0) {
    return Invalid(
        "-f (--stepfactor) with -b 0: zero stays zero however often it is "
        "multiplied; begin with at least 1 byte, or use -i");
  }
  return {};
}

Status ParseTypeAndOp(const Texts& texts, Options& options) {
  if (texts.type == "all") {
    options.types.assign(kDataTypes.begin(), kDataTypes.end());
  } else if (const auto type = ParseDataType(texts.type)) {
    options.types = {*type};
  } else {
    return Invalid("-d (--datatype) \"" + texts.type +
                   "\" is no data type; allowed are " + Names(kDataTypes) +
                   "also float and double, or all");
  }
  if (texts.op == "all") {
    options.ops.assign(kReduceOps.begin(), kReduceOps.end());
  } else if (const auto op = ParseReduceOp(texts.op)) {
    options.ops = {*op};
  } else {
    return Invalid("-o (--op) \"" + texts.op +
                   "\" is no reduction; allowed are " + Names(kReduceOps) +
                   "also avg, or all");
  }
  return {};
}

Status ParseCollective(const Texts& texts, Options& options) {
  options.collectives = AllCollectives();
  if (texts.collective != "all") {
    std::erase_if(options.collectives, [&texts](Collective collective) {
      return texts.collective != CollectiveName(collective);
    });
  }
  if (options.collectives.empty()) {
    return Invalid("--collective \"" + texts.collective +
                   "\" is none that is measured; allowed are " +
                   NameOfAll(AllCollectives()) + ", or all");
  }
  if (options.algorithm == kAllAlgorithms) {
    return options.json_path.empty() && options.trace_path.empty()
               ? Status()
               : Invalid(
                     "--algorithm all measures several times, and a file "
                     "would have the last alone; leave -J and --trace out");
  }
  if (options.collectives.size() > 1 && !options.algorithm.empty()) {
    return Invalid("--algorithm is that of one collective, and there are " +
                   std::to_string(options.collectives.size()) +
                   "; name one with --collective");
  }
  return {};
}

// After the types and collectives are known.
Status ParseTensors(Options& options) {
  if (options.model.empty()) {
    return {};
  }
  auto tensors = TensorsOf(options.model);
  if (!tensors.ok()) {
    return tensors.status().WithContext("--tensors");
  }
  options.tensors = std::move(tensors).value();
  for (const Collective collective : options.collectives) {
    if (InfoOf(collective).has_parts) {
      return Invalid(
          "--tensors is for collectives whose message is a whole, "
          "and those of " +
          std::string(CollectiveName(collective)) +
          " have a part for each rank");
    }
  }
  if (options.types.size() > 1) {
    return Invalid("--tensors gives the size, and so takes one data type (-d)");
  }
  options.min_bytes = options.max_bytes =
      std::accumulate(options.tensors.begin(), options.tensors.end(),
                      std::size_t{0}) *
      SizeOf(options.types[0]);
  return {};
}

constexpr std::array kMemoryPlaces = {MemoryPlace::kHost, MemoryPlace::kDevice,
                                      MemoryPlace::kManaged};

// What the host's memory alone can have or be.
Status ParseMemory(const Texts& texts, Options& options) {
  const auto* const found = std::find_if(
      kMemoryPlaces.begin(), kMemoryPlaces.end(),
      [&](MemoryPlace place) { return texts.memory == Name(place); });
  if (found == kMemoryPlaces.end()) {
    return Invalid("--memory \"" + texts.memory +
                   "\" is no memory; allowed are host, device, managed");
  }
  options.memory = *found;
  if (options.memory == MemoryPlace::kHost) {
    return {};
  }
  const auto of_host = [&](const std::string& option) {
    return Invalid(option + " is for memory of the host, and --memory " +
                   texts.memory + " is a GPU's; use one of the two");
  };
  if (options.buffers != BufferKind::kPrivate) {
    return of_host("-R " + std::to_string(static_cast<int>(options.buffers)) +
                   " (--local_register)");
  }
  return options.huge_pages ? of_host("--huge_pages")
         : options.touch    ? of_host("--touch")
                            : Status();
}

// After the types are known. What the library allocates begins with a page.
Status CheckAlign(bool given, Options& options) {
  if (options.buffers == BufferKind::kAllocated) {
    options.align = 0;
    return given ? Invalid(
                       "--align is for the benchmark's own memory, and with -R "
                       "1 (--local_register) the library allocates it; use -R "
                       "0 or -R 2")
                 : Status();
  }
  if (!given && options.memory != MemoryPlace::kHost) {
    options.align = 0;
  }
  for (const DataType type : options.types) {
    if (options.align % SizeOf(type) != 0) {
      return Invalid("--align " + std::to_string(options.align) +
                     ": no multiple of the " + std::to_string(SizeOf(type)) +
                     " bytes of " + std::string(Name(type)));
    }
  }
  return {};
}

}  // namespace

std::string_view Name(MemoryPlace place) {
  switch (place) {
    case MemoryPlace::kHost:
      return "host";
    case MemoryPlace::kDevice:
      return "device";
    case MemoryPlace::kManaged:
      return "managed";
  }
  return "";
}

std::string NameOfAll(const std::vector<Collective>& collectives) {
  std::string names;
  for (const Collective collective : collectives) {
    names +=
        (names.empty() ? "" : ", ") + std::string(CollectiveName(collective));
  }
  return names;
}

std::optional<std::uint64_t> Options::NextSize(std::uint64_t bytes) const {
  // Sizes are below 2^62, factors and steps too: no sum wraps, and a product
  // is compared by division.
  if (step_factor != 0) {
    return bytes > max_bytes / step_factor ? std::nullopt
                                           : std::optional(bytes * step_factor);
  }
  return bytes + step_bytes > max_bytes ? std::nullopt
                                        : std::optional(bytes + step_bytes);
}

std::uint64_t Options::Sizes() const {
  if (step_factor == 0) {
    return (max_bytes - min_bytes) / step_bytes + 1;
  }
  std::uint64_t sizes = 1;
  for (auto size = NextSize(min_bytes); size; size = NextSize(*size)) {
    ++sizes;
  }
  return sizes;
}

Result<Options> ParseOptions(int argc, const char* const* argv,
                             const std::string& invocation_directory) {
  Options options;
  Texts texts;
  CLI::App app(kDescription, "allreduce");
  app.footer(kFooter);
  AddOptions(app, options, texts);
  RINGPIPE_ASSIGN_OR_RETURN(options.help, ParseCommandLine(app, argc, argv));
  if (!options.help.empty()) {
    return options;
  }
  if (app.count("--iters") > 0) {
    options.iterations = texts.iterations;
  }
  options.average = static_cast<AcrossRanks>(texts.average);
  options.blocking = texts.blocking == 1;
  options.buffers = static_cast<BufferKind>(texts.registered);
  RINGPIPE_RETURN_IF_ERROR(ParseSizes(texts, options));
  RINGPIPE_RETURN_IF_ERROR(ParseTypeAndOp(texts, options));
  RINGPIPE_RETURN_IF_ERROR(ParseCollective(texts, options));
  RINGPIPE_RETURN_IF_ERROR(ParseTensors(options));
  RINGPIPE_RETURN_IF_ERROR(ParseMemory(texts, options));
  if (options.pin && options.ranks == 0) {
    return Invalid(
        "--pin is for ranks that --ranks starts; other launchers have options "
        "of their own, such as --bind-to core");
  }
  if (options.huge_pages && options.buffers == BufferKind::kAllocated) {
    return Invalid(
        "--huge_pages is for the benchmark's own memory, and with -R 1 "
        "(--local_register) the library allocates it; use -R 0 or -R 2");
  }
  RINGPIPE_RETURN_IF_ERROR(CheckAlign(app.count("--align") > 0, options));
  if (options.trace_path == "-") {
    return Invalid(
        "--trace takes the name of a file: ranks write it together, and "
        "standard output has the table");
  }
  options.json_path = PathFrom(invocation_directory, options.json_path);
  options.trace_path = PathFrom(invocation_directory, options.trace_path);
  return options;
}

}  // namespace ringpipe
