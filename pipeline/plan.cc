#include "pipeline/plan.h"

#include <algorithm>
#include <map>
#include <optional>
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
    banks_ = (schedule_.scratch + schedule_.chunks - 1) / schedule_.chunks;
    plan_.equal_chunks = schedule_.equal_chunks;
    plan_.in_place = options_.in_place;
    plan_.scales_input = options_.scales_input;
    plan_.input_owner = options_.input_owner;
    plan_.output_owner = options_.output_owner;
    for (next_ = 0; next_ < schedule_.transfers.size();) {
      const Transfer& transfer = schedule_.transfers[next_++];
      RINGPIPE_RETURN_IF_ERROR(Check(transfer));
      RINGPIPE_RETURN_IF_ERROR(Add(transfer));
    }
    plan_.all_eager = options_.input_owner == Owner::kHost &&
                      options_.output_owner == Owner::kHost && !GoesBySlots() &&
                      options_.message_bytes > 0;
    for (const auto& [rank, peer] : peers_) {
      plan_.peers.push_back(peer);
      plan_.all_eager &= peer.eager;
    }
    plan_.all_eager &= !later_messages_;
    for (const Step& step : plan_.steps) {
      const bool in_two = step.to_memory && !LiesTogether(step.transfer.target);
      plan_.most_pieces =
          std::max({plan_.most_pieces, step.source.size(), step.operand.size(),
                    std::size_t{in_two ? 2U : 1U}});
      plan_.takes_slots |= step.takes_slot;
    }
    return std::move(plan_);
  }

 private:
  // The history of one chunk of a buffer.
  struct History {
    int slot_of = -1;    // the step in whose slot its value is; -1: in memory
    Place in_slot = {};  // as a part of that step's target
    int writer = -1;     // the last step that writes it in memory
    std::vector<int> memory_readers = {};  // that read it in memory since
    std::vector<int> sent_to = {};         // the peers that have got it
  };

  Status Bad(const Transfer& transfer, const std::string& why) const {
    return {StatusCode::kInternal, "schedule of rank " + std::to_string(rank_) +
                                       ": \"" + ToString(transfer) + "\" " +
                                       why};
  }

  // The chunks of a range, in order.
  std::vector<Place> ChunksOf(Place range) const {
    std::vector<Place> chunks;
    for (int position = 0; position < range.count; ++position) {
      chunks.push_back(range.At(position, schedule_.chunks));
    }
    return chunks;
  }

  // Whether the chunk is one of the range.
  bool Holds(Place range, Place chunk) const {
    const int chunks = schedule_.chunks;
    return range.buffer == chunk.buffer &&
           range.chunk / chunks == chunk.chunk / chunks &&
           (chunk.chunk - range.chunk + chunks) % chunks < range.count;
  }

  bool Exists(Place range) const {
    if (range.chunk < 0 || range.count < 1 || range.count > schedule_.chunks) {
      return false;
    }
    const int places =
        range.buffer == Buffer::kScratch ? schedule_.scratch : schedule_.chunks;
    const std::vector<Place> chunks = ChunksOf(range);
    return std::all_of(chunks.begin(), chunks.end(),
                       [&](Place place) { return place.chunk < places; });
  }

  bool SameChunks(Place one, Place other) const {
    return one.count == other.count &&
           (schedule_.equal_chunks ||
            (one.chunk - other.chunk) % schedule_.chunks == 0);
  }

  // In user memory.
  bool LiesTogether(Place place) const {
    return place.chunk % schedule_.chunks + place.count <= schedule_.chunks;
  }

  Status Check(const Transfer& transfer) const {
    for (const auto& [used, place] :
         {std::pair(transfer.reads(), transfer.source),
          std::pair(transfer.kind == Transfer::Kind::kLocalReduce,
                    transfer.operand),
          std::pair(transfer.writes(), transfer.target)}) {
      if (used && !Exists(place)) {
        return Bad(transfer, "uses a place that does not exist");
      }
      if (used && !SameChunks(place, transfer.chunks())) {
        return Bad(transfer, "has places that are of other chunks");
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
               ? Output(place.chunk, place.count)
               : place;
  }

  // Whether no connection reaches user memory.
  bool GoesBySlots() const {
    return options_.in_pieces || options_.scales_input;
  }

  // What the connection to the peer can do with the memory of the place as the
  // schedule names it: in place, input and output need not be reached alike
  // (one may be a part of the other).
  Reach ReachOf(int peer, Place place) const {
    if (GoesBySlots()) {
      return {};
    }
    const PlanOptions::Peer& options = OptionsOf(peer);
    return place.buffer == Buffer::kInput ? options.input : options.output;
  }

  // Whether writing the place waits for a send to end.
  bool WaitsForSend(Place place) {
    const std::vector<Place> chunks = ChunksOf(place);
    return std::any_of(chunks.begin(), chunks.end(), [this](Place chunk) {
      const History& history = history_[chunk];
      return (history.writer >= 0 && ends_after_send_[history.writer]) ||
             std::any_of(
                 history.memory_readers.begin(), history.memory_readers.end(),
                 [this](int reader) { return ends_after_send_[reader]; });
    });
  }

  // Whether an earlier step than that has reduced what is there.
  bool WasReduced(int index, Place place) {
    const std::vector<Place> chunks = ChunksOf(place);
    return std::any_of(chunks.begin(), chunks.end(), [&](Place chunk) {
      const std::vector<int>& readers = history_[chunk].memory_readers;
      return std::any_of(readers.begin(), readers.end(), [&](int reader) {
        return reader != index && plan_.steps[reader].transfer.reduces();
      });
    });
  }

  // The one step touches memory only after the earlier one.
  void WaitFor(int earlier, int index, bool write) {
    std::vector<Step::Dependent>& on_done = plan_.steps[earlier].on_done;
    const Step::Dependent dependent = {index, write};
    if (earlier == index ||
        std::find(on_done.begin(), on_done.end(), dependent) != on_done.end()) {
      return;
    }
    on_done.push_back(dependent);
    ++(write ? plan_.steps[index].write_waits : plan_.steps[index].read_waits);
    ends_after_send_[index] =
        ends_after_send_[index] || ends_after_send_[earlier];
  }

  Status Add(const Transfer& transfer) {
    const bool reduces_locally = transfer.kind == Transfer::Kind::kLocalReduce;
    for (const auto& [used, place] :
         {std::pair(transfer.reads(), transfer.source),
          std::pair(reduces_locally, transfer.operand)}) {
      if (used && place.buffer == Buffer::kScratch && !IsInSlots(place)) {
        return Bad(transfer, "reads scratch that was never written");
      }
    }
    if (transfer.kind == Transfer::Kind::kLocalCopy && IsThere(transfer)) {
      return Status::Ok();
    }
    const Owner reducer = ReducerOf(transfer);
    Transfer reached = transfer;
    if (transfer.reduces()) {
      reached.source = WithinReach(reducer, transfer.source);
      reached.operand = reduces_locally ? WithinReach(reducer, transfer.operand)
                                        : transfer.operand;
    }
    const int index = AddStep(reached);
    plan_.steps[index].reducer = reducer;
    const bool first = transfer.has_peer() && AddToPeer(transfer);
    if (transfer.reads()) {
      OrderOperands(plan_.steps[index], transfer.source);
      plan_.steps[index].source = Read(index, reached.source);
      ChooseSource(index, first);
    }
    if (reduces_locally) {
      plan_.steps[index].operand = Read(index, reached.operand);
    }
    if (transfer.writes()) {
      Write(index, transfer.target);
    }
    return Status::Ok();
  }

  int AddStep(const Transfer& transfer) {
    plan_.steps.emplace_back().transfer = transfer;
    ends_after_send_.push_back(transfer.kind == Transfer::Kind::kSend);
    return static_cast<int>(plan_.steps.size()) - 1;
  }

  // Of what of a place is in user memory.
  Owner OwnerOf(Place place) const { return plan_.OwnerOf(place); }

  // Whose memory the operands are; the host where all are in slots.
  Owner ReducerOf(const Transfer& transfer) {
    std::optional<Owner> reducer;
    if (transfer.reduces() && options_.reducer.has_value()) {
      return *options_.reducer;
    }
    for (const auto& [used, place] :
         {std::pair(transfer.reduces(), transfer.source),
          std::pair(transfer.kind == Transfer::Kind::kLocalReduce,
                    transfer.operand)}) {
      if (used && !IsInSlots(place)) {
        const Owner owner = OwnerOf(place);
        // Pieces of two lists need not be of one length.
        reducer =
            !reducer.has_value() || (*reducer == owner && owner != Owner::kBoth)
                ? owner
                : Owner::kDevice;
      }
    }
    return reducer.value_or(Owner::kHost);
  }

  // The operand; or a copy of it in a slot, which everybody reaches.
  Place WithinReach(Owner reducer, Place operand) {
    if (IsInSlots(operand) || OwnerOf(operand) == reducer) {
      return operand;
    }
    // In a bank of scratch that the schedule does not have.
    const Place copy =
        Scratch(banks_++ * schedule_.chunks + operand.chunk % schedule_.chunks,
                operand.count);
    const int index = AddStep(Transfer::LocalCopy(operand, copy));
    plan_.steps[index].source = Read(index, operand);
    Write(index, copy);
    return copy;
  }

  // Whether nothing of it is in user memory.
  bool IsInSlots(Place place) {
    const std::vector<Place> chunks = ChunksOf(Canonical(place));
    return std::all_of(chunks.begin(), chunks.end(), [this](Place chunk) {
      return history_[chunk].slot_of >= 0;
    });
  }

  // Whether a part of it is input that has to be scaled when it is read: in
  // place, what was written there since has been.
  bool IsUnscaled(Place range) {
    const std::vector<Place> chunks = ChunksOf(range);
    return options_.scales_input && range.buffer == Buffer::kInput &&
           std::any_of(chunks.begin(), chunks.end(), [this](Place chunk) {
             return history_[Canonical(chunk)].writer < 0;
           });
  }

  // Whether a local copy has nothing to do: in place it is there already; and
  // the value of a slot does not change, so that two places may be the same
  // part of one.
  bool IsThere(const Transfer& copy) {
    const Place source = Canonical(copy.source);
    if (source == Canonical(copy.target)) {
      return !IsUnscaled(copy.source);
    }
    if (copy.target.buffer != Buffer::kScratch || !IsInSlots(source)) {
      return false;
    }
    for (int position = 0; position < source.count; ++position) {
      const History& from = history_[source.At(position, schedule_.chunks)];
      History& to = history_[copy.target.At(position, schedule_.chunks)];
      to.slot_of = from.slot_of;
      to.in_slot = from.in_slot;
      to.sent_to.clear();
    }
    return true;
  }

  // Whether it is the first message to the peer, or from it.
  bool AddToPeer(const Transfer& transfer) {
    Plan::Peer& peer = peers_[transfer.peer];
    peer.rank = transfer.peer;
    const Abilities& abilities = OptionsOf(transfer.peer).abilities;
    peer.eager = options_.message_bytes > 0 &&
                 options_.message_bytes <= abilities.eager_bytes &&
                 (options_.same_to_all || !abilities.eager_to_all);
    peer.eager_to_all = peer.eager && abilities.eager_to_all;
    const bool later =
        std::exchange(transfer.receives() ? peer.receives : peer.sends, true);
    later_messages_ |= later;
    return !later;
  }

  const PlanOptions::Peer& OptionsOf(int peer) const {
    return options_.peers.empty() ? options_.each_peer : options_.peers[peer];
  }

  // Whether the two ranks exchange values: what is reduced here went to the
  // peer, which does the same.
  void OrderOperands(Step& step, Place source) {
    const int peer = step.transfer.peer;
    int exchanged = 0;
    for (const Place chunk : ChunksOf(Canonical(source))) {
      std::vector<int>& sent_to = history_[chunk].sent_to;
      exchanged += std::count(sent_to.begin(), sent_to.end(), peer) > 0 ? 1 : 0;
      if (step.transfer.kind == Transfer::Kind::kSend) {
        sent_to.push_back(peer);
      }
    }
    if (step.transfer.kind == Transfer::Kind::kReceiveReduce) {
      step.received_first = peer < rank_ && exchanged == step.transfer.count();
    }
  }

  // Whether a part of the value that the current transfer writes is sent later
  // by a connection that does not reach it in memory.
  bool SentLaterFromSlot(Place range) const {
    std::vector<Place> open = ChunksOf(range);
    for (std::size_t i = next_; i < schedule_.transfers.size() && !open.empty();
         ++i) {
      const Transfer& later = schedule_.transfers[i];
      const auto is_in = [this](Place place) {
        return [this, place](Place chunk) { return Holds(place, chunk); };
      };
      if (later.kind == Transfer::Kind::kSend &&
          ReachOf(later.peer, later.source).sends != Reach::Sends::kAtOnce &&
          std::any_of(open.begin(), open.end(),
                      is_in(Canonical(later.source)))) {
        return true;
      }
      if (later.writes()) {
        std::erase_if(open, is_in(later.target));
      }
    }
    return false;
  }

  // Returns where the range lies.
  std::vector<Step::Piece> Read(int index, Place range) {
    std::vector<Step::Piece> pieces;
    for (const Place named : ChunksOf(range)) {
      History& history = history_[Canonical(named)];
      const bool in_slot = history.slot_of >= 0;
      if (in_slot) {
        Hold(history.slot_of, index);
      } else {
        if (history.writer >= 0) {
          WaitFor(history.writer, index, /*write=*/false);
        }
        history.memory_readers.push_back(index);
      }
      Append(pieces, {history.slot_of, in_slot ? history.in_slot : named,
                      !in_slot && IsUnscaled(named)});
    }
    return pieces;
  }

  // The step reads what is in the holder's slot.
  void Hold(int holder, int index) {
    std::vector<int>& holders = plan_.steps[index].holders;
    if (std::count(holders.begin(), holders.end(), holder) > 0) {
      return;
    }
    holders.push_back(holder);
    ++plan_.steps[index].read_waits;
    ++plan_.steps[holder].readers;
    plan_.steps[holder].on_value.push_back({index, false});
  }

  // To the last piece, where it follows that in memory. A slot begins with the
  // first chunk of its value, which need not be the first of all.
  void Append(std::vector<Step::Piece>& pieces,
              const Step::Piece& piece) const {
    if (!pieces.empty() && pieces.back().step == piece.step &&
        pieces.back().unscaled == piece.unscaled) {
      Place& last = pieces.back().place;
      const Place next = last.At(last.count, schedule_.chunks);
      const bool follows =
          piece.step >= 0
              ? next.chunk != plan_.steps[piece.step].transfer.target.chunk
              : next.chunk > last.chunk;
      if (follows && next == piece.place) {
        ++last.count;
        return;
      }
    }
    pieces.push_back(piece);
  }

  // How a send gets its source, unless it goes as it lies.
  void ChooseSource(int index, bool first) {
    Step& step = plan_.steps[index];
    if (step.transfer.kind != Transfer::Kind::kSend) {
      return;
    }
    const int peer = step.transfer.peer;
    const bool goes_eagerly = first && peers_[peer].eager;
    const Reach::Sends sends = ReachOf(peer, step.transfer.source).sends;
    const bool reached =
        sends == Reach::Sends::kAtOnce ||
        std::all_of(step.source.begin(), step.source.end(),
                    [](const Step::Piece& piece) { return piece.step >= 0; });
    const bool scattered =
        step.source.size() >
        (goes_eagerly ? 1 : OptionsOf(peer).abilities.pieces);
    step.eager = !reached && !scattered && goes_eagerly && !GoesBySlots() &&
                 OwnerOf(step.transfer.source) == Owner::kHost;
    step.registers = !reached && !step.eager &&
                     sends == Reach::Sends::kAfterRegistering &&
                     step.source.size() == 1;
    step.copies_in = (!reached && !step.eager && !step.registers) || scattered;
    step.takes_slot = step.copies_in;
  }

  // Whether the peer can write the target itself.
  bool CanArriveIn(const Step& step) const {
    const Place target = step.transfer.target;
    return ReachOf(step.transfer.peer, target).receives && LiesTogether(target);
  }

  // Where what is received arrives, and whether it (or what is reduced with it)
  // goes straight to user memory.
  void ChooseWay(Step& step, Place target) {
    const bool copies = step.transfer.kind == Transfer::Kind::kReceiveCopy;
    const int peer = step.transfer.peer;
    // Whoever waits for this rank's sends may be the one that it waits for.
    const bool may_wait = options_.direct_over_sent || !WaitsForSend(target);
    const Owner owner = OwnerOf(target);
    // An eager message is copied by this rank's host.
    if (copies && may_wait && CanArriveIn(step) &&
        (owner == Owner::kHost || !peers_[peer].eager)) {
      step.in_memory = true;
      step.arrival = Step::Arrival::kInTarget;
      return;
    }
    const Owner reader = copies ? owner : step.reducer;
    LeaveAtPeer(step, reader);
    const bool at_peer = step.arrival == Step::Arrival::kAtPeer;
    // The sender's memory is held meanwhile; a slot keeps nobody waiting.
    step.in_memory = Reaches(reader, target) && (at_peer || !copies) &&
                     !SentLaterFromSlot(target) && (may_wait || !at_peer);
    if (copies && !step.in_memory && step.device_reads) {
      step.arrival = Step::Arrival::kInSlot;
      step.device_reads = false;
    }
  }

  // Whether all that lies there may be touched by one, who is not kBoth.
  bool Reaches(Owner one, Place place) const {
    return one == OwnerOf(place) && one != Owner::kBoth;
  }

  // Who is one can read it there.
  void LeaveAtPeer(Step& step, Owner reader) const {
    if (reader != Owner::kBoth &&
        OptionsOf(step.transfer.peer).abilities.reads_peer) {
      step.arrival = Step::Arrival::kAtPeer;
      step.device_reads = reader == Owner::kDevice;
    }
  }

  void Write(int index, Place range) {
    Step& step = plan_.steps[index];
    const bool receives = step.transfer.receives();
    if (range.buffer == Buffer::kScratch) {
      if (receives) {
        LeaveAtPeer(step, step.reducer);
      }
      step.takes_slot = true;
      for (const Place chunk : ChunksOf(range)) {
        history_[chunk] = {.slot_of = index, .in_slot = chunk};
      }
      return;
    }
    step.to_memory = true;
    if (receives) {
      ChooseWay(step, range);
      step.takes_slot = step.arrival == Step::Arrival::kInSlot ||
                        !step.in_memory || step.device_reads;
    } else {
      step.in_memory =
          step.transfer.kind == Transfer::Kind::kLocalCopy
              ? IsInSlots(step.transfer.source) ||
                    Reaches(OwnerOf(step.transfer.source), range)
              : Reaches(step.reducer, range) && !SentLaterFromSlot(range);
      step.takes_slot = !step.in_memory;
    }
    // Else the device would write the slot, and read it again. Who waits for
    // the value may be who is waited for; and where an earlier reduction has
    // read what this one overwrites, they are rather done in one pass.
    step.in_both = step.transfer.reduces() && !step.in_memory &&
                   step.reducer == Owner::kDevice &&
                   Reaches(step.reducer, range) && !WaitsForSend(range) &&
                   !WasReduced(index, range);
    // A local copy's slot is not kept for later readers: it would be held when
    // the schedule's slots are all needed.
    const bool in_slot =
        !step.in_memory && step.transfer.kind != Transfer::Kind::kLocalCopy;
    for (const Place chunk : ChunksOf(range)) {
      WaitForUses(index, history_[chunk]);
      history_[chunk] = {
          .slot_of = in_slot ? index : -1, .in_slot = chunk, .writer = index};
    }
  }

  // A place may be overwritten only after every earlier use of its memory.
  void WaitForUses(int index, const History& history) {
    if (history.writer >= 0) {
      WaitFor(history.writer, index, /*write=*/true);
    }
    for (const int reader : history.memory_readers) {
      WaitFor(reader, index, /*write=*/true);
    }
  }

  const Schedule& schedule_;
  const int rank_;
  const int size_;
  const PlanOptions options_;
  std::size_t next_ = 0;  // after the current transfer
  int banks_ = 0;         // of scratch: the schedule's, and WithinReach's
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
