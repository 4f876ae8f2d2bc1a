#include "pipeline/plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace ringpipe {
namespace {

using Buffer = Place::Buffer;

class Compiler {
 public:
  Compiler(const Schedule& schedule, int rank, int size,
           const PlanOptions& options)
      : schedule_(schedule), rank_(rank), size_(size), options_(options) {}

  Result<Plan> Compile() {
    plan_.chunks = schedule_.chunks;
    plan_.in_place = options_.in_place;
    for (next_ = 0; next_ < schedule_.transfers.size();) {
      const Transfer& transfer = schedule_.transfers[next_++];
      RINGPIPE_RETURN_IF_ERROR(Check(transfer));
      RINGPIPE_RETURN_IF_ERROR(Add(transfer));
    }
    plan_.all_eager = options_.on_host && options_.message_bytes > 0;
    for (const auto& [rank, peer] : peers_) {
      plan_.peers.push_back(peer);
      plan_.all_eager &= peer.eager;
    }
    plan_.all_eager &= !later_messages_;
    return std::move(plan_);
  }

 private:
  // The history of one place.
  struct History {
    int slot_of = -1;  // the step in whose slot its value is; -1: in memory
    int writer = -1;   // the last step that writes it in memory
    std::vector<int> memory_readers;  // that read it in memory since
    std::vector<int> sent_to;         // the peers that have got it
  };

  Status Bad(const Transfer& transfer, const std::string& why) const {
    return {StatusCode::kInternal, "schedule of rank " + std::to_string(rank_) +
                                       ": \"" + ToString(transfer) + "\" " +
                                       why};
  }

  Status Check(const Transfer& transfer) const {
    for (const auto& [used, place] :
         {std::pair(transfer.reads(), transfer.source),
          std::pair(transfer.kind == Transfer::Kind::kLocalReduce,
                    transfer.operand),
          std::pair(transfer.writes(), transfer.target)}) {
      const int places = place.buffer == Buffer::kScratch ? schedule_.scratch
                                                          : schedule_.chunks;
      if (used && (place.chunk < 0 || place.chunk >= places)) {
        return Bad(transfer, "uses a place that does not exist");
      }
    }
    if (transfer.writes() && transfer.target.buffer == Buffer::kInput) {
      return Bad(transfer, "writes the input");
    }
    if (transfer.has_peer() && (transfer.peer < 0 || transfer.peer >= size_ ||
                                transfer.peer == rank_)) {
      return Bad(transfer, "names a peer that does not exist");
    }
    return Status::Ok();
  }

  Place Canonical(Place place) const {
    return options_.in_place && place.buffer == Buffer::kInput
               ? Output(place.chunk)
               : place;
  }

  // Whether the connection to the peer reaches the memory of the place as the
  // schedule names it: in place, input and output need not be registered alike
  // (one may be a part of the other).
  bool Reaches(int peer, Place place) const {
    const bool input = place.buffer == Buffer::kInput;
    if (AbilitiesOf(peer).shares_memory) {
      return input ? options_.input_shared : options_.output_shared;
    }
    return input ? options_.input_registered : options_.output_registered;
  }

  // Whether writing the place waits for a send to end.
  bool WaitsForSend(const History& history) const {
    return (history.writer >= 0 && ends_after_send_[history.writer]) ||
           std::any_of(history.memory_readers.begin(),
                       history.memory_readers.end(),
                       [this](int reader) { return ends_after_send_[reader]; });
  }

  // The one step touches memory only after the earlier one.
  void WaitFor(int earlier, int index, bool write) {
    plan_.steps[earlier].on_done.push_back({index, write});
    ++(write ? plan_.steps[index].write_waits : plan_.steps[index].read_waits);
    ends_after_send_[index] =
        ends_after_send_[index] || ends_after_send_[earlier];
  }

