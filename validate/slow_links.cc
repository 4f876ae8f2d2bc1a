#include "validate/slow_links.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "validate/part_figures.h"
#include "validate/partners.h"

namespace ringpipe::validate {
namespace {

using Kind = SlowPart::Kind;
using Level = SlowPart::Level;

// A unit is to blame if so many of its links are slow.
constexpr double kMostOfThem = 0.7;
constexpr double kHair = 1e-9;  // of sums that are rounded
// Where fewer are below the tolerance, but nearly all are slower than they
// should: by these parts of the tolerance, the median and the upper quartile.
constexpr double kNearly = 0.5;
constexpr double kQuarter = 0.3;

std::vector<Link> AllMeasured(const LinkClasses& classes) {
  std::vector<Link> links;
  for (const LinkClass& members : classes.classes()) {
    links.insert(links.end(), members.links.begin(), members.links.end());
  }
  std::sort(links.begin(), links.end());
  return links;
}

class Explainer {
 public:
  // Without `isolated` by the tolerance alone: what is worth a look.
  Explainer(const LinkClasses& classes, const IsolatedRatios* isolated,
            double tolerance)
      : classes_(classes),
        isolated_(isolated),
        tolerance_(tolerance),
        figures_(classes, isolated, tolerance) {
    contention_.kind = Kind::kContention;
    for (SlowPart& part : unverified_) {
      part.kind = Kind::kUnverified;
    }
    Unverified(/*inside=*/true).inside = true;
    for (const Link& link : AllMeasured(classes)) {
      state_.push_back({link, Below(link, 1 - tolerance_)});
    }
    units_[0] = Numbers(classes.ranks());
    units_[1] = classes.hosts();
    units_[2] = classes.switches();
    for (std::size_t level = 0; level < units_.size(); ++level) {
      counts_[level] =
          *std::max_element(units_[level].begin(), units_[level].end()) + 1;
    }
    std::map<int, int> ranks_of_host;
    for (const int host : classes.hosts()) {
      ++ranks_of_host[host];
    }
    for (const int host : classes.hosts()) {
      weights_.push_back(1.0 / ranks_of_host[host]);
    }
  }

  std::vector<SlowPart> Run() {
    FindSlowSwitches();
    for (const bool inside : {false, true}) {
      for (const bool nearly : {false, true}) {
        // Most hosts of a switch may be slow.
        for (const bool switches : {false, true}) {
          while (auto part = NextUnit(inside, nearly, switches)) {
            Take(*part);
          }
        }
      }
    }
    FindSlowSteps();
    AddSingles();
    if (isolated_ == nullptr) {
      // What is inside a host comes last, and single links.
      std::stable_sort(
          parts_.begin(), parts_.end(),
          [](const SlowPart& a, const SlowPart& b) {
            const auto key = [](const SlowPart& part) {
              const bool single =
                  part.kind == Kind::kLink || part.kind == Kind::kLinkBoth;
              return std::pair(part.inside, single ? part.ratio : -1);
            };
            return key(a) < key(b);
          });
    } else {
      figures_.Merge(parts_);
    }
    for (SlowPart* part :
         {&contention_, &Unverified(false), &Unverified(true)}) {
      if (!part->links.empty()) {
        figures_.Fill(*part);
        parts_.push_back(*part);
      }
    }
    return std::move(parts_);
  }

 private:
  struct State {
    Link link;
    bool slow = false;       // beyond the tolerance, be it by chance
    bool explained = false;  // by a part that was found
  };

  // The ways to blame a whole unit, or the path between two.
  struct Candidate {
    Kind kind;
    Level level;
    int unit;
    int peer;
    auto operator<=>(const Candidate&) const = default;
  };

  struct Tally {
    int slow = 0;
    double slow_weight = 0, weight = 0;

    void Add(bool is_slow, double of_link) {
      slow += is_slow ? 1 : 0;
      slow_weight += is_slow ? of_link : 0;
      weight += of_link;
    }
    bool MostAreSlow() const {
      return slow_weight >= (kMostOfThem - kHair) * weight;
    }
  };

