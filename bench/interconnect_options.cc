#include "bench/interconnect_options.h"

#include <utility>

#include "CLI/CLI.hpp"
#include "bench/byte_size.h"
#include "bench/command_line.h"
#include "bench/options.h"
#include "validate/units.h"

namespace ringpipe {
namespace {

constexpr char kDescription[] =
    "Validates the interconnect of a job before it runs: measures every link "
    "between its ranks, by the way that jobs take, and says which host, port "
    "or path is slow or broken.\n"
    "Start one rank a host (or one a rail) with mpirun, srun or torchrun; "
    "--ranks starts all on this host, which measures its memory.";

constexpr char kFooter[] =
    "Exit status: 0 healthy, 1 something is wrong, 2 uncertain, because noise "
    "hides too much, or not measured. "
    "Ctrl-C ends all ranks and prints what was measured.\n"
    "\n"
    "Examples:\n"
    "  srun --ntasks-per-node=1 interconnect --expect 90Gbit/s --html "
    "links.html\n"
    "  interconnect --ranks 8\n"
    "  interconnect report today.json last_week.json --html change.html";

constexpr std::uint64_t kLeastMessage = 4096;
constexpr std::uint64_t kMostMessage = std::uint64_t{1} << 30;

struct Texts {
  std::string tolerance, expect, duration, message_bytes;
  bool isolated = false;
};

Status Invalid(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

// What a report has, of a new measurement or of a saved one.
void AddReportOptions(CLI::App& app, InterconnectOptions& options,
                      Texts& texts) {
  app.add_option("--tolerance", texts.tolerance,
                 "how much less than the others of its kind a link may carry "
                 "[10%]");
  app.add_option("--expect", texts.expect,
                 "what one host has to carry to another, such as 90Gbit/s or "
                 "11GB/s (on one host: a link there)");
  app.add_option("--json", options.json_path,
                 "write every sample to this file; -: to standard output, and "
                 "the report to standard error");
  app.add_option("--html", options.html_path,
                 "write the report to this file, to be opened in a browser");
}

void AddOptions(CLI::App& app, InterconnectOptions& options, Texts& texts) {
  app.add_option("--ranks", options.ranks,
                 "start this many ranks on this host (1 to 1024)")
      ->check(CLI::Range(1, kMaxRanks));
  AddReportOptions(app, options, texts);
  app.add_option("--baseline", options.baseline_path,
                 "a file of an earlier --json: report what has changed");
  app.add_option("--duration", texts.duration,
                 "of the stress test, which checks every byte: 30s, 10m, 2h; "
                 "0: none [2s]");
  app.add_flag("--isolated", texts.isolated,
               "measure every link alone too, not only the suspects");
  app.add_option("--message_bytes", texts.message_bytes,
                 "bytes of a message, such as 4M [by the speed of the "
                 "network]");
  app.add_flag("--version", options.version, "print the version");
  // Not in the help: what a launcher tells its ranks.
  app.add_option("--error-fd", options.error_fd)->group("");
}

Status ParseTexts(const Texts& texts, InterconnectOptions& options) {
  if (!texts.tolerance.empty()) {
    const auto part = validate::ParsePercent(texts.tolerance);
    if (!part.ok()) {
      return part.status().WithContext("--tolerance");
    }
    options.analysis.tolerance = part.value();
    options.run.tolerance = part.value();
  }
  if (!texts.expect.empty()) {
    const auto rate = validate::ParseRate(texts.expect);
    if (!rate.ok()) {
      return rate.status().WithContext("--expect");
    }
    options.analysis.expect_bytes_per_s = rate.value();
  }
  if (!texts.duration.empty()) {
    const auto seconds = validate::ParseDuration(texts.duration);
    if (!seconds.ok()) {
      return seconds.status().WithContext("--duration");
    }
    options.run.stress_seconds = seconds.value();
  }
  if (!texts.message_bytes.empty()) {
    const auto bytes = ParseByteSize(texts.message_bytes);
    if (!bytes.ok()) {
      return bytes.status().WithContext("--message_bytes");
    }
    if (bytes.value() < kLeastMessage || bytes.value() > kMostMessage) {
      return Invalid("--message_bytes " + texts.message_bytes +
                     ": from 4K, below which latency is all that counts, to "
                     "1G");
    }
    options.run.message_bytes = bytes.value() / 8 * 8;
  }
  options.run.isolate_all = texts.isolated;
  return {};
}

}  // namespace

Result<InterconnectOptions> ParseInterconnectOptions(
    int argc, const char* const* argv,
    const std::string& invocation_directory) {
  InterconnectOptions options;
  Texts texts;
  CLI::App app(kDescription, "interconnect");
  app.footer(kFooter);
  AddOptions(app, options, texts);
  CLI::App* report = app.add_subcommand(
      "report",
      "draw a saved run again; with a second file what has changed "
      "since the earlier of the two");
  report->add_option("files", options.saved_paths, "of earlier --json")
      ->required()
      ->expected(1, 2);
  AddReportOptions(*report, options, texts);
  RINGPIPE_ASSIGN_OR_RETURN(options.help, ParseCommandLine(app, argc, argv));
  if (!options.help.empty()) {
    return options;
  }
  RINGPIPE_RETURN_IF_ERROR(ParseTexts(texts, options));
  if (options.html_path == "-") {
    return Invalid("--html -: name a file");
  }
  for (std::string* path :
       {&options.json_path, &options.html_path, &options.baseline_path}) {
    *path = PathFrom(invocation_directory, *path);
  }
  for (std::string& path : options.saved_paths) {
    path = PathFrom(invocation_directory, path);
  }
  return options;
}

}  // namespace ringpipe
