// Measures the links of a communicator's job.
#ifndef RINGPIPE_VALIDATE_MEASURE_H_
#define RINGPIPE_VALIDATE_MEASURE_H_

#include <functional>
#include <string>

#include "base/status.h"
#include "engine/communicator.h"
#include "validate/measurements.h"
#include "validate/phases.h"

namespace ringpipe::validate {

struct MeasureOptions {
  RunOptions run;
  std::string sysfs = "/sys";
  // Called on every rank; what it does on others than rank 0 is its business.
  // Of a line about what is going to happen; of how much is done (from 0 to 1)
  // and what is going on.
  std::function<void(const std::string& line)> announce;
  std::function<void(double part, const std::string& what)> progress;
};

// Every rank calls it; it ends alike on all. Whatever was measured until then
// is in `into`, on every rank, also after an error, whose reason is then in
// into->ending.
Status Measure(Communicator& communicator, const MeasureOptions& options,
               Measurements* into);

// Measures plane `rail` (an index into Rank::rails) with a communicator that
// has this rail alone, and adds it to what Measure has found.
Status MeasureRail(Communicator& communicator, int rail,
                   const MeasureOptions& options, Measurements* into);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_MEASURE_H_
