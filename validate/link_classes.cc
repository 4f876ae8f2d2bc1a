#include "validate/link_classes.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "validate/partners.h"

namespace ringpipe::validate {
namespace {

// The larger of the two in the middle.
double UpperMedian(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The mean range of n normal samples, in standard deviations.
double MeanRange(int samples) {
  constexpr double kRanges[] = {0,     0,     1.128, 1.693, 2.059,
                                2.326, 2.534, 2.704, 2.847};
  return kRanges[std::min<std::size_t>(samples, std::size(kRanges) - 1)];
}

// The standard error of the median of a link's samples, as a part of it.
double OwnError(const LinkSamples& samples, int from, int to) {
  double least = INFINITY, most = 0;
  int taken = 0;
  for (int repeat = 0; repeat < samples.repeats(); ++repeat) {
    const double sample = samples.at(from, to, repeat);
    if (!std::isnan(sample)) {
      least = std::min(least, sample);
      most = std::max(most, sample);
      ++taken;
    }
  }
  return taken < 2 ? 0
                   : (most - least) / MeanRange(taken) * kErrorOfMedian /
                         std::sqrt(taken) / samples.MedianOf(from, to);
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

double LinkClass::Resolution(double tolerance) const {
  return std::max(tolerance, WorstOf(links.size()) * spread);
}

LinkClasses::LinkClasses(const Measurements& measurements, const Plane& plane)
    : ranks_(measurements.size()),
      hosts_(HostNumbers(measurements)),
      values_(static_cast<std::size_t>(ranks_) * ranks_, NAN),
      class_of_(values_.size(), -1) {
  for (int from = 0; from < ranks_; ++from) {
    for (int to = 0; to < ranks_; ++to) {
      if (from != to) {
        values_[Index(from, to)] = plane.bytes_per_s.MedianOf(from, to);
      }
    }
  }
  Sort(measurements);
  for (LinkClass& members : classes_) {
    Describe(plane, members);
  }
}

void LinkClasses::Sort(const Measurements& measurements) {
  const LinkLoads loads(hosts_);
  const bool plain = measurements.OnOneHost();
  std::map<std::pair<bool, int>, int> numbers;
  for (int from = 0; from < ranks_; ++from) {
    for (int to = 0; to < ranks_; ++to) {
      if (std::isnan(Value(from, to))) {
        continue;
      }
      const bool between = Between(from, to);
      // Inside one host all share the same memory: what else is going on there
      // differs little from step to step.
      const int load = plain ? 1 : loads.Of(from, to);
      const auto [at, is_new] = numbers.emplace(
          std::pair(between, load), static_cast<int>(classes_.size()));
      if (is_new) {
        LinkClass members;
        members.between = between;
        members.load = load;
        members.name = between ? "between hosts" : "inside a host";
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
  std::map<int, std::vector<double>> by_sender;
  std::vector<double> values, errors;
  for (const auto& [from, to] : members.links) {
    values.push_back(Value(from, to));
    by_sender[from].push_back(values.back());
    errors.push_back(OwnError(plane.bytes_per_s, from, to));
  }
  std::vector<double> rows;
  for (auto& [from, row] : by_sender) {
    rows.push_back(UpperMedian(row));
  }
  members.min = *std::min_element(values.begin(), values.end());
  members.max = *std::max_element(values.begin(), values.end());
  members.median = Median(values);
  members.reference = UpperMedian(rows);
  std::vector<double> above;
  for (const double value : values) {
    if (value >= members.reference) {
      above.push_back(value / members.reference - 1);
    }
  }
  members.spread = std::max(kDeviationOfMad * Median(above), Median(errors));
}

}  // namespace ringpipe::validate
