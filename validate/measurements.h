// What a validation of an interconnect has measured: the data that the analysis
// judges, the reports draw, and a JSON file keeps.
#ifndef RINGPIPE_VALIDATE_MEASUREMENTS_H_
#define RINGPIPE_VALIDATE_MEASUREMENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ringpipe::validate {

// Of any samples of one link: LinkSamples::RateOf and ErrorOf.
double RateOf(std::vector<double> samples);
double ErrorOf(std::vector<double> samples);

// The median of `values`; of an even number the mean of the two in the middle.
// NaN for none.
double Median(std::vector<double> values);
struct Weighted {
  double value;
  double weight;
};
// Above which the rest of the weight is; `values` are sorted.
double Quantile(const std::vector<Weighted>& values, double part);
// How many of equal weight tell as much.
std::size_t EffectiveCount(const std::vector<Weighted>& values);

// Some samples for each directed link, sender by receiver: the same number for
// all. NaN where a sample was not taken.
class LinkSamples {
 public:
  LinkSamples() = default;
  LinkSamples(int ranks, int repeats);

  int ranks() const { return ranks_; }
  int repeats() const { return repeats_; }
  float& at(int from, int to, int repeat) {
    return values_[Index(from, to, repeat)];
  }
  float at(int from, int to, int repeat) const {
    return values_[Index(from, to, repeat)];
  }
  // What the link carries: the second fastest sample (of two, the faster). What
  // disturbs a message slows it down, and a bad cable is never fast; one sample
  // may look fast because its receiver was late. NaN: no sample was taken.
  double RateOf(int from, int to) const;
  // Its standard error, as a part of it: from how far the fastest is from the
  // third fastest.
  double ErrorOf(int from, int to) const;
  // Of the samples that were taken.
  std::vector<double> SamplesOf(int from, int to) const;
  // Makes place for so many more of each link.
  void AddRepeats(int more);

 private:
  std::size_t Index(int from, int to, int repeat) const {
    return (static_cast<std::size_t>(from) * ranks_ + to) * repeats_ + repeat;
  }

  int ranks_ = 0;
  int repeats_ = 0;
  std::vector<float> values_;
};

// A rank, and where it runs.
struct Rank {
  std::string host;
  int pid = 0;
  std::string device;              // as the communicator describes it
  std::vector<std::string> rails;  // "mlx5_0:1": the ports that it uses
  // On which the ranks of its host may run, all together; 0: not known.
  int cores = 0;
};

// Bandwidths of all links by one rail, or by all rails together.
struct Plane {
  std::string name;  // "all rails", "rail 1"
  int rail = -1;     // an index into Rank::rails; -1: all
  std::uint64_t message_bytes = 0;
  LinkSamples bytes_per_s;  // while other pairs talk too
};

// A link that was measured while no other was in use.
struct Isolated {
  int plane = 0;
  int from = 0;
  int to = 0;
  bool control = false;  // a healthy one, to compare suspects with
  std::vector<double> bytes_per_s;
  // Of each pass, for what part of its time threads of the sending and of the
  // receiving rank waited for a core: 1 is one thread all the time. May lack
  // passes (an older file).
  std::vector<std::pair<double, double>> queued = {};
};
// Where a rank's threads waited more than that, it is not the link that was
// measured.
inline constexpr double kMuchQueued = 0.25;

// Half a round trip of 8 bytes, in seconds.
struct Latencies {
  LinkSamples median_s;  // one sample each
  LinkSamples p99_s;
};

// All ranks at once in one pattern.
struct Pattern {
  std::string kind;        // "bisection", "ring"
  std::string name;        // "even and odd ranks"
  double bytes_per_s = 0;  // of all ranks, each way that they sent
  // What all would send at the pace of the slowest of these links.
  double of_links_bytes_per_s = 0;
};

// Every byte checked, for some time.
struct Stress {
  double seconds = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  struct Wrong {
    int from = 0;
    int to = 0;
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    bool operator==(const Wrong&) const = default;
  };
  std::vector<Wrong> wrong;
};

