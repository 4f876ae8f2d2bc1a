// What the links of a slow part say together, and which parts are one.
#ifndef RINGPIPE_VALIDATE_PART_FIGURES_H_
#define RINGPIPE_VALIDATE_PART_FIGURES_H_

#include <cstddef>
#include <vector>

#include "validate/link_classes.h"
#include "validate/slow_links.h"

namespace ringpipe::validate {

// From so many on, units that are slow alike, or paths, are one finding.
inline constexpr std::size_t kAlike = 3;

class PartFigures {
 public:
  // `isolated`: nullptr where nothing was measured alone.
  PartFigures(const LinkClasses& classes, const IsolatedRatios* isolated,
              double tolerance);

  // Sets the medians over part.links, and puts the slowest first where they are
  // not one unit's.
  void Fill(SlowPart& part) const;
  // Paths of a unit that is slow itself are its own; several units that are
  // slow alike are one part.
  void Merge(std::vector<SlowPart>& parts) const;

  // What a link carries in company, as a part of its class's reference; or
  // alone, where contention, or noise in company, hides that it is slow.
  double Ratio(Link link) const;
  // Of healthy ones, likewise.
  double SpreadOf(Link link) const {
    return IsNoisy(link) ? isolated_->SpreadOf(link)
                         : classes_.Of(link.first, link.second).spread;
  }
  // Whether it is judged by what it carried alone: where all were measured so,
  // and in company noise hides more. But not between switches, which are slow
  // in company alone.
  bool IsNoisy(Link link) const;
  bool AnyIsNoisy(const std::vector<Link>& links) const;
  // Whether such links of one class carried more in company, beyond chance,
  // than alone: they can.
  bool CarriedMore(const std::vector<Link>& links) const;
  // Of such links between hosts, that are fine alone, those that are slow in
  // company all the same, each or as a host's.
  std::vector<Link> SlowInCompanyAlone() const;

 private:
  bool CountsAlone(Link link) const;
  void MergePathsOfUnits(std::vector<SlowPart>& parts) const;
  void MergeAlike(std::vector<SlowPart>& parts) const;
  void Join(SlowPart& part, const SlowPart& other) const;
  bool AreAlike(const SlowPart& a, const SlowPart& b) const;

  const LinkClasses& classes_;
  const IsolatedRatios* const isolated_;
  const double tolerance_;
  // By class: the loss that noise hides in company; whether it is less alone.
  std::vector<double> hidden_;
  std::vector<bool> noisy_;
};

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_PART_FIGURES_H_
