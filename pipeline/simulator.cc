#include "pipeline/simulator.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "memory_pool/slot_list.h"
#include "pipeline/chunking.h"
#include "pipeline/flow.h"

namespace ringpipe {
namespace {

class Simulation {
 public:
  Simulation(const std::vector<Plan>& plans, const NetworkModel& network,
             const SimulationOptions& options)
      : network_(network),
        options_(options),
        chunking_(options.message_bytes, plans[0].chunks,
                  options.subchunk_bytes, Walk::kSegments) {
    const int size = static_cast<int>(plans.size());
    ranks_.reserve(size);
    for (const Plan& plan : plans) {
      ranks_.emplace_back(plan, options.slots);
      ranks_.back().flow.Start(plan, chunking_.subchunks(), options.depth, size,
                               ranks_.back().slots);
    }
  }

  Result<SimulationResult> Run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Advance(static_cast<int>(rank));
    }
    StartSends();
    // What happens at one time is known before anything leaves.
    while (!events_.empty()) {
      now_ = events_.top().time_s;
      while (!events_.empty() && events_.top().time_s <= now_) {
        const Event event = events_.top();
        events_.pop();
        Happen(event);
      }
      StartSends();
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].flow.finished()) {
        return Status(StatusCode::kResourceExhausted,
                      "the ranks are stuck with " +
                          std::to_string(options_.slots) + " slots: rank " +
                          std::to_string(rank) +
                          " has not ended; the checker says why");
      }
    }
    result_.seconds = now_;
    return result_;
  }

 private:
  struct Rank {
    Rank(const Plan& its_plan, int number_of_slots)
        : plan(&its_plan), slots(number_of_slots) {}

    const Plan* plan;
    Flow flow;
    SlotList slots;
    // Receives that a peer has posted for this rank's messages.
    std::map<int, std::deque<Instance>> posted;
    double reducer_free_s = 0;
  };

  struct Event {
    enum class Kind { kSent, kReceived, kReduced };
    double time_s = 0;
    std::uint64_t number = 0;  // among those of one time, the first comes first
    Kind kind = Kind::kSent;
    int rank = 0;
    int peer = 0;
    Instance instance = {};

    bool operator>(const Event& other) const {
      return std::pair(time_s, number) > std::pair(other.time_s, other.number);
    }
  };

  // What the instance moves.
  std::uint64_t BytesOf(const Rank& rank, Instance instance) const {
    const Transfer& transfer = rank.flow.step(instance).transfer;
    return chunking_.Count(transfer.chunks().chunk % rank.plan->chunks,
                           transfer.count(), rank.flow.subchunk(instance));
  }

  void Push(double time_s, Event::Kind kind, int rank, int peer,
            Instance instance) {
    events_.push({time_s, number_++, kind, rank, peer, instance});
  }

  void Happen(const Event& event) {
    Rank& rank = ranks_[event.rank];
    switch (event.kind) {
      case Event::Kind::kSent:
        rank.flow.Sent(event.instance);
        break;
      case Event::Kind::kReceived:
        rank.flow.Received(event.instance);
        break;
      case Event::Kind::kReduced:
        rank.flow.Reduced(event.instance);
        break;
    }
    Advance(event.rank);
  }

  // Does all that the rank can do now.
  void Advance(int number) {
    Rank& rank = ranks_[number];
    bool moved = true;
    while (moved) {
      moved = false;
      while (rank.flow.Issue() == Flow::Issued::kIssued) {
        moved = true;
      }
      while (!rank.flow.to_copy_in().empty()) {
        rank.flow.CopiedIn(rank.flow.to_copy_in().pop());
        moved = true;
      }
      while (!rank.flow.to_copy_out().empty()) {
        rank.flow.CopiedOut(rank.flow.to_copy_out().pop());
        moved = true;
      }
    }
    while (!rank.flow.to_reduce().empty()) {
      const Instance instance = rank.flow.to_reduce().pop();
      rank.reducer_free_s = std::max(now_, rank.reducer_free_s) +
                            network_.reduce_s_per_byte *
                                static_cast<double>(BytesOf(rank, instance));
      Push(rank.reducer_free_s, Event::Kind::kReduced, number, number,
           instance);
    }
    may_send_.insert(HostOf(number));
    for (const Plan::Peer& peer : rank.plan->peers) {
      while (const Instance* receive = rank.flow.NextReceive(peer.rank)) {
        ranks_[peer.rank].posted[number].push_back(*receive);
        rank.flow.PopReceive(peer.rank);
        may_send_.insert(HostOf(peer.rank));
      }
    }
  }

  int HostOf(int rank) const { return rank / network_.ranks_per_host; }

  // The link by which a message leaves: when it is free.
  double& OutFree(int from, int to) {
    return HostOf(from) == HostOf(to) ? inside_free_s_[{from, to}]
                                      : out_free_s_[HostOf(from)];
  }

  // All messages that can leave now.
  void StartSends() {
    for (const int host : std::exchange(may_send_, {})) {
      const int first = host * network_.ranks_per_host;
      const int ranks = std::min(network_.ranks_per_host,
                                 static_cast<int>(ranks_.size()) - first);
      int& turn = turn_[host];
      for (int idle = 0; idle < ranks; turn = (turn + 1) % ranks) {
        idle = StartSend(first + turn) ? 0 : idle + 1;
      }
    }
  }

  // Of the messages that are ready and have a free link, the first one in issue
  // order. False where there is none.
  bool StartSend(int from) {
    Rank& rank = ranks_[from];
    int to = -1;
    std::tuple<std::uint64_t, std::uint32_t, std::uint64_t> first;
    for (const Plan::Peer& peer : rank.plan->peers) {
      const Instance* const next = rank.flow.NextSend(peer.rank);
      if (next == nullptr || rank.posted[peer.rank].empty() ||
          OutFree(from, peer.rank) > now_) {
        continue;
      }
      const std::uint64_t subchunk = rank.flow.subchunk(*next);
      const std::tuple order(subchunk / options_.depth, next->step, subchunk);
      if (to < 0 || order < first) {
        to = peer.rank;
        first = order;
      }
    }
    if (to >= 0) {
      Send(from, to);
    }
    return to >= 0;
  }

  void Send(int from, int to) {
    Rank& rank = ranks_[from];
    const Instance instance = *rank.flow.NextSend(to);
    rank.flow.PopSend(to);
    const Instance receive = rank.posted[to].front();
    rank.posted[to].pop_front();
    const std::uint64_t bytes = BytesOf(rank, instance);
    const double end_s = Occupy(from, to, bytes);
    Push(end_s, Event::Kind::kSent, from, to, instance);
    Push(end_s + network_.latency_s, Event::Kind::kReceived, to, from, receive);
    ++result_.messages;
    result_.bytes += bytes;
  }

  // When a message that takes its link out now has left: both links are busy
  // with it at the same time, as with cut-through switches.
  double Occupy(int from, int to, std::uint64_t bytes) {
    double& out_s = OutFree(from, to);
    double& in_s = HostOf(from) == HostOf(to) ? out_s : in_free_s_[HostOf(to)];
    out_s = in_s = std::max(now_, in_s) + network_.message_s +
                   network_.wire_s_per_byte * static_cast<double>(bytes);
    return out_s;
  }

  const NetworkModel network_;
  const SimulationOptions options_;
  const Chunking chunking_;  // of bytes
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t number_ = 0;
  double now_ = 0;
  // Links, by host, and by both ranks inside a host.
  std::map<int, double> out_free_s_, in_free_s_;
  std::map<std::pair<int, int>, double> inside_free_s_;
  std::set<int> may_send_;   // hosts of which a message may be able to leave
  std::map<int, int> turn_;  // by host: which of its ranks is next
  SimulationResult result_;
};

}  // namespace

Result<SimulationResult> Simulate(const std::vector<Schedule>& schedules,
                                  const NetworkModel& network,
                                  const SimulationOptions& options) {
  if (schedules.empty() || options.depth < 1 || options.slots < 0 ||
      options.subchunk_bytes < 1 || network.ranks_per_host < 1) {
    return Status(StatusCode::kInvalidArgument,
                  "a simulation needs a rank, a depth from 1, slots from 0, "
                  "sub-chunks from 1 byte and hosts of at least one rank");
  }
  const int size = static_cast<int>(schedules.size());
  std::vector<Plan> plans;
  for (int rank = 0; rank < size; ++rank) {
    RINGPIPE_ASSIGN_OR_RETURN(Plan plan,
                              Compile(schedules[rank], rank, size, {}));
    plans.push_back(std::move(plan));
  }
  return Simulation(plans, network, options).Run();
}

}  // namespace ringpipe
