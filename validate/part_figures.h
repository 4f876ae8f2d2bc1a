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
              double tolerance)
      : classes_(classes), isolated_(isolated), tolerance_(tolerance) {}

  // Sets the medians over part.links, and puts the slowest first where they are
  // not one unit's.
  void Fill(SlowPart& part) const;
  // Paths of a unit that is slow itself are its own; several units that are
  // slow alike are one part.
  void Merge(std::vector<SlowPart>& parts) const;

  // What a link carries in company, as a part of its class's reference; or
  // alone, where contention hides that it is slow.
  double Ratio(Link link) const {
    return IsHidden(link) ? isolated_->Ratio(link)
                          : classes_.Ratio(link.first, link.second);
  }

 private:
  bool IsHidden(Link link) const {
    return isolated_ != nullptr &&
           isolated_->IsHidden(link, classes_, tolerance_);
  }
  void MergePathsOfUnits(std::vector<SlowPart>& parts) const;
  void MergeAlike(std::vector<SlowPart>& parts) const;
  void Join(SlowPart& part, const SlowPart& other) const;
  bool AreAlike(const SlowPart& a, const SlowPart& b) const;

  const LinkClasses& classes_;
  const IsolatedRatios* const isolated_;
  const double tolerance_;
};

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_PART_FIGURES_H_
