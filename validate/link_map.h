// A map of all links, as HTML: it can be enlarged, and what is worth a look is
// ringed.
#ifndef RINGPIPE_VALIDATE_LINK_MAP_H_
#define RINGPIPE_VALIDATE_LINK_MAP_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "validate/measurements.h"

namespace ringpipe::validate {

// Links that have one cause. Its first ring has the id "ring-2"; all lead to
// the id "cause-2".
struct Mark {
  std::size_t number = 0;  // the cause's
  bool fault = false;      // its rings are bold
  std::string name;
  std::vector<std::pair<int, int>> links;  // from, to
};

struct LinkMap {
  std::string id;  // in the page
  // By index from * size + to; NaN: not measured. In bytes a second or seconds.
  std::vector<double> values;
  std::vector<double> ratios;  // HeatMap's
  std::string unit;            // of the values: "B" or "s"
  std::string caption;
  std::vector<Mark> marks;
};

// A figure. Enlarging, and going from a ring to its cause, need no script.
std::string FormatLinkMap(const Measurements& measured, const LinkMap& map);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_LINK_MAP_H_
