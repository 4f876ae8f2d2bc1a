#include "validate/simulated_cluster.h"

#include <algorithm>
#include <random>

#include "validate/link_classes.h"
#include "validate/partners.h"
#include "validate/slow_links.h"

namespace ringpipe::validate::testing {
namespace {

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options)
      : options_(options),
        random_(options.seed),
        ranks_(options.hosts * options.ranks_per_host),
        hosts_(PartsOf(options.ranks_per_host)),
        loads_(hosts_),
        leaf_loads_(PartsOf(
            (options.leaf_hosts == 0 ? options.hosts : options.leaf_hosts) *
            options.ranks_per_host)) {
    Cable();
  }

  Measurements Measure(double tolerance) {
    Measurements measured;
    measured.version = "simulated";
    measured.date = "2026-01-01T00:00:00Z";
    measured.way = "simulated";
    std::vector<std::string> rails;
    for (int rail = 0; rail < options_.rails; ++rail) {
      rails.push_back("mlx5_" + std::to_string(rail) + ":1");
    }
    for (const int host : hosts_) {
      measured.ranks.push_back({HostName(host), 1, "mlx5_0", rails, 64});
    }
    MeasureLatencies(measured);
    MeasurePlane("all rails", -1, tolerance, measured);
    for (int rail = 0; rail < options_.rails && options_.rails > 1; ++rail) {
      MeasurePlane("rail " + std::to_string(rail), rail, tolerance, measured);
    }
    return measured;
  }

 private:
  // By rank, of which part it is, where each has so many.
  std::vector<int> PartsOf(int ranks) const {
    std::vector<int> parts;
    for (int rank = 0; rank < ranks_; ++rank) {
      parts.push_back(rank / ranks);
    }
    return parts;
  }

  // As measure_bandwidth.cc does.
  void MeasurePlane(const std::string& name, int rail, double tolerance,
                    Measurements& measured) {
    const int plane = static_cast<int>(measured.planes.size());
    measured.planes.push_back({name, rail, 1 << 20, LinkSamples(ranks_, 0)});
    for (int pass = 0;
         pass == 0 ||
         (pass < kMostPasses && NeedsAnotherPass(measured, plane, tolerance));
         ++pass) {
      AddPass(rail, measured.planes.back().bytes_per_s);
    }
    const ToIsolate chosen =
        ChooseToIsolate(measured, plane, tolerance, kMostSuspects);
    std::vector<std::size_t> turn;
    for (const auto& [links, control] : {std::pair(chosen.suspects, false),
                                         std::pair(chosen.controls, true)}) {
      for (const auto& [from, to] : links) {
        turn.push_back(measured.isolated.size());
        measured.isolated.push_back({plane, from, to, control, {}});
      }
    }
    for (int pass = 0; !turn.empty() && pass < kMostAlonePasses; ++pass) {
      for (const std::size_t i : turn) {
        Isolated& link = measured.isolated[i];
        const bool busy = IsBusy(link.from, link.to);
        for (int repeat = 0; repeat < kPassMessages; ++repeat) {
          link.bytes_per_s.push_back(
              Sample(Carries(link.from, link.to, rail), busy));
        }
      }
      if (pass + 1 >= kAlonePasses) {
        turn = ChooseAgain(measured, plane, tolerance);
      }
    }
  }

  void AddPass(int rail, LinkSamples& samples) {
    const int first = samples.repeats();
    samples.AddRepeats(kPassMessages);
    for (int from = 0; from < ranks_; ++from) {
      for (int to = 0; to < ranks_; ++to) {
        if (from == to) {
          continue;
        }
        // The slowest on its way.
        const double rate =
            std::min(Carries(from, to, rail),
                     Unhindered(from, to, rail) * PartInCompany(from, to)) /
            LoadOf(loads_, from, to);
        const bool busy = IsBusy(from, to);
        for (int repeat = 0; repeat < kPassMessages; ++repeat) {
          samples.at(from, to, first + repeat) =
              static_cast<float>(Sample(rate, busy));
        }
      }
    }
  }

  // What is the same in each pass: how links are unlike, whose paths collide.
  void Cable() {
    std::normal_distribution<double> unlike(1, options_.unlike);
    unlike_.resize(static_cast<std::size_t>(ranks_) * ranks_);
    collides_.resize(unlike_.size());
    for (std::size_t link = 0; link < unlike_.size(); ++link) {
      unlike_[link] = unlike(random_);
      collides_[link] = Happens(options_.collisions);
    }
  }

  double LoadOf(const LinkLoads& loads, int from, int to) const {
    return hosts_[from] == hosts_[to] ? 1 : loads.Of(from, to);
  }

