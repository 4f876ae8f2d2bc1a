#include "validate/simulated_cluster.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "validate/isolated.h"
#include "validate/link_classes.h"
#include "validate/partners.h"

namespace ringpipe::validate::testing {
namespace {

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options)
      : options_(options),
        random_(options.seed),
        hosts_(HostsOf(options)),
        ranks_(static_cast<int>(hosts_.size())),
        loads_(hosts_),
        leaf_loads_(LeavesOf(hosts_)),
        busy_(options.hosts) {
    Cable();
    CountPairs();
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
  // By rank.
  static std::vector<int> HostsOf(const ClusterOptions& options) {
    std::vector<int> hosts;
    for (int host = 0; host < options.hosts; ++host) {
      const int ranks = host == 0 && options.ranks_of_first_host > 0
                            ? options.ranks_of_first_host
                            : options.ranks_per_host;
      hosts.insert(hosts.end(), ranks, host);
    }
    return hosts;
  }

  std::vector<int> LeavesOf(std::vector<int> hosts) const {
    for (int& host : hosts) {
      host = Leaf(host);
    }
    return hosts;
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
    std::vector<Isolated> links;
    for (const bool control : {false, true}) {
      for (const auto& [from, to] :
           control ? chosen.controls : chosen.suspects) {
        links.push_back({plane, from, to, control, {}});
      }
    }
    if (chosen.all) {
      AddOthers(plane, ranks_, links);
    }
    std::vector<std::size_t> turn;
    for (const Isolated& link : links) {
      turn.push_back(measured.isolated.size());
      measured.isolated.push_back(link);
    }
    const int least = LeastPasses(ranks_, turn.size());
    for (int pass = 0; !turn.empty() && pass < kMostAlonePasses; ++pass) {
      for (const std::size_t i : turn) {
        Isolated& link = measured.isolated[i];
        NextStep();
        for (int repeat = 0; repeat < kPassMessages; ++repeat) {
          link.bytes_per_s.push_back(
              Sample(link.from, link.to, Carries(link.from, link.to, rail),
                     options_.alone_noise.value_or(options_.noise),
                     options_.alone_disturbed.value_or(options_.disturbed)));
        }
      }
      if (pass + 1 >= least) {
        turn = ChooseAgain(measured, plane, tolerance);
      }
    }
  }

  void AddPass(int rail, LinkSamples& samples) {
    samples.AddRepeats(kPassMessages);
    for (int distance = 1; distance < ranks_; ++distance) {
      for (int step = 0; step < ShiftSteps(ranks_, distance); ++step) {
        NextStep();
        for (int from = 0; from < ranks_; ++from) {
          const int to = (from + distance) % ranks_;
          if (StepOfLink(ranks_, from, to) == step) {
            AddSamples(from, to, rail, samples);
          }
        }
      }
    }
  }

  void AddSamples(int from, int to, int rail, LinkSamples& samples) {
    // The slowest on its way.
    const double rate =
        std::min(Carries(from, to, rail),
                 Unhindered(from, to, rail) * PartInCompany(from, to)) /
        LoadOf(loads_, from, to);
    for (int repeat = samples.repeats() - kPassMessages;
         repeat < samples.repeats(); ++repeat) {
      samples.at(from, to, repeat) = static_cast<float>(
          Sample(from, to, rate, options_.noise, options_.disturbed));
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

  // How many links from one group to another are in use in the same step.
  void CountPairs() {
    if (options_.pair_cables == 0) {
      return;
    }
    pair_loads_.resize(unlike_.size());
    for (int distance = 1; distance < ranks_; ++distance) {
      std::map<std::tuple<int, int, int>, int> counts;
      const auto pair_of = [&](int from) {
        const int to = (from + distance) % ranks_;
        return std::tuple(Leaf(hosts_[from]), Leaf(hosts_[to]),
                          StepOfLink(ranks_, from, to));
      };
      for (int from = 0; from < ranks_; ++from) {
        ++counts[pair_of(from)];
      }
      for (int from = 0; from < ranks_; ++from) {
        pair_loads_[static_cast<std::size_t>(from) * ranks_ +
                    (from + distance) % ranks_] = counts[pair_of(from)];
      }
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

  // Of what a link carries alone.
  double PartInCompany(int from, int to) const {
    const std::size_t link = static_cast<std::size_t>(from) * ranks_ + to;
    const int a = hosts_[from], b = hosts_[to];
    double part = a != b && collides_[link] ? 0.5 : 1;
    // Of the cables that both switches have for others, or for each other.
    double cables = 1;
    for (const Fault& fault : options_.faults) {
      const int half = options_.hosts / 2;
      const bool contends = fault.kind == Fault::Kind::kContention &&
                            a < half && b >= half && (a + b) % 3 == 0;
      const int leaf = Leaf(fault.a);
      const bool lacks = fault.kind == Fault::Kind::kLeaf
                             ? Leaf(a) == leaf || Leaf(b) == leaf
                             : fault.kind == Fault::Kind::kGroups &&
                                   options_.pair_cables > 0 &&
                                   Hits(fault, a, b);
      part *= contends ? 1 - fault.loss : 1;
      cables *= lacks ? 1 - fault.loss : 1;
    }
    if (Leaf(a) == Leaf(b)) {
      return part;
    }
    return std::min(
        part, cables * (options_.pair_cables > 0
                            ? options_.pair_cables / pair_loads_[link]
                            : options_.leaf_hosts / options_.oversubscribed /
                                  leaf_loads_.Of(from, to)));
  }

  bool Happens(double probability) {
    return std::bernoulli_distribution(probability)(random_);
  }

  // Who is busy, for a spell.
  void NextStep() {
    if (steps_++ % options_.spell != 0) {
      return;
    }
    const bool all = Happens(options_.shared_busy);
    for (int host = 0; host < options_.hosts; ++host) {
      busy_[host] = Happens(host < options_.busy_hosts ? 0.4 : options_.busy);
      busy_[host] = busy_[host] || all;
    }
  }

  double Sample(int from, int to, double rate, double noise, double disturbed) {
    const bool inside = hosts_[from] == hosts_[to];
    const double noisy =
        rate *
        std::max(0.1, std::normal_distribution<double>(
                          1, inside ? options_.memory_noise : noise)(random_));
    return noisy *
           (busy_[hosts_[from]] || busy_[hosts_[to]] || Happens(disturbed)
                ? std::uniform_real_distribution<double>(0.1, 0.6)(random_)
                : 1);
  }

  const ClusterOptions options_;
  std::mt19937_64 random_;
  const std::vector<int> hosts_;  // by rank
  const int ranks_;
  const LinkLoads loads_, leaf_loads_;
  std::vector<double> unlike_;
  std::vector<bool> collides_;
  std::vector<int> pair_loads_;  // by link; of a dragonfly
  std::vector<bool> busy_;       // by host
  int steps_ = 0;
};

}  // namespace

std::string HostName(int host) {
  return (host < 10 ? "c0" : "c") + std::to_string(host);
}

Measurements MeasureCluster(const ClusterOptions& options, double tolerance) {
  return Cluster(options).Measure(tolerance);
}

}  // namespace ringpipe::validate::testing
