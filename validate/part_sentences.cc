#include "validate/part_sentences.h"

#include <cmath>
#include <string>

#include "validate/format.h"
#include "validate/link_classes.h"
#include "validate/port_findings.h"

namespace ringpipe::validate {
namespace {

using Kind = SlowPart::Kind;

class Sentence {
 public:
  Sentence(const Measurements& measurements, int plane, const SlowPart& part)
      : measurements_(measurements), plane_(plane), part_(part) {}

  std::string RailPrefix() const {
    return rail() < 0 ? "" : measurements_.planes[plane_].name + ": ";
  }

  std::string Subject() const {
    switch (part_.kind) {
      case Kind::kBoth:
        return "what " + UnitName() + " sends and receives" + Inside();
      case Kind::kSends:
        return "what " + UnitName() + " sends" + Inside();
      case Kind::kReceives:
        return "what " + UnitName() + " receives" + Inside();
      case Kind::kHostPair:
        return HostPair();
      case Kind::kLinkBoth:
      case Kind::kLink:
        return LinkEnds();
      case Kind::kContention:
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
    } else if (part_.unit >= 0) {
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
      case Kind::kHostPair:
      case Kind::kLink:
        return Finding::Kind::kSlowDirection;
      case Kind::kLinkBoth:
        return Finding::Kind::kSlowPath;
      case Kind::kContention:
        return Finding::Kind::kContention;
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
    return part_.kind != Kind::kContention && !IsOversubscribed() &&
           !(part_.inside && single);
  }

  // A rank of the unit.
  int RankOfUnit() const {
    if (!part_.host) {
      return part_.unit;
    }
    const std::vector<int> hosts = HostNumbers(measurements_);
    for (int rank = 0; rank < measurements_.size(); ++rank) {
      if (hosts[rank] == part_.unit) {
        return rank;
      }
    }
    return 0;
  }

  std::string HostName() const {
    return measurements_.ranks[RankOfUnit()].host;
  }

  std::string UnitName() const {
    return "host " +
           (part_.host ? HostName() : measurements_.NameOf(part_.unit));
  }

  int rail() const { return measurements_.planes[plane_].rail; }

  std::string Inside() const { return part_.inside ? " inside the host" : ""; }

  std::string Text() const {
    switch (part_.kind) {
      case Kind::kBoth:
      case Kind::kSends:
      case Kind::kReceives:
        return UnitText();
      case Kind::kHostPair:
        return HostPairText();
      case Kind::kLinkBoth:
      case Kind::kLink:
        return LinkText();
      case Kind::kContention:
        return ContentionText();
    }
    return "";
  }

  std::string UnitText() const {
    const bool sends = part_.kind == Kind::kSends;
    const bool both = part_.kind == Kind::kBoth;
    const std::string verb = both    ? "sends and receives"
                             : sends ? "sends"
                                     : "receives";
    const std::string others = both    ? "others do so"
                               : sends ? "the others send"
                                       : "the others receive";
    std::string text = UnitName() + " " + verb + " at " +
                       FormatRate(part_.bytes_per_s) + " where " + others +
                       " at " + FormatRate(part_.reference) + ": " +
                       SlowLinks();
    text += Inside() + (part_.slow_links == 1 ? " is slow" : " are slow");
    if (!both && part_.other_way_ratio > 0.9) {
      text += sends ? ", receiving is fine" : ", sending is fine";
    }
    return text + Alone() + SharedCores() + PortText();
  }

  // "all its 7 links", "5 of its 7 links"
  std::string SlowLinks() const {
    const std::string all = Count(part_.links.size(), "link");
    return part_.slow_links == part_.links.size()
               ? "all its " + all
               : std::to_string(part_.slow_links) + " of its " + all;
  }

  std::string HostPair() const {
    const auto [from, to] = part_.links.front();
    return measurements_.ranks[from].host + " → " +
           measurements_.ranks[to].host;
  }

  std::string LinkEnds() const {
    const auto [from, to] = part_.links.front();
    return measurements_.NameOf(from) +
           (part_.kind == Kind::kLinkBoth ? " ↔ " : " → ") +
           measurements_.NameOf(to);
  }

  std::string HostPairText() const {
    return HostPair() + " is slow: " + FormatRate(part_.bytes_per_s) +
           " on each of " + Count(part_.links.size(), "link") +
           ", where others carry " + FormatRate(part_.reference) +
           ": a path in the fabric, or one of the two "
           "hosts, if there are no others" +
           Alone();
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
    text += part_.kind == Kind::kLinkBoth
                ? ", both ways, and both are fine with others"
                : ", the other way and both with others are fine";
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

  std::string Worst() const {
    const auto [from, to] = part_.links.front();
    return "; one of them is " + measurements_.NameOf(from) + " → " +
           measurements_.NameOf(to);
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
};

}  // namespace

std::string PartSubject(const Measurements& measurements, int plane,
                        const SlowPart& part) {
  const Sentence sentence(measurements, plane, part);
  return sentence.RailPrefix() + sentence.Subject();
}

Finding DescribePart(const Measurements& measurements, int plane,
                     const SlowPart& part) {
  return Sentence(measurements, plane, part).Make();
}

}  // namespace ringpipe::validate