  Status Add(const Transfer& transfer) {
    const Place source = Canonical(transfer.source);
    const Place target = Canonical(transfer.target);
    const bool local = transfer.kind == Transfer::Kind::kLocalCopy;
    const bool reduces_locally = transfer.kind == Transfer::Kind::kLocalReduce;
    const Place operand =
        reduces_locally ? Canonical(transfer.operand) : source;
    for (const Place read : {source, operand}) {
      if (transfer.reads() && read.buffer == Buffer::kScratch &&
          history_[read].slot_of < 0) {
        return Bad(transfer, "reads scratch that was never written");
      }
    }
    if (local && source == target) {
      return Status::Ok();  // in place: it is there already
    }
    if (local && target.buffer == Buffer::kScratch &&
        history_[source].slot_of >= 0) {
      // A slot's value does not change: both places may be the same slot.
      history_[target].slot_of = history_[source].slot_of;
      return Status::Ok();
    }
    const int index = static_cast<int>(plan_.steps.size());
    plan_.steps.emplace_back().transfer = transfer;
    ends_after_send_.push_back(transfer.kind == Transfer::Kind::kSend);
    const bool first = transfer.has_peer() && AddToPeer(transfer);
    if (transfer.reads()) {
      OrderOperands(plan_.steps.back(), source);
      plan_.steps[index].source_step = Read(index, source);
      ChooseSource(index, first);
    }
    if (reduces_locally) {
      plan_.steps[index].operand_step = Read(index, operand);
    }
    if (transfer.writes()) {
      Write(index, target);
    }
    return Status::Ok();
  }

  // Whether it is the first message to the peer, or from it.
  bool AddToPeer(const Transfer& transfer) {
    Plan::Peer& peer = peers_[transfer.peer];
    peer.rank = transfer.peer;
    const Abilities& abilities = AbilitiesOf(transfer.peer);
    peer.eager = options_.message_bytes > 0 &&
                 options_.message_bytes <= abilities.eager_bytes &&
                 (options_.same_to_all || !abilities.eager_to_all);
    const bool later =
        std::exchange(transfer.receives() ? peer.receives : peer.sends, true);
    later_messages_ |= later;
    return !later;
  }

  Abilities AbilitiesOf(int peer) const {
    return options_.abilities.empty() ? PlanOptions::kRails
                                      : options_.abilities[peer];
  }

  // Whether the two ranks exchange values: what is reduced here went to the
  // peer, which does the same.
  void OrderOperands(Step& step, Place source) {
    const int peer = step.transfer.peer;
    std::vector<int>& sent_to = history_[source].sent_to;
    if (step.transfer.kind == Transfer::Kind::kSend) {
      sent_to.push_back(peer);
    } else if (step.transfer.kind == Transfer::Kind::kReceiveReduce) {
      step.received_first =
          peer < rank_ && std::count(sent_to.begin(), sent_to.end(), peer) > 0;
    }
  }

  // Whether the value that the current transfer writes is sent later by a
  // connection that does not reach it in memory.
  bool SentLaterFromSlot(Place place) const {
    for (std::size_t i = next_; i < schedule_.transfers.size(); ++i) {
      const Transfer& later = schedule_.transfers[i];
      if (later.kind == Transfer::Kind::kSend &&
          Canonical(later.source) == place &&
          !Reaches(later.peer, later.source)) {
        return true;
      }
      if (later.writes() && Canonical(later.target) == place) {
        return false;
      }
    }
    return false;
  }

  // Returns in whose slot the value is.
  int Read(int index, Place place) {
    History& history = history_[place];
    if (history.slot_of >= 0) {
      Step& holder = plan_.steps[history.slot_of];
      ++holder.readers;
      holder.on_value.push_back({index, false});
      ++plan_.steps[index].read_waits;
      return history.slot_of;
    }
    if (history.writer >= 0) {
      WaitFor(history.writer, index, /*write=*/false);
    }
    history.memory_readers.push_back(index);
    return -1;
  }

