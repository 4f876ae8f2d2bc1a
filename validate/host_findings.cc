#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "validate/analysis_parts.h"
#include "validate/format.h"
#include "validate/partners.h"

namespace ringpipe::validate {
namespace {

using Kind = Finding::Kind;

// A message takes more than twice as long as the link's others.
constexpr double kDisturbed = 0.5;
// Of the passes of a host: fewer are no fault; and so often healthy ones are
// disturbed, at least.
constexpr double kManyDisturbed = 0.15;
constexpr double kUsualDisturbed = 0.03;
constexpr double kChance = 2e-3;

// The 99th percentile of a latency, of most links of a host.
constexpr double kLate = 20;
constexpr double kLateSeconds = 1e-3;

// Of TCP's segments, of which acknowledgements are up to half. More are lost on
// a healthy network, where a queue is full, but not all the time.
constexpr double kManyRetransmitted = 4e-3;
constexpr double kMoreThanOthers = 4;
constexpr std::uint64_t kFewRetransmitted = 20;
constexpr double kAllTheTime = 0.8;  // of the steps
constexpr std::uint64_t kFewSteps = 4;

// Less of its ports' rate, and something is wrong with all links alike. One
// stream of TCP fills cards up to so many Mbit/s.
constexpr double kPartOfPorts = 0.4;
constexpr double kMegabitsOfTcp = 10'000;

struct Passes {
  int disturbed = 0;
  int spells = 0;  // of disturbed ones, one after another
  int all = 0;
  bool last = false;  // is disturbed

  double part() const {
    return all == 0 ? 0 : static_cast<double>(disturbed) / all;
  }
  void Add(bool is_disturbed) {
    ++all;
    disturbed += is_disturbed ? 1 : 0;
    spells += is_disturbed && !last ? 1 : 0;
    last = is_disturbed;
  }
  // How many passes that do not depend on each other say as much: what a host
  // is busy with disturbs several on end. (Of a series whose neighbours
  // correlate by r: (1 - r) / (1 + r) of them.)
  double Independent() const {
    const double alone = std::min(1.0, spells / (disturbed * (1 - part())));
    return all * alone / (2 - alone);
  }
};

// Chernoff's bound: the logarithm of the chance of as many where `usual` is the
// chance of one.
double LogChance(const Passes& passes, double usual) {
  const double part = std::min(passes.part(), 1 - 1e-9);
  return -passes.Independent() *
         (part * std::log(part / usual) +
          (1 - part) * std::log((1 - part) / (1 - usual)));
}

std::map<std::string, Passes> CountDisturbed(const Measurements& measured,
                                             const Plane& plane) {
  // By host: when, in the order of the measurement, and whether disturbed.
  std::map<std::string, std::vector<std::pair<int, bool>>> seen;
  const int size = measured.size();
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (measured.OnOneHost(from, to)) {
        continue;
      }
      const std::vector<double> samples = plane.bytes_per_s.SamplesOf(from, to);
      const double slow = kDisturbed * RateOf(samples);
      int step = (to + size - from) % size * 3 + StepOfLink(size, from, to);
      for (std::size_t i = 0; i + kPassMessages <= samples.size();
           i += kPassMessages, step += 3 * size) {
        const auto first = samples.begin() + static_cast<long>(i);
        const bool disturbed =
            std::any_of(first, first + kPassMessages,
                        [slow](double sample) { return sample < slow; });
        for (const int rank : {from, to}) {
          seen[measured.ranks[rank].host].emplace_back(step, disturbed);
        }
      }
    }
  }
  std::map<std::string, Passes> of_host;
  for (auto& [host, passes] : seen) {
    std::sort(passes.begin(), passes.end());
    for (const auto& [step, disturbed] : passes) {
      of_host[host].Add(disturbed);
    }
  }
  return of_host;
}

template <typename Value>
double MedianOfOthers(const std::map<std::string, Value>& of_host,
                      const std::string& host) {
  std::vector<double> others;
  for (const auto& [other, value] : of_host) {
    if (other != host) {
      others.push_back(value);
    }
  }
  return Median(others);
}

