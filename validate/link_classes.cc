#include "validate/link_classes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "validate/partners.h"

namespace ringpipe::validate {
namespace {

// The fastest links of a class may be a few by chance, but not a twentieth; and
// are at least that many where three hosts of four are slow, of 16 or more.
constexpr std::size_t kFastest = 20;
// As fast as the fastest: by this part, or so many standard errors.
constexpr double kAlike = 0.1;
constexpr double kAlikeErrors = 4;

// Latencies tell switches apart from so many hosts on; a host has two
// neighbours then. What is far takes so much longer, and so many pairs fit.
constexpr int kHostsOfSwitches = 8;
constexpr std::size_t kHostsOfSwitch = 3;
constexpr double kFar = 1.25;
constexpr double kFit = 0.95;

// By pair of hosts the shortest latency of their ranks; NaN: none.
using HostTimes = std::vector<std::vector<double>>;

HostTimes TimesBetweenHosts(const Measurements& measurements,
                            const std::vector<int>& hosts) {
  const int count = *std::max_element(hosts.begin(), hosts.end()) + 1;
  HostTimes times(count, std::vector<double>(count, NAN));
  for (std::size_t a = 0; a < hosts.size(); ++a) {
    for (std::size_t b = a + 1; b < hosts.size(); ++b) {
      const double time = measurements.latencies->median_s.at(
          static_cast<int>(a), static_cast<int>(b), 0);
      if (hosts[a] != hosts[b]) {
        double& least = times[hosts[a]][hosts[b]];
        least = std::fmin(least, time);
        times[hosts[b]][hosts[a]] = least;
      }
    }
  }
  return times;
}

// Between what is near and what is far (two means, of logarithms); 0: all are
// alike.
double FarFrom(const HostTimes& times) {
  std::vector<double> all;
  for (std::size_t a = 0; a < times.size(); ++a) {
    for (std::size_t b = a + 1; b < times.size(); ++b) {
      if (times[a][b] > 0) {
        all.push_back(std::log(times[a][b]));
      }
    }
  }
  if (all.empty()) {
    return 0;
  }
  std::sort(all.begin(), all.end());
  double near = all[all.size() / 100], far = all[all.size() * 9 / 10];
  for (int turn = 0; turn < 20; ++turn) {
    const auto border =
        std::lower_bound(all.begin(), all.end(), (near + far) / 2);
    if (border == all.begin() || border == all.end()) {
      return 0;
    }
    near = Median({all.begin(), border});
    far = Median({border, all.end()});
  }
  return far - near > std::log(kFar) ? std::exp((near + far) / 2) : 0;
}

// Each host joins the first switch that is near by most of its hosts.
std::vector<int> SwitchesOfHosts(const HostTimes& times, double border) {
  std::vector<std::vector<int>> groups;
  std::vector<int> switches;
  for (int host = 0; host < static_cast<int>(times.size()); ++host) {
    const auto joined = std::find_if(
        groups.begin(), groups.end(), [&](const std::vector<int>& group) {
          const auto near = std::count_if(
              group.begin(), group.end(),
              [&](int other) { return times[host][other] < border; });
          return 2 * near > static_cast<long>(group.size());
        });
    switches.push_back(static_cast<int>(joined - groups.begin()));
    if (joined == groups.end()) {
      groups.push_back({host});
    } else {
      joined->push_back(host);
    }
  }
  std::size_t fit = 0, pairs = 0;
  for (std::size_t a = 0; a < times.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      ++pairs;
      fit += (times[a][b] < border) == (switches[a] == switches[b]) ? 1 : 0;
    }
  }
  const bool small = std::any_of(
      groups.begin(), groups.end(),
      [](const auto& group) { return group.size() < kHostsOfSwitch; });
  return small || static_cast<double>(fit) < kFit * static_cast<double>(pairs)
             ? std::vector<int>(times.size(), 0)
             : switches;
}

}  // namespace

std::vector<int> HostNumbers(const Measurements& measurements) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const Rank& rank : measurements.ranks) {
    hosts.push_back(numbers.emplace(rank.host, static_cast<int>(numbers.size()))
                        .first->second);
  }
  return hosts;
}

std::vector<int> SwitchNumbers(const Measurements& measurements) {
  const std::vector<int> hosts = HostNumbers(measurements);
  std::vector<int> switches(hosts.size(), 0);
  if (!measurements.latencies || hosts.empty() ||
      *std::max_element(hosts.begin(), hosts.end()) + 1 < kHostsOfSwitches) {
    return switches;
  }
  const HostTimes times = TimesBetweenHosts(measurements, hosts);
  const double border = FarFrom(times);
  if (border > 0) {
    const std::vector<int> of_host = SwitchesOfHosts(times, border);
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      switches[rank] = of_host[hosts[rank]];
    }
  }
  return switches;
}

double WorstOf(std::size_t count) {
  const double chance =
      1e-3 / static_cast<double>(std::max<std::size_t>(count, 1));
  double low = 0, high = 10;
  while (high - low > 1e-6) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(middle / std::sqrt(2)) > chance ? low : high) = middle;
  }
  return high;
}

double ErrorOfMedian(double spread, std::size_t count) {
  return kErrorOfMedian * spread / std::sqrt(static_cast<double>(count));
}

