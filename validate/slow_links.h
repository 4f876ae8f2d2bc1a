// From a matrix in which some links are slow to what is wrong: a host, one
// direction of a host, a switch, a path between two, a single link.
#ifndef RINGPIPE_VALIDATE_SLOW_LINKS_H_
#define RINGPIPE_VALIDATE_SLOW_LINKS_H_

#include <cstddef>
#include <vector>

#include "validate/isolated.h"
#include "validate/link_classes.h"

namespace ringpipe::validate {

// One thing that is wrong, and the links that show it.
struct SlowPart {
  enum class Kind {
    kBoth,        // all that a unit sends and receives
    kSends,       // all that it sends
    kReceives,    // all that it receives
    kPair,        // all from one unit to another
    kUplink,      // some paths from, or to, one switch
    kLinkBoth,    // one pair of ranks, both ways
    kLink,        // one link
    kContention,  // slow in company, as fast as others alone
    kUnverified,  // slow in company; alone nothing, or noise
  };
  enum class Level { kRank, kHost, kSwitch };
  Kind kind = Kind::kLink;
  Level level = Level::kRank;  // of `unit` and `peer`
  bool inside = false;         // links inside a host
  // Of the first five; of kPair the sender; of kUnverified, inside a host, a
  // rank that may be slow.
  int unit = -1;
  int peer = -1;               // of kPair the receiver
  std::vector<int> units;      // all that are so, where they are several
  std::vector<Link> links;     // of single ones the slowest first
  std::size_t slow_links = 0;  // of these
  // Of the links, medians.
  double ratio = 1;
  double bytes_per_s = 0;
  double reference = 0;
  double isolated_bytes_per_s = 0;  // NaN: not measured
  double isolated_ratio = 0;        // likewise
  // How the other direction is; of single links, how the other links of the
  // two ranks are. NaN: not measured.
  double other_way_ratio = 1;
  double others_ratio = 1;
};

// The parts that explain the most slow links come first, and each link belongs
// to one part. Last, if there are any, kContention, and kUnverified between
// hosts and inside of them, one each.
std::vector<SlowPart> ExplainSlowLinks(const LinkClasses& classes,
                                       const IsolatedRatios& isolated,
                                       double tolerance);
// The same by what was measured in company, and by the tolerance: what is worth
// measuring alone.
std::vector<SlowPart> SuspectParts(const LinkClasses& classes,
                                   double tolerance);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_SLOW_LINKS_H_
