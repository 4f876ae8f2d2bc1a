// What the RDMA ports of a host say of themselves, by sysfs.
#ifndef RINGPIPE_VALIDATE_PORTS_H_
#define RINGPIPE_VALIDATE_PORTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "validate/measurements.h"

namespace ringpipe::validate {

// The ports below `sysfs` (usually "/sys"), by device and number, with their
// counters as Port::before. None where there are no RDMA devices. What a file
// does not say stays empty.
std::vector<Port> ReadPorts(const std::string& sysfs, const std::string& host);

// The counters of those ports now, as Port::after.
void ReadCountersAfter(const std::string& sysfs, std::vector<Port>& ports);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_PORTS_H_
