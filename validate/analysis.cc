#include "validate/analysis.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "validate/format.h"
#include "validate/part_sentences.h"
#include "validate/port_findings.h"

namespace ringpipe::validate {
namespace {

using Kind = Finding::Kind;

// A latency is worth a word from here on: it jumps with the number of switches.
constexpr double kSlowLatency = 1.5;
constexpr double kVerySlowLatency = 2.5;
constexpr double kShortLatency = 1e-6;  // differences below say nothing
constexpr std::size_t kMostLatencyFindings = 8;
constexpr std::size_t kMostSingles = 50;
// A pattern or collective that gets less of what its links promise.
constexpr double kPoorPattern = 0.6;
constexpr double kPoorCollective = 2;

Finding Make(Kind kind, bool fault, std::string text) {
  Finding finding;
  finding.kind = kind;
  finding.fault = fault;
  finding.text = std::move(text);
  return finding;
}

class Analyzer {
 public:
  Analyzer(const Measurements& measurements, const AnalysisOptions& options,
           const Measurements* baseline)
      : measured_(measurements), options_(options), baseline_(baseline) {}

  Analysis Run() {
    analysis_.tolerance = options_.tolerance;
    AddEnding();
    AddStress();
    for (std::size_t plane = 0; plane < measured_.planes.size(); ++plane) {
      AnalyzePlane(static_cast<int>(plane));
    }
    FindMissingRails();
    CompareRails();
    DropConsequences();
    if (baseline_ != nullptr) {
      CompareWithBaseline();
    }
    for (Finding& finding : FindPortFaults(measured_.ports)) {
      analysis_.findings.push_back(std::move(finding));
    }
    AddLatencies();
    AddPatterns();
    AddCollectives();
    SortFindings(analysis_.findings);
    Conclude();
    return std::move(analysis_);
  }

 private:
  void Add(Finding finding) {
    analysis_.findings.push_back(std::move(finding));
  }

  void AddEnding() {
    if (!measured_.ending || measured_.ending->message.empty()) {
      return;
    }
    const Ending& ending = *measured_.ending;
    const bool known = ending.lost_rank >= 0;
    Finding finding = Make(
        known ? Kind::kLost : Kind::kOther, true,
        (known ? "host " + measured_.NameOf(ending.lost_rank) +
                     " was lost while " + ending.phase + " was measured: "
               : "the test ended while " + ending.phase + " was measured: ") +
            ending.message);
    finding.host = known ? measured_.ranks[ending.lost_rank].host : "";
    Add(std::move(finding));
  }

  void AddStress() {
    if (!measured_.stress) {
      return;
    }
    for (const Stress::Wrong& wrong : measured_.stress->wrong) {
      Finding finding = Make(
          Kind::kWrongBytes, true,
          measured_.NameOf(wrong.from) + " → " + measured_.NameOf(wrong.to) +
              ": " + Count(wrong.messages, "message") +
              " arrived with wrong bytes, " + WithCommas(wrong.bytes) +
              " of them: memory, card or driver at one end");
      finding.from = wrong.from;
      finding.to = wrong.to;
      finding.weight = static_cast<double>(wrong.bytes);
      Add(std::move(finding));
    }
  }

  // --- Bandwidths ---

  void AnalyzePlane(int plane) {
    const LinkClasses classes(measured_, measured_.planes[plane]);
    if (classes.classes().empty()) {
      return;
    }
    AddExpectations(plane, classes);
    const IsolatedRatios isolated(measured_, plane, classes);
    std::size_t singles = 0;
    for (const SlowPart& part :
         ExplainSlowLinks(classes, isolated, options_.tolerance)) {
      const bool single = part.kind == SlowPart::Kind::kLink ||
                          part.kind == SlowPart::Kind::kLinkBoth;
      if (!single || ++singles <= kMostSingles) {
        Add(DescribePart(measured_, plane, part));
      }
    }
    if (singles > kMostSingles) {
      Add(Make(Kind::kOther, true,
               Count(singles - kMostSingles, "single link") +
                   " more are slow; the reports' matrix shows them"));
    }
    AddRanked(plane, classes, isolated);
    analysis_.planes.push_back(
        {measured_.planes[plane].name, classes.classes()});
  }

