// bench/allreduce: measures and verifies an allreduce. See --help.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/environment.h"
#include "bench/available_memory.h"
#include "bench/core_distance.h"
#include "bench/local_ranks.h"
#include "bench/options.h"
#include "bench/rank_limits.h"
#include "bench/rank_main.h"
#include "bench/text_output.h"
#include "engine/communicator.h"

namespace ringpipe {
namespace {

// What can be known to be wrong before any rank is started.
Status CheckBeforeStart(const Options& options) {
  RINGPIPE_RETURN_IF_ERROR(CheckIsNoRank());
  RINGPIPE_RETURN_IF_ERROR(RankLimits::Own().Check(options.ranks));
  RINGPIPE_ASSIGN_OR_RETURN(const Environment environment,
                            Environment::FromProcess());
  if (const auto available = AvailableMemory()) {
    RINGPIPE_RETURN_IF_ERROR(
        CheckMemory(options, options.ranks,
                    BytesOfRank(options.ranks) +
                        BytesOfSlots(options, environment, options.ranks),
                    *available));
  }
  if (!options.trace_path.empty()) {
    RINGPIPE_RETURN_IF_ERROR(CheckWritable(options.trace_path));
  }
  return options.json_path.empty() || options.JsonToStandardOutput()
             ? Status()
             : CheckWritable(options.json_path);
}

// Where there are two cores, how far apart they are; for the report. Now,
// because the ranks keep them busy.
std::string FindPlacement() {
  const std::vector<int> cores = UsableCores();
  if (cores.size() != 2) {
    return "";
  }
  const auto round_trip_ns = CacheLineRoundTripNs(cores[0], cores[1]);
  return round_trip_ns.ok() ? FormatPlacement(round_trip_ns.value()) : "";
}

Result<JobEnd> StartRanks(const Options& options,
                          std::vector<std::string> arguments) {
  RINGPIPE_RETURN_IF_ERROR(CheckBeforeStart(options));
  const std::string placement =
      options.json_path.empty() ? "" : FindPlacement();
  if (!placement.empty()) {
    arguments.push_back("--placement=" + placement);
  }
  return RunLocalRanks(options.ranks, arguments);
}

// For --help and --version. SIGPIPE has its default action here.
Status Print(const std::string& text) {
  return TextOutput(STDOUT_FILENO, "standard output", /*stop_fd=*/-1)
      .Write(text);
}

Result<int> Main(int argc, char** argv) {
  OccupyStandardDescriptors();
  const char* directory = std::getenv("BUILD_WORKING_DIRECTORY");
  RINGPIPE_ASSIGN_OR_RETURN(
      const Options options,
      ParseOptions(argc, argv, directory == nullptr ? "" : directory));
  if (!options.help.empty()) {
    RINGPIPE_RETURN_IF_ERROR(Print(options.help));
    return 0;
  }
  if (options.version) {
    RINGPIPE_RETURN_IF_ERROR(
        Print("ringpipe " + std::string(Version()) + "\n"));
    return 0;
  }
  if (options.ranks == 0 || options.error_fd >= 0) {
    return RankMain(options);
  }
  RINGPIPE_ASSIGN_OR_RETURN(
      const JobEnd end,
      StartRanks(options, std::vector<std::string>(argv, argv + argc)));
  return EndAs(end);
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) {
  const auto exit_status = ringpipe::Main(argc, argv);
  if (!exit_status.ok()) {
    ringpipe::ReportError(-1, -1, exit_status.status());
    return 1;
  }
  return exit_status.value();
}
