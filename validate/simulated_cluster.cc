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
    for (const int host : hosts_) {
      measured.ranks.push_back({HostName(host), 1, "mlx5_0", {"mlx5_0:1"}, 64});
    }
    measured.planes.push_back({"all rails", -1, 1 << 20, InCompany()});
    const ToIsolate alone = ChooseToIsolate(measured, 0, tolerance);
    for (const auto& [links, control] :
         {std::pair(alone.suspects, false), std::pair(alone.controls, true)}) {
      for (const auto& [from, to] : links) {
        Isolated link = {0, from, to, control, {}};
        for (int repeat = 0; repeat < kAloneRepeats; ++repeat) {
          link.bytes_per_s.push_back(Sample(Carries(from, to)));
        }
        measured.isolated.push_back(std::move(link));
      }
    }
    return measured;
  }

 private:
  LinkSamples InCompany() {
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
            Carries(from, to) / load * (1 - LossInCompany(from, to));
        for (int repeat = 0; repeat < options_.repeats; ++repeat) {
          samples.at(from, to, repeat) = static_cast<float>(Sample(rate));
        }
      }
    }
    return samples;
  }

  // By itself, without noise.
  double Carries(int from, int to) const {
    double rate = options_.bytes_per_s *
                  unlike_[static_cast<std::size_t>(from) * ranks_ + to];
    const int a = hosts_[from], b = hosts_[to];
    for (const Fault& fault : options_.faults) {
      if (a != b && Hits(fault, a, b)) {
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
