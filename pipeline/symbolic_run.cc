#include "pipeline/symbolic_run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "memory_pool/slot_list.h"
#include "pipeline/flow.h"

namespace ringpipe {
namespace {

using Arrival = Step::Arrival;
using Fault = CheckOptions::Fault;
using Order = CheckOptions::Order;
using Term = TermTable::Term;

struct Channel;

// Also one that has arrived, and lies at the sender or in the connection's own
// memory.
struct Message {
  Channel* channel = nullptr;
  std::uint64_t number = 0;        // on the channel
  Instance instance = {};          // of the sender
  bool eager = false;              // the source is free
  std::optional<Term> value = {};  // what the source held, once it was read
};

// What can happen next at a rank. Beginnings come first, ends last.
struct Event {
  enum class Kind {
    kIssue,
    kRegister,
    kPost,
    kBeginCopyIn,
    kBeginReduce,
    kBeginCopyOut,
    kBeginSend,
    kAnnounce,
    kDeliver,
    kDeliverFirst,
    kReportSent,
    kReportReceived,
    kEndWork,
  };
  Kind kind = Kind::kIssue;
  Channel* channel = nullptr;
  std::size_t work = 0;  // kEndWork: in Rank::work
};

// A copy that has begun, or reductions in one pass.
struct Work {
  Event::Kind kind = Event::Kind::kBeginCopyIn;
  std::vector<Instance> instances;
  bool applied = false;  // it has read and written memory
};

struct Rank {
  Rank(const Plan& its_plan, int its_number, int size,
       const CheckOptions& options)
      : plan(its_plan),
        number(its_number),
        slots(options.slots),
        slot_values(options.slots) {
    flow.Start(plan, options.subchunks, options.depth, size);
    lent.resize(flow.lanes() * plan.steps.size());
  }

  // What has arrived for the instance without a target.
  std::optional<Message>& Lent(Instance instance) {
    return lent[instance.lane * plan.steps.size() + instance.step];
  }

  const Plan& plan;
  const int number;
  Flow flow;
  SlotList slots;
  std::vector<Term> slot_values;
  std::vector<Work> work;
  std::vector<std::optional<Message>> lent;  // by lane and step
  std::vector<Channel*> outgoing, incoming;
  Flow::Issued last_issue = Flow::Issued::kIssued;
  bool active = false;
};

// Messages from one rank to another.
struct Channel {
  Rank* from = nullptr;
  Rank* to = nullptr;
  const Channel* back = nullptr;  // the other way
  Plan::Peer sender, receiver;    // what the ends' plans say of it
  // The first message: whether it may carry an eager one, where it is.
  bool eager = false;
  enum class First { kUnsent, kOnWire, kTaken } first = First::kUnsent;
  std::uint64_t begun = 0;        // messages
  std::deque<Instance> posted;    // receives that wait for a message
  std::deque<Message> on_wire;    // that wait to be delivered
  std::deque<Instance> received;  // not yet reported to the receiver
  std::deque<Instance> sent;      // not yet reported to the sender
  std::uint64_t hash = 0;         // of the messages delivered
};

// All that a rank does takes two events, one with which it begins and one with
// which its end is reported to the Flow; memory is read and written at either.
class SymbolicRun {
 public:
  SymbolicRun(const std::vector<Plan>& plans, const CheckOptions& options,
              TermTable& terms, SymbolicMemory& memory)
      : options_(options), terms_(terms), memory_(memory) {
    const int size = static_cast<int>(plans.size());
    for (int rank = 0; rank < size; ++rank) {
      ranks_.emplace_back(plans[rank], rank, size, options);
    }
    AddChannels();
    for (int rank = size - 1; rank >= 0; --rank) {
      Activate(ranks_[rank]);
    }
  }

  Status Run() {
    while (!active_.empty()) {
      const std::size_t chosen = options_.order == Order::kRandom
                                     ? Choose(active_.size())
                                     : active_.size() - 1;
      Rank& rank = *active_[chosen];
      if (FindEvents(rank)) {
        Happen(rank, events_[Choose(events_.size())]);
      } else {
        rank.active = false;
        active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(chosen));
      }
    }
    RINGPIPE_RETURN_IF_ERROR(error_);
    for (const Rank& rank : ranks_) {
      if (!Ended(rank)) {
        return Stuck();
      }
      if (rank.slots.counters().in_use != 0) {
        return {StatusCode::kInternal, "slots are in use after the end"};
      }
    }
    for (const auto& [ends, channel] : channels_) {
      if (!channel.on_wire.empty()) {
        Break("a message without a receive", channel);
      }
    }
    return error_;
  }

