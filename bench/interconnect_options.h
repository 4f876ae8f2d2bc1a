// The command line of bench/interconnect.
#ifndef RINGPIPE_BENCH_INTERCONNECT_OPTIONS_H_
#define RINGPIPE_BENCH_INTERCONNECT_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "validate/analysis.h"
#include "validate/phases.h"

namespace ringpipe {

struct InterconnectOptions {
  // --ranks; 0: one process of a job that some launcher has started.
  int ranks = 0;
  validate::RunOptions run;
  validate::AnalysisOptions analysis;
  // Files; empty: none. --json may be "-": standard output, and the report goes
  // to standard error.
  std::string baseline_path;
  std::string json_path;
  std::string html_path;
  // `report FILE [FILE]`: of saved runs, instead of a measurement.
  std::vector<std::string> saved_paths;
  // Where a rank that --ranks started reports its errors; -1: to stderr.
  int error_fd = -1;

  // Not empty: print this and exit with status 0.
  std::string help;
  bool version = false;

  bool JsonToStandardOutput() const { return json_path == "-"; }
};

// kInvalidArgument, saying what is allowed, for anything that is not. Relative
// paths are taken from `invocation_directory` where that is not empty.
Result<InterconnectOptions> ParseInterconnectOptions(
    int argc, const char* const* argv, const std::string& invocation_directory);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_INTERCONNECT_OPTIONS_H_
