// bench/interconnect: validates the interconnect of a job. See --help.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/environment.h"
#include "bench/available_memory.h"
#include "bench/byte_size.h"
#include "bench/interconnect_options.h"
#include "bench/interconnect_rank.h"
#include "bench/interconnect_report.h"
#include "bench/local_ranks.h"
#include "bench/memory_kills.h"
#include "bench/rank_limits.h"
#include "bench/text_output.h"
#include "engine/communicator.h"
#include "validate/phases.h"

namespace ringpipe {
namespace {

constexpr int kFaulty = static_cast<int>(validate::Verdict::kFaulty);
constexpr int kNotMeasured = static_cast<int>(validate::Verdict::kNotMeasured);

constexpr int kKilled = 128 + SIGKILL;

// The most that ranks of this host may need, whatever they find out.
Status CheckMemoryOf(const InterconnectOptions& options) {
  const auto available = AvailableMemory();
  if (!available) {
    return Status::Ok();
  }
  constexpr double kFastest = 1e12;  // bytes/s: the longest messages
  const validate::RunPlan plan = validate::MakePlan(
      {.ranks = options.ranks, .bytes_per_s = kFastest}, options.run);
  const std::uint64_t each = plan.memory_bytes + BytesOfRank(options.ranks);
  return CheckMemory(options.ranks, static_cast<double>(each), *available,
                     FormatByteSize(each) + " each",
                     "a smaller --message_bytes or fewer ranks");
}

// What can be known to be wrong before any rank is started.
Status CheckBeforeStart(const InterconnectOptions& options) {
  RINGPIPE_RETURN_IF_ERROR(CheckIsNoRank());
  RINGPIPE_RETURN_IF_ERROR(RankLimits::Own().Check(options.ranks));
  RINGPIPE_RETURN_IF_ERROR(Environment::FromProcess().status());
  RINGPIPE_RETURN_IF_ERROR(CheckMemoryOf(options));
  return CheckFiles(options);
}

Result<int> StartRanks(const InterconnectOptions& options,
                       const std::vector<std::string>& arguments) {
  RINGPIPE_RETURN_IF_ERROR(CheckBeforeStart(options));
  const std::uint64_t kills = MemoryKills();
  RINGPIPE_ASSIGN_OR_RETURN(
      const JobEnd end,
      RunLocalRanks(options.ranks, arguments, /*results=*/kNotMeasured));
  const int exit_status = EndAs(end);
  if (exit_status == kKilled && MemoryKills() > kills) {
    return Status(StatusCode::kResourceExhausted,
                  "the kernel killed a rank, because this container (cgroup) "
                  "reached its limit of memory; use fewer ranks, a smaller "
                  "--message_bytes, or a higher limit");
  }
  // A rank that was killed is a fault.
  return exit_status > kNotMeasured ? kFaulty : exit_status;
}

Status Print(const std::string& text) {
  return TextOutput(STDOUT_FILENO, "standard output", /*stop_fd=*/-1)
      .Write(text);
}

Result<int> Main(int argc, char** argv) {
  OccupyStandardDescriptors();
  const char* directory = std::getenv("BUILD_WORKING_DIRECTORY");
  RINGPIPE_ASSIGN_OR_RETURN(
      const InterconnectOptions options,
      ParseInterconnectOptions(argc, argv,
                               directory == nullptr ? "" : directory));
  if (!options.help.empty() || options.version) {
    RINGPIPE_RETURN_IF_ERROR(
        Print(options.version ? "ringpipe " + std::string(Version()) + "\n"
                              : options.help));
    return 0;
  }
  if (!options.saved_paths.empty()) {
    RINGPIPE_ASSIGN_OR_RETURN(const validate::Verdict verdict,
                              ReportSaved(options));
    return ExitStatus(verdict);
  }
  if (options.ranks == 0 || options.error_fd >= 0) {
    return InterconnectRank(options);
  }
  return StartRanks(options, std::vector<std::string>(argv, argv + argc));
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) {
  const auto exit_status = ringpipe::Main(argc, argv);
  if (!exit_status.ok()) {
    ringpipe::ReportError(-1, -1, exit_status.status());
    return ringpipe::kNotMeasured;
  }
  return exit_status.value();
}