  std::uint64_t MessageHash() const {
    std::uint64_t hash = 0;
    for (const auto& [ends, channel] : channels_) {
      hash = HashPair(hash, channel.hash);
    }
    return hash;
  }

 private:
  // A first message goes both ways, whichever end names the other.
  void AddChannels() {
    for (Rank& rank : ranks_) {
      for (const Plan::Peer& peer : rank.plan.peers) {
        Channel& out = channels_[{rank.number, peer.rank}];
        Channel& in = channels_[{peer.rank, rank.number}];
        out.back = &in;
        in.back = &out;
        out.sender = in.receiver = peer;
      }
    }
    for (auto& [ends, channel] : channels_) {
      channel.from = &ranks_[ends.first];
      channel.to = &ranks_[ends.second];
      channel.eager = channel.sender.eager && channel.sender.sends;
      channel.hash = HashPair(ends.first, ends.second);
      channel.from->outgoing.push_back(&channel);
      channel.to->incoming.push_back(&channel);
      if (channel.sender.eager != channel.receiver.eager) {
        Break("the ends do not agree on what is eager", channel);
      }
    }
  }

  void Activate(Rank& rank) {
    if (!std::exchange(rank.active, true)) {
      active_.push_back(&rank);
    }
  }

  std::size_t Choose(std::size_t choices) {
    switch (options_.order) {
      case Order::kEager:
        return choices - 1;
      case Order::kLazy:
        return 0;
      case Order::kRandom:
        return HashPair(options_.seed, ++draws_) % choices;
    }
    return 0;
  }

  bool ChooseToApplyNow() {
    return options_.order == Order::kEager ||
           (options_.order == Order::kRandom && Choose(2) == 0);
  }

  // Connections deliver and report in any order.
  std::size_t ChooseAny(std::size_t count) {
    return options_.order == Order::kRandom ? Choose(count) : 0;
  }

  template <typename T>
  static T Take(std::deque<T>& queue, std::size_t index) {
    const T taken = queue[index];
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(index));
    return taken;
  }
  template <typename T>
  T TakeAny(std::deque<T>& queue) {
    return Take(queue, ChooseAny(queue.size()));
  }

  // Whether anything can happen at the rank; puts it in events_.
  bool FindEvents(Rank& rank) {
    using enum Event::Kind;
    events_.clear();
    const auto add = [this](bool can, const Event& event) {
      if (can) {
        events_.push_back(event);
      }
    };
    add(rank.last_issue == Flow::Issued::kIssued, {kIssue});
    add(!rank.flow.to_register().empty(), {kRegister});
    for (Channel* channel : rank.incoming) {
      add(rank.flow.NextReceive(channel->from->number) != nullptr,
          {kPost, channel});
    }
    add(!rank.flow.to_copy_in().empty(), {kBeginCopyIn});
    add(!rank.flow.to_reduce().empty(), {kBeginReduce});
    add(!rank.flow.to_copy_out().empty(), {kBeginCopyOut});
    for (Channel* channel : rank.outgoing) {
      add(CanBeginSend(*channel), {kBeginSend, channel});
      add(channel->first == Channel::First::kOnWire, {kDeliverFirst, channel});
      add(!channel->on_wire.empty() && !channel->posted.empty(),
          {kDeliver, channel});
      add(!channel->sent.empty(), {kReportSent, channel});
    }
    for (Channel* channel : rank.incoming) {
      add(!channel->received.empty(), {kReportReceived, channel});
    }
    for (std::size_t work = rank.work.size(); work > 0; --work) {
      add(true, {kEndWork, nullptr, work - 1});
    }
    for (Channel* channel : rank.outgoing) {
      // One that may carry an eager message is held back as long as possible.
      const bool held = channel->eager && options_.order != Order::kRandom;
      const bool never =
          channel->eager && options_.fault == Fault::kNeverAnnounces;
      add(channel->first == Channel::First::kUnsent && !never &&
              (!held || events_.empty()),
          {kAnnounce, channel});
    }
    return !events_.empty();
  }