  // How a send gets its source from user memory.
  void ChooseSource(int index, bool first) {
    Step& step = plan_.steps[index];
    const int peer = step.transfer.peer;
    if (step.transfer.kind == Transfer::Kind::kSend && step.source_step < 0 &&
        !Reaches(peer, step.transfer.source)) {
      step.eager = first && options_.on_host && peers_[peer].eager;
      step.registers = !step.eager && options_.register_sends &&
                       !AbilitiesOf(peer).shares_memory;
      step.takes_slot = step.copies_in = !step.eager && !step.registers;
    }
  }

  // Whether the peer can write the target itself.
  bool CanArriveIn(const Step& step) const {
    return AbilitiesOf(step.transfer.peer).writes_peer &&
           Reaches(step.transfer.peer, step.transfer.target);
  }

  // Where what is received arrives, and whether it (or what is reduced with it)
  // goes straight to user memory.
  void ChooseWay(Step& step, const History& history, Place target) {
    const bool copies = step.transfer.kind == Transfer::Kind::kReceiveCopy;
    const int peer = step.transfer.peer;
    // Whoever waits for this rank's sends may be the one that it waits for.
    const bool may_wait = options_.direct_over_sent || !WaitsForSend(history);
    // An eager message is copied by this rank.
    if (copies && may_wait && CanArriveIn(step) &&
        (options_.on_host || !peers_[peer].eager)) {
      step.in_memory = true;
      step.arrival = Step::Arrival::kInTarget;
      return;
    }
    LeaveAtPeer(step);
    const bool at_peer = step.arrival == Step::Arrival::kAtPeer;
    // The sender's memory is held meanwhile; a slot keeps nobody waiting.
    step.in_memory = options_.on_host && (at_peer || !copies) &&
                     !SentLaterFromSlot(target) && (may_wait || !at_peer);
  }

  // Whoever can read it there.
  void LeaveAtPeer(Step& step) const {
    if (options_.on_host && AbilitiesOf(step.transfer.peer).reads_peer) {
      step.arrival = Step::Arrival::kAtPeer;
    }
  }

  void Write(int index, Place place) {
    Step& step = plan_.steps[index];
    History& history = history_[place];
    const bool receives = step.transfer.receives();
    if (place.buffer == Buffer::kScratch) {
      if (receives) {
        LeaveAtPeer(step);
      }
      step.takes_slot = true;
      history.slot_of = index;
      history.sent_to.clear();
      return;
    }
    step.to_memory = true;
    if (receives) {
      ChooseWay(step, history, place);
      step.takes_slot =
          step.arrival == Step::Arrival::kInSlot || !step.in_memory;
    } else {
      step.in_memory = step.transfer.kind == Transfer::Kind::kLocalCopy ||
                       (options_.on_host && !SentLaterFromSlot(place));
      step.takes_slot = !step.in_memory;
    }
    // A place may be overwritten only after every earlier use of its memory.
    if (history.writer >= 0) {
      WaitFor(history.writer, index, /*write=*/true);
    }
    for (const int reader : history.memory_readers) {
      if (reader != index) {
        WaitFor(reader, index, /*write=*/true);
      }
    }
    history = {step.in_memory ? -1 : index, index, {}, {}};
  }

  const Schedule& schedule_;
  const int rank_;
  const int size_;
  const PlanOptions options_;
  std::size_t next_ = 0;  // after the current transfer
  std::map<Place, History> history_;
  std::map<int, Plan::Peer> peers_;
  bool later_messages_ = false;  // than the first each way
  // By step: whether it does not end before a send from user memory has.
  std::vector<bool> ends_after_send_;
  Plan plan_;
};

}  // namespace

Result<Plan> Compile(const Schedule& schedule, int rank, int size,
                     const PlanOptions& options) {
  return Compiler(schedule, rank, size, options).Compile();
}

}  // namespace ringpipe
