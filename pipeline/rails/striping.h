// How the messages of a connection are dealt out to its rails.
#ifndef RINGPIPE_PIPELINE_RAILS_STRIPING_H_
#define RINGPIPE_PIPELINE_RAILS_STRIPING_H_

#include <cstdint>
#include <span>
#include <vector>

namespace ringpipe {

// Message number m goes by rail pattern[m % pattern.size()], counted at both
// ends from the first message of the connection: so that both ends compute the
// same. Rails occur in proportion to their speeds (of any unit; at least one
// rail), spread as evenly as can be; each occurs at least once, and none more
// often than 16 times, so that a rail of less than a sixteenth of the fastest's
// speed gets more than its share.
std::vector<std::uint8_t> StripePattern(std::span<const std::uint32_t> speeds);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_RAILS_STRIPING_H_
