#include "validate/isolated.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "validate/slow_links.h"

namespace ringpipe::validate {
namespace {

// Of each part that is slow, in each direction.
constexpr std::size_t kSuspectsOfAPart = 3;
// If healthy links are disturbed in more passes than this, a slow one is
// measured again.
constexpr double kQuiet = 0.01;

// A fault may be chance in so many runs.
constexpr double kChance = 2e-3;

// Fewer passes of a rank alone say little of how often it is disturbed.
constexpr int kEnoughPassesOfRank = 24;

// Waits that slow none of so many passes, but for a twentieth, do no harm.
constexpr std::size_t kEnoughPasses = 24;
constexpr std::size_t kSlowed = 20;

// Some links of a part, with different hosts at both ends.
void ChooseOf(const SlowPart& part, const std::vector<int>& hosts,
              std::size_t most, std::vector<Link>& chosen) {
  std::map<bool, std::size_t> taken;
  std::set<int> used;
  for (const bool any : {false, true}) {
    for (const Link& link : part.links) {
      const bool receives =
          part.kind == SlowPart::Kind::kBoth && part.unit == link.second;
      const int other = receives ? link.first : link.second;
      if (taken[receives] < kSuspectsOfAPart && chosen.size() < most &&
          std::find(chosen.begin(), chosen.end(), link) == chosen.end() &&
          (used.insert(part.inside ? other : hosts[other]).second || any)) {
        ++taken[receives];
        chosen.push_back(link);
      }
    }
  }
}

// A link that may be a control, and how far it is from the reference.
struct Healthy {
  double distance;
  Link link;
  auto operator<=>(const Healthy&) const = default;
};

// So many more of these, of different senders first.
void TakeControls(const std::vector<Healthy>& healthy, std::size_t most,
                  std::vector<Link>& controls) {
  std::set<int> senders;
  std::size_t taken = 0;
  for (const bool any : {false, true}) {
    for (const auto& [distance, link] : healthy) {
      if (taken < most &&
          std::find(controls.begin(), controls.end(), link) == controls.end() &&
          (any || senders.insert(link.first).second)) {
        ++taken;
        controls.push_back(link);
      }
    }
  }
}

// Healthy links of one kind; any where none is. And some of each host that has
// classes of its own.
void ChooseControls(const LinkClasses& classes, bool between, double tolerance,
                    const std::vector<Link>& suspects,
                    std::vector<Link>& controls) {
  constexpr std::size_t kControlsOfOwner = 2;
  std::map<int, std::vector<Healthy>> of_owner;
  const std::set<Link> suspected(suspects.begin(), suspects.end());
  for (const LinkClass& members : classes.classes()) {
    for (const Link& link : members.links) {
      if (members.between == between && !suspected.contains(link)) {
        of_owner[members.owner].push_back(
            {std::fabs(classes.Ratio(link.first, link.second) - 1), link});
      }
    }
  }
  for (auto& [owner, healthy] : of_owner) {
    std::sort(healthy.begin(), healthy.end());
    const auto end = std::find_if(
        healthy.begin(), healthy.end(),
        [tolerance](const Healthy& link) { return link.distance > tolerance; });
    if (end != healthy.begin()) {
      healthy.erase(end, healthy.end());
    }
    TakeControls(healthy, owner < 0 ? kMostControls : kControlsOfOwner,
                 controls);
  }
}

// Whether noise hides a loss of more than this.
bool NoiseHides(const LinkClasses& classes, double loss, double tolerance) {
  return std::any_of(classes.classes().begin(), classes.classes().end(),
                     [&](const LinkClass& members) {
                       return classes.Decides(members) &&
                              members.Resolution(tolerance) > loss;
                     });
}

}  // namespace

int LeastPasses(int ranks, std::size_t links) {
  const int of_rank = 2 * std::max(1, ranks - 1);
  return ranks < 3 || links < static_cast<std::size_t>(ranks) * (ranks - 1)
             ? kAlonePasses
             : std::clamp((kEnoughPassesOfRank + of_rank - 1) / of_rank,
                          kAlonePasses, kMostAlonePasses);
}

void AddOthers(int plane, int ranks, std::vector<Isolated>& links) {
  std::set<Link> there;
  for (const Isolated& link : links) {
    there.emplace(link.from, link.to);
  }
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from != to && !there.contains({from, to})) {
        links.push_back({plane, from, to, /*control=*/false, {}});
      }
    }
  }
}

std::vector<IsolatedRatios::Pass> IsolatedRatios::PassesOf(
    const Isolated& link) {
  std::vector<Pass> passes;
  for (std::size_t i = 0; i + kPassMessages <= link.bytes_per_s.size();
       i += kPassMessages) {
    const auto first = link.bytes_per_s.begin() + static_cast<long>(i);
    const std::size_t pass = i / kPassMessages;
    const auto [from, to] =
        pass < link.queued.size() ? link.queued[pass] : std::pair(0.0, 0.0);
    passes.push_back(
        {RateOf({first, first + kPassMessages}), std::max(from, to)});
  }
  return passes;
}