  // All links that one part would explain.
  struct Group {
    std::vector<const State*> links;
    std::vector<double> weights;
    Tally tally;
    std::set<int> others;  // units at the other end

    void Add(const State& state, double weight) {
      links.push_back(&state);
      weights.push_back(weight);
      tally.Add(state.slow, weight);
    }
  };

  static std::vector<int> Numbers(int count) {
    std::vector<int> numbers(count);
    for (int i = 0; i < count; ++i) {
      numbers[i] = i;
    }
    return numbers;
  }

  SlowPart& Unverified(bool inside) { return unverified_[inside ? 1 : 0]; }
  double Ratio(Link link) const { return figures_.Ratio(link); }
  bool Below(Link link, double ratio) const { return Ratio(link) < ratio; }
  const LinkClass& ClassOf(Link link) const {
    return classes_.Of(link.first, link.second);
  }
  bool IsInside(Link link) const {
    return !classes_.Between(link.first, link.second);
  }
  int UnitOf(Level level, int rank) const {
    return units_[static_cast<std::size_t>(level)][rank];
  }
  int CountOf(Level level) const {
    return counts_[static_cast<std::size_t>(level)];
  }
  bool Crosses(Link link) const {
    return UnitOf(Level::kSwitch, link.first) !=
           UnitOf(Level::kSwitch, link.second);
  }

  // --- Groups of links ---

