#include "bench/bound_by.h"

#include <algorithm>
#include <cmath>

namespace ringpipe {
namespace {

constexpr double kEvidenceNs = 1e6;
constexpr double kDemandOfFullCores = 0.9;
constexpr double kQueued = 0.25;
constexpr double kSlowRankWorks = 0.6;
constexpr double kSlowRankRatio = 2;
constexpr double kBusy = 0.6;
constexpr double kWaitForSlots = 0.3;
constexpr double kWaitForMessages = 0.5;

std::string Percent(double share) {
  return std::to_string(std::lround(100 * share)) + " %";
}

double Share(double part, double whole) {
  return std::clamp(part / whole, 0.0, 1.0);
}

struct Host {
  int ranks = 0;
  std::set<int> cores;
  double in_calls_ns = 0;  // all ranks
  double demand_ns = 0;    // for cores
  double queued_ns = 0;
};

std::map<std::string, Host> Hosts(const std::vector<RankLoad>& ranks) {
  std::map<std::string, Host> hosts;
  for (const RankLoad& rank : ranks) {
    Host& host = hosts[rank.host];
    ++host.ranks;
    host.cores.insert(rank.cores.begin(), rank.cores.end());
    host.in_calls_ns += rank.in_calls_ns;
    host.demand_ns += rank.cpu_ns + rank.queued_ns;
    host.queued_ns += rank.queued_ns;
  }
  return hosts;
}

std::optional<std::string> Processor(const std::vector<RankLoad>& ranks) {
  for (const auto& [name, host] : Hosts(ranks)) {
    const auto cores = static_cast<double>(host.cores.size());
    if (host.cores.empty()) {
      continue;
    }
    const double offered_ns = host.in_calls_ns / host.ranks * cores;
    if (host.ranks > cores &&
        host.demand_ns >= kDemandOfFullCores * offered_ns) {
      return "the processor: " + std::to_string(host.ranks) +
             " ranks share the " + std::to_string(host.cores.size()) +
             (host.cores.size() == 1 ? " core" : " cores") + " of host " +
             name +
             ", which had no time left; start fewer ranks, or use more "
             "cores";
    }
    if (host.ranks <= cores && host.queued_ns >= kQueued * host.in_calls_ns) {
      return "waiting for a core of host " + name +
             ": ranks stood in line for one " +
             Percent(host.queued_ns / host.in_calls_ns) +
             " of the time in calls, though there is one for each; stop what "
             "else runs there, or pin each rank to a core of its own (mpirun "
             "--bind-to core)";
    }
  }
  return std::nullopt;
}

// The part of its time in calls in which a rank did not wait.
double Working(const RankLoad& rank) {
  double waited_ns = 0;
  for (const auto& [stage, time] : rank.stages) {
    waited_ns += time.wait_ns;
  }
  return 1 - Share(waited_ns, rank.in_calls_ns);
}

std::optional<std::string> SlowRank(const std::vector<RankLoad>& ranks) {
  if (ranks.size() < 2) {
    return std::nullopt;
  }
  std::vector<double> working;
  working.reserve(ranks.size());
  for (const RankLoad& rank : ranks) {
    working.push_back(Working(rank));
  }
  const auto slowest = std::max_element(working.begin(), working.end());
  std::vector<double> others = working;
  others.erase(others.begin() + (slowest - working.begin()));
  std::nth_element(others.begin(), others.begin() + others.size() / 2,
                   others.end());
  const double median = others[others.size() / 2];
  if (*slowest < kSlowRankWorks || *slowest < kSlowRankRatio * median) {
    return std::nullopt;
  }
  const auto rank = slowest - working.begin();
  return "rank " + std::to_string(rank) + " on host " + ranks[rank].host +
         ": it works " + Percent(*slowest) +
         " of the time in calls and the others " + Percent(median) +
         ", then they wait for it; look at its core, its memory and what else "
         "runs there";
}

std::string Advice(const std::string& stage, bool registered) {
  if (stage == "reduce") {
    return "each rank reduces on one core: faster cores or memory help";
  }
  if (stage == "copy in" || stage == "copy out") {
    return registered ? "faster cores or memory help"
                      : "buffers that are shared or registered (-R 1; between "
                        "hosts also -R 2) are copied less";
  }
  if (stage == "register") {
    return "register the buffers once (-R 1 or -R 2), or never "
           "(RINGPIPE_REGISTRATION=never)";
  }
  return "this is the work that the device leaves to the processor: larger "
         "sub-chunks (RINGPIPE_SUBCHUNK_BYTES) make fewer messages, and faster "
         "cores help";
}

std::optional<std::string> BusyStage(
    const std::map<std::string, StageShare>& shares, bool registered) {
  double sum = 0;
  std::string longest;
  for (const auto& [stage, share] : shares) {
    sum += share.busy;
    if (longest.empty() || share.busy > shares.at(longest).busy) {
      longest = stage;
    }
  }
  if (sum < kBusy) {
    return std::nullopt;
  }
  return longest + ": " + Percent(shares.at(longest).busy) +
         " of the time in calls, all stages " + Percent(std::min(sum, 1.0)) +
         "; " + Advice(longest, registered);
}

std::optional<std::string> Waiting(
    const std::map<std::string, StageShare>& shares, bool several_hosts) {
  const auto wait = [&shares](const char* stage) {
    const auto at = shares.find(stage);
    return at == shares.end() ? 0.0 : at->second.wait;
  };
  if (wait("acquire") >= kWaitForSlots) {
    return "free slots: waited for them " + Percent(wait("acquire")) +
           " of the time in calls; raise RINGPIPE_SLOTS, or leave it to "
           "ringpipe (0)";
  }
  const double messages = wait("send") + wait("receive");
  if (several_hosts && messages >= kWaitForMessages) {
    return "the network: ranks waited for messages " +
           Percent(std::min(messages, 1.0)) +
           " of the time in calls, and none was slower than the others; "
           "compare busbw with what ib_write_bw or iperf3 reach between these "
           "hosts";
  }
  return std::nullopt;
}

}  // namespace

std::map<std::string, StageShare> StageShares(
    const std::vector<RankLoad>& ranks) {
  std::map<std::string, StageShare> shares;
  for (const RankLoad& rank : ranks) {
    for (const auto& [stage, time] : rank.stages) {
      if (rank.in_calls_ns > 0) {
        const auto count = static_cast<double>(ranks.size());
        shares[stage].busy += Share(time.busy_ns, rank.in_calls_ns) / count;
        shares[stage].wait += Share(time.wait_ns, rank.in_calls_ns) / count;
      }
    }
  }
  return shares;
}

std::optional<std::string> BoundBy(const std::vector<RankLoad>& ranks,
                                   bool registered) {
  std::set<std::string> hosts;
  for (const RankLoad& rank : ranks) {
    if (rank.in_calls_ns < kEvidenceNs) {
      return std::nullopt;
    }
    hosts.insert(rank.host);
  }
  if (auto processor = Processor(ranks)) {
    return processor;
  }
  if (auto rank = SlowRank(ranks)) {
    return rank;
  }
  const auto shares = StageShares(ranks);
  if (auto stage = BusyStage(shares, registered)) {
    return stage;
  }
  return Waiting(shares, hosts.size() > 1);
}

}  // namespace ringpipe
