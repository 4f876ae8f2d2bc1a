// What bench/interconnect prints and writes at the end.
#ifndef RINGPIPE_BENCH_INTERCONNECT_REPORT_H_
#define RINGPIPE_BENCH_INTERCONNECT_REPORT_H_

#include <string>

#include "base/status.h"
#include "bench/interconnect_options.h"
#include "validate/analysis.h"
#include "validate/measurements.h"

namespace ringpipe {

// kInvalidArgument, naming the file, where it cannot be read or is no such
// file.
Result<validate::Measurements> ReadMeasurements(const std::string& path);

// Whether the files that the options ask for can be written and read, before
// anything is measured.
Status CheckFiles(const InterconnectOptions& options);

// Judges, prints the report and writes the files. Returns the verdict.
Result<validate::Verdict> Report(const InterconnectOptions& options,
                                 const validate::Measurements& measurements,
                                 const validate::Measurements* baseline);

// `interconnect report`.
Result<validate::Verdict> ReportSaved(const InterconnectOptions& options);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_INTERCONNECT_REPORT_H_
