// What the RDMA ports of a host say of themselves, by sysfs and their drivers.
#ifndef RINGPIPE_VALIDATE_PORTS_H_
#define RINGPIPE_VALIDATE_PORTS_H_

#include <functional>
#include <string>
#include <vector>

#include "validate/ethernet.h"
#include "validate/measurements.h"

namespace ringpipe::validate {

// The ports below `sysfs` (usually "/sys"), by device and number, with their
// counters as Port::before. None where there are no RDMA devices. What a file
// does not say stays empty. `most_megabits_per_s` is asked for what an
// interface supports.
std::vector<Port> ReadPorts(
    const std::string& sysfs, const std::string& host,
    const std::function<int(const std::string& interface)>&
        most_megabits_per_s = MostMegabitsPerS);

// The counters of those ports now, as Port::after.
void ReadCountersAfter(const std::string& sysfs, std::vector<Port>& ports);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_PORTS_H_
