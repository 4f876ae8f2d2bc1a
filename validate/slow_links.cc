#include "validate/slow_links.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>

namespace ringpipe::validate {
namespace {

using Kind = SlowPart::Kind;

// A link is suspect from so many deviations on: cheap to measure again.
constexpr double kSuspectDeviations = 2.5;
// A rank or host is to blame if so many of its links are slow.
constexpr double kMostOfThem = 0.7;
constexpr int kSuspectsOfARank = 3;

double SuspectBelow(const LinkClass& members, double tolerance) {
  return 1 - std::max(tolerance, kSuspectDeviations * members.spread);
}

std::vector<Link> AllMeasured(const LinkClasses& classes) {
  std::vector<Link> links;
  for (const LinkClass& members : classes.classes()) {
    links.insert(links.end(), members.links.begin(), members.links.end());
  }
  std::sort(links.begin(), links.end());
  return links;
}

}  // namespace

// --- Alone -------------------------------------------------------------------

IsolatedRatios::IsolatedRatios(const Measurements& measurements, int plane,
                               const LinkClasses& classes) {
  // Alone a link shares its cable with nobody: the kinds are two. What the
  // controls carry is the measure; without any, what a class of links does that
  // were not shared either.
  std::map<bool, std::vector<double>> controls;
  std::map<Link, double> values;
  for (const Isolated& link : measurements.isolated) {
    if (link.plane != plane) {
      continue;
    }
    std::vector<double> taken;
    for (const double sample : link.bytes_per_s) {
      if (!std::isnan(sample)) {
        taken.push_back(sample);
      }
    }
    if (!taken.empty()) {
      std::sort(taken.rbegin(), taken.rend());
      const double value = taken[taken.size() > 2 ? 1 : 0];
      values[{link.from, link.to}] = value;
      if (link.control) {
        controls[classes.Between(link.from, link.to)].push_back(value);
      }
    }
  }
  for (const auto& [link, value] : values) {
    const bool between = classes.Between(link.first, link.second);
    double reference = NAN;
    if (const auto found = controls.find(between); found != controls.end()) {
      reference = Median(found->second);
    } else if (classes.Measured(link.first, link.second)) {
      reference = classes.Of(link.first, link.second).reference;
    }
    values_.emplace_back(link, value);
    ratios_.emplace_back(link, value / reference);
  }
  FindSpread(measurements, plane);
}

void IsolatedRatios::FindSpread(const Measurements& measurements, int plane) {
  std::vector<double> distances;
  for (const Isolated& link : measurements.isolated) {
    const double ratio = Ratio({link.from, link.to});
    if (link.plane == plane && link.control && !std::isnan(ratio)) {
      distances.push_back(std::fabs(ratio - 1));
    }
  }
  if (!distances.empty()) {
    spread_ = kDeviationOfMad * Median(distances);
  }
}

double IsolatedRatios::Find(const Table& table, Link link) {
  const auto found =
      std::lower_bound(table.begin(), table.end(), link,
                       [](const auto& entry, const Link& wanted) {
                         return entry.first < wanted;
                       });
  return found != table.end() && found->first == link ? found->second : NAN;
}

std::vector<Link> ChooseSuspects(const LinkClasses& classes, double tolerance,
                                 std::size_t most) {
  std::vector<Link> slow;
  for (const Link& link : AllMeasured(classes)) {
    if (classes.Ratio(link.first, link.second) <
        SuspectBelow(classes.Of(link.first, link.second), tolerance)) {
      slow.push_back(link);
    }
  }
  std::stable_sort(slow.begin(), slow.end(),
                   [&classes](const Link& a, const Link& b) {
                     return classes.Ratio(a.first, a.second) <
                            classes.Ratio(b.first, b.second);
                   });
  std::vector<int> sends(classes.ranks()), receives(classes.ranks());
  std::vector<Link> chosen;
  for (const Link& link : slow) {
    if (chosen.size() < most && sends[link.first] < kSuspectsOfARank &&
        receives[link.second] < kSuspectsOfARank) {
      ++sends[link.first];
      ++receives[link.second];
      chosen.push_back(link);
    }
  }
  return chosen;
}

std::vector<Link> ChooseControls(const LinkClasses& classes,
                                 const std::vector<Link>& suspects,
                                 std::size_t most) {
  std::vector<Link> controls;
  for (const bool between : {true, false}) {
    const bool asked =
        std::any_of(suspects.begin(), suspects.end(), [&](const Link& link) {
          return classes.Between(link.first, link.second) == between;
        });
    std::vector<std::pair<double, Link>> healthy;
    for (const Link& link : AllMeasured(classes)) {
      if (asked && classes.Between(link.first, link.second) == between &&
          std::find(suspects.begin(), suspects.end(), link) == suspects.end()) {
        healthy.emplace_back(
            std::fabs(classes.Ratio(link.first, link.second) - 1), link);
      }
    }
    std::sort(healthy.begin(), healthy.end());
    std::set<int> senders;
    // Of different senders first.
    for (const bool any : {false, true}) {
      for (const auto& [distance, link] : healthy) {
        const std::size_t here = std::count_if(
            controls.begin(), controls.end(), [&](const Link& other) {
              return classes.Between(other.first, other.second) == between;
            });
        if (here < most &&
            std::find(controls.begin(), controls.end(), link) ==
                controls.end() &&
            (any || senders.insert(link.first).second)) {
          controls.push_back(link);
        }
      }
    }
  }
  return controls;
}

ToIsolate ChooseToIsolate(const Measurements& measurements, int plane,
                          double tolerance) {
  const LinkClasses classes(measurements, measurements.planes[plane]);
  ToIsolate chosen;
  chosen.suspects = ChooseSuspects(classes, tolerance, kMostSuspects);
  chosen.controls = ChooseControls(classes, chosen.suspects, kMostControls);
  return chosen;
}

// --- What explains them ---

namespace {

class Explainer {
 public:
  Explainer(const LinkClasses& classes, const IsolatedRatios& isolated,
            double tolerance)
      : classes_(classes), isolated_(isolated), tolerance_(tolerance) {
    contention_.kind = Kind::kContention;
    for (const Link& link : AllMeasured(classes)) {
      State state = {link, Below(link, 1 - tolerance_)};
      state_.push_back(state);
    }
    hosts_ =
        std::set<int>(classes.hosts().begin(), classes.hosts().end()).size();
    unshared_hosts_ = hosts_ == classes.hosts().size();
  }

