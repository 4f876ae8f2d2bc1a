// Links that are measured one by one, while nothing else runs: what they say,
// and which are worth it.
#ifndef RINGPIPE_VALIDATE_ISOLATED_H_
#define RINGPIPE_VALIDATE_ISOLATED_H_

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "validate/link_classes.h"
#include "validate/measurements.h"

namespace ringpipe::validate {

using Link = std::pair<int, int>;  // from, to

// What of a plane has been measured while nothing else ran.
class IsolatedRatios {
 public:
  // `tolerance`: less is noise, where it is not always so.
  IsolatedRatios(const Measurements& measurements, int plane,
                 const LinkClasses& classes, double tolerance);

  // Bytes a second (RateOf), and as a part of what healthy links of that kind
  // carry alone. NaN: not measured.
  double Value(Link link) const { return Of(link).value; }
  double Ratio(Link link) const { return Of(link).ratio; }
  // Level's, of links of that kind.
  double SpreadOf(Link link) const { return kinds_[KindOf(link)].spread; }
  std::size_t count() const { return links_.size(); }
  std::size_t CountOf(const std::vector<Link>& links) const;
  bool HasControls() const;
  // For what part of a pass a rank may wait for a core: more, and the pass is
  // no evidence. kMuchQueued, or what slows none of the others, where enough
  // were measured.
  double most_queued() const { return most_queued_; }
  // The part that a single one of these, of one class, must lack to be told
  // from chance; 1 where not all links were measured.
  double Resolution(const std::vector<Link>& links, double tolerance) const;

  // Whether the link lacks more than `least`, beyond chance.
  bool IsSlow(Link link, double least) const;
  // Where all were measured: whether it is, by more than the tolerance, and
  // contention hides it: no link of its class carries more in company. What a
  // link has carried there it can carry.
  bool IsHidden(Link link, const LinkClasses& classes, double tolerance) const;
  // Whether links that have one cause do; nullopt: fewer than two of them were
  // measured.
  std::optional<bool> AreSlow(const std::vector<Link>& links,
                              double least) const;
  // Whether noise alone may have made these slow in each pass: by how often
  // those of their hosts are disturbed on links that are not slow, or not even
  // one message of a pass is faster than the fastest of the link's: alone where
  // all were measured so, else in company. A pass in which a rank waited for a
  // core is no evidence.
  bool MayBeNoise(const std::vector<Link>& links) const;

 private:
  struct Pass {
    double rate;
    double waited;  // for a core, a part of the time
  };
  struct Alone {
    Link link;
    double value;
    double ratio;
    double error;
    double fastest;  // of its messages, as a part likewise
    std::vector<Pass> passes;
    int calm;  // of these; others are no evidence
    bool control;
  };
  // Passes over links of a host that are not slow.
  struct Passes {
    int disturbed = 0;
    std::vector<double> fastest;  // of each: of its messages
  };
  const Alone& Of(Link link) const;
  static std::vector<Pass> PassesOf(const Isolated& link);
  void Compare(const LinkClasses& classes);
  void CountCalm(double tolerance);
  void FindNoise(const Measurements& measurements, int plane,
                 const LinkClasses& classes, double tolerance);
  void CountPasses(Link link, const std::vector<double>& samples,
                   double reference, double tolerance);
  double Noise(const Alone& alone) const;
  // Inside a host, or between hosts: memory's noise says nothing of a network;
  // where all were measured alone, between switches.
  struct OfKind {
    double spread = 0;           // Level's
    std::vector<Passes> passes;  // by host
  };
  std::size_t KindOf(Link link) const {
    const auto [from, to] = link;
    return hosts_[from] == hosts_[to]                       ? 0
           : all_alone_ && switches_[from] != switches_[to] ? 2
                                                            : 1;
  }

  std::vector<Alone> links_;  // sorted by link
  bool all_alone_ = false;    // all links, by enough passes of each rank
  std::vector<int> hosts_;    // by rank
  std::vector<int> switches_;
  std::array<OfKind, 3> kinds_;
  double most_queued_ = kMuchQueued;
};

// --- What to measure, and what again ---

// Links of one plane to be measured alone: of all that looks slow in company,
// the tolerance alone decides, a few links; then single ones, the slowest
// first. And healthy ones to compare these with: of each kind those nearest to
// the reference, and some of each host with classes of its own; of every kind
// where `all` links are measured: by somebody's wish, or as noise hides what a
// few of them would say, and they are not many.
struct ToIsolate {
  std::vector<Link> suspects;
  std::vector<Link> controls;
  bool all = false;  // the others, too
};
inline constexpr std::size_t kMostSuspects = 64;
inline constexpr std::size_t kMostControls = 6;
// Of so many ranks all can be measured unasked: it does not take long.
inline constexpr int kMostRanksOfAll = 12;
ToIsolate ChooseToIsolate(const Measurements& measurements, int plane,
                          double tolerance, std::size_t most = kMostSuspects,
                          bool all = false);
// Appends, of all links between ranks, those that are not there.
void AddOthers(int plane, int ranks, std::vector<Isolated>& links);

// Whether noise hides so much that all links are to be measured once more.
inline constexpr int kMostPasses = 4;
bool NeedsAnotherPass(const Measurements& measurements, int plane,
                      double tolerance);
// What disturbs a link in one pass alone is over in the next.
inline constexpr int kAlonePasses = 2;
// Which of measurements.isolated are slow by what may be noise: to be measured
// once more, with the controls, up to so many times in all.
inline constexpr int kMostAlonePasses = 8;
// Over so many links between ranks at least: over all links, of three ranks or
// more, so many that each rank has enough to say how often it is disturbed.
int LeastPasses(int ranks, std::size_t links);
std::vector<std::size_t> ChooseAgain(const Measurements& measurements,
                                     int plane, double tolerance);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_ISOLATED_H_
