// What a communicator's messages say of ranks, whose hosts it does not know.
#ifndef RINGPIPE_VALIDATE_NAMED_RANKS_H_
#define RINGPIPE_VALIDATE_NAMED_RANKS_H_

#include <set>
#include <string>
#include <string_view>

#include "validate/measurements.h"

namespace ringpipe::validate {

// The ranks of lists in the message: those that were waited for. "rank(s) 0, 2
// to 4 of 8 did not join"; none that is not below `size`.
std::set<int> ListedRanks(std::string_view message, int size);

// The message with the hosts of these ranks, and with others by their names.
std::string WithHosts(const Measurements& measured, std::string_view message);

// Of ranks.
std::set<std::string> HostsOf(const Measurements& measured,
                              const std::set<int>& ranks);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_NAMED_RANKS_H_