IsolatedRatios::IsolatedRatios(const Measurements& measurements, int plane,
                               const LinkClasses& classes, double tolerance)
    : hosts_(classes.hosts()), switches_(classes.switches()) {
  for (const Isolated& link : measurements.isolated) {
    if (link.plane == plane && !link.bytes_per_s.empty()) {
      links_.push_back(
          {{link.from, link.to},
           RateOf(link.bytes_per_s),
           NAN,
           ErrorOf(link.bytes_per_s),
           *std::max_element(link.bytes_per_s.begin(), link.bytes_per_s.end()),
           PassesOf(link),
           0,
           link.control});
    }
  }
  std::sort(links_.begin(), links_.end(),
            [](const Alone& a, const Alone& b) { return a.link < b.link; });
  const int ranks = classes.ranks();
  const std::size_t all = static_cast<std::size_t>(ranks) * (ranks - 1);
  all_alone_ =
      ranks > 2 && links_.size() == all &&
      std::all_of(links_.begin(), links_.end(), [&](const Alone& alone) {
        return std::ssize(alone.passes) >= LeastPasses(ranks, all);
      });
  Compare(classes);
  CountCalm(tolerance);
  if (plane < static_cast<int>(measurements.planes.size())) {
    FindNoise(measurements, plane, classes, tolerance);
  }
}

// What the controls carry is the measure, or where all were measured, the
// healthy ones; without any, what a class of links does that were not shared
// either. Alone a link shares its cable with nobody: the kinds are few.
void IsolatedRatios::Compare(const LinkClasses& classes) {
  std::array<std::vector<double>, 3> rates, errors;
  for (const Alone& alone : links_) {
    const auto [from, to] = alone.link;
    // But for those of a host's own classes, which tell of that host.
    if ((alone.control || all_alone_) &&
        (!classes.Measured(from, to) || classes.Of(from, to).owner < 0)) {
      rates[KindOf(alone.link)].push_back(alone.value);
      errors[KindOf(alone.link)].push_back(alone.error);
    }
  }
  std::array<double, 3> references = {NAN, NAN, NAN};
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    if (rates[kind].empty()) {
      continue;
    }
    const double error = Median(errors[kind]);
    if (all_alone_) {
      const Level level = LevelOf(rates[kind], error);
      references[kind] = level.reference;
      kinds_[kind].spread = level.spread;
      continue;
    }
    references[kind] = Median(rates[kind]);
    for (double& rate : rates[kind]) {
      rate = std::fabs(rate / references[kind] - 1);
    }
    kinds_[kind].spread =
        std::max(kDeviationOfMad * Median(rates[kind]), error);
  }
  for (Alone& alone : links_) {
    const auto [from, to] = alone.link;
    const double of_kind = references[KindOf(alone.link)];
    const double reference = !std::isnan(of_kind) ? of_kind
                             : classes.Measured(from, to)
                                 ? classes.Of(from, to).reference
                                 : NAN;
    alone.ratio = alone.value / reference;
    alone.fastest /= reference;
  }
}

// What the passes that waited longest, enough of them, have waited without harm
// does no harm to others.
void IsolatedRatios::CountCalm(double tolerance) {
  std::vector<std::pair<double, bool>> waits;  // and whether it was slow
  for (const Alone& alone : links_) {
    if (all_alone_ && KindOf(alone.link) > 0 && alone.ratio > 1 - tolerance) {
      const double least = (1 - tolerance) * alone.value / alone.ratio;
      for (const auto& [rate, waited] : alone.passes) {
        if (waited > kMuchQueued) {
          waits.emplace_back(waited, rate < least);
        }
      }
    }
  }
  std::sort(waits.rbegin(), waits.rend());
  std::size_t slowed = 0;
  for (std::size_t i = 0; i < waits.size(); ++i) {
    slowed += waits[i].second ? 1 : 0;
    if (i + 1 >= kEnoughPasses && slowed * kSlowed <= i + 1) {
      most_queued_ = waits[i].first;
      break;
    }
  }
  for (Alone& alone : links_) {
    const double most = KindOf(alone.link) > 0 ? most_queued_ : kMuchQueued;
    alone.calm = static_cast<int>(std::count_if(
        alone.passes.begin(), alone.passes.end(),
        [most](const Pass& pass) { return pass.waited <= most; }));
  }
}

