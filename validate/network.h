// What a host's network stack says of itself.
#ifndef RINGPIPE_VALIDATE_NETWORK_H_
#define RINGPIPE_VALIDATE_NETWORK_H_

#include <string>

#include "validate/measurements.h"

namespace ringpipe::validate {

// The rate of the fastest Ethernet card that is up, by `sysfs` (usually
// "/sys"), and what TCP has sent until now, by `proc` (usually "/proc"). 0: not
// known.
HostNetwork ReadNetwork(const std::string& sysfs, const std::string& proc,
                        const std::string& host);

// What TCP has sent alone.
void ReadTcp(const std::string& proc, HostNetwork& network);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_NETWORK_H_
