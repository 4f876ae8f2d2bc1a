#include "pipeline/simulator.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <string>
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
                  options.subchunk_bytes) {
    const int size = static_cast<int>(plans.size());
    ranks_.reserve(size);
    for (const Plan& plan : plans) {
      ranks_.emplace_back(plan, options.slots);
      ranks_.back().flow.Start(plan, chunking_.subchunks(), options.depth,
                               size);
    }
  }

  Result<SimulationResult> Run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Advance(static_cast<int>(rank));
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time_s;
      Happen(event);
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

  // Of chunk 0, the largest where they differ.
  std::uint64_t BytesOf(std::uint64_t subchunk) const {
    return chunking_.Subchunk(0, subchunk).count;
  }

  void Push(double time_s, Event::Kind kind, int rank, int peer,
            Instance instance) {
    events_.push({time_s, number_++, kind, rank, peer, instance});
  }

  void Happen(const Event& event) {
    Rank& rank = ranks_[event.rank];
    switch (event.kind) {
      case Event::Kind::kSent:
        rank.flow.Sent(event.instance, rank.slots);
        break;
      case Event::Kind::kReceived:
        rank.flow.Received(event.instance, rank.slots);
        break;
      case Event::Kind::kReduced:
        rank.flow.Reduced(event.instance, rank.slots);
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
      while (rank.flow.Issue(rank.slots) == Flow::Issued::kIssued) {
        moved = true;
      }
      while (!rank.flow.to_register().empty()) {
        rank.flow.Registered(rank.flow.to_register().pop());
        moved = true;
      }
      while (!rank.flow.to_copy_in().empty()) {
        rank.flow.CopiedIn(rank.flow.to_copy_in().pop(), rank.slots);
        moved = true;
      }
      while (!rank.flow.to_copy_out().empty()) {
        rank.flow.CopiedOut(rank.flow.to_copy_out().pop(), rank.slots);
        moved = true;
      }
    }
    while (!rank.flow.to_reduce().empty()) {
      const Instance instance = rank.flow.to_reduce().pop();
      rank.reducer_free_s =
          std::max(now_, rank.reducer_free_s) +
          network_.reduce_s_per_byte *
              static_cast<double>(BytesOf(rank.flow.subchunk(instance)));
      Push(rank.reducer_free_s, Event::Kind::kReduced, number, number,
           instance);
    }
    for (const Plan::Peer& peer : rank.plan->peers) {
      StartSends(number, peer.rank);
    }
    for (const Plan::Peer& peer : rank.plan->peers) {
      while (const Instance* receive = rank.flow.NextReceive(peer.rank)) {
        ranks_[peer.rank].posted[number].push_back(*receive);
        rank.flow.PopReceive(peer.rank);
      }
      StartSends(peer.rank, number);
    }
  }

  void StartSends(int from, int to) {
    Rank& rank = ranks_[from];
    std::deque<Instance>& posted = rank.posted[to];
    while (!posted.empty() && rank.flow.NextSend(to) != nullptr) {
      const Instance instance = *rank.flow.NextSend(to);
      rank.flow.PopSend(to);
      const Instance receive = posted.front();
      posted.pop_front();
      const std::uint64_t bytes = BytesOf(rank.flow.subchunk(instance));
      const double end_s = Occupy(from, to, bytes);
      Push(end_s, Event::Kind::kSent, from, to, instance);
      Push(end_s + network_.latency_s, Event::Kind::kReceived, to, from,
           receive);
      ++result_.messages;
      result_.bytes += bytes;
    }
  }

  // When a message that may start now has left: both links are busy with it at
  // the same time, as with cut-through switches.
  double Occupy(int from, int to, std::uint64_t bytes) {
    const int source = from / network_.ranks_per_host;
    const int target = to / network_.ranks_per_host;
    const double takes_s =
        network_.wire_s_per_byte * static_cast<double>(bytes);
    if (source == target) {
      double& free_s = inside_free_s_[{from, to}];
      free_s = std::max(now_, free_s) + takes_s;
      return free_s;
    }
    double& out_s = out_free_s_[source];
    double& in_s = in_free_s_[target];
    out_s = in_s = std::max({now_, out_s, in_s}) + takes_s;
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
    RINGPIPE_ASSIGN_OR_RETURN(
        Plan plan, Compile(schedules[rank], rank, size, options.plan));
    plans.push_back(std::move(plan));
  }
  return Simulation(plans, network, options).Run();
}

}  // namespace ringpipe