Level LevelOf(std::vector<double> rates, double error) {
  std::sort(rates.rbegin(), rates.rend());
  const bool few = rates.size() < kFewLinks;
  const double fast =
      rates[few ? 0 : std::max<std::size_t>(1, rates.size() / kFastest)];
  const double least = fast * (1 - std::max(kAlike, kAlikeErrors * error));
  std::erase_if(rates, [least](double rate) { return rate < least; });
  const double reference = Median(rates);
  for (double& rate : rates) {
    rate = std::fabs(rate / reference - 1);
  }
  return {reference, std::max(kDeviationOfMad * Median(rates), error)};
}

double LinkClass::Resolution(double tolerance) const {
  return std::min(1.0, std::max(tolerance, WorstOf(links.size()) * spread));
}

LinkClasses::LinkClasses(const Measurements& measurements, const Plane& plane)
    : ranks_(measurements.size()),
      hosts_(HostNumbers(measurements)),
      switches_(SwitchNumbers(measurements)),
      values_(static_cast<std::size_t>(ranks_) * ranks_, NAN),
      class_of_(values_.size(), -1) {
  for (int from = 0; from < ranks_; ++from) {
    for (int to = 0; to < ranks_; ++to) {
      if (from != to) {
        values_[Index(from, to)] = plane.bytes_per_s.RateOf(from, to);
      }
    }
  }
  Sort(measurements);
  FindOwners();
  for (LinkClass& members : classes_) {
    Describe(plane, members);
  }
}

LinkClasses::LinkClasses(const Measurements& measurements, int plane)
    : LinkClasses(measurements, measurements.planes[plane]) {
  RaiseHidden(measurements, plane);
}

// If the controls of a host's own classes all are slow alone, beside those of
// other classes, so are their references.
void LinkClasses::RaiseHidden(const Measurements& measurements, int plane) {
  using Where = std::pair<bool, bool>;  // between, across
  std::map<Where, std::vector<double>> usual;
  std::map<std::pair<Where, int>, std::vector<double>> of_owner;
  for (const Isolated& link : measurements.isolated) {
    if (link.plane == plane && link.control && !link.bytes_per_s.empty() &&
        Measured(link.from, link.to)) {
      const LinkClass& members = Of(link.from, link.to);
      const Where where(members.between, members.across);
      (members.owner < 0 ? usual[where] : of_owner[{where, members.owner}])
          .push_back(RateOf(link.bytes_per_s));
    }
  }
  for (const auto& [own, rates] : of_owner) {
    const auto& [where, owner] = own;
    const double others = Median(usual[where]);
    if (rates.size() < 2 || !(*std::max_element(rates.begin(), rates.end()) <
                              (1 - kAlike) * others)) {
      continue;
    }
    for (LinkClass& members : classes_) {
      if (members.owner == owner &&
          Where(members.between, members.across) == where) {
        members.reference *= others / Median(rates);
      }
    }
  }
}

bool LinkClasses::OnOneHost() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [](int host) { return host == 0; });
}

void LinkClasses::FindOwners() {
  const int hosts = *std::max_element(hosts_.begin(), hosts_.end()) + 1;
  std::map<std::pair<bool, bool>, bool> any_without;
  for (LinkClass& members : classes_) {
    const auto all_are_of = [&](int host) {
      return std::all_of(members.links.begin(), members.links.end(),
                         [&](const std::pair<int, int>& link) {
                           return hosts_[link.first] == host ||
                                  hosts_[link.second] == host;
                         });
    };
    const auto [a, b] = std::minmax(hosts_[members.links.front().first],
                                    hosts_[members.links.front().second]);
    const bool of_a = all_are_of(a), of_b = all_are_of(b);
    members.owner = of_a && of_b && a != b ? hosts * (1 + a) + b
                    : of_a                 ? a
                    : of_b                 ? b
                                           : -1;
    any_without[{members.between, members.across}] |= members.owner < 0;
  }
  for (LinkClass& members : classes_) {
    if (!any_without[{members.between, members.across}]) {
      members.owner = -1;
    }
  }
}

void LinkClasses::Sort(const Measurements& measurements) {
  const LinkLoads loads(hosts_);
  const bool plain = measurements.OnOneHost();
  std::map<std::tuple<bool, bool, int>, int> numbers;
  for (int from = 0; from < ranks_; ++from) {
    for (int to = 0; to < ranks_; ++to) {
      if (std::isnan(Value(from, to))) {
        continue;
      }
      const bool between = Between(from, to);
      // Inside one host all share the same memory: what else is going on there
      // differs little from step to step.
      const int load = plain ? 1 : loads.Of(from, to);
      const bool across = switches_[from] != switches_[to];
      const auto [at, is_new] = numbers.emplace(
          std::tuple(between, across, load), static_cast<int>(classes_.size()));
      if (is_new) {
        LinkClass members;
        members.between = between;
        members.across = across;
        members.load = load;
        members.name = across    ? "between switches"
                       : between ? "between hosts"
                                 : "inside a host";
        members.name +=
            load > 1 ? ", " + std::to_string(load) + " at once" : "";
        classes_.push_back(std::move(members));
      }
      class_of_[Index(from, to)] = at->second;
      classes_[at->second].links.emplace_back(from, to);
    }
  }
}

void LinkClasses::Describe(const Plane& plane, LinkClass& members) const {
  std::vector<double> values, errors;
  for (const auto& [from, to] : members.links) {
    values.push_back(Value(from, to));
    errors.push_back(plane.bytes_per_s.ErrorOf(from, to));
  }
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  members.min = *min;
  members.max = *max;
  members.median = Median(values);
  const Level level = LevelOf(values, Median(errors));
  members.reference = level.reference;
  members.spread = level.spread;
}

}  // namespace ringpipe::validate
