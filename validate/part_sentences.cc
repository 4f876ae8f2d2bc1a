#include "validate/part_sentences.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "validate/format.h"
#include "validate/link_classes.h"
#include "validate/port_findings.h"

namespace ringpipe::validate {
namespace {

using Kind = SlowPart::Kind;
using Level = SlowPart::Level;

constexpr std::size_t kNamedUnits = 8;

class Sentence {
 public:
  Sentence(const Measurements& measurements, int plane, const SlowPart& part,
           double tolerance = 0)
      : measurements_(measurements),
        plane_(plane),
        part_(part),
        fine_(1 - tolerance) {}

  std::string RailPrefix() const {
    return plane_ == 0 ? "" : measurements_.planes[plane_].name + ": ";
  }

  std::string Subject() const {
    switch (part_.kind) {
      case Kind::kBoth:
        return "what " + UnitName() + " sends and receives" + Inside();
      case Kind::kSends:
        return "what " + UnitName() + " sends" + Inside();
      case Kind::kReceives:
        return "what " + UnitName() + " receives" + Inside();
      case Kind::kPair:
        return Name(part_.unit) + " → " + Name(part_.peer);
      case Kind::kUplink:
        return Uplink();
      case Kind::kLinkBoth:
      case Kind::kLink:
        return LinkEnds();
      case Kind::kContention:
      case Kind::kUnverified:
        break;
    }
    return "";
  }

  Finding Make() const {
    Finding finding;
    finding.kind = FindingKind();
    finding.fault = IsFault();
    finding.plane = plane_;
    finding.weight =
        (1 - part_.ratio) * static_cast<double>(part_.links.size());
    const auto [from, to] = part_.links.front();
    if (part_.kind == Kind::kLink || part_.kind == Kind::kLinkBoth) {
      finding.from = from;
      finding.to = to;
    } else if (part_.unit >= 0 && part_.units.empty() &&
               part_.level != Level::kSwitch) {
      finding.host = HostName();
    }
    finding.subject = Subject();
    finding.text = RailPrefix() + Text();
    return finding;
  }

 private:
  Finding::Kind FindingKind() const {
    switch (part_.kind) {
      case Kind::kBoth:
        return Finding::Kind::kSlowHost;
      case Kind::kSends:
        return Finding::Kind::kSlowSender;
      case Kind::kReceives:
        return Finding::Kind::kSlowReceiver;
      case Kind::kPair:
      case Kind::kUplink:
      case Kind::kLink:
        return Finding::Kind::kSlowDirection;
      case Kind::kLinkBoth:
        return Finding::Kind::kSlowPath;
      case Kind::kContention:
        return Finding::Kind::kContention;
      case Kind::kUnverified:
        return Finding::Kind::kUnverified;
    }
    return Finding::Kind::kOther;
  }

  bool IsOversubscribed() const {
    return part_.inside &&
           measurements_.IsOversubscribed(part_.links.front().first);
  }

  // Inside a host memories are at different distances from cores, which is how
  // it was built.
  bool IsFault() const {
    const bool single =
        part_.kind == Kind::kLink || part_.kind == Kind::kLinkBoth;
    return part_.kind < Kind::kContention && !IsOversubscribed() &&
           !(part_.inside && single);
  }

  std::vector<int> UnitNumbers() const {
    return part_.level == Level::kSwitch ? SwitchNumbers(measurements_)
                                         : HostNumbers(measurements_);
  }

  // The first rank of the unit.
  int RankOf(int unit) const {
    if (part_.level == Level::kRank) {
      return unit;
    }
    const std::vector<int> numbers = UnitNumbers();
    return static_cast<int>(std::find(numbers.begin(), numbers.end(), unit) -
                            numbers.begin());
  }
  int RankOfUnit() const { return RankOf(part_.unit); }

  std::string HostName() const {
    return measurements_.ranks[RankOfUnit()].host;
  }