  std::vector<SlowPart> Run() {
    for (const bool inside : {false, true}) {
      while (std::optional<SlowPart> part = NextUnit(inside)) {
        Take(*part);
      }
    }
    AddSingles();
    if (!contention_.links.empty()) {
      Fill(contention_);
      parts_.push_back(contention_);
    }
    return std::move(parts_);
  }

 private:
  struct State {
    Link link;
    bool slow = false;       // beyond the tolerance, be it by chance
    bool explained = false;  // by a part that was found
  };

  // All links that one part would explain.
  struct Group {
    std::vector<const State*> links;
    std::size_t slow = 0;
    std::set<int> others;  // hosts at the other end
    std::set<int> other_ranks;
  };

  bool Below(Link link, double ratio) const {
    return classes_.Ratio(link.first, link.second) < ratio;
  }

  void Add(Group& group, const State& state, bool receives) const {
    const int other = receives ? state.link.first : state.link.second;
    group.links.push_back(&state);
    group.slow += state.slow ? 1 : 0;
    group.others.insert(classes_.hosts()[other]);
    group.other_ranks.insert(other);
  }

  // Whether the group is slow as a whole, and not by chance: `groups` were
  // looked at.
  bool IsSlow(const Group& group, std::size_t groups) const {
    if (group.links.size() < 2 || group.slow == 0 ||
        static_cast<double>(group.slow) <
            kMostOfThem * static_cast<double>(group.links.size())) {
      return false;
    }
    std::vector<double> ratios;
    double spread = 0;
    for (const State* state : group.links) {
      ratios.push_back(classes_.Ratio(state->link.first, state->link.second));
      spread = std::max(
          spread, classes_.Of(state->link.first, state->link.second).spread);
    }
    const double error =
        kErrorOfMedian * spread / std::sqrt(static_cast<double>(ratios.size()));
    return Median(ratios) < 1 - std::max(tolerance_, WorstOf(groups) * error);
  }

  // Whether it is so in isolation; nullopt: none of its links was measured so.
  std::optional<bool> SlowAlone(const std::vector<Link>& links) const {
    std::vector<double> ratios;
    double spread = 0;
    for (const Link& link : links) {
      if (const double ratio = isolated_.Ratio(link); !std::isnan(ratio)) {
        ratios.push_back(ratio);
        spread = std::max({spread, isolated_.spread(),
                           classes_.Of(link.first, link.second).spread});
      }
    }
    if (ratios.empty()) {
      return std::nullopt;
    }
    const double error =
        kErrorOfMedian * spread / std::sqrt(static_cast<double>(ratios.size()));
    return Median(ratios) <
           1 - std::max(tolerance_, WorstOf(isolated_.count()) * error);
  }