// 0 where all are fewer than `few`.
double PartOf(std::uint64_t some, std::uint64_t all, std::uint64_t few) {
  return all < few ? 0 : static_cast<double>(some) / static_cast<double>(all);
}

Finding OfHost(Kind kind, const std::string& host, double weight,
               std::string text) {
  Finding finding = MakeFinding(kind, true, "host " + host + std::move(text));
  finding.host = host;
  finding.weight = weight;
  return finding;
}

}  // namespace

std::set<std::string> BusyHosts(const Measurements& measured, int plane,
                                double most_queued) {
  std::map<std::string, std::vector<double>> queued;
  for (const Isolated& link : measured.isolated) {
    // That takes no time inside a host, beside any wait.
    if (link.plane != plane ||
        (!measured.OnOneHost() && measured.OnOneHost(link.from, link.to))) {
      continue;
    }
    for (const auto& [from, to] : link.queued) {
      queued[measured.ranks[link.from].host].push_back(from);
      queued[measured.ranks[link.to].host].push_back(to);
    }
  }
  std::set<std::string> busy;
  for (const auto& [host, parts] : queued) {
    if (Median(parts) > most_queued) {
      busy.insert(host);
    }
  }
  return busy;
}

std::optional<Finding> FindBusyHosts(const std::set<std::string>& busy) {
  constexpr std::size_t kMostNamed = 8;
  std::string names;
  std::size_t named = 0;
  for (const std::string& host : busy) {
    if (named++ < kMostNamed) {
      names += (names.empty() ? "" : ", ") + host;
    }
  }
  if (named > kMostNamed) {
    names += " and " + std::to_string(named - kMostNamed) + " more";
  }
  if (busy.empty()) {
    return std::nullopt;
  }
  Finding finding = MakeFinding(
      Kind::kBusy, false,
      (busy.size() == 1 ? "host " : "hosts ") + names +
          (busy.size() == 1 ? " is" : " are") +
          " busy with other work: for more than " + FormatPercent(kMuchQueued) +
          " of the time in which a link was measured alone, threads waited for "
          "a core; what is slow there is not judged by that");
  finding.host = busy.size() == 1 ? names : "";
  return finding;
}

std::vector<Finding> FindDisturbedHosts(const Measurements& measured) {
  std::vector<Finding> findings;
  if (measured.planes.empty()) {
    return findings;
  }
  const auto of_host = CountDisturbed(measured, measured.planes.front());
  std::map<std::string, double> parts;
  for (const auto& [host, passes] : of_host) {
    parts[host] = passes.part();
  }
  for (const auto& [host, passes] : of_host) {
    // What is with others too may be this host's doing, where they are few.
    const double usual = std::max(kUsualDisturbed, MedianOfOthers(parts, host));
    if (of_host.size() > 2 && passes.part() > kManyDisturbed &&
        passes.part() > 2 * usual &&
        LogChance(passes, usual) <
            std::log(kChance / static_cast<double>(of_host.size()))) {
      findings.push_back(OfHost(
          Kind::kDisturbed, host, passes.part(),
          ": in " + FormatPercent(passes.part()) +
              " of its passes a message took more than twice as long as the "
              "others (" +
              FormatPercent(MedianOfOthers(parts, host)) +
              " on other hosts): a link that comes and goes, or a busy host"));
    }
  }
  return findings;
}

