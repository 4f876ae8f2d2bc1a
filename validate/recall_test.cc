// Over a thousand random clusters: what is planted is found and named, and
// nothing else is.
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "validate/analysis.h"
#include "validate/simulated_cluster.h"

namespace ringpipe::validate {
namespace {

using testing::ClusterOptions;
using testing::Fault;
using testing::HostName;
using testing::MeasureCluster;

struct Shape {
  int hosts;
  int ranks_per_host;
  int rails;
  int cases;
};
constexpr Shape kShapes[] = {{8, 1, 1, 300},   {64, 1, 1, 700}, {16, 4, 1, 100},
                             {256, 1, 1, 140}, {512, 1, 1, 40}, {8, 1, 2, 100},
                             {64, 1, 4, 30}};

constexpr std::pair<Fault::Kind, const char*> kFaults[] = {
    {Fault::Kind::kHost, "host"},
    {Fault::Kind::kSender, "sender"},
    {Fault::Kind::kReceiver, "receiver"},
    {Fault::Kind::kPath, "path"},
    {Fault::Kind::kDirection, "direction"}};

struct Tally {
  int cases = 0;
  int found = 0;  // of those with a fault
  int with_faults = 0;
  int false_alarms = 0;  // runs with a fault that was not planted
};

// Whether the finding is what was planted.
bool Names(const Finding& finding, const Fault& fault,
           const Measurements& measured) {
  const auto host_of = [&measured](int rank) {
    return rank < 0 ? std::string() : measured.ranks[rank].host;
  };
  const bool link = host_of(finding.from) == HostName(fault.a) &&
                    host_of(finding.to) == HostName(fault.b);
  const bool back = host_of(finding.from) == HostName(fault.b) &&
                    host_of(finding.to) == HostName(fault.a);
  const bool path = finding.text.find(HostName(fault.a) + " → " +
                                      HostName(fault.b)) != std::string::npos;
  const bool path_back =
      finding.text.find(HostName(fault.b) + " → " + HostName(fault.a)) !=
      std::string::npos;
  const bool host = finding.host == HostName(fault.a);
  const int rail = finding.plane < 0 ? -1 : measured.planes[finding.plane].rail;
  if (rail != fault.rail) {
    return false;
  }
  switch (fault.kind) {
    case Fault::Kind::kHost:
      return finding.kind == Finding::Kind::kSlowHost && host;
    case Fault::Kind::kSender:
      return finding.kind == Finding::Kind::kSlowSender && host;
    case Fault::Kind::kReceiver:
      return finding.kind == Finding::Kind::kSlowReceiver && host;
    case Fault::Kind::kPath:
      return (finding.kind == Finding::Kind::kSlowPath && (link || back)) ||
             (finding.kind == Finding::Kind::kSlowDirection &&
              (path || path_back));
    case Fault::Kind::kDirection:
      return finding.kind == Finding::Kind::kSlowDirection && (link || path);
    case Fault::Kind::kRail:
      return finding.kind == Finding::Kind::kSlowRail;
    case Fault::Kind::kContention:
      return finding.kind == Finding::Kind::kContention;
  }
  return false;
}

class RecallTest : public ::testing::TestWithParam<Shape> {
 protected:
  void Run(ClusterOptions options, const std::string& name) {
    const Measurements measured = MeasureCluster(options);
    const Analysis analysis = Analyze(measured, {});
    Tally& tally = tallies_[name];
    ++tally.cases;
    bool found = false, alarm = false;
    std::string texts;
    for (const Finding& finding : analysis.findings) {
      const bool planted = !options.faults.empty() &&
                           Names(finding, options.faults.front(), measured);
      found |= planted;
      alarm |= finding.fault && !planted;
      texts.resize(std::min<std::size_t>(texts.size(), 2000));
      texts += (finding.fault ? "  fault: " : "  note: ") + finding.text + "\n";
    }
    tally.with_faults += options.faults.empty() ? 0 : 1;
    tally.found += found ? 1 : 0;
    tally.false_alarms += alarm ? 1 : 0;
    const bool healthy =
        options.faults.empty() ||
        options.faults.front().kind == Fault::Kind::kContention;
    if ((alarm || found == options.faults.empty()) && shown_++ < 5) {
      std::printf(
          "%s, seed %llu, noise %.3f%s:\n%s", name.c_str(),
          static_cast<unsigned long long>(options.seed), options.noise,
          options.faults.empty()
              ? ""
              : (", loss " + std::to_string(options.faults.front().loss) +
                 ", " + HostName(options.faults.front().a) + ", " +
                 HostName(options.faults.front().b))
                    .c_str(),
          texts.c_str());
    }
    if (!alarm && (healthy || found)) {
      EXPECT_EQ(analysis.verdict,
                healthy ? Verdict::kHealthy : Verdict::kFaulty);
    }
  }