  // The ways to blame a whole host or rank, or a path between hosts.
  struct Candidate {
    Kind kind;
    bool host;
    int unit;
    int peer;
    auto operator<=>(const Candidate&) const = default;
  };

  // Those that the link would be part of.
  std::span<const Candidate> CandidatesOf(Link link, bool inside) const {
    const auto [from, to] = link;
    const int from_host = classes_.hosts()[from];
    const int to_host = classes_.hosts()[to];
    candidates_ = {{{Kind::kSends, false, from, -1},
                    {Kind::kReceives, false, to, -1},
                    {Kind::kSends, true, from_host, -1},
                    {Kind::kReceives, true, to_host, -1},
                    {Kind::kHostPair, true, from_host, to_host}}};
    return std::span<const Candidate>(candidates_)
        .first(inside || unshared_hosts_ ? 2 : 5);
  }

  template <typename F>
  void ForEachLeft(bool inside, F f) const {
    for (const State& state : state_) {
      if (!state.explained &&
          classes_.Between(state.link.first, state.link.second) != inside) {
        f(state);
      }
    }
  }

  std::size_t NumberOf(const Candidate& candidate) const {
    const std::size_t ranks = classes_.ranks();
    const std::size_t second = candidate.kind == Kind::kReceives ? 1 : 0;
    return candidate.kind == Kind::kHostPair
               ? 2 * (ranks + hosts_) + candidate.unit * hosts_ + candidate.peer
           : candidate.host ? 2 * ranks + second * hosts_ + candidate.unit
                            : second * ranks + candidate.unit;
  }

  // Of the candidates that have enough slow links; `looked_at`: how many there
  // are in all.
  std::map<Candidate, Group> CollectGroups(bool inside,
                                           std::size_t* looked_at) const {
    // Most have next to no slow links, and need no list of them.
    struct Tally {
      int slow = 0;
      int all = 0;
      bool promising() const { return slow >= 2 && slow >= kMostOfThem * all; }
    };
    std::vector<Tally> tallies(2 * (classes_.ranks() + hosts_) +
                               hosts_ * hosts_);
    ForEachLeft(inside, [&](const State& state) {
      for (const Candidate& candidate : CandidatesOf(state.link, inside)) {
        Tally& tally = tallies[NumberOf(candidate)];
        ++tally.all;
        tally.slow += state.slow ? 1 : 0;
      }
    });
    *looked_at =
        std::count_if(tallies.begin(), tallies.end(),
                      [](const Tally& tally) { return tally.all > 0; });
    std::map<Candidate, Group> groups;
    if (std::none_of(tallies.begin(), tallies.end(),
                     [](const Tally& tally) { return tally.promising(); })) {
      return groups;
    }
    ForEachLeft(inside, [&](const State& state) {
      for (const Candidate& candidate : CandidatesOf(state.link, inside)) {
        if (tallies[NumberOf(candidate)].promising()) {
          Add(groups[candidate], state, candidate.kind == Kind::kReceives);
        }
      }
    });
    return groups;
  }

  // What it takes to blame the one end: two others that see the same.
  static bool HasWitnesses(const Candidate& candidate, const Group& group) {
    return candidate.kind == Kind::kHostPair ? group.links.size() >= 2
           : candidate.host                  ? group.others.size() >= 2
                                             : group.other_ranks.size() >= 2;
  }