  // A microsecond more from switch to switch.
  void MeasureLatencies(Measurements& measured) {
    measured.latencies =
        Latencies{LinkSamples(ranks_, 1), LinkSamples(ranks_, 1)};
    std::normal_distribution<double> noise(1, options_.noise);
    for (int a = 0; a < ranks_; ++a) {
      for (int b = 0; b < ranks_; ++b) {
        if (a != b) {
          const double time = hosts_[a] == hosts_[b]               ? 0.5e-6
                              : Leaf(hosts_[a]) == Leaf(hosts_[b]) ? 2e-6
                                                                   : 3e-6;
          measured.latencies->median_s.at(a, b, 0) =
              static_cast<float>(time * noise(random_));
          measured.latencies->p99_s.at(a, b, 0) =
              static_cast<float>(3 * time * noise(random_));
        }
      }
    }
  }

  int Leaf(int host) const {
    return options_.leaf_hosts == 0 ? 0 : host / options_.leaf_hosts;
  }

  // By itself, without noise. All rails together wait for the slowest: each
  // carries the same part of a message.
  double Carries(int from, int to, int rail) const {
    double rate = Unhindered(from, to, rail);
    const int a = hosts_[from], b = hosts_[to];
    for (const Fault& fault : options_.faults) {
      const bool by_it = rail < 0 || fault.rail < 0 || rail == fault.rail;
      if (a != b && by_it && Hits(fault, a, b)) {
        rate *= 1 - fault.loss;
      }
    }
    return rate;
  }

  double Unhindered(int from, int to, int rail) const {
    return options_.bytes_per_s / (rail < 0 ? 1 : options_.rails) *
           unlike_[static_cast<std::size_t>(from) * ranks_ + to];
  }

  bool Hits(const Fault& fault, int from, int to) const {
    const int leaf = Leaf(fault.a);
    switch (fault.kind) {
      case Fault::Kind::kHost:
        return from == fault.a || to == fault.a;
      case Fault::Kind::kSender:
        return from == fault.a;
      case Fault::Kind::kReceiver:
        return to == fault.a;
      case Fault::Kind::kPath:
        return (from == fault.a && to == fault.b) ||
               (from == fault.b && to == fault.a);
      case Fault::Kind::kDirection:
        return from == fault.a && to == fault.b;
      case Fault::Kind::kRail:
        return true;
      case Fault::Kind::kHosts:
        return from < fault.a || to < fault.a;
      case Fault::Kind::kUplink:
        return Leaf(from) == leaf && Leaf(to) != leaf &&
               (from * 7 + to * 13) % 4 == 0;
      case Fault::Kind::kGroups:
        return Leaf(from) == leaf && Leaf(to) == Leaf(fault.b);
      case Fault::Kind::kLeaf:
      case Fault::Kind::kContention:
        return false;
    }
    return false;
  }

  // Of what a link carries alone. A switch has uplinks for so many links.
  double PartInCompany(int from, int to) const {
    const int a = hosts_[from], b = hosts_[to];
    const bool across = Leaf(a) != Leaf(b);
    double part =
        a != b && collides_[static_cast<std::size_t>(from) * ranks_ + to] ? 0.5
                                                                          : 1;
    double uplinks = options_.leaf_hosts / options_.oversubscribed;
    for (const Fault& fault : options_.faults) {
      const int half = options_.hosts / 2;
      const bool contends = fault.kind == Fault::Kind::kContention &&
                            a < half && b >= half && (a + b) % 3 == 0;
      const int leaf = Leaf(fault.a);
      const bool by_leaf = fault.kind == Fault::Kind::kLeaf && across &&
                           (Leaf(a) == leaf || Leaf(b) == leaf);
      part *= contends ? 1 - fault.loss : 1;
      uplinks *= by_leaf ? 1 - fault.loss : 1;
    }
    return across ? std::min(part, uplinks / leaf_loads_.Of(from, to)) : part;
  }

  bool Happens(double probability) {
    return std::bernoulli_distribution(probability)(random_);
  }

  bool IsBusy(int from, int to) {
    bool busy = false;
    for (const int rank : {from, to}) {
      busy |= Happens(hosts_[rank] < options_.busy_hosts ? 0.4 : options_.busy);
    }
    return busy;
  }

  double Sample(double rate, bool busy) {
    const double noisy =
        rate * std::normal_distribution<double>(1, options_.noise)(random_);
    return noisy *
           (busy || Happens(options_.disturbed)
                ? std::uniform_real_distribution<double>(0.1, 0.6)(random_)
                : 1);
  }

  const ClusterOptions options_;
  std::mt19937_64 random_;
  const int ranks_;
  std::vector<int> hosts_;
  const LinkLoads loads_, leaf_loads_;
  std::vector<double> unlike_;
  std::vector<bool> collides_;
};

}  // namespace

std::string HostName(int host) {
  return (host < 10 ? "c0" : "c") + std::to_string(host);
}

Measurements MeasureCluster(const ClusterOptions& options, double tolerance) {
  return Cluster(options).Measure(tolerance);
}

}  // namespace ringpipe::validate::testing
