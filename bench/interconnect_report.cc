#include "bench/interconnect_report.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/atomic_file.h"
#include "bench/terminal.h"
#include "bench/text_output.h"
#include "validate/html_report.h"
#include "validate/text_report.h"

namespace ringpipe {

Result<validate::Measurements> ReadMeasurements(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return ErrnoStatus(StatusCode::kInvalidArgument, path, errno);
  }
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  auto measurements = validate::FromJson(text);
  if (!measurements.ok()) {
    return measurements.status().WithContext(path);
  }
  return measurements;
}

Status CheckFiles(const InterconnectOptions& options) {
  for (const std::string& path : {options.json_path, options.html_path}) {
    if (!path.empty() && path != "-") {
      RINGPIPE_RETURN_IF_ERROR(CheckWritable(path));
    }
  }
  return options.baseline_path.empty()
             ? Status()
             : ReadMeasurements(options.baseline_path).status();
}

Result<validate::Verdict> Report(const InterconnectOptions& options,
                                 const validate::Measurements& measurements,
                                 const validate::Measurements* baseline) {
  const validate::Analysis analysis =
      validate::Analyze(measurements, options.analysis, baseline);
  const int fd = options.JsonToStandardOutput() ? STDERR_FILENO : STDOUT_FILENO;
  TextOutput output(fd,
                    fd == STDOUT_FILENO ? "standard output" : "standard error",
                    /*stop_fd=*/-1);
  const Status printed = output.Write(validate::FormatTextReport(
      measurements, analysis, {TerminalColumns(fd), TakesColours(fd)}));
  if (options.JsonToStandardOutput()) {
    TextOutput json(STDOUT_FILENO, "standard output", /*stop_fd=*/-1);
    RINGPIPE_RETURN_IF_ERROR(json.Write(validate::ToJson(measurements)));
  } else if (!options.json_path.empty()) {
    RINGPIPE_RETURN_IF_ERROR(
        WriteAtomically(options.json_path, validate::ToJson(measurements)));
  }
  if (!options.html_path.empty()) {
    RINGPIPE_RETURN_IF_ERROR(WriteAtomically(
        options.html_path, validate::FormatHtmlReport(measurements, analysis)));
  }
  // A reader that has seen enough, as in "| head", is no error.
  RINGPIPE_RETURN_IF_ERROR(output.reader_left() ? Status() : printed);
  return analysis.verdict;
}

Result<validate::Verdict> ReportSaved(const InterconnectOptions& options) {
  RINGPIPE_RETURN_IF_ERROR(CheckFiles(options));
  RINGPIPE_ASSIGN_OR_RETURN(validate::Measurements run,
                            ReadMeasurements(options.saved_paths.front()));
  if (options.saved_paths.size() == 1) {
    return Report(options, run, nullptr);
  }
  RINGPIPE_ASSIGN_OR_RETURN(validate::Measurements other,
                            ReadMeasurements(options.saved_paths.back()));
  // Dates are ISO 8601.
  if (other.date > run.date) {
    std::swap(run, other);
  }
  return Report(options, run, &other);
}

}  // namespace ringpipe