  // "c07", "c07 rank 3", "the switch of c16 … c31 (16 hosts)"
  std::string Name(int unit) const {
    const int first = RankOf(unit);
    if (part_.level != Level::kSwitch) {
      return part_.level == Level::kHost ? measurements_.ranks[first].host
                                         : measurements_.NameOf(first);
    }
    const std::vector<int> switches = UnitNumbers();
    std::set<std::string> hosts;
    int last = first;
    for (int rank = first; rank < measurements_.size(); ++rank) {
      if (switches[rank] == unit) {
        hosts.insert(measurements_.ranks[rank].host);
        last = rank;
      }
    }
    return "the switch of " + measurements_.ranks[first].host + " … " +
           measurements_.ranks[last].host + " (" + Count(hosts.size(), "host") +
           ")";
  }

  // "host c07"; "5 of 8 hosts"
  std::string UnitName() const {
    if (part_.units.empty()) {
      return (part_.level == Level::kSwitch ? "" : "host ") + Name(part_.unit);
    }
    const bool ranks = part_.level == Level::kRank;
    std::set<int> all;
    for (const int host : HostNumbers(measurements_)) {
      all.insert(host);
    }
    const bool one_each = static_cast<int>(all.size()) == measurements_.size();
    return std::to_string(part_.units.size()) + " of " +
           Count(ranks ? measurements_.size() : all.size(),
                 ranks && !one_each ? "rank" : "host");
  }

  // ": two kinds, or one cause: c00, c01 and 3 more"
  std::string Units() const {
    std::string names;
    for (std::size_t i = 0; i < std::min(part_.units.size(), kNamedUnits);
         ++i) {
      names += (i == 0 ? "" : ", ") + Name(part_.units[i]);
    }
    const std::size_t more =
        part_.units.size() - std::min(part_.units.size(), kNamedUnits);
    return "two kinds of ports or cards, or one cause: " + names +
           (more > 0 ? " and " + std::to_string(more) + " more" : "");
  }

  int rail() const { return measurements_.planes[plane_].rail; }

  std::string Inside() const { return part_.inside ? " inside the host" : ""; }

  std::string Text() const {
    switch (part_.kind) {
      case Kind::kBoth:
      case Kind::kSends:
      case Kind::kReceives:
        return UnitText();
      case Kind::kPair:
        return PairText();
      case Kind::kUplink:
        return Uplink() + " are slow: " + FormatRate(part_.bytes_per_s) +
               " where others carry " + FormatRate(part_.reference) + Alone() +
               ": one of its uplinks; the worst is " + LinkEnds();
      case Kind::kLinkBoth:
      case Kind::kLink:
        return LinkText();
      case Kind::kContention:
        return ContentionText();
      case Kind::kUnverified:
        return UnverifiedText();
    }
    return "";
  }

  std::string UnitText() const {
    const bool sends = part_.kind == Kind::kSends;
    const bool both = part_.kind == Kind::kBoth;
    const bool many = !part_.units.empty();
    const std::string verb =
        both    ? many ? "send and receive" : "sends and receives"
        : sends ? many ? "send" : "sends"
        : many  ? "receive"
                : "receives";
    const std::string others = both    ? "others do so"
                               : sends ? "the others send"
                                       : "the others receive";
    if (part_.level == Level::kSwitch) {
      return SwitchText();
    }
    std::string text = UnitName() + " " + verb + " at " +
                       FormatRate(part_.bytes_per_s) + " where " + others +
                       " at " + FormatRate(part_.reference) + ": " +
                       SlowLinks();
    text += Inside() + (part_.slow_links == 1 ? " is slow" : " are slow");
    if (!part_.units.empty()) {
      return text + Alone() + ": " + Units();
    }
    if (!both && part_.other_way_ratio > fine_) {
      text += sends ? ", receiving is fine" : ", sending is fine";
    }
    return text + Alone() + SharedCores() + PortText();
  }

  // "all its 7 links", "5 of its 7 links"
  std::string SlowLinks() const {
    const std::string all = Count(part_.links.size(), "link");
    const std::string its = part_.units.empty() ? "its " : "their ";
    return part_.slow_links == part_.links.size()
               ? "all " + its + all
               : std::to_string(part_.slow_links) + " of " + its + all;
  }

  std::string LinkEnds() const {
    const auto [from, to] = part_.links.front();
    return measurements_.NameOf(from) +
           (part_.kind == Kind::kLinkBoth ? " ↔ " : " → ") +
           measurements_.NameOf(to);
  }