  // Against --expect; and which classes are too small to speak for themselves.
  void AddExpectations(int plane, const LinkClasses& classes) {
    const bool on_one_host = measured_.OnOneHost();
    std::size_t judged = 0;
    for (const LinkClass& members : classes.classes()) {
      // What is expected, all rails carry together.
      const bool expected = options_.expect_bytes_per_s &&
                            (members.between || on_one_host) &&
                            measured_.planes[plane].rail < 0;
      judged += members.few() ? 0 : 1;
      if (expected) {
        ++judged;
        ExpectOf(plane, members);
      }
    }
    if (judged == 0 && baseline_ == nullptr && plane == 0) {
      Add(Make(Kind::kFewLinks, false,
               "there are too few links of a kind to tell which is wrong: "
               "they are only compared with each other; give --expect or "
               "--baseline"));
    }
  }

  // Of many links those that are slower than the others are found otherwise.
  // Those that share a cable carry what is expected together.
  void ExpectOf(int plane, const LinkClass& members) {
    const double expected = *options_.expect_bytes_per_s;
    const double carried =
        (members.few() ? members.min : members.reference) * members.load;
    if (carried >= expected * (1 - options_.tolerance)) {
      return;
    }
    const std::string links = "the links " + members.name;
    Finding finding =
        Make(Kind::kBelowExpected, true,
             (members.few() ? "the slowest of " + links + " carries "
                            : links + " carry ") +
                 FormatRate(carried) + (members.load > 1 ? " together" : "") +
                 " where " + FormatRate(expected) + " is expected");
    finding.plane = plane;
    Add(std::move(finding));
  }

  void AddRanked(int plane, const LinkClasses& classes,
                 const IsolatedRatios& isolated) {
    std::vector<RankedLink> links;
    for (const LinkClass& members : classes.classes()) {
      for (const auto& [from, to] : members.links) {
        links.push_back({plane, from, to, classes.Value(from, to),
                         classes.Ratio(from, to), isolated.Value({from, to})});
      }
    }
    const std::size_t shown = std::min(links.size(), kRankedLinks);
    std::partial_sort(links.begin(), links.begin() + shown, links.end(),
                      [](const RankedLink& a, const RankedLink& b) {
                        return a.ratio < b.ratio;
                      });
    analysis_.slowest.insert(analysis_.slowest.end(), links.begin(),
                             links.begin() + shown);
  }

  // Which cannot be measured by themselves then: rails are compared by number.
  void FindMissingRails() {
    std::size_t most = 0;
    for (const Rank& rank : measured_.ranks) {
      most = std::max(most, rank.rails.size());
    }
    std::set<std::string> fewer;
    for (const Rank& rank : measured_.ranks) {
      if (rank.rails.size() < most) {
        fewer.insert(rank.host);
      }
    }
    if (fewer.empty()) {
      return;
    }
    std::string hosts;
    for (const std::string& host : fewer) {
      hosts += (hosts.empty() ? "" : ", ") + host;
    }
    Finding finding =
        Make(Kind::kOther, true,
             (fewer.size() == 1 ? "host " : "hosts ") + hosts +
                 (fewer.size() == 1 ? " has" : " have") + " fewer rails than " +
                 std::to_string(most) +
                 ", which others have: is a card missing, or a port down?");
    finding.host = fewer.size() == 1 ? hosts : "";
    Add(std::move(finding));
  }

