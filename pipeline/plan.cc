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
    for (const Transfer& transfer : schedule_.transfers) {
      RINGPIPE_RETURN_IF_ERROR(Check(transfer));
      RINGPIPE_RETURN_IF_ERROR(Add(transfer));
    }
    std::sort(plan_.peers.begin(), plan_.peers.end());
    plan_.peers.erase(std::unique(plan_.peers.begin(), plan_.peers.end()),
                      plan_.peers.end());
    return std::move(plan_);
  }

 private:
  // The history of one place.
  struct History {
    int slot_of = -1;  // the step in whose slot its value is; -1: in memory
    int writer = -1;   // the last step that writes it in memory
    std::vector<int> memory_readers;  // that read it in memory since
  };

  Status Bad(const Transfer& transfer, const std::string& why) const {
    return {StatusCode::kInternal, "schedule of rank " + std::to_string(rank_) +
                                       ": \"" + ToString(transfer) + "\" " +
                                       why};
  }

  Status Check(const Transfer& transfer) const {
    for (const auto& [used, place] :
         {std::pair(transfer.reads(), transfer.source),
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
    const bool has_peer = transfer.kind != Transfer::Kind::kLocalCopy;
    if (has_peer && (transfer.peer < 0 || transfer.peer >= size_ ||
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

  // Of the place as the schedule names it: in place, input and output need not
  // be registered alike (one may be a part of the other).
  bool Registered(Place place) const {
    return place.buffer == Buffer::kInput ? options_.input_registered
                                          : options_.output_registered;
  }

  bool SentFrom(const History& history) const {
    return std::any_of(history.memory_readers.begin(),
                       history.memory_readers.end(), [this](int reader) {
                         return plan_.steps[reader].transfer.kind ==
                                Transfer::Kind::kSend;
                       });
  }

  Status Add(const Transfer& transfer) {
    const Place source = Canonical(transfer.source);
    const Place target = Canonical(transfer.target);
    const bool local = transfer.kind == Transfer::Kind::kLocalCopy;
    if (transfer.reads() && source.buffer == Buffer::kScratch &&
        history_[source].slot_of < 0) {
      return Bad(transfer, "reads scratch that was never written");
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
    if (!local) {
      plan_.peers.push_back(transfer.peer);
    }
    if (transfer.reads()) {
      Read(index, source);
    }
    if (transfer.writes()) {
      Write(index, target);
    }
    return Status::Ok();
  }

  void Read(int index, Place place) {
    Step& step = plan_.steps[index];
    History& history = history_[place];
    if (history.slot_of >= 0) {
      step.source_step = history.slot_of;
      Step& holder = plan_.steps[history.slot_of];
      ++holder.readers;
      holder.on_value.push_back({index, false});
      ++step.read_waits;
      return;
    }
    if (history.writer >= 0) {
      plan_.steps[history.writer].on_done.push_back({index, false});
      ++step.read_waits;
    }
    history.memory_readers.push_back(index);
    if (step.transfer.kind == Transfer::Kind::kSend &&
        !Registered(step.transfer.source)) {
      step.registers = options_.register_sends;
      step.takes_slot = step.copies_in = !step.registers;
    }
  }

  void Write(int index, Place place) {
    Step& step = plan_.steps[index];
    History& history = history_[place];
    const bool receives = step.transfer.receives();
    if (place.buffer == Buffer::kScratch) {
      step.takes_slot = true;
      history.slot_of = index;
      return;
    }
    step.to_memory = true;
    step.direct = step.transfer.kind == Transfer::Kind::kReceiveCopy &&
                  Registered(step.transfer.target) &&
                  (options_.direct_over_sent || !SentFrom(history));
    step.takes_slot = receives && !step.direct;
    // A place may be overwritten only after every earlier use of its memory.
    if (history.writer >= 0) {
      plan_.steps[history.writer].on_done.push_back({index, true});
      ++step.write_waits;
    }
    for (const int reader : history.memory_readers) {
      if (reader != index) {
        plan_.steps[reader].on_done.push_back({index, true});
        ++step.write_waits;
      }
    }
    history = {step.takes_slot ? index : -1, index, {}};
  }

  const Schedule& schedule_;
  const int rank_;
  const int size_;
  const PlanOptions options_;
  std::map<Place, History> history_;
  Plan plan_;
};

}  // namespace

Result<Plan> Compile(const Schedule& schedule, int rank, int size,
                     const PlanOptions& options) {
  return Compiler(schedule, rank, size, options).Compile();
}

}  // namespace ringpipe