std::vector<Finding> FindLateHosts(const Measurements& measured) {
  std::vector<Finding> findings;
  if (!measured.latencies) {
    return findings;
  }
  std::map<std::string, std::vector<double>> tails;
  for (int a = 0; a < measured.size(); ++a) {
    for (int b = 0; b < measured.size(); ++b) {
      const double tail = measured.latencies->p99_s.at(a, b, 0);
      if (!std::isnan(tail) &&
          measured.ranks[a].host != measured.ranks[b].host) {
        tails[measured.ranks[a].host].push_back(tail);
      }
    }
  }
  std::map<std::string, double> of_host;
  for (const auto& [host, all] : tails) {
    of_host[host] = Median(all);
  }
  for (const auto& [host, tail] : of_host) {
    const double usual = MedianOfOthers(of_host, host);
    if (of_host.size() > 2 && tail > kLate * usual &&
        tail > usual + kLateSeconds) {
      findings.push_back(
          OfHost(Kind::kLatency, host, tail / usual,
                 " answers late on most of its links: one message in a hundred "
                 "takes " +
                     FormatTime(tail) + " where " + FormatTime(usual) +
                     " is usual: it loses messages, or is busy"));
    }
  }
  return findings;
}

std::vector<Finding> FindLossyHosts(const Measurements& measured) {
  std::map<std::string, double> lost;
  std::map<std::string, double> lossy_steps;
  // By RDMA, what TCP carries is not the ranks'.
  if (measured.way == "RDMA") {
    return {};
  }
  for (const HostNetwork& network : measured.networks) {
    lost[network.host] =
        PartOf(network.retransmitted, network.segments, /*few=*/1);
    lossy_steps[network.host] =
        PartOf(network.lossy_steps, network.steps, kFewSteps);
  }
  std::vector<Finding> findings;
  for (const HostNetwork& network : measured.networks) {
    const double part = lost[network.host];
    const double usual = MedianOfOthers(lost, network.host);
    const bool is_alone =
        part > kMoreThanOthers * usual ||
        MedianOfOthers(lossy_steps, network.host) < kAllTheTime;
    if (lost.size() > 2 && part > kManyRetransmitted &&
        network.retransmitted > kFewRetransmitted &&
        lossy_steps[network.host] >= kAllTheTime && is_alone) {
      findings.push_back(
          OfHost(Kind::kErrorCounter, network.host, part,
                 ": TCP sent " + FormatPercent(part) + " of " +
                     WithCommas(network.segments) + " segments again (" +
                     FormatPercent(usual) +
                     " on other hosts), all the time: what it sends is lost "
                     "on the way"));
    }
  }
  return findings;
}

std::optional<Finding> FindBelowPorts(const Measurements& measured,
                                      const Analysis& analysis) {
  double carried = 0;
  for (const PlaneClasses& plane : analysis.planes) {
    for (const LinkClass& members : plane.classes) {
      if (members.between && &plane == &analysis.planes.front()) {
        carried = std::max(carried, members.reference * members.load);
      }
    }
  }
  // By host the ports that its ranks use. What is not on PCI is software, whose
  // rate is made up.
  std::map<std::string, std::map<std::string, double>> ports;
  for (const Rank& rank : measured.ranks) {
    for (const Port& port : measured.ports) {
      if (port.host == rank.host && port.pci_lanes > 0 &&
          std::count(rank.rails.begin(), rank.rails.end(), port.Name()) > 0) {
        ports[rank.host][port.Name()] = port.gigabits_per_s * 1000;
      }
    }
  }
  for (const HostNetwork& network : measured.networks) {
    if (measured.way == "software device" &&
        network.megabits_per_s <= kMegabitsOfTcp) {
      ports[network.host] = {{"Ethernet", network.megabits_per_s}};
    }
  }
  std::vector<double> rates;
  for (const auto& [host, of_port] : ports) {
    double megabits = 0;
    for (const auto& [name, rate] : of_port) {
      megabits += rate;
    }
    rates.push_back(megabits * 1e6 / 8);
  }
  const double nominal = Median(rates);
  if (!(carried > 0) || !(carried < kPartOfPorts * nominal)) {
    return std::nullopt;
  }
  return MakeFinding(
      Kind::kBelowExpected, true,
      "the links between hosts carry " + FormatRate(carried) + " at most, " +
          FormatPercent(carried / nominal) +
          " of what the ports of a host are rated at (" + FormatRate(nominal) +
          "): the wrong network, a fabric that limits them, or the hosts "
          "themselves; --expect says what is right");
}

}  // namespace ringpipe::validate