  // Whether the group is slow as a whole in company; beyond chance where
  // `groups` were looked at.
  bool IsSlow(const Group& group, std::size_t groups, bool nearly) const {
    if (group.links.size() < 2 || group.tally.slow == 0 ||
        (nearly ? group.tally.slow < 2 : !group.tally.MostAreSlow())) {
      return false;
    }
    std::vector<Weighted> ratios;
    std::vector<Link> links;
    double spread = 0;
    for (std::size_t i = 0; i < group.links.size(); ++i) {
      const Link link = group.links[i]->link;
      ratios.push_back({Ratio(link), group.weights[i]});
      links.push_back(link);
      spread = std::max(spread, figures_.SpreadOf(link));
    }
    std::sort(
        ratios.begin(), ratios.end(),
        [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
    if (nearly && (Quantile(ratios, 0.75 + kHair) > 1 - kQuarter * tolerance_ ||
                   ratios.size() < 3)) {
      return false;
    }
    const double median =
        (Quantile(ratios, 0.5 - kHair) + Quantile(ratios, 0.5 + kHair)) / 2;
    const double least = nearly ? kNearly * tolerance_ : tolerance_;
    // What was measured alone decides, where it was.
    const bool decides_alone =
        isolated_ == nullptr || isolated_->CountOf(links) >= 2;
    return median <
           1 - (decides_alone && !nearly
                    ? least
                    : std::max(least, WorstOf(groups) *
                                          ErrorOfMedian(
                                              spread, EffectiveCount(ratios))));
  }

  // The only rank of a host among others with several is the host.
  bool IsUnit(Level level, int rank) const {
    return level != Level::kRank || weights_[rank] < 1 ||
           CountOf(Level::kHost) == classes_.ranks();
  }

  // Those that the link would be part of.
  std::span<const Candidate> CandidatesOf(Link link, bool switches) const {
    const auto [from, to] = link;
    std::size_t count = 0;
    for (const Level level : {Level::kRank, Level::kHost, Level::kSwitch}) {
      if (switches != (level == Level::kSwitch)) {
        continue;
      }
      const int a = UnitOf(level, from), b = UnitOf(level, to);
      const bool is_own = level == Level::kHost
                              ? CountOf(level) < classes_.ranks()
                              : CountOf(level) > 1;
      if (!is_own || a == b) {
        continue;
      }
      if (level != Level::kSwitch && IsUnit(level, from)) {
        candidates_[count++] = {Kind::kSends, level, a, -1};
      }
      if (level != Level::kSwitch && IsUnit(level, to)) {
        candidates_[count++] = {Kind::kReceives, level, b, -1};
      }
      if (level != Level::kRank) {
        candidates_[count++] = {Kind::kPair, level, a, b};
      }
    }
    return std::span<const Candidate>(candidates_).first(count);
  }

  template <typename F>
  void ForEachLeft(bool inside, F f) const {
    for (const State& state : state_) {
      if (!state.explained && IsInside(state.link) == inside) {
        f(state);
      }
    }
  }

  // What a link counts for: all those to one other host together as much as
  // those to another, however many ranks it has; else they would be taken for
  // this end's, where it is the path that is slow.
  double WeightIn(const Candidate& candidate, Link link) const {
    return candidate.kind == Kind::kPair || IsInside(link) ? 1
           : candidate.kind == Kind::kReceives ? weights_[link.first]
                                               : weights_[link.second];
  }

  std::size_t NumberOf(const Candidate& candidate) const {
    const auto count = static_cast<std::size_t>(CountOf(candidate.level));
    std::size_t first = 0;
    for (int level = 0; level < static_cast<int>(candidate.level); ++level) {
      first += counts_[level] * (2 + static_cast<std::size_t>(counts_[level]));
    }
    return first + (candidate.kind == Kind::kPair
                        ? (2 + candidate.unit) * count + candidate.peer
                    : candidate.kind == Kind::kSends ? candidate.unit
                                                     : count + candidate.unit);
  }

  // Of the candidates that have enough slow links; `looked_at`: how many there
  // are in all.
  std::map<Candidate, Group> CollectGroups(bool inside, bool nearly,
                                           bool switches,
                                           std::size_t* looked_at) const {
    // Most have next to no slow links, and need no list of them.
    const auto promising = [nearly](const Tally& tally) {
      return tally.slow >= 2 && (nearly || tally.MostAreSlow());
    };
    const int last = CountOf(Level::kSwitch) - 1;
    std::vector<Tally> tallies(
        NumberOf({Kind::kPair, Level::kSwitch, last, last}) + 1);
    ForEachLeft(inside, [&](const State& state) {
      for (const Candidate& candidate : CandidatesOf(state.link, switches)) {
        tallies[NumberOf(candidate)].Add(state.slow,
                                         WeightIn(candidate, state.link));
      }
    });
    *looked_at =
        std::count_if(tallies.begin(), tallies.end(),
                      [](const Tally& tally) { return tally.weight > 0; });
    std::map<Candidate, Group> groups;
    if (std::none_of(tallies.begin(), tallies.end(), promising)) {
      return groups;
    }
    ForEachLeft(inside, [&](const State& state) {
      for (const Candidate& candidate : CandidatesOf(state.link, switches)) {
        if (promising(tallies[NumberOf(candidate)])) {
          Group& group = groups[candidate];
          const bool receives = candidate.kind == Kind::kReceives;
          group.Add(state, WeightIn(candidate, state.link));
          group.others.insert(UnitOf(candidate.level, receives
                                                          ? state.link.first
                                                          : state.link.second));
        }
      }
    });
    return groups;
  }

  // What it takes to blame the one end: two others that see the same.
  static bool HasWitnesses(const Candidate& candidate, const Group& group) {
    return candidate.kind == Kind::kPair || group.others.size() >= 2;
  }

  // The unit, direction or path that explains the most slow links.
  std::optional<SlowPart> NextUnit(bool inside, bool nearly,
                                   bool switches) const {
    std::size_t looked_at = 0;
    const std::map<Candidate, Group> groups =
        CollectGroups(inside, nearly, switches, &looked_at);
    std::map<Candidate, std::vector<const Group*>> slow;
    for (const auto& [candidate, group] : groups) {
      if (HasWitnesses(candidate, group) && IsSlow(group, looked_at, nearly)) {
        slow[candidate].push_back(&group);
        if (candidate.kind == Kind::kReceives) {
          const Candidate sends = {Kind::kSends, candidate.level,
                                   candidate.unit, -1};
          if (const auto other = slow.find(sends); other != slow.end()) {
            slow[{Kind::kBoth, candidate.level, candidate.unit, -1}] = {
                other->second.front(), &group};
          }
        }
      }
    }
    const std::pair<const Candidate, std::vector<const Group*>>* best = nullptr;
    std::size_t most = 0;
    for (const auto& entry : slow) {
      std::size_t explains = 0;
      for (const Group* group : entry.second) {
        explains += group->tally.slow;
      }
      if (explains > most) {
        most = explains;
        best = &entry;
      }
    }
    return best == nullptr
               ? std::nullopt
               : std::optional(PartOf(best->first, best->second, inside));
  }

  static SlowPart PartOf(const Candidate& candidate,
                         const std::vector<const Group*>& groups, bool inside) {
    SlowPart part;
    part.kind = candidate.kind;
    part.level = candidate.level;
    part.inside = inside;
    part.unit = candidate.unit;
    part.peer = candidate.peer;
    for (const Group* group : groups) {
      for (const State* state : group->links) {
        part.links.push_back(state->link);
      }
      part.slow_links += group->tally.slow;
    }
    return part;
  }

  // A part that is slow in company: a fault, contention, or maybe noise.
  void Take(SlowPart part) {
    figures_.Fill(part);
    if (isolated_ != nullptr) {
      // As slow as in company, where that is not what it was found by.
      const double least =
          figures_.AnyIsNoisy(part.links)
              ? kNearly * tolerance_
              : std::min(tolerance_,
                         std::max(kNearly * tolerance_, 1 - part.ratio));
      const std::optional<bool> alone = isolated_->AreSlow(part.links, least);
      SlowPart* const no_fault = !alone.has_value() ? nullptr
                                 : !*alone          ? &contention_
                                 : isolated_->MayBeNoise(part.links) ||
                                         figures_.CarriedMore(part.links)
                                     ? &Unverified(part.inside)
                                     : nullptr;
      if (no_fault == &contention_) {
        return TakeContention(part);
      }
      if (no_fault != nullptr) {
        // This is more than a slow pair, which would be no fault.
        if (part.inside) {
          no_fault->level = part.level;
          no_fault->unit = part.unit;
        }
        AddTo(*no_fault, part.links);
        return Explain(part.links);
      }
    }
    Explain(part.links);
    part.other_way_ratio = OtherWay(part);
    parts_.push_back(std::move(part));
  }

  // One of them may be slow alone, too, beside the others; if they all are,
  // noise is all that speaks for them.
  void TakeContention(const SlowPart& part) {
    std::vector<double> alone;
    for (const Link& link : part.links) {
      if (isolated_->CountOf({link}) > 0) {
        alone.push_back(isolated_->Ratio(link));
      }
    }
    const double usual = std::min(1.0, Median(alone));
    std::vector<Link> fast = part.links;
    std::erase_if(fast, [&](const Link& link) {
      return usual >= 1 - tolerance_ &&
             isolated_->Ratio(link) < (1 - tolerance_) * usual;
    });
    Explain(fast);
    AddTo(usual < 1 - tolerance_ ? Unverified(part.inside) : contention_, fast);
  }

  void Explain(const std::vector<Link>& links) {
    for (const Link& link : links) {
      std::lower_bound(state_.begin(), state_.end(), link,
                       [](const State& state, const Link& wanted) {
                         return state.link < wanted;
                       })
          ->explained = true;
    }
  }

  // Those that are slow.
  void AddTo(SlowPart& part, const std::vector<Link>& links) const {
    for (const Link& link : links) {
      if (Below(link, 1 - tolerance_)) {
        part.links.push_back(link);
      }
    }
  }

  // --- Switches, which are slow in company alone ---

  // Where paths between switches contend, those of all switches do so alike:
  // one whose links carry less than those of the others lacks uplinks.
  void FindSlowSwitches() {
    const int count = CountOf(Level::kSwitch);
    if (count < 3) {
      return;
    }
    std::vector<std::vector<Link>> across(count);
    std::vector<std::vector<double>> ratios(count), inside(count);
    for (const State& state : state_) {
      for (const int rank : {state.link.first, state.link.second}) {
        const int unit = UnitOf(Level::kSwitch, rank);
        if (Crosses(state.link)) {
          across[unit].push_back(state.link);
          ratios[unit].push_back(Ratio(state.link));
        } else if (!IsInside(state.link)) {
          inside[unit].push_back(Ratio(state.link));
        }
      }
    }
    std::vector<double> medians;
    for (const std::vector<double>& of_switch : ratios) {
      medians.push_back(Median(of_switch));
    }
    const double usual = Median(medians);
    for (int unit = 0; unit < count; ++unit) {
      if (across[unit].empty()) {
        continue;
      }
      const double below = (1 - tolerance_) * usual;
      const auto slow = static_cast<double>(
          std::count_if(ratios[unit].begin(), ratios[unit].end(),
                        [below](double ratio) { return ratio < below; }));
      const double error = ErrorOfMedian(ClassOf(across[unit].front()).spread,
                                         ratios[unit].size());
      if (medians[unit] <
              usual * (1 - std::max(tolerance_, WorstOf(count) * error)) &&
          slow >= kMostOfThem * static_cast<double>(ratios[unit].size()) &&
          Median(inside[unit]) > 1 - tolerance_) {
        AddSwitch(unit, across[unit], usual);
      }
    }
  }

  void AddSwitch(int unit, const std::vector<Link>& links, double usual) {
    SlowPart part;
    part.kind = Kind::kBoth;
    part.level = Level::kSwitch;
    part.unit = unit;
    part.links = links;
    part.slow_links = std::count_if(
        links.begin(), links.end(),
        [this](const Link& link) { return Below(link, 1 - tolerance_); });
    figures_.Fill(part);
    part.reference *= usual;
    Explain(links);
    parts_.push_back(std::move(part));
  }

  // --- Steps of the measurement in which all links are slow: contention ---

  void FindSlowSteps() {
    std::map<std::pair<int, int>, Group> steps;
    for (const State& state : state_) {
      const auto [from, to] = state.link;
      if (!state.explained && !IsInside(state.link)) {
        steps[{(to + classes_.ranks() - from) % classes_.ranks(),
               StepOfLink(classes_.ranks(), from, to)}]
            .Add(state, 1);
      }
    }
    for (auto& [step, group] : steps) {
      if (group.links.size() < kFewLinks ||
          !IsSlow(group, steps.size(), false)) {
        continue;
      }
      // But for those that are slower than the others there.
      std::vector<double> ratios;
      for (const State* state : group.links) {
        ratios.push_back(Ratio(state->link));
      }
      const double least = (1 - tolerance_) * Median(ratios);
      std::erase_if(group.links, [this, least](const State* state) {
        return Below(state->link, least);
      });
      const SlowPart part = PartOf({Kind::kContention, Level::kRank, -1, -1},
                                   {&group}, /*inside=*/false);
      if (isolated_ == nullptr) {
        Take(part);
      } else if (isolated_->AreSlow(part.links, tolerance_) == false) {
        TakeContention(part);
      }
    }
  }

  // --- Single links, which have to be beyond chance one by one ---

  void AddSingles() {
    std::set<Link> singles;
    for (const State& state : state_) {
      if (state.explained || !state.slow) {
        continue;
      }
      const double alone =
          isolated_ == nullptr ? NAN : isolated_->Ratio(state.link);
      const bool beyond_chance =
          Below(state.link, 1 - ClassOf(state.link).Resolution(tolerance_));
      if (isolated_ == nullptr || (isolated_->IsSlow(state.link, tolerance_) &&
                                   !isolated_->MayBeNoise({state.link}))) {
        singles.insert(state.link);
      } else if (alone < 1 - tolerance_ ||
                 (std::isnan(alone) && beyond_chance)) {
        Unverified(IsInside(state.link)).links.push_back(state.link);
      } else if (beyond_chance) {
        contention_.links.push_back(state.link);
      }
    }
    if (isolated_ != nullptr) {
      TakeUplinks(singles);
      const std::vector<Link> slow = figures_.SlowInCompanyAlone();
      contention_.links.insert(contention_.links.end(), slow.begin(),
                               slow.end());
    }
    for (const Link& link : singles) {
      const Link back = {link.second, link.first};
      const bool both = singles.contains(back);
      if (!both || link < back) {
        AddSingle(link, both);
      }
    }
  }

  void AddSingle(Link link, bool both) {
    const Link back = {link.second, link.first};
    SlowPart part;
    part.kind = both ? Kind::kLinkBoth : Kind::kLink;
    part.inside = IsInside(link);
    part.links.push_back(link);
    if (both) {
      part.links.push_back(back);
    }
    part.slow_links = part.links.size();
    figures_.Fill(part);
    part.other_way_ratio = Ratio(back);
    std::vector<double> sent, received;
    for (const State& state : state_) {
      if (state.link != link && state.link != back) {
        if (state.link.first == link.first) {
          sent.push_back(Ratio(state.link));
        }
        if (state.link.second == link.second) {
          received.push_back(Ratio(state.link));
        }
      }
    }
    part.others_ratio = std::fmin(Median(sent), Median(received));
    parts_.push_back(std::move(part));
  }

  // Several paths of different hosts from one switch to others, or to it.
  void TakeUplinks(std::set<Link>& singles) {
    for (;;) {
      std::map<std::pair<bool, int>, std::vector<Link>> of_switch;
      for (const Link& link : singles) {
        if (Crosses(link)) {
          of_switch[{false, UnitOf(Level::kSwitch, link.first)}].push_back(
              link);
          of_switch[{true, UnitOf(Level::kSwitch, link.second)}].push_back(
              link);
        }
      }
      const auto most = std::max_element(
          of_switch.begin(), of_switch.end(), [](const auto& a, const auto& b) {
            return a.second.size() < b.second.size();
          });
      if (most == of_switch.end() || most->second.size() < kAlike) {
        return;
      }
      const auto [receives, unit] = most->first;
      SlowPart part;
      part.kind = Kind::kUplink;
      part.level = Level::kSwitch;
      part.unit = unit;
      part.peer = receives ? 1 : 0;
      part.links = most->second;
      std::erase_if(Unverified(false).links,
                    [&, unit = unit, receives = receives](const Link& link) {
                      const bool is_its =
                          Crosses(link) &&
                          UnitOf(Level::kSwitch,
                                 receives ? link.second : link.first) == unit;
                      if (is_its) {
                        part.links.push_back(link);
                      }
                      return is_its;
                    });
      for (const Link& link : part.links) {
        singles.erase(link);
      }
      part.slow_links = part.links.size();
      figures_.Fill(part);
      parts_.push_back(std::move(part));
    }
  }

  double OtherWay(const SlowPart& part) const {
    std::vector<double> ratios;
    for (const auto& [from, to] : part.links) {
      if (classes_.Measured(to, from)) {
        ratios.push_back(Ratio({to, from}));
      }
    }
    return Median(ratios);
  }

  const LinkClasses& classes_;
  const IsolatedRatios* const isolated_;
  const double tolerance_;
  const PartFigures figures_;
  std::array<std::vector<int>, 3> units_;  // by level and rank
  std::array<int, 3> counts_ = {};
  std::vector<double> weights_;  // by rank, of its part of its host's ranks
  std::vector<State> state_;     // by link
  mutable std::array<Candidate, 8> candidates_;  // CandidatesOf's
  std::vector<SlowPart> parts_;
  SlowPart contention_;
  std::array<SlowPart, 2> unverified_;  // between hosts, inside
};

}  // namespace

std::vector<SlowPart> ExplainSlowLinks(const LinkClasses& classes,
                                       const IsolatedRatios& isolated,
                                       double tolerance) {
  return Explainer(classes, &isolated, tolerance).Run();
}

std::vector<SlowPart> SuspectParts(const LinkClasses& classes,
                                   double tolerance) {
  return Explainer(classes, nullptr, tolerance).Run();
}

}  // namespace ringpipe::validate
