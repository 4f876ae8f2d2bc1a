#include "validate/simulated_cluster.h"

#include <algorithm>
#include <random>

#include "validate/link_classes.h"
#include "validate/partners.h"
#include "validate/slow_links.h"

namespace ringpipe::validate::testing {
namespace {

constexpr int kAloneRepeats = 6;

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options)
      : options_(options),
        random_(options.seed),
        ranks_(options.hosts * options.ranks_per_host) {
    for (int rank = 0; rank < ranks_; ++rank) {
      hosts_.push_back(rank / options.ranks_per_host);
    }
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
    MeasurePlane("all rails", -1, tolerance, measured);
    for (int rail = 0; rail < options_.rails && options_.rails > 1; ++rail) {
      MeasurePlane("rail " + std::to_string(rail), rail, tolerance, measured);
    }
    return measured;
  }

 private:
  void MeasurePlane(const std::string& name, int rail, double tolerance,
                    Measurements& measured) {
    const int plane = static_cast<int>(measured.planes.size());
    measured.planes.push_back({name, rail, 1 << 20, InCompany(rail)});
    const ToIsolate alone = ChooseToIsolate(measured, plane, tolerance);
    for (const auto& [links, control] :
         {std::pair(alone.suspects, false), std::pair(alone.controls, true)}) {
      for (const auto& [from, to] : links) {
        Isolated link = {plane, from, to, control, {}};
        for (int repeat = 0; repeat < kAloneRepeats; ++repeat) {
          link.bytes_per_s.push_back(Sample(Carries(from, to, rail)));
        }
        measured.isolated.push_back(std::move(link));
      }
    }
  }

  LinkSamples InCompany(int rail) {
    const LinkLoads loads(hosts_);
    LinkSamples samples(ranks_, options_.repeats);
    std::normal_distribution<double> unlike(1, options_.unlike);
    unlike_.resize(static_cast<std::size_t>(ranks_) * ranks_);
    for (int from = 0; from < ranks_; ++from) {
      for (int to = 0; to < ranks_; ++to) {
        if (from == to) {
          continue;
        }
        unlike_[static_cast<std::size_t>(from) * ranks_ + to] = unlike(random_);
        const double load = hosts_[from] == hosts_[to] ? 1 : loads.Of(from, to);
        const double rate =
            Carries(from, to, rail) / load * (1 - LossInCompany(from, to));
        for (int repeat = 0; repeat < options_.repeats; ++repeat) {
          samples.at(from, to, repeat) = static_cast<float>(Sample(rate));
        }
      }
    }
    return samples;
  }

  // By itself, without noise. All rails together wait for the slowest: each
  // carries the same part of a message.
  double Carries(int from, int to, int rail) const {
    double rate = options_.bytes_per_s / (rail < 0 ? 1 : options_.rails) *
                  unlike_[static_cast<std::size_t>(from) * ranks_ + to];
    const int a = hosts_[from], b = hosts_[to];
    for (const Fault& fault : options_.faults) {
      const bool by_it = rail < 0 || fault.rail < 0 || rail == fault.rail;
      if (a != b && by_it && Hits(fault, a, b)) {
        rate *= 1 - fault.loss;
      }
    }
    return rate;
  }

  static bool Hits(const Fault& fault, int from, int to) {
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
      case Fault::Kind::kContention:
        return false;
    }
    return false;
  }

  double LossInCompany(int from, int to) const {
    for (const Fault& fault : options_.faults) {
      const int half = options_.hosts / 2;
      if (fault.kind == Fault::Kind::kContention && hosts_[from] < half &&
          hosts_[to] >= half && (hosts_[from] + hosts_[to]) % 3 == 0) {
        return fault.loss;
      }
    }
    return 0;
  }

  double Sample(double rate) {
    const double noisy =
        rate * std::normal_distribution<double>(1, options_.noise)(random_);
    const bool disturbed =
        std::bernoulli_distribution(options_.disturbed)(random_);
    return noisy * (disturbed ? std::uniform_real_distribution<double>(
                                    0.1, 0.6)(random_)
                              : 1);
  }

  const ClusterOptions options_;
  std::mt19937_64 random_;
  const int ranks_;
  std::vector<int> hosts_;
  std::vector<double> unlike_;
};

}  // namespace

std::string HostName(int host) {
  return (host < 10 ? "c0" : "c") + std::to_string(host);
}

Measurements MeasureCluster(const ClusterOptions& options, double tolerance) {
  return Cluster(options).Measure(tolerance);
}

}  // namespace ringpipe::validate::testing
