// How long an allreduce should take over the links that were measured.
#ifndef RINGPIPE_VALIDATE_PREDICTION_H_
#define RINGPIPE_VALIDATE_PREDICTION_H_

#include <cstdint>

#include "validate/measurements.h"

namespace ringpipe::validate {

struct Prediction {
  double seconds = 0;      // 0: not enough was measured
  bool simulated = false;  // by pipeline/simulator.h; else by the formula
};

// The ring's, at the pace of the slowest link: a ring waits for it at every
// step.
Prediction PredictAllReduce(const Measurements& measurements,
                            std::uint64_t bytes);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_PREDICTION_H_
