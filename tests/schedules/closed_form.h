// The formulas in the rows of the registry (engine/algorithms/algorithm.h),
// computed.
#ifndef RINGPIPE_TESTS_SCHEDULES_CLOSED_FORM_H_
#define RINGPIPE_TESTS_SCHEDULES_CLOSED_FORM_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/algorithms.h"

namespace ringpipe {

// By name: "p", "⌊lg p⌋", "β".
using ClosedFormValues = std::map<std::string, double, std::less<>>;

// All that Cost names, for so many ranks: with `hosts`, each of these is a row.
// One byte in one sub-chunk; α, μ, β and γ are 0.
ClosedFormValues ClosedFormValuesFor(const Member& of);

// What stands side by side is multiplied, before sums, from left to right:
// "1/p n" is (1/p) n. kInvalidArgument, with the place, for what is no formula
// of these values.
Result<double> Evaluate(std::string_view formula,
                        const ClosedFormValues& values);

}  // namespace ringpipe

#endif  // RINGPIPE_TESTS_SCHEDULES_CLOSED_FORM_H_