  void Print() const {
    std::printf("%4d hosts x %d, %d rails   cases   found   false alarms\n",
                GetParam().hosts, GetParam().ranks_per_host, GetParam().rails);
    for (const auto& [name, tally] : tallies_) {
      std::printf(
          "  %-21s %8d %7s %14d\n", name.c_str(), tally.cases,
          tally.with_faults == 0 ? "-" : std::to_string(tally.found).c_str(),
          tally.false_alarms);
    }
  }

  std::map<std::string, Tally> tallies_;
  int shown_ = 0;
};

TEST_P(RecallTest, PlantedFaultsAreFoundAndNothingElseIs) {
  const Shape shape = GetParam();
  std::mt19937_64 random(shape.hosts * 7919 + shape.ranks_per_host);
  const auto uniform = [&random](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int number = 0; number < shape.cases; ++number) {
    ClusterOptions options;
    options.hosts = shape.hosts;
    options.ranks_per_host = shape.ranks_per_host;
    options.rails = shape.rails;
    options.seed = random();
    options.noise = uniform(0.005, 0.04);
    // Half of the runs are without fault, one in ten with contention alone;
    // where there are rails, one in ten has a slow one on all hosts.
    const int turn = number % 10;
    if (turn < 3 || (turn == 3 && shape.rails == 1)) {
      Run(options, "none");
      continue;
    }
    Fault fault;
    fault.a = static_cast<int>(random() % shape.hosts);
    fault.b = static_cast<int>((fault.a + 1 + random() % (shape.hosts - 1)) %
                               shape.hosts);
    if (turn == 4) {
      fault.kind = Fault::Kind::kContention;
      fault.loss = 0.4;
      options.faults = {fault};
      Run(options, "contention");
      continue;
    }
    const auto& [kind, name] =
        turn == 3 ? std::pair(Fault::Kind::kRail, "rail of all")
                  : kFaults[turn - 5];
    fault.kind = kind;
    fault.loss = uniform(0.25, 0.7);
    fault.rail =
        shape.rails == 1 ? -1 : static_cast<int>(random() % shape.rails);
    options.faults = {fault};
    Run(options, name);
  }
  Print();
  Tally all;
  for (const auto& [name, tally] : tallies_) {
    all.cases += tally.cases;
    all.with_faults += tally.with_faults;
    all.found += tally.found;
    all.false_alarms += tally.false_alarms;
  }
  EXPECT_LT(all.false_alarms, std::max(1.0, 0.01 * all.cases));
  EXPECT_GT(all.found, std::min(all.with_faults - 1.0, 0.99 * all.with_faults));
}

INSTANTIATE_TEST_SUITE_P(Clusters, RecallTest, ::testing::ValuesIn(kShapes),
                         [](const auto& info) {
                           return std::to_string(info.param.hosts) + "x" +
                                  std::to_string(info.param.ranks_per_host) +
                                  "x" + std::to_string(info.param.rails);
                         });

}  // namespace
}  // namespace ringpipe::validate
