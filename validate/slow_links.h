// From a matrix in which some links are slow to what is wrong: a host, one
// direction of a host, a path between two, a single link.
#ifndef RINGPIPE_VALIDATE_SLOW_LINKS_H_
#define RINGPIPE_VALIDATE_SLOW_LINKS_H_

#include <utility>
#include <vector>

#include "validate/link_classes.h"
#include "validate/measurements.h"

namespace ringpipe::validate {

using Link = std::pair<int, int>;  // from, to

// What of a plane has been measured while nothing else ran.
class IsolatedRatios {
 public:
  IsolatedRatios(const Measurements& measurements, int plane,
                 const LinkClasses& classes);

  // Bytes a second, and as a part of what healthy links of that kind carry
  // alone. NaN: not measured. The second largest of the samples: what disturbs
  // a sample slows it down, and a bad cable is never fast.
  double Value(Link link) const { return Find(values_, link); }
  double Ratio(Link link) const { return Find(ratios_, link); }
  std::size_t count() const { return values_.size(); }
  // The standard deviation of healthy ones, as a part: by how much the controls
  // differ.
  double spread() const { return spread_; }

 private:
  using Table = std::vector<std::pair<Link, double>>;  // sorted by link
  static double Find(const Table& table, Link link);

  void FindSpread(const Measurements& measurements, int plane);

  Table values_;
  Table ratios_;
  double spread_ = 0;
};

// Which links of a plane are worth being measured alone: the slowest, at most
// three of any sender or receiver, at most `most` in all.
std::vector<Link> ChooseSuspects(const LinkClasses& classes, double tolerance,
                                 std::size_t most);
// Healthy links to compare these with: of each kind those nearest to the
// reference, `most` at most.
std::vector<Link> ChooseControls(const LinkClasses& classes,
                                 const std::vector<Link>& suspects,
                                 std::size_t most);

// Both for one plane of what was measured, to be measured alone.
struct ToIsolate {
  std::vector<Link> suspects;
  std::vector<Link> controls;
};
inline constexpr std::size_t kMostSuspects = 64;
inline constexpr std::size_t kMostControls = 6;
ToIsolate ChooseToIsolate(const Measurements& measurements, int plane,
                          double tolerance);

// One thing that is wrong, and the links that show it.
struct SlowPart {
  enum class Kind {
    kBoth,        // all that a host (or rank) sends and receives
    kSends,       // all that it sends
    kReceives,    // all that it receives
    kHostPair,    // all from one host to another
    kLinkBoth,    // one pair of ranks, both ways
    kLink,        // one link
    kContention,  // slow in company, as fast as others alone
  };
  Kind kind = Kind::kLink;
  bool host = false;    // `unit` is a host, with several ranks; else a rank
  bool inside = false;  // links inside a host
  int unit = -1;        // of the first three, and kHostPair's sender
  int peer = -1;        // kHostPair's receiver
  std::vector<Link> links;
  std::size_t slow_links = 0;  // of these
  // Of the links, medians.
  double ratio = 1;
  double bytes_per_s = 0;
  double reference = 0;
  double isolated_bytes_per_s = 0;  // NaN: not measured
  // Of kSends and kReceives: how the other direction is.
  double other_way_ratio = 1;
};

// The parts that explain the most slow links come first, and each link belongs
// to one part. Last kContention, if there is any, as one part.
std::vector<SlowPart> ExplainSlowLinks(const LinkClasses& classes,
                                       const IsolatedRatios& isolated,
                                       double tolerance);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_SLOW_LINKS_H_