  // A rail that is slow on all hosts has no host that stands out.
  void CompareRails() {
    std::vector<std::pair<double, int>> rails;
    for (std::size_t plane = 0; plane < measured_.planes.size(); ++plane) {
      if (measured_.planes[plane].rail < 0) {
        continue;
      }
      const LinkClasses classes(measured_, measured_.planes[plane]);
      std::vector<double> references;
      for (const LinkClass& members : classes.classes()) {
        if (members.between) {
          references.push_back(members.reference);
        }
      }
      if (!references.empty()) {
        rails.emplace_back(Median(references), static_cast<int>(plane));
      }
    }
    if (rails.size() < 2) {
      return;
    }
    const double best = std::max_element(rails.begin(), rails.end())->first;
    for (const auto& [rate, plane] : rails) {
      if (rate < best * (1 - options_.tolerance)) {
        Finding finding =
            Make(Kind::kSlowRail, true,
                 measured_.planes[plane].name + " (" + RailName(plane) +
                     ") carries " + FormatRate(rate) +
                     " on all hosts where the "
                     "fastest rail carries " +
                     FormatRate(best));
        finding.plane = plane;
        finding.weight = 1 - rate / best;
        Add(std::move(finding));
      }
    }
  }

  std::string RailName(int plane) const {
    const auto rail = static_cast<std::size_t>(measured_.planes[plane].rail);
    const std::vector<std::string>& rails = measured_.ranks.front().rails;
    return rail < rails.size() ? rails[rail] : "?";
  }

  // A host that is slow on one rail is slow on all rails together: the rail is
  // the finding.
  void DropConsequences() {
    const std::vector<Finding> all = analysis_.findings;
    const auto is_consequence = [&](const Finding& finding) {
      return finding.plane >= 0 && !finding.host.empty() &&
             measured_.planes[finding.plane].rail < 0 &&
             std::any_of(all.begin(), all.end(), [&](const Finding& other) {
               return other.fault && other.kind == finding.kind &&
                      other.subject == finding.subject && other.plane >= 0 &&
                      measured_.planes[other.plane].rail >= 0;
             });
    };
    std::erase_if(analysis_.findings, is_consequence);
  }

  // --- An earlier run ---

  // The same ranks on the same hosts; then each link against itself.
  void CompareWithBaseline() {
    const bool same_ranks =
        measured_.size() == baseline_->size() &&
        std::equal(measured_.ranks.begin(), measured_.ranks.end(),
                   baseline_->ranks.begin(), [](const Rank& a, const Rank& b) {
                     return a.host == b.host;
                   });
    if (!same_ranks) {
      Add(Make(Kind::kOther, false,
               "the baseline is of other hosts, or in another order: nothing "
               "is compared with it"));
      return;
    }
    for (std::size_t plane = 0; plane < measured_.planes.size(); ++plane) {
      for (const Plane& then : baseline_->planes) {
        if (then.name == measured_.planes[plane].name) {
          ComparePlane(static_cast<int>(plane), then);
        }
      }
    }
    ComparePorts();
  }

  // The ratios of then and now have noise of both. They are written as samples
  // of a plane, and looked at as bandwidths are.
  void ComparePlane(int plane, const Plane& then) {
    const Plane& now = measured_.planes[plane];
    const int ranks = measured_.size();
    Plane ratios = now;
    ratios.bytes_per_s = LinkSamples(ranks, 1);
    std::vector<double> all;
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        const double ratio = now.bytes_per_s.MedianOf(from, to) /
                             then.bytes_per_s.MedianOf(from, to);
        if (from != to && std::isfinite(ratio)) {
          ratios.bytes_per_s.at(from, to, 0) = static_cast<float>(ratio);
          all.push_back(ratio);
        }
      }
    }
    if (all.empty()) {
      return;
    }
    if (const double usual = Median(all); usual < 1 - options_.tolerance) {
      Finding finding =
          Make(Kind::kSlowerThanThen, true,
               now.name + ": the links carry " + FormatPercent(usual) +
                   " of what they did on " + baseline_->date);
      finding.plane = plane;
      Add(std::move(finding));
    }
    AddChanges(plane, ratios, then);
  }