void IsolatedRatios::FindNoise(const Measurements& measurements, int plane,
                               const LinkClasses& classes, double tolerance) {
  for (OfKind& kind : kinds_) {
    kind.passes.resize(hosts_.size());
  }
  // Contention is none then.
  for (const Isolated& link : measurements.isolated) {
    const Alone& alone = Of({link.from, link.to});
    if (all_alone_ && link.plane == plane && alone.ratio > 1 - tolerance) {
      CountPasses(alone.link, link.bytes_per_s, alone.value / alone.ratio,
                  tolerance);
    }
  }
  for (const LinkClass& members : classes.classes()) {
    for (const Link& link : members.links) {
      const double alone = Ratio(link);
      if (!all_alone_ &&
          !(classes.Ratio(link.first, link.second) < 1 - tolerance &&
            !(alone > 1 - tolerance))) {
        CountPasses(link,
                    measurements.planes[plane].bytes_per_s.SamplesOf(
                        link.first, link.second),
                    members.reference, tolerance);
      }
    }
  }
}

void IsolatedRatios::CountPasses(Link link, const std::vector<double>& samples,
                                 double reference, double tolerance) {
  for (std::size_t i = 0; i + kPassMessages <= samples.size();
       i += kPassMessages) {
    const auto first = samples.begin() + static_cast<long>(i);
    const auto end = first + kPassMessages;
    const double rate = RateOf({first, end});
    for (const int rank : {link.first, link.second}) {
      Passes& passes = kinds_[KindOf(link)].passes[hosts_[rank]];
      passes.disturbed += rate < (1 - tolerance) * reference ? 1 : 0;
      passes.fastest.push_back(*std::max_element(first, end) / reference);
    }
  }
}

// How likely a pass over a healthy link between the same hosts is as slow.
double IsolatedRatios::Noise(const Alone& alone) const {
  double all_fine = 1, any_faster = 1;
  for (const int rank : {alone.link.first, alone.link.second}) {
    const auto& [disturbed, fastest] =
        kinds_[KindOf(alone.link)].passes[hosts_[rank]];
    if (!fastest.empty()) {
      const auto all = static_cast<double>(fastest.size());
      const auto slower =
          std::count_if(fastest.begin(), fastest.end(),
                        [&](double ratio) { return ratio <= alone.fastest; });
      all_fine *= 1 - disturbed / all;
      any_faster *= 1 - static_cast<double>(slower) / all;
    }
  }
  return 1 - std::max(all_fine, any_faster);
}

std::size_t IsolatedRatios::CountOf(const std::vector<Link>& links) const {
  return std::count_if(links.begin(), links.end(), [this](const Link& link) {
    return !std::isnan(Value(link));
  });
}

bool IsolatedRatios::HasControls() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const Alone& alone) { return alone.control; });
}

double IsolatedRatios::Resolution(const std::vector<Link>& links,
                                  double tolerance) const {
  return !all_alone_
             ? 1
             : std::min(1.0, std::max(tolerance, WorstOf(count()) *
                                                     SpreadOf(links.front())));
}

bool IsolatedRatios::IsHidden(Link link, const LinkClasses& classes,
                              double tolerance) const {
  const Alone& alone = Of(link);
  const auto [from, to] = link;
  const double least = 1 - tolerance;
  const double enough = least * alone.value / alone.ratio;
  return all_alone_ && alone.ratio < least &&
         classes.Ratio(from, to) >= least && classes.Value(from, to) < enough &&
         classes.Of(from, to).reference < enough && IsSlow(link, tolerance);
}

bool IsolatedRatios::IsSlow(Link link, double least) const {
  return Ratio(link) <
         1 - std::max(least, WorstOf(count()) *
                                 std::max(SpreadOf(link), Of(link).error));
}

std::optional<bool> IsolatedRatios::AreSlow(const std::vector<Link>& links,
                                            double least) const {
  std::vector<double> ratios;
  double spread = 0;
  for (const Link& link : links) {
    if (const double ratio = Ratio(link); !std::isnan(ratio)) {
      ratios.push_back(ratio);
      spread = std::max(spread, SpreadOf(link));
    }
  }
  if (ratios.size() < 2) {
    return std::nullopt;
  }
  return Median(ratios) <
         1 - std::max(least,
                      WorstOf(count()) * ErrorOfMedian(spread, ratios.size()));
}

bool IsolatedRatios::MayBeNoise(const std::vector<Link>& links) const {
  constexpr double kLeastNoise = 1e-6;
  std::vector<double> chances;  // logarithms
  for (const Link& link : links) {
    if (const Alone& alone = Of(link); !std::isnan(alone.value)) {
      chances.push_back(alone.calm *
                        std::log(std::max(Noise(alone), kLeastNoise)));
    }
  }
  // It would have to be so of half of them.
  const std::size_t half = (chances.size() + 1) / 2;
  return Median(chances) * static_cast<double>(half) +
             std::log(static_cast<double>(count())) >
         std::log(kChance);
}

