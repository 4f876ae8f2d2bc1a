// bench/allreduce: measures and verifies an allreduce. See --help.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/atomic_file.h"
#include "bench/available_memory.h"
#include "bench/local_ranks.h"
#include "bench/options.h"
#include "bench/rank_main.h"

namespace ringpipe {
namespace {

// What can be known to be wrong before any rank is started.
Status CheckBeforeStart(const Options& options) {
  if (std::getenv("RINGPIPE_RANK") != nullptr) {
    return {StatusCode::kInvalidArgument,
            "RINGPIPE_RANK is set, so that this is one rank of a job, and "
            "--ranks would start a job; use one of them"};
  }
  if (const auto available = AvailableMemory()) {
    RINGPIPE_RETURN_IF_ERROR(CheckMemory(options, options.ranks, *available));
  }
  return options.json_path.empty() ? Status()
                                   : CheckWritable(options.json_path);
}

Result<int> StartRanks(const Options& options,
                       const std::vector<std::string>& arguments) {
  RINGPIPE_RETURN_IF_ERROR(CheckBeforeStart(options));
  return RunLocalRanks(options.ranks, arguments);
}

int Main(int argc, char** argv) {
  const char* directory = std::getenv("BUILD_WORKING_DIRECTORY");
  const auto options =
      ParseOptions(argc, argv, directory == nullptr ? "" : directory);
  if (!options.ok()) {
    ReportError(-1, -1, options.status());
    return 1;
  }
  if (!options.value().help.empty()) {
    std::fputs(options.value().help.c_str(), stdout);
    return 0;
  }
  if (options.value().ranks == 0 || options.value().error_fd >= 0) {
    return RankMain(options.value());
  }
  const auto exit_status =
      StartRanks(options.value(), std::vector<std::string>(argv, argv + argc));
  if (!exit_status.ok()) {
    ReportError(-1, -1, exit_status.status());
    return 1;
  }
  return exit_status.value();
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) { return ringpipe::Main(argc, argv); }
