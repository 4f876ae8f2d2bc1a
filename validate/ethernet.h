// What an Ethernet interface can do, which sysfs does not say.
#ifndef RINGPIPE_VALIDATE_ETHERNET_H_
#define RINGPIPE_VALIDATE_ETHERNET_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ringpipe::validate {

// The fastest link mode that the interface supports, in Mbit/s, as its driver
// says (ETHTOOL_GLINKSETTINGS, with the kernel's own names of the modes). 0:
// the driver does not say, or there is no such interface.
int MostMegabitsPerS(const std::string& interface);

// Of the modes whose bit is set in `supported`: "100000baseKR4/Full" is 100000,
// and what names no speed ("Autoneg") counts as 0.
int FastestMode(const std::vector<std::string>& names,
                std::span<const std::uint32_t> supported);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_ETHERNET_H_
