// What a run measured, as JSON.
#ifndef RINGPIPE_BENCH_JSON_REPORT_H_
#define RINGPIPE_BENCH_JSON_REPORT_H_

#include <map>
#include <optional>
#include <string>

#include "bench/benchmark.h"
#include "bench/bound_by.h"
#include "bench/options.h"
#include "bench/run_facts.h"

namespace ringpipe {

// The version of the schema that README.md describes. A field more leaves it;
// one that goes, or means something else, makes it one larger.
inline constexpr int kJsonSchemaVersion = 1;

struct Report {
  RunFacts facts;
  BenchmarkResult result;
  std::map<std::string, StageShare> stages;
  std::optional<std::string> bound_by;
  // The signal that ended the run early; 0: none did.
  int interrupted_by = 0;
};

// One object, as README.md has it. Ends with a newline.
std::string FormatJsonReport(const Options& options, const Report& report);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_JSON_REPORT_H_
