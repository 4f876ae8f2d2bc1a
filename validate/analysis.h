// From what was measured to what is wrong: pure.
#ifndef RINGPIPE_VALIDATE_ANALYSIS_H_
#define RINGPIPE_VALIDATE_ANALYSIS_H_

#include <optional>
#include <string>
#include <vector>

#include "validate/finding.h"
#include "validate/link_classes.h"
#include "validate/measurements.h"
#include "validate/slow_links.h"

namespace ringpipe::validate {

struct AnalysisOptions {
  // A link may carry so much less than the others of its class.
  double tolerance = 0.10;
  // What one host should carry to another, by the links of all its ranks, or,
  // on one host, a link there.
  std::optional<double> expect_bytes_per_s;
};

enum class Verdict : int {
  kHealthy = 0,
  kFaulty = 1,
  kNotMeasured = 2,
  kUncertain = 3,  // measured; but noise may hide what is wrong
};
// Of the program: 0, 1, or 2 where nothing can be said.
int ExitStatus(Verdict verdict);

// One of the slowest links, for tables.
struct RankedLink {
  int plane = 0;
  int from = 0;
  int to = 0;
  double bytes_per_s = 0;
  double ratio = 0;
  double isolated_bytes_per_s = 0;  // NaN: not measured
};

struct PlaneClasses {
  std::string plane;
  std::vector<LinkClass> classes;
  // Of each: the part that a single link must lose to be told from the others.
  std::vector<double> could_tell;
};

struct Analysis {
  Verdict verdict = Verdict::kNotMeasured;
  std::string summary;            // one sentence
  std::vector<Finding> findings;  // worst first
  std::vector<PlaneClasses> planes;
  std::vector<RankedLink> slowest;  // of each plane, at most kRankedLinks
  double tolerance = 0.10;          // AnalysisOptions'
  // The part of its bandwidth that any link must lose to be told from the
  // others; 1: nothing can be told.
  double could_tell = 1;
};
inline constexpr std::size_t kRankedLinks = 20;

// `baseline`: an earlier run; null: none.
Analysis Analyze(const Measurements& measurements,
                 const AnalysisOptions& options,
                 const Measurements* baseline = nullptr);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_ANALYSIS_H_
