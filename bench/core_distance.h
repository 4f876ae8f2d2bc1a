// How far apart two cores are, by the time that a cache line takes between
// them.
#ifndef RINGPIPE_BENCH_CORE_DISTANCE_H_
#define RINGPIPE_BENCH_CORE_DISTANCE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ringpipe {

// The cores that this thread may run on.
std::vector<int> UsableCores();

// From now on this thread, and those that it starts, run on one of them alone:
// that of this number, modulo how many there are. kUnavailable.
Status RunOnCore(int number);

// Nanoseconds for a cache line from `core` to `other` and back: two threads,
// each on one of them, write and read two lines in turn. The fastest of many
// batches, so that other work on the cores does not count unless it never
// pauses. Takes 20 ms, on busy cores up to 2 s; kUnavailable where that is not
// enough, kInvalidArgument where a thread cannot run on its core.
Result<double> CacheLineRoundTripNs(int core, int other);

// What such a time means, on the server processors of the 2020s: "siblings"
// (two threads of one core, around 50 ns), "one L3" (two cores that share a
// cache, around 110 ns), "far" (no cache is shared, 200 ns and more).
std::string_view PlacementName(double round_trip_ns);

// Both: "far 507 ns".
std::string FormatPlacement(double round_trip_ns);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_CORE_DISTANCE_H_