  void AddChanges(int plane, const Plane& ratios, const Plane& then) {
    // Where all links have changed, that is said once.
    LinkClasses classes(measured_, ratios);
    for (std::size_t i = 0; i < classes.classes().size(); ++i) {
      classes.SetReference(i, std::min(1.0, classes.classes()[i].reference));
    }
    const LinkClasses rates_now(measured_, measured_.planes[plane]);
    const LinkClasses rates_then(*baseline_, then);
    const Measurements none;
    const IsolatedRatios alone(none, plane, classes);
    for (const SlowPart& part :
         ExplainSlowLinks(classes, alone, options_.tolerance)) {
      if (part.kind == SlowPart::Kind::kContention) {
        continue;
      }
      std::vector<double> rate_now, rate_then;
      for (const auto& [from, to] : part.links) {
        rate_now.push_back(rates_now.Value(from, to));
        rate_then.push_back(rates_then.Value(from, to));
      }
      Finding finding = DescribePart(measured_, plane, part);
      finding.text = PartSubject(measured_, plane, part) + " is down to " +
                     FormatRate(Median(rate_now)) + " from " +
                     FormatRate(Median(rate_then)) + " on " + baseline_->date;
      if (!IsNamed(finding)) {
        Add(std::move(finding));
      }
    }
  }

  bool IsNamed(const Finding& finding) const {
    return std::any_of(analysis_.findings.begin(), analysis_.findings.end(),
                       [&](const Finding& other) {
                         return other.kind == finding.kind &&
                                other.plane == finding.plane &&
                                other.subject == finding.subject;
                       });
  }

  void ComparePorts() {
    for (const Port& then : baseline_->ports) {
      for (const Port& now : measured_.ports) {
        if (now.host == then.host && now.Name() == then.Name() &&
            (now.rate != then.rate || now.state != then.state)) {
          const bool worse =
              now.state != "ACTIVE" || now.gigabits_per_s < then.gigabits_per_s;
          Finding finding = Make(Kind::kPort, worse,
                                 "host " + now.host + ": port " + now.Name() +
                                     " is " + now.state + " at " + now.rate +
                                     "; on " + baseline_->date + " it was " +
                                     then.state + " at " + then.rate);
          finding.host = now.host;
          Add(std::move(finding));
        }
      }
    }
  }

  // --- The rest ---

  // A host, or a pair, that takes much longer than others of its kind.
  void AddLatencies() {
    if (!measured_.latencies) {
      return;
    }
    const std::vector<int> hosts = HostNumbers(measured_);
    for (const bool between : {true, false}) {
      std::map<int, std::vector<double>> of_rank;
      std::vector<std::pair<double, Link>> pairs;
      std::vector<double> all;
      for (int a = 0; a < measured_.size(); ++a) {
        for (int b = a + 1; b < measured_.size(); ++b) {
          const double time = measured_.latencies->median_s.at(a, b, 0);
          if (!std::isnan(time) && (hosts[a] != hosts[b]) == between) {
            of_rank[a].push_back(time);
            of_rank[b].push_back(time);
            pairs.push_back({time, {a, b}});
            all.push_back(time);
          }
        }
      }
      if (all.size() >= kFewLinks) {
        JudgeLatencies(Median(all), of_rank, pairs, between);
      }
    }
  }

  void JudgeLatencies(double usual,
                      const std::map<int, std::vector<double>>& of_rank,
                      std::vector<std::pair<double, Link>>& pairs,
                      bool between) {
    // The widths of both tails of the distribution are alike without faults.
    std::vector<double> distances;
    for (const auto& [time, pair] : pairs) {
      distances.push_back(std::fabs(std::log(time / usual)));
    }
    const double spread =
        std::exp(WorstOf(pairs.size()) * kDeviationOfMad * Median(distances));
    std::set<int> slow_ranks;
    const std::string where = between ? "between hosts" : "inside a host";
    for (const auto& [rank, times] : of_rank) {
      const double time = Median(times);
      if (time > usual * kSlowLatency && time > usual + kShortLatency &&
          times.size() > 2 && time > usual * std::sqrt(spread)) {
        slow_ranks.insert(rank);
        Finding finding =
            Make(Kind::kLatency, false,
                 "host " + measured_.NameOf(rank) + " answers after " +
                     FormatTime(time) + " where " + FormatTime(usual) +
                     " is usual " + where + ": all its links");
        finding.host = measured_.ranks[rank].host;
        finding.weight = time / usual;
        Add(std::move(finding));
      }
    }
    std::sort(pairs.rbegin(), pairs.rend());
    std::size_t named = 0;
    for (const auto& [time, pair] : pairs) {
      if (named < kMostLatencyFindings && time > usual * kVerySlowLatency &&
          time > usual + kShortLatency && time > usual * spread &&
          !slow_ranks.contains(pair.first) &&
          !slow_ranks.contains(pair.second)) {
        ++named;
        Finding finding =
            Make(Kind::kLatency, false,
                 measured_.NameOf(pair.first) + " ↔ " +
                     measured_.NameOf(pair.second) + " takes " +
                     FormatTime(time) + " where " + FormatTime(usual) +
                     " is usual " + where + ": a longer path?");
        finding.from = pair.first;
        finding.to = pair.second;
        finding.weight = time / usual;
        Add(std::move(finding));
      }
    }
  }