  // A message may go into a receive that is posted and not spoken for, to a
  // rank that has said that it makes the same call; an eager one needs neither.
  bool CanBeginSend(const Channel& channel) const {
    const bool receive =
        HasReceive(channel) || options_.fault == Fault::kSendsWithoutReceive;
    const bool agreed =
        IsAgreed(channel) || options_.fault == Fault::kSendsBeforeAgreed;
    return channel.from->flow.NextSend(channel.to->number) != nullptr &&
           ((receive && agreed) || IsEager(channel));
  }
  static bool HasReceive(const Channel& channel) {
    return channel.posted.size() > channel.on_wire.size();
  }
  static bool IsAgreed(const Channel& channel) {
    return channel.back->first == Channel::First::kTaken;
  }
  bool IsEager(const Channel& channel) const {
    return channel.eager &&
           (channel.begun == 0 || options_.fault == Fault::kAlwaysEager);
  }

  // All messages and all peers' first ones have come.
  static bool Ended(const Rank& rank) {
    return rank.flow.finished() &&
           std::all_of(rank.incoming.begin(), rank.incoming.end(),
                       [](const Channel* channel) {
                         return channel->first == Channel::First::kTaken;
                       });
  }

  void Happen(Rank& rank, const Event& event) {
    using enum Event::Kind;
    Channel* const channel = event.channel;
    if (event.kind >= kReportSent) {  // after which more may be issued
      rank.last_issue = Flow::Issued::kIssued;
    }
    switch (event.kind) {
      case kIssue:
        return Issue(rank);
      case kRegister:
        return rank.flow.Registered(rank.flow.to_register().pop());
      case kPost:
        return Post(rank, *channel);
      case kBeginCopyIn:
      case kBeginReduce:
      case kBeginCopyOut:
        return BeginWork(rank, event.kind);
      case kBeginSend:
        return BeginSend(rank, *channel);
      case kAnnounce:
        channel->first = Channel::First::kOnWire;
        return;
      case kDeliver:
        return Deliver(*channel);
      case kDeliverFirst:
        channel->first = Channel::First::kTaken;
        return Activate(*channel->to);
      case kReportSent:
        return rank.flow.Sent(TakeAny(channel->sent), rank.slots);
      case kReportReceived:
        return rank.flow.Received(TakeAny(channel->received), rank.slots);
      case kEndWork:
        return EndWork(rank, event.work);
    }
  }

  static void Issue(Rank& rank) {
    const Instance next = rank.flow.next();
    rank.last_issue = rank.flow.Issue(rank.slots);
    if (rank.last_issue == Flow::Issued::kIssued &&
        rank.flow.slot(next) != SlotList::kNone) {
      // Whoever reads the slot before it is written sees that it is not.
      rank.slot_values[rank.flow.slot(next)] = TermTable::kUndefined;
    }
  }

  // The target may be written from now on, with anything.
  void Post(Rank& rank, Channel& channel) {
    const Instance instance = *rank.flow.NextReceive(channel.from->number);
    rank.flow.PopReceive(channel.from->number);
    if (rank.flow.step(instance).arrival == Arrival::kInTarget) {
      Target(rank, instance, /*in_memory=*/true) = TermTable::kUndefined;
    }
    channel.posted.push_back(instance);
    Activate(*channel.from);
  }

  void BeginWork(Rank& rank, Event::Kind kind) {
    using enum Event::Kind;
    Fifo<Instance>& ready = kind == kBeginCopyIn   ? rank.flow.to_copy_in()
                            : kind == kBeginReduce ? rank.flow.to_reduce()
                                                   : rank.flow.to_copy_out();
    Work work = {kind, {ready.pop()}};
    while (kind == kBeginReduce && ChooseToApplyNow()) {
      const auto next = rank.flow.JoinNext(work.instances.back());
      if (!next.has_value()) {
        break;
      }
      work.instances.push_back(*next);
    }
    if (ChooseToApplyNow()) {
      Apply(rank, work);
      work.applied = true;
    }
    rank.work.push_back(work);
  }

  void EndWork(Rank& rank, std::size_t index) {
    const Work work = rank.work[index];
    rank.work.erase(rank.work.begin() + static_cast<std::ptrdiff_t>(index));
    if (!work.applied) {
      Apply(rank, work);
    }
    for (const Instance instance : work.instances) {
      Release(rank, instance);
      if (work.kind == Event::Kind::kBeginCopyIn) {
        rank.flow.CopiedIn(instance, rank.slots);
      } else if (work.kind == Event::Kind::kBeginReduce) {
        rank.flow.Reduced(instance, rank.slots);
      } else {
        rank.flow.CopiedOut(instance, rank.slots);
      }
    }
  }