  std::string PairText() const {
    return Subject() + " is slow: " + FormatRate(part_.bytes_per_s) +
           " on each of " + Count(part_.links.size(), "link") +
           ", where others carry " + FormatRate(part_.reference) +
           ": a path in the fabric" + Alone();
  }

  std::string SwitchText() const {
    const bool alone_too = part_.isolated_ratio < fine_;
    return UnitName() + ": its links to other switches carry " +
           FormatRate(part_.bytes_per_s) + " while others are in use, where " +
           "those of other switches carry " + FormatRate(part_.reference) +
           Alone() +
           (alone_too ? ": its uplinks are slow"
                      : ": it has fewer uplinks than others, or some are down");
  }

  std::string Uplink() const {
    return Count(part_.links.size(), "path") +
           (part_.peer == 0 ? " from " : " to ") + Name(part_.unit);
  }

  std::string LinkText() const {
    std::string text = LinkEnds() + " alone is slow, at " +
                       FormatRate(part_.bytes_per_s) + " where others carry " +
                       FormatRate(part_.reference);
    if (measurements_.size() == 2) {
      return text +
             ": the other way is faster; with two ranks it can be either "
             "end or the path between them" +
             Alone();
    }
    const bool other_way = part_.other_way_ratio > fine_;
    const bool others = part_.others_ratio > fine_;
    text += part_.kind == Kind::kLinkBoth
                ? std::string(", both ways") +
                      (others ? ", and both are fine with others" : "")
            : other_way && others
                ? ", the other way and both with others are fine"
            : other_way ? ", the other way is fine"
            : others    ? ", both with others are fine"
                        : "";
    return text +
           (part_.inside ? ": two cores or memories that are far apart"
                         : ": a path in the fabric") +
           Alone() + SharedCores();
  }

  std::string SharedCores() const {
    const Rank& rank = measurements_.ranks[part_.links.front().first];
    return IsOversubscribed()
               ? "; its ranks share " + Count(rank.cores, "core") +
                     ", and wait for each other"
               : "";
  }

  std::string ContentionText() const {
    return Count(part_.links.size(), "link") +
           (part_.links.size() == 1 ? " is" : " are") +
           " slow only while others are in use: " +
           FormatRate(part_.bytes_per_s) + " of " +
           FormatRate(part_.reference) + " in company, " +
           FormatRate(part_.isolated_bytes_per_s) +
           " alone: contention, not a cable" + Worst();
  }

  std::string Worst() const { return "; the slowest is " + LinkEnds(); }

  std::string UnverifiedText() const {
    return Count(part_.links.size(), "link") +
           (part_.links.size() == 1 ? " is" : " are") + " slow, " +
           FormatRate(part_.bytes_per_s) + " of " +
           FormatRate(part_.reference) +
           ", and noise may be why: measured alone they were disturbed too, or "
           "they were too many for that" +
           Worst();
  }

  std::string Alone() const {
    return std::isnan(part_.isolated_bytes_per_s)
               ? ""
               : " (" + FormatRate(part_.isolated_bytes_per_s) +
                     " while nothing else runs)";
  }

  // The ports that the unit uses, with what is wrong with them.
  std::string PortText() const {
    std::string text;
    for (const std::string& name : measurements_.ranks[RankOfUnit()].rails) {
      const bool other_rail =
          rail() >= 0 &&
          measurements_.ranks[RankOfUnit()].rails[rail()] != name;
      for (const Port& port : measurements_.ports) {
        if (port.host == HostName() && port.Name() == name && !other_rail) {
          const std::string brief = BriefPortFault(measurements_.ports, port);
          text += (text.empty() ? ": port " : "; port ") + name +
                  (brief.empty() ? "" : ", " + brief);
        }
      }
    }
    return text;
  }

  const Measurements& measurements_;
  const int plane_;
  const SlowPart& part_;
  const double fine_;  // of what others carry: nothing is said against it
};

}  // namespace

std::string PartSubject(const Measurements& measurements, int plane,
                        const SlowPart& part) {
  const Sentence sentence(measurements, plane, part);
  return sentence.RailPrefix() + sentence.Subject();
}

Finding DescribePart(const Measurements& measurements, int plane,
                     const SlowPart& part, double tolerance) {
  return Sentence(measurements, plane, part, tolerance).Make();
}

}  // namespace ringpipe::validate