// One port of one RDMA device, as sysfs and its driver have it. Empty or 0: not
// known.
struct Port {
  std::string host;
  std::string device;
  int number = 1;
  std::string state;           // "ACTIVE"
  std::string physical_state;  // "LinkUp"
  std::string link_layer;      // "InfiniBand"
  std::string rate;            // "100 Gb/sec (4X EDR)"
  double gigabits_per_s = 0;
  int lanes = 0;      // 4 of "4X"
  std::string speed;  // "EDR"
  std::string interface;
  int interface_mtu = 0;
  // As the interface runs, and the fastest that it supports.
  int interface_megabits_per_s = 0;
  int interface_most_megabits_per_s = 0;
  std::vector<std::string> gid_types;  // each once
  // The device's PCI link, as it was trained and as it could be.
  double pci_gigatransfers_per_s = 0;
  double pci_most_gigatransfers_per_s = 0;
  int pci_lanes = 0;
  int pci_most_lanes = 0;
  // By name: "symbol_error". Before the measurement and after it.
  std::map<std::string, std::uint64_t> before;
  std::map<std::string, std::uint64_t> after;

  std::string Name() const { return device + ":" + std::to_string(number); }
};

// What a host's network stack has seen, while it was measured.
struct HostNetwork {
  std::string host;
  double megabits_per_s = 0;  // of its fastest Ethernet card; 0: not known
  // By TCP, and of those sent again.
  std::uint64_t segments = 0;
  std::uint64_t retransmitted = 0;
  // Of the measurement's steps in which its first rank sent many; and of them,
  // those in which some were sent again.
  std::uint64_t steps = 0;
  std::uint64_t lossy_steps = 0;
};

// Why a run ended early.
struct Ending {
  std::string phase;           // what was being measured
  std::string message;         // empty: it was interrupted
  int lost_rank = -1;          // the rank that is gone, where one is
  std::string interrupted_by;  // "SIGINT"
};

// A host that went away, and what was measured then; it went on without it.
struct Lost {
  std::string host;
  std::string phase;
  std::string message;
};

struct Measurements {
  std::string version;  // of ringpipe
  std::string date;     // UTC, of the start
  std::string way;      // "host memory", "software device", "RDMA"
  double seconds = 0;
  std::vector<Rank> ranks;
  std::vector<Plane> planes;
  std::vector<Isolated> isolated;
  std::optional<Latencies> latencies;
  std::vector<Pattern> patterns;
  std::optional<Stress> stress;
  std::vector<Port> ports;
  std::vector<HostNetwork> networks;  // by host
  std::vector<Lost> lost;
  std::optional<Ending> ending;

  int size() const { return static_cast<int>(ranks.size()); }
  // "c17", or "c17 rank 3" where several ranks are on that host.
  std::string NameOf(int rank) const;
  bool OnOneHost() const;
  bool OnOneHost(int a, int b) const { return ranks[a].host == ranks[b].host; }
  // How many rails every rank has.
  int CommonRails() const;
  // Whether there are more ranks on the rank's host than cores for them: what
  // they measure there is also how they take turns.
  bool IsOversubscribed(int rank) const;

  // Whether this plane has the links of all rails once more, in another way
  // than the first plane: with short messages, or both ways at once.
  bool IsOtherWay(int plane) const {
    return plane > 0 && planes[plane].rail < 0;
  }
  // Whether each link of the first plane was measured.
  bool HasAllLinks() const;
  // As in an earlier run with more ranks, whose numbers there are `ranks`:
  // where hosts have one name, their numbers depend on who takes part.
  void NameHostsLike(const Measurements& earlier,
                     const std::vector<int>& ranks);
  // From a later run with fewer ranks: `ranks`, by their numbers here. What was
  // wrong before stays.
  void TakeStress(const Measurements& later, const std::vector<int>& ranks);
  // Sets `ending`, with the hosts' names. lost_rank: -1 where none is known to
  // be lost; but if all that the failure waited for are of one host, it is.
  void EndBy(const Status& failure, const std::string& phase, int lost_rank);
};

// For ranks that tell each other of their ports.
std::string PortsToJson(const std::vector<Port>& ports);
Result<std::vector<Port>> PortsFromJson(std::string_view text);

// The schema of the file is in README.md.
std::string ToJson(const Measurements& measurements);
// kInvalidArgument, saying what is wrong, for what ToJson did not write.
Result<Measurements> FromJson(std::string_view text);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_MEASUREMENTS_H_
