// A matrix of links as a picture.
#ifndef RINGPIPE_VALIDATE_HEAT_MAP_H_
#define RINGPIPE_VALIDATE_HEAT_MAP_H_

#include <string>
#include <vector>

#include "validate/indexed_png.h"

namespace ringpipe::validate {

// A value beside what is usual, from 0 to kMostRatio.
inline constexpr double kMostRatio = 1.25;

// Orange to near black below what is usual, blue above it: a person who cannot
// tell red from green sees the difference, by brightness alone too.
Colour ColourOf(double ratio);

// A pixel for each link, sender by receiver from the top. `ratios` by index
// sender * size + receiver; NaN: grey. PNG as a data: address.
std::string HeatMap(int size, const std::vector<double>& ratios);
// All colours from 0 to kMostRatio, from left to right.
std::string HeatLegend();

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_HEAT_MAP_H_
