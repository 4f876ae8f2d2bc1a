// What a validation found, for a terminal or a file.
#ifndef RINGPIPE_VALIDATE_TEXT_REPORT_H_
#define RINGPIPE_VALIDATE_TEXT_REPORT_H_

#include <string>

#include "validate/analysis.h"
#include "validate/measurements.h"

namespace ringpipe::validate {

struct TextOptions {
  int columns = 80;
  bool colour = false;  // escape sequences; nothing is said by colour alone
};

// The verdict and the findings first; then the figures: as much of the matrix
// as fits, its worst rows first.
std::string FormatTextReport(const Measurements& measurements,
                             const Analysis& analysis,
                             const TextOptions& options);

// "8 ranks on 4 hosts, by the software device": what was measured.
std::string DescribeJob(const Measurements& measurements);
// What has to be known about the way, where it is no network: "" or a sentence.
std::string WarnAboutWay(const Measurements& measurements);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_TEXT_REPORT_H_