  void Apply(Rank& rank, const Work& work) {
    const Instance last = work.instances.back();
    const Step& step = rank.flow.step(last);
    const bool copies_out = work.kind == Event::Kind::kBeginCopyOut;
    Term value = TermTable::kUndefined;
    if (work.kind == Event::Kind::kBeginReduce) {
      value = ReadSource(rank, work.instances.front());
      for (const Instance instance : work.instances) {
        Term received = rank.flow.step(instance).transfer.receives()
                            ? ReadReceived(rank, instance)
                            : ReadOperand(rank, instance);
        if (rank.flow.step(instance).received_first) {
          std::swap(value, received);
        }
        value = terms_.Reduce(value, received);
      }
      if (step.transfer.finish) {
        value = terms_.Finish(value);
      }
    } else if (copies_out && !step.in_memory) {  // complete in its slot
      value = rank.slot_values[rank.flow.slot(last)];
    } else {
      value = step.transfer.receives() ? ReadReceived(rank, last)
                                       : ReadSource(rank, last);
    }
    Target(rank, last, step.in_memory || copies_out) = value;
  }

  void BeginSend(Rank& rank, Channel& channel) {
    const int peer = channel.to->number;
    Message message = {.channel = &channel,
                       .number = channel.begun,
                       .instance = *rank.flow.NextSend(peer),
                       .eager = IsEager(channel)};
    rank.flow.PopSend(peer);
    CheckRules(message);
    ++channel.begun;
    if (message.eager || ChooseToApplyNow()) {
      message.value = ReadSent(rank, message.instance);
    }
    if (message.eager) {
      channel.first = std::max(channel.first, Channel::First::kOnWire);
      channel.sent.push_back(message.instance);
    }
    channel.on_wire.push_back(message);
  }

  // Of a message that begins.
  void CheckRules(const Message& message) {
    const Channel& channel = *message.channel;
    if (message.eager) {
      if (channel.begun > 0) {
        Break("a second eager message", channel);
      }
    } else if (!HasReceive(channel)) {
      Break("a message without a receive", channel);
    } else if (!IsAgreed(channel)) {
      Break("data before the peer has said what it calls", channel);
    } else if (channel.from->flow.step(message.instance).eager) {
      Break("a message from memory that no device reaches", channel);
    }
  }

  void Deliver(Channel& channel) {
    const std::size_t index =
        ChooseAny(std::min(channel.on_wire.size(), channel.posted.size()));
    const Message message = Take(channel.on_wire, index);
    const Instance receive = Take(channel.posted, index);
    const Term value = message.value.has_value()
                           ? *message.value
                           : ReadSent(*channel.from, message.instance);
    channel.hash += HashPair(message.number, terms_.Hash(value));
    const Arrival arrival = channel.to->flow.step(receive).arrival;
    if (arrival == Arrival::kAtPeer) {
      channel.to->Lent(receive) = message;
    } else {
      Target(*channel.to, receive, arrival == Arrival::kInTarget) = value;
    }
    channel.received.push_back(receive);
    if (!message.eager && (arrival != Arrival::kAtPeer ||
                           options_.fault == Fault::kFreesBeforeRead)) {
      channel.sent.push_back(message.instance);
    }
    Activate(*channel.to);
  }

  // A message that lay at the sender has been read.
  void Release(Rank& rank, Instance instance) {
    const auto lent = std::exchange(rank.Lent(instance), std::nullopt);
    if (lent.has_value() && !lent->eager &&
        options_.fault != Fault::kFreesBeforeRead) {
      lent->channel->sent.push_back(lent->instance);
      Activate(*lent->channel->from);
    }
  }

  // What the instance writes: a place in user memory, or its slot.
  Term& Target(Rank& rank, Instance instance, bool in_memory) {
    return in_memory ? memory_.At(rank.number,
                                  rank.flow.step(instance).transfer.target,
                                  rank.flow.subchunk(instance))
                     : rank.slot_values[rank.flow.slot(instance)];
  }

