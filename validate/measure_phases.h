// The phases of a measurement, one after the other; each adds what it finds to
// run.into, on every rank.
#ifndef RINGPIPE_VALIDATE_MEASURE_PHASES_H_
#define RINGPIPE_VALIDATE_MEASURE_PHASES_H_

#include <cstdint>

#include "base/status.h"
#include "validate/measure_run.h"
#include "validate/measurements.h"

namespace ringpipe::validate {

// Of the stress, whose buffers Prepare makes: the most that is sent at once.
inline constexpr std::uint64_t kStressMessageBytes = 4 << 20;

// Of the orders and permutations that are called random: the same in each run.
inline constexpr std::uint64_t kSeed = 20'260'101;

// Who takes part, on which hosts, with which ports.
Status Meet(MeasureRun& run);
// A first look at the network, by which all ranks make the same plan.
Status Prepare(MeasureRun& run);
// The bandwidth of each link: in a step each rank sends or receives; or, where
// `both_ways`, pairs exchange.
Status MeasureShifts(MeasureRun& run, int plane, bool both_ways);
// The bandwidth of the links of this plane that stand out, and of some others,
// with nobody else sending.
Status MeasureIsolated(MeasureRun& run, int plane);
// Half a round trip between each two ranks.
Status MeasureLatencies(MeasureRun& run);
// Bisections and rings.
Status MeasurePatterns(MeasureRun& run);
// Messages everywhere, every byte checked.
Status RunStress(MeasureRun& run);
// What the ports have counted since Meet.
Status ShareCountersAfter(MeasureRun& run);
// Those of this rank's host alone, when the others cannot be asked any more.
void KeepOwnCountersAfter(MeasureRun& run);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_MEASURE_PHASES_H_
