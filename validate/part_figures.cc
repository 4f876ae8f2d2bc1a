#include "validate/part_figures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>

#include "validate/measurements.h"

namespace ringpipe::validate {
namespace {

using Kind = SlowPart::Kind;

bool IsPathOf(const SlowPart& unit, const SlowPart& path) {
  return path.kind == Kind::kPair && path.level == unit.level &&
         path.inside == unit.inside &&
         ((unit.kind != Kind::kReceives && path.unit == unit.unit) ||
          (unit.kind != Kind::kSends && path.peer == unit.unit));
}

}  // namespace

PartFigures::PartFigures(const LinkClasses& classes,
                         const IsolatedRatios* isolated, double tolerance)
    : classes_(classes), isolated_(isolated), tolerance_(tolerance) {
  for (const LinkClass& members : classes.classes()) {
    hidden_.push_back(members.Resolution(tolerance));
    noisy_.push_back(isolated != nullptr &&
                     isolated->Resolution(members.links, tolerance) <
                         hidden_.back());
  }
}

bool PartFigures::IsNoisy(Link link) const {
  const auto [from, to] = link;
  return classes_.Measured(from, to) && !classes_.Of(from, to).across &&
         noisy_[classes_.NumberOf(from, to)];
}

bool PartFigures::CountsAlone(Link link) const {
  const auto [from, to] = link;
  return isolated_ != nullptr && classes_.Measured(from, to) &&
         (IsNoisy(link) || isolated_->IsHidden(link, classes_, tolerance_) ||
          (noisy_[classes_.NumberOf(from, to)] &&
           isolated_->IsSlow(link, tolerance_)));
}

// What it has carried among others it can carry, but for their noise.
double PartFigures::Ratio(Link link) const {
  const auto [from, to] = link;
  if (!CountsAlone(link)) {
    return classes_.Ratio(from, to);
  }
  const double carried = (1 - hidden_[classes_.NumberOf(from, to)]) *
                         classes_.Value(from, to) / isolated_->Value(link);
  return isolated_->Ratio(link) * std::max(1.0, carried);
}

bool PartFigures::AnyIsNoisy(const std::vector<Link>& links) const {
  return std::any_of(links.begin(), links.end(),
                     [this](const Link& link) { return IsNoisy(link); });
}

bool PartFigures::CarriedMore(const std::vector<Link>& links) const {
  // Beside what healthy ones carried more, by the noise of company.
  std::map<std::size_t, std::vector<double>> of_class;
  for (const Link& link : links) {
    if (const auto [from, to] = link; IsNoisy(link)) {
      const double healthy = classes_.Of(from, to).reference *
                             isolated_->Ratio(link) / isolated_->Value(link);
      of_class[classes_.NumberOf(from, to)].push_back(classes_.Value(from, to) /
                                                      isolated_->Value(link) /
                                                      std::max(1.0, healthy));
    }
  }
  return std::any_of(of_class.begin(), of_class.end(), [this](const auto& one) {
    const auto& [number, parts] = one;
    const double error =
        ErrorOfMedian(classes_.classes()[number].spread, parts.size());
    return parts.size() > 1 &&
           Median(parts) > 1 + std::max(tolerance_, WorstOf(1) * error);
  });
}

std::vector<Link> PartFigures::SlowInCompanyAlone() const {
  const auto in_company = [this](const Link& link) {
    return classes_.Ratio(link.first, link.second);
  };
  std::set<Link> slow;
  std::map<int, std::vector<Link>> of_host;
  for (const LinkClass& members : classes_.classes()) {
    for (const Link& link : members.links) {
      if (!members.between || !IsNoisy(link) || Ratio(link) < 1 - tolerance_) {
        continue;
      }
      of_host[classes_.hosts()[link.first]].push_back(link);
      of_host[classes_.hosts()[link.second]].push_back(link);
      if (in_company(link) < 1 - members.Resolution(tolerance_)) {
        slow.insert(link);
      }
    }
  }
  for (const auto& [host, links] : of_host) {
    std::vector<double> ratios;
    double spread = 0;
    for (const Link& link : links) {
      ratios.push_back(in_company(link));
      spread = std::max(spread, classes_.Of(link.first, link.second).spread);
    }
    const double error = ErrorOfMedian(spread, links.size());
    if (Median(ratios) <
        1 - std::max(tolerance_, WorstOf(of_host.size()) * error)) {
      std::copy_if(
          links.begin(), links.end(), std::inserter(slow, slow.end()),
          [&](const Link& link) { return in_company(link) < 1 - tolerance_; });
    }
  }
  return {slow.begin(), slow.end()};
}

void PartFigures::Fill(SlowPart& part) const {
  const bool in_company = part.kind == Kind::kContention;
  std::map<Link, double> ratios;
  std::vector<double> values, references, alone, alone_ratios;
  for (const Link& link : part.links) {
    const auto [from, to] = link;
    const double value = isolated_ == nullptr ? NAN : isolated_->Value(link);
    const double reference =
        isolated_ != nullptr && !in_company && CountsAlone(link)
            ? value / isolated_->Ratio(link)
            : classes_.Of(from, to).reference;
    ratios[link] = in_company ? classes_.Ratio(from, to) : Ratio(link);
    values.push_back(ratios[link] * reference);
    references.push_back(reference);
    if (isolated_ != nullptr && !std::isnan(value)) {
      alone.push_back(value);
      alone_ratios.push_back(isolated_->Ratio(link));
    }
  }
  std::vector<double> all;
  for (const auto& [link, ratio] : ratios) {
    all.push_back(ratio);
  }
  part.ratio = Median(all);
  part.bytes_per_s = Median(values);
  part.reference = Median(references);
  part.isolated_bytes_per_s = Median(alone);
  part.isolated_ratio = Median(alone_ratios);
  if (part.kind >= Kind::kContention || part.kind == Kind::kUplink) {
    std::stable_sort(part.links.begin(), part.links.end(),
                     [&ratios](const Link& a, const Link& b) {
                       return ratios[a] < ratios[b];
                     });
  }
}

void PartFigures::Merge(std::vector<SlowPart>& parts) const {
  MergePathsOfUnits(parts);
  MergeAlike(parts);
}

// A path of a unit that is as slow as all that the unit sends, or receives,
// is no fault of its own.
void PartFigures::MergePathsOfUnits(std::vector<SlowPart>& parts) const {
  for (SlowPart& unit : parts) {
    for (SlowPart& path : parts) {
      if (unit.kind <= Kind::kReceives && IsPathOf(unit, path) &&
          AreAlike(unit, path)) {
        Join(unit, path);
        path.links.clear();
      }
    }
  }
  std::erase_if(parts, [](const SlowPart& part) { return part.links.empty(); });
}

// Units that are slow alike: two kinds of them, or one cause.
void PartFigures::MergeAlike(std::vector<SlowPart>& parts) const {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::vector<std::size_t> alike;
    for (std::size_t j = i; j < parts.size(); ++j) {
      if (parts[j].kind == parts[i].kind && parts[j].level == parts[i].level &&
          parts[j].inside == parts[i].inside && parts[j].unit >= 0 &&
          parts[j].kind <= Kind::kReceives && AreAlike(parts[i], parts[j])) {
        alike.push_back(j);
      }
    }
    if (alike.size() < kAlike) {
      continue;
    }
    SlowPart& first = parts[i];
    for (const std::size_t j : alike) {
      first.units.push_back(parts[j].unit);
      if (j != i) {
        Join(first, parts[j]);
      }
    }
    std::sort(first.units.begin(), first.units.end());
    for (std::size_t j = alike.size(); j-- > 1;) {
      parts.erase(parts.begin() + static_cast<long>(alike[j]));
    }
  }
}

void PartFigures::Join(SlowPart& part, const SlowPart& other) const {
  part.links.insert(part.links.end(), other.links.begin(), other.links.end());
  part.slow_links += other.slow_links;
  Fill(part);
}

bool PartFigures::AreAlike(const SlowPart& a, const SlowPart& b) const {
  const auto differ = [](double one, double other) {
    return std::fabs(one / other - 1);
  };
  return differ(a.ratio, b.ratio) < tolerance_ ||
         differ(a.isolated_ratio, b.isolated_ratio) < tolerance_;
}

}  // namespace ringpipe::validate
