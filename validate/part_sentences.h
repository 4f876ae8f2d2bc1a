// A part of the network that is slow, in a sentence.
#ifndef RINGPIPE_VALIDATE_PART_SENTENCES_H_
#define RINGPIPE_VALIDATE_PART_SENTENCES_H_

#include <string>

#include "validate/finding.h"
#include "validate/measurements.h"
#include "validate/slow_links.h"

namespace ringpipe::validate {

// Of the measurements' plane with that number.
Finding DescribePart(const Measurements& measurements, int plane,
                     const SlowPart& part, double tolerance);

// "what host c17 sends", "c03 → c09".
std::string PartSubject(const Measurements& measurements, int plane,
                        const SlowPart& part);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_PART_SENTENCES_H_