const IsolatedRatios::Alone& IsolatedRatios::Of(Link link) const {
  static const Alone kNone = {{-1, -1}, NAN, NAN, NAN, NAN, {}, 0, false};
  const auto found =
      std::lower_bound(links_.begin(), links_.end(), link,
                       [](const Alone& alone, const Link& wanted) {
                         return alone.link < wanted;
                       });
  return found != links_.end() && found->link == link ? *found : kNone;
}

ToIsolate ChooseToIsolate(const Measurements& measurements, int plane,
                          double tolerance, std::size_t most, bool all) {
  const LinkClasses classes(measurements, plane);
  ToIsolate chosen;
  chosen.all = all;
  if (classes.classes().empty()) {
    return chosen;
  }
  chosen.all =
      all || (!classes.OnOneHost() && classes.ranks() > 2 &&
              classes.ranks() <= kMostRanksOfAll &&
              NoiseHides(classes, kMostCouldTell * tolerance, tolerance));
  for (const SlowPart& part : SuspectParts(classes, tolerance)) {
    ChooseOf(part, classes.hosts(), most, chosen.suspects);
  }
  for (const bool between : {true, false}) {
    if (chosen.all || std::any_of(chosen.suspects.begin(),
                                  chosen.suspects.end(), [&](const Link& link) {
                                    return classes.Between(link.first,
                                                           link.second) ==
                                           between;
                                  })) {
      ChooseControls(classes, between, tolerance, chosen.suspects,
                     chosen.controls);
    }
  }
  return chosen;
}

bool NeedsAnotherPass(const Measurements& measurements, int plane,
                      double tolerance) {
  const LinkClasses classes(measurements, plane);
  if (measurements.IsOtherWay(plane)) {
    const std::vector<SlowPart> parts = SuspectParts(classes, tolerance);
    return std::any_of(parts.begin(), parts.end(), [](const SlowPart& part) {
      return part.kind <= SlowPart::Kind::kReceives && !part.inside;
    });
  }
  return NoiseHides(classes, tolerance, tolerance);
}

namespace {

// Whether links of the kind that are not slow are hardly ever disturbed in
// company.
bool IsQuiet(const Plane& company, const LinkClasses& classes,
             const IsolatedRatios& alone, bool between, double tolerance) {
  std::size_t slow = 0, all = 0;
  for (const LinkClass& members : classes.classes()) {
    for (const auto& [from, to] : members.links) {
      if (members.between == between &&
          (classes.Ratio(from, to) > 1 - tolerance ||
           alone.Ratio({from, to}) > 1 - tolerance)) {
        for (const double sample : company.bytes_per_s.SamplesOf(from, to)) {
          ++all;
          slow += sample < (1 - 2 * tolerance) * members.reference ? 1 : 0;
        }
      }
    }
  }
  return static_cast<double>(slow) <= kQuiet * static_cast<double>(all);
}

// Beside controls that were disturbed alone, nothing would be slow.
bool AreControlsDisturbed(const std::vector<Isolated>& isolated, int plane,
                          const LinkClasses& classes,
                          const IsolatedRatios& alone, bool between,
                          double tolerance) {
  std::size_t disturbed = 0, controls = 0;
  for (const Isolated& link : isolated) {
    if (link.plane == plane && link.control &&
        classes.Between(link.from, link.to) == between) {
      const double least = (1 - tolerance) * classes.Value(link.from, link.to);
      ++controls;
      disturbed += alone.Value({link.from, link.to}) < least ? 1 : 0;
    }
  }
  return disturbed > 0 && 2 * disturbed >= controls;
}

}  // namespace

std::vector<std::size_t> ChooseAgain(const Measurements& measurements,
                                     int plane, double tolerance) {
  const LinkClasses classes(measurements, plane);
  const IsolatedRatios alone(measurements, plane, classes, tolerance);
  std::vector<std::size_t> again;
  for (const bool between : {true, false}) {
    const bool quiet =
        IsQuiet(measurements.planes[plane], classes, alone, between, tolerance);
    bool any = AreControlsDisturbed(measurements.isolated, plane, classes,
                                    alone, between, tolerance);
    std::vector<std::size_t> of_kind;
    for (std::size_t i = 0; i < measurements.isolated.size(); ++i) {
      const Isolated& link = measurements.isolated[i];
      if (link.plane != plane ||
          classes.Between(link.from, link.to) != between ||
          link.bytes_per_s.size() >= kMostAlonePasses * kPassMessages) {
        continue;
      }
      const double ratio = alone.Ratio({link.from, link.to});
      if (link.control || (!quiet && ratio < 1 - tolerance)) {
        any |= !link.control;
        of_kind.push_back(i);
      }
    }
    if (any) {
      again.insert(again.end(), of_kind.begin(), of_kind.end());
    }
  }
  return again;
}

}  // namespace ringpipe::validate