  // The unit, direction or path that explains the most slow links.
  std::optional<SlowPart> NextUnit(bool inside) const {
    std::size_t looked_at = 0;
    const std::map<Candidate, Group> groups = CollectGroups(inside, &looked_at);
    std::map<Candidate, std::vector<const Group*>> slow;
    for (const auto& [candidate, group] : groups) {
      if (HasWitnesses(candidate, group) && IsSlow(group, looked_at)) {
        slow[candidate].push_back(&group);
        if (candidate.kind == Kind::kReceives) {
          const Candidate sends = {Kind::kSends, candidate.host, candidate.unit,
                                   -1};
          if (const auto other = slow.find(sends); other != slow.end()) {
            slow[{Kind::kBoth, candidate.host, candidate.unit, -1}] = {
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
        explains += group->slow;
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

  SlowPart PartOf(const Candidate& candidate,
                  const std::vector<const Group*>& groups, bool inside) const {
    SlowPart part;
    part.kind = candidate.kind;
    part.host = candidate.host;
    part.inside = inside;
    part.unit = candidate.unit;
    part.peer = candidate.peer;
    for (const Group* group : groups) {
      for (const State* state : group->links) {
        part.links.push_back(state->link);
      }
      part.slow_links += group->slow;
    }
    return part;
  }

  void Take(SlowPart part) {
    const std::set<Link> links(part.links.begin(), part.links.end());
    const bool slow_alone =
        SlowAlone(part.links).value_or(!MostAreContention(true));
    for (State& state : state_) {
      state.explained |= links.contains(state.link);
    }
    if (!slow_alone) {
      contention_.links.insert(contention_.links.end(), links.begin(),
                               links.end());
      return;
    }
    Fill(part);
    part.other_way_ratio = OtherWay(part);
    parts_.push_back(std::move(part));
  }

  // Single links, which have to be beyond chance one by one.
  bool IsSlowAlone(const State& state) const {
    const LinkClass& members = classes_.Of(state.link.first, state.link.second);
    const double alone = isolated_.Ratio(state.link);
    return std::isnan(alone)
               ? Below(state.link, 1 - members.Resolution(tolerance_))
               : Below(state.link, 1 - tolerance_) &&
                     alone < 1 - std::max(tolerance_,
                                          WorstOf(isolated_.count()) *
                                              std::max(members.spread,
                                                       isolated_.spread()));
  }

  // Where there are more suspects than could be measured alone, the others are
  // taken for what most of those are that were.
  bool MostAreContention(bool explained_too) const {
    int confirmed = 0, cleared = 0;
    for (const State& state : state_) {
      if ((explained_too || !state.explained) &&
          !std::isnan(isolated_.Ratio(state.link)) &&
          Below(state.link, 1 - classes_.Of(state.link.first, state.link.second)
                                    .Resolution(tolerance_))) {
        ++(IsSlowAlone(state) ? confirmed : cleared);
      }
    }
    return cleared > confirmed;
  }

  void AddSingles() {
    std::set<Link> singles;
    const bool contention = MostAreContention(false);
    for (const State& state : state_) {
      if (state.explained) {
        continue;
      }
      const LinkClass& members =
          classes_.Of(state.link.first, state.link.second);
      const bool was_alone = !std::isnan(isolated_.Ratio(state.link));
      if (IsSlowAlone(state) && (was_alone || !contention)) {
        singles.insert(state.link);
      } else if (Below(state.link, 1 - members.Resolution(tolerance_)) &&
                 (was_alone || contention)) {
        contention_.links.push_back(state.link);
      }
    }
    for (const Link& link : singles) {
      const Link back = {link.second, link.first};
      const bool both = singles.contains(back);
      if (both && back < link) {
        continue;
      }
      SlowPart part;
      part.kind = both ? Kind::kLinkBoth : Kind::kLink;
      part.inside = !classes_.Between(link.first, link.second);
      part.links.push_back(link);
      if (both) {
        part.links.push_back(back);
      }
      Fill(part);
      part.other_way_ratio = classes_.Ratio(back.first, back.second);
      parts_.push_back(std::move(part));
    }
  }

  void Fill(SlowPart& part) const {
    std::vector<double> ratios, values, references, alone;
    for (const Link& link : part.links) {
      ratios.push_back(classes_.Ratio(link.first, link.second));
      values.push_back(classes_.Value(link.first, link.second));
      references.push_back(classes_.Of(link.first, link.second).reference);
      if (const double value = isolated_.Value(link); !std::isnan(value)) {
        alone.push_back(value);
      }
    }
    part.ratio = Median(ratios);
    part.bytes_per_s = Median(values);
    part.reference = Median(references);
    part.isolated_bytes_per_s = Median(alone);
  }

  double OtherWay(const SlowPart& part) const {
    std::vector<double> ratios;
    for (const auto& [from, to] : part.links) {
      if (classes_.Measured(to, from)) {
        ratios.push_back(classes_.Ratio(to, from));
      }
    }
    return Median(ratios);
  }

  const LinkClasses& classes_;
  const IsolatedRatios& isolated_;
  const double tolerance_;
  std::size_t hosts_ = 0;
  bool unshared_hosts_ = false;                  // a rank a host
  std::vector<State> state_;                     // by link
  mutable std::array<Candidate, 5> candidates_;  // CandidatesOf's
  std::vector<SlowPart> parts_;
  SlowPart contention_;
};

}  // namespace

std::vector<SlowPart> ExplainSlowLinks(const LinkClasses& classes,
                                       const IsolatedRatios& isolated,
                                       double tolerance) {
  return Explainer(classes, isolated, tolerance).Run();
}

}  // namespace ringpipe::validate