  void AddPatterns() {
    const Pattern* worst = nullptr;
    double least = kPoorPattern;
    std::size_t poor = 0;
    for (const Pattern& pattern : measured_.patterns) {
      const double part = pattern.bytes_per_s / pattern.of_links_bytes_per_s;
      if (pattern.of_links_bytes_per_s > 0 && part < kPoorPattern &&
          !measured_.OnOneHost()) {
        ++poor;
        if (part < least) {
          least = part;
          worst = &pattern;
        }
      }
    }
    if (worst != nullptr) {
      Add(Make(
          Kind::kPattern, false,
          worst->kind + " (" + worst->name + ") carries " +
              FormatRate(worst->bytes_per_s) + " in all, " +
              FormatPercent(least) + " of what its slowest link would allow" +
              (poor > 1
                   ? ", and " + Count(poor - 1, "other pattern") + " as little"
                   : std::string()) +
              ": the fabric is oversubscribed, or sending and receiving "
              "at once is slower than either"));
    }
  }

  void AddCollectives() {
    for (const CollectiveTime& time : measured_.collectives) {
      if (time.predicted_s > 0 &&
          time.seconds > kPoorCollective * time.predicted_s &&
          !measured_.OnOneHost()) {
        Finding finding = Make(Kind::kCollective, false,
                               "an allreduce of " + WithCommas(time.bytes) +
                                   " bytes takes " + FormatTime(time.seconds) +
                                   " where its slowest link allows " +
                                   FormatTime(time.predicted_s));
        finding.weight = time.seconds / time.predicted_s;
        Add(std::move(finding));
      }
    }
  }

  void Conclude() {
    const std::size_t faults =
        std::count_if(analysis_.findings.begin(), analysis_.findings.end(),
                      [](const Finding& finding) { return finding.fault; });
    std::size_t links = 0;
    for (const LinkClass& members : analysis_.planes.empty()
                                        ? std::vector<LinkClass>()
                                        : analysis_.planes.front().classes) {
      links += members.links.size();
    }
    const bool whole =
        links == static_cast<std::size_t>(measured_.size()) *
                     (static_cast<std::size_t>(measured_.size()) - 1) &&
        links > 0;
    if (faults > 0) {
      analysis_.verdict = Verdict::kFaulty;
      analysis_.summary =
          Count(faults, "thing") + (faults == 1 ? " is" : " are") + " wrong";
    } else if (!whole) {
      analysis_.verdict = Verdict::kNotMeasured;
      analysis_.summary =
          measured_.size() < 2
              ? "one rank has no link: nothing was measured"
              : "not all links were measured (" + WithCommas(links) + " of " +
                    WithCommas(static_cast<std::size_t>(measured_.size()) *
                               (measured_.size() - 1)) +
                    "): nothing wrong was seen in those that were";
    } else {
      analysis_.verdict = Verdict::kHealthy;
      analysis_.summary = "all " + Count(links, "link") +
                          " do what they "
                          "should";
    }
  }

  const Measurements& measured_;
  const AnalysisOptions options_;
  const Measurements* const baseline_;
  Analysis analysis_;
};

}  // namespace

Analysis Analyze(const Measurements& measurements,
                 const AnalysisOptions& options, const Measurements* baseline) {
  return Analyzer(measurements, options, baseline).Run();
}

}  // namespace ringpipe::validate
