// Links that should be equal, and how far each is from what its class carries.
#ifndef RINGPIPE_VALIDATE_LINK_CLASSES_H_
#define RINGPIPE_VALIDATE_LINK_CLASSES_H_

#include <string>
#include <utility>
#include <vector>

#include "validate/measurements.h"

namespace ringpipe::validate {

// Of a link, one after another; whatever disturbs one often disturbs them all.
// A pass over all links has so many of each.
inline constexpr int kPassMessages = 3;

// By rank, which host it is on: 0, 1, ... in the order of the ranks.
std::vector<int> HostNumbers(const Measurements& measurements);

// By rank, which switch its host is on, as latencies tell it: hosts whose pairs
// answer faster than the rest. All 0 where they do not tell switches apart.
std::vector<int> SwitchNumbers(const Measurements& measurements);

// How many standard deviations the worst of `count` healthy values stays
// within, but for one run in a thousand, if they are normal.
double WorstOf(std::size_t count);

// Of a normal distribution, from the median absolute deviation.
inline constexpr double kDeviationOfMad = 1.4826;

// The standard error of a median, beside that of a mean: sqrt(pi / 2).
inline constexpr double kErrorOfMedian = 1.2533;

double ErrorOfMedian(double spread, std::size_t count);

// With fewer links, those of three ranks, a class cannot say which one is
// wrong.
inline constexpr std::size_t kFewLinks = 6;

// Of links that should be alike, what healthy ones carry: the median of those
// that are as fast as the fastest. Two slow hosts of four make five links of
// six slow, so that the plain median would not do. And the standard deviation,
// as a part of that: how far those are from each other (1.4826 times the median
// absolute deviation), and at least `error`, what a link's own samples say.
struct Level {
  double reference = 0;
  double spread = 0;
};
Level LevelOf(std::vector<double> rates, double error);

// Healthy is where a loss of so many tolerances could be told from noise.
inline constexpr double kMostCouldTell = 1.5;

struct LinkClass {
  std::string name;  // "between hosts", "between hosts, 8 at once"
  bool between = false;
  bool across = false;  // between switches
  int load = 1;         // LinkLoads'
  // Stands for the one host, or the one pair of hosts, that all its links are
  // of, where others of that kind are not; -1: there is none. Only hosts with
  // more ranks than others have such: if they are slow, they are so alike.
  int owner = -1;
  std::vector<std::pair<int, int>> links;  // that were measured
  double min = 0;
  double median = 0;
  double max = 0;
  double reference = 0;  // Level's
  double spread = 0;

  bool few() const { return links.size() < kFewLinks; }
  // The part of the reference that a single link must lack to be told from
  // chance, at most 1.
  double Resolution(double tolerance) const;
};

// The classes of one plane. A link's class: inside a host, between hosts of one
// switch, or between switches; and how many others shared its host's cable in
// the same step.
class LinkClasses {
 public:
  LinkClasses(const Measurements& measurements, const Plane& plane);
  // Of a plane of the measurements, with what is known of links alone.
  LinkClasses(const Measurements& measurements, int plane);

  int ranks() const { return ranks_; }
  const std::vector<int>& hosts() const { return hosts_; }
  const std::vector<int>& switches() const { return switches_; }
  const std::vector<LinkClass>& classes() const { return classes_; }
  // Of a link that was measured.
  std::size_t NumberOf(int from, int to) const {
    return static_cast<std::size_t>(class_of_[Index(from, to)]);
  }
  const LinkClass& Of(int from, int to) const {
    return classes_[NumberOf(from, to)];
  }
  bool Between(int from, int to) const { return hosts_[from] != hosts_[to]; }
  // Whether the verdict is about such links: inside a host only where there is
  // but one. Memory is never quiet, and a slow pair of one host no fault.
  bool Decides(const LinkClass& members) const {
    return members.between || OnOneHost();
  }
  bool OnOneHost() const;
  // Bytes a second; NaN: not measured.
  double Value(int from, int to) const { return values_[Index(from, to)]; }
  double Ratio(int from, int to) const {
    return Measured(from, to) ? Value(from, to) / Of(from, to).reference
                              : values_[Index(from, to)];
  }
  bool Measured(int from, int to) const {
    return class_of_[Index(from, to)] >= 0;
  }
  // Instead of what the links themselves say.
  void SetReference(std::size_t index, double bytes_per_s) {
    classes_[index].reference = bytes_per_s;
  }

 private:
  std::size_t Index(int from, int to) const {
    return static_cast<std::size_t>(from) * ranks_ + to;
  }
  void Sort(const Measurements& measurements);
  void FindOwners();
  void Describe(const Plane& plane, LinkClass& members) const;
  void RaiseHidden(const Measurements& measurements, int plane);

  int ranks_;
  std::vector<int> hosts_;
  std::vector<int> switches_;
  std::vector<double> values_;
  std::vector<int> class_of_;
  std::vector<LinkClass> classes_;
};

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_LINK_CLASSES_H_