  Term ReadSource(Rank& rank, Instance instance) {
    const int slot = rank.flow.source_slot(instance);
    return slot != SlotList::kNone
               ? rank.slot_values[slot]
               : memory_.At(rank.number,
                            rank.flow.step(instance).transfer.source,
                            rank.flow.subchunk(instance));
  }

  Term ReadOperand(Rank& rank, Instance instance) {
    const int slot = rank.flow.operand_slot(instance);
    return slot != SlotList::kNone
               ? rank.slot_values[slot]
               : memory_.At(rank.number,
                            rank.flow.step(instance).transfer.operand,
                            rank.flow.subchunk(instance));
  }

  // What a send puts on the wire: its source, or its copy of it.
  Term ReadSent(Rank& rank, Instance instance) {
    return rank.flow.step(instance).copies_in
               ? rank.slot_values[rank.flow.slot(instance)]
               : ReadSource(rank, instance);
  }

  // What a message holds that has arrived for `instance`.
  Term ReadReceived(Rank& rank, Instance instance) {
    if (rank.flow.step(instance).arrival != Arrival::kAtPeer) {
      return rank.slot_values[rank.flow.slot(instance)];
    }
    const std::optional<Message>& lent = rank.Lent(instance);
    return !lent.has_value() ? TermTable::kUndefined
           : lent->eager     ? *lent->value
                             : ReadSent(*lent->channel->from, lent->instance);
  }

  // A rule is broken.
  void Break(const std::string& what, const Channel& channel) {
    if (error_.ok()) {
      error_ = {StatusCode::kInternal,
                what + ", from rank " + std::to_string(channel.from->number) +
                    " to rank " + std::to_string(channel.to->number)};
    }
  }

  Status Stuck() {
    constexpr int kMostRanks = 8;
    std::string message = "deadlock with " + std::to_string(options_.slots) +
                          " slots, " + std::to_string(options_.depth) +
                          " sub-chunks a round";
    bool lacks_slots = false;
    int stuck = 0;
    for (Rank& rank : ranks_) {
      if (Ended(rank)) {
        continue;
      }
      lacks_slots |= rank.last_issue == Flow::Issued::kNoSlot;
      if (++stuck <= kMostRanks) {
        message += "; rank " + std::to_string(rank.number) + WhatWaits(rank);
      }
    }
    if (stuck > kMostRanks) {
      message += "; and " + std::to_string(stuck - kMostRanks) + " more ranks";
    }
    return {
        lacks_slots ? StatusCode::kResourceExhausted : StatusCode::kInternal,
        message};
  }

  static std::string WhatWaits(Rank& rank) {
    std::string text;
    const auto add = [&](const char* verb, Instance instance,
                         std::uint64_t subchunk, const char* rest) {
      text += (text.empty() ? " " : ", ") + std::string(verb) + " \"" +
              ToString(rank.flow.step(instance).transfer) + "\" of sub-chunk " +
              std::to_string(subchunk) + rest;
    };
    if (rank.last_issue == Flow::Issued::kNoSlot) {
      add("has no slot for", rank.flow.next(), rank.flow.next_subchunk(), "");
    }
    for (const Channel* channel : rank.outgoing) {
      if (const Instance* next = rank.flow.NextSend(channel->to->number)) {
        add("has", *next, rank.flow.subchunk(*next),
            " ready and no receive posted there");
      }
    }
    for (const Channel* channel : rank.incoming) {
      if (!channel->posted.empty()) {
        const Instance next = channel->posted.front();
        add("waits for the message of", next, rank.flow.subchunk(next), "");
      }
    }
    return text.empty() ? " waits for a value" : text;
  }

  const CheckOptions& options_;
  TermTable& terms_;
  SymbolicMemory& memory_;
  std::deque<Rank> ranks_;
  std::map<std::pair<int, int>, Channel> channels_;  // from, to
  std::vector<Rank*> active_;  // at which something may happen
  std::vector<Event> events_;
  std::uint64_t draws_ = 0;
  Status error_;
};

}  // namespace

Status RunSymbolically(const std::vector<Plan>& plans,
                       const CheckOptions& options, TermTable& terms,
                       SymbolicMemory& memory, std::uint64_t& messages) {
  SymbolicRun run(plans, options, terms, memory);
  RINGPIPE_RETURN_IF_ERROR(run.Run());
  messages = run.MessageHash();
  return Status::Ok();
}

}  // namespace ringpipe
