#include "pipeline/symbolic_run.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "memory_pool/slot_list.h"
#include "pipeline/flow.h"
#include "pipeline/symbolic_state.h"

namespace ringpipe {
namespace {

using symbolic::Channel;
using symbolic::Event;
using symbolic::Message;
using symbolic::Rank;
using symbolic::Terms;
using symbolic::Values;
using symbolic::Work;
using Arrival = Step::Arrival;
using Fault = RunOptions::Fault;
using Order = RunOptions::Order;

// All that a rank does takes two events, one with which it begins and one with
// which its end is reported to the Flow; memory is read and written at either.
class SymbolicRun {
 public:
  SymbolicRun(const std::vector<Plan>& plans, const RunOptions& options,
              TermTable& terms, SymbolicMemory& memory)
      : options_(options), terms_(terms), values_(terms, memory) {
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
      assert(!active_.empty() || IsIdle());
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

  // Whether nothing can happen on any channel, by looking at all of them.
  bool IsIdle() {
    return std::all_of(
        channels_.begin(), channels_.end(), [this](const auto& entry) {
          const Channel& channel = entry.second;
          return !CanPost(channel) && channel.received.empty() &&
                 !CanBeginSend(channel) && !CanDeliver(channel) &&
                 channel.first != Channel::First::kOnWire &&
                 channel.sent.empty();
        });
  }

  RunResult TakeResult() {
    RunResult result = {0, std::move(messages_)};
    for (const auto& [ends, channel] : channels_) {
      result.data_flow = HashPair(result.data_flow, channel.hash);
    }
    return result;
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
      ++channel.from->unannounced;
      channel.from->to_peer[channel.to->number] = &channel;
      channel.to->from_peer[channel.from->number] = &channel;
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
    T taken = queue[index];
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(index));
    return taken;
  }
  template <typename T>
  T TakeAny(std::deque<T>& queue) {
    return Take(queue, ChooseAny(queue.size()));
  }

  // Whether anything can happen at the rank; puts it in events_: all of it, or,
  // where the order asks for the first or the last, that one and some beside.
  bool FindEvents(Rank& rank) {
    using Group = void (SymbolicRun::*)(Rank&);
    static constexpr Group kGroups[] = {
        &SymbolicRun::FindIssues, &SymbolicRun::FindPosts,
        &SymbolicRun::FindWork,   &SymbolicRun::FindSends,
        &SymbolicRun::FindEnds,   &SymbolicRun::FindAnnouncements};
    constexpr std::size_t kCount = std::size(kGroups);
    events_.clear();
    for (std::size_t i = 0; i < kCount && !IsEnough(); ++i) {
      const bool backwards = options_.order == Order::kEager;
      const Group find = kGroups[backwards ? kCount - 1 - i : i];
      (this->*find)(rank);
    }
    if (events_.empty()) {
      FindHeldAnnouncements(rank);
    }
    return !events_.empty();
  }

  bool IsEnough() const {
    return options_.order != Order::kRandom && !events_.empty();
  }

  void Add(bool can, const Event& event) {
    if (can) {
      events_.push_back(event);
    }
  }

  // `add` for each.
  template <typename Adder>
  void ForChannels(const std::vector<Channel*>& channels, Adder add) {
    for (std::size_t i = 0; i < channels.size() && !IsEnough(); ++i) {
      add(channels[i]);
    }
  }
  // The same, and takes out those for which `may` does not hold.
  template <typename Adder, typename Test>
  void ForLive(std::vector<Channel*>& channels, bool Channel::*live, Adder add,
               Test may) {
    for (std::size_t i = 0; i < channels.size() && !IsEnough();) {
      Channel* const channel = channels[i];
      if (may(*channel)) {
        add(channel);
        ++i;
      } else {
        channel->*live = false;
        channels[i] = channels.back();
        channels.pop_back();
      }
    }
  }

  // To be called when something may have become possible on a channel: at its
  // sender, at its receiver.
  static void TouchSender(Channel& channel) {
    if (!std::exchange(channel.live_at_sender, true)) {
      channel.from->live_outgoing.push_back(&channel);
    }
  }
  static void TouchReceiver(Channel& channel) {
    if (!std::exchange(channel.live_at_receiver, true)) {
      channel.to->live_incoming.push_back(&channel);
    }
  }
  void TouchStep(Rank& rank, const Step& step) {
    const int peer = step.transfer.peer;
    if (step.transfer.kind == Transfer::Kind::kSend) {
      TouchSender(*rank.to_peer[peer]);
    } else if (step.transfer.receives()) {
      TouchReceiver(*rank.from_peer[peer]);
    }
  }

  void FindIssues(Rank& rank) {
    Add(rank.last_issue == Flow::Issued::kIssued, {Event::Kind::kIssue});
    Add(!rank.flow.to_register().empty(), {Event::Kind::kRegister});
  }
  void FindPosts(Rank& rank) {
    ForLive(
        rank.live_incoming, &Channel::live_at_receiver,
        [&](Channel* channel) {
          Add(CanPost(*channel), {Event::Kind::kPost, channel});
        },
        [](const Channel& channel) {
          return CanPost(channel) || !channel.received.empty();
        });
  }
  void FindWork(Rank& rank) {
    Add(!rank.flow.to_copy_in().empty(), {Event::Kind::kBeginCopyIn});
    Add(!rank.flow.to_reduce().empty(), {Event::Kind::kBeginReduce});
    Add(!rank.flow.to_copy_out().empty(), {Event::Kind::kBeginCopyOut});
  }
  void FindSends(Rank& rank) {
    using enum Event::Kind;
    ForLive(
        rank.live_outgoing, &Channel::live_at_sender,
        [&](Channel* channel) {
          Add(CanBeginSend(*channel), {kBeginSend, channel});
          Add(channel->first == Channel::First::kOnWire,
              {kDeliverFirst, channel});
          Add(CanDeliver(*channel), {kDeliver, channel});
          Add(!channel->sent.empty(), {kReportSent, channel});
        },
        [this](const Channel& channel) {
          return CanBeginSend(channel) || CanDeliver(channel) ||
                 channel.first == Channel::First::kOnWire ||
                 !channel.sent.empty();
        });
  }
  void FindEnds(Rank& rank) {
    if (rank.unreported > 0) {
      ForChannels(rank.live_incoming, [&](Channel* channel) {
        Add(!channel->received.empty(),
            {Event::Kind::kReportReceived, channel});
      });
    }
    for (std::size_t work = rank.work.size(); work > 0; --work) {
      Add(true, {Event::Kind::kEndWork, nullptr, work - 1});
    }
  }
  void FindAnnouncements(Rank& rank) {
    if (rank.unannounced > 0) {
      ForChannels(rank.outgoing, [&](Channel* channel) {
        Add(channel->first == Channel::First::kUnsent && !IsHeld(*channel),
            {Event::Kind::kAnnounce, channel});
      });
    }
  }
  // First messages that may carry an eager one are held back as long as
  // possible.
  void FindHeldAnnouncements(Rank& rank) {
    if (rank.unannounced > 0 && options_.fault != Fault::kNeverAnnounces) {
      ForChannels(rank.outgoing, [&](Channel* channel) {
        Add(channel->first == Channel::First::kUnsent && IsHeld(*channel),
            {Event::Kind::kAnnounce, channel});
      });
    }
  }
  bool IsHeld(const Channel& channel) const {
    return channel.eager && (options_.order != Order::kRandom ||
                             options_.fault == Fault::kNeverAnnounces);
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
  static bool CanPost(const Channel& channel) {
    return channel.to->flow.NextReceive(channel.from->number) != nullptr;
  }
  static bool CanDeliver(const Channel& channel) {
    return !channel.on_wire.empty() && !channel.posted.empty();
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
        return rank.flow.Registered(
            Ending(rank, rank.flow.to_register().pop()));
      case kPost:
        return Post(rank, *channel);
      case kBeginCopyIn:
      case kBeginReduce:
      case kBeginCopyOut:
        return BeginWork(rank, event.kind);
      case kBeginSend:
        return BeginSend(rank, *channel);
      case kAnnounce:
        return Announce(*channel);
      case kDeliver:
        return Deliver(*channel);
      case kDeliverFirst:
        channel->first = Channel::First::kTaken;
        TouchSender(*channel->to->to_peer[rank.number]);
        return Activate(*channel->to);
      case kReportSent:
        return rank.flow.Sent(Ending(rank, TakeAny(channel->sent)));
      case kReportReceived:
        --rank.unreported;
        return rank.flow.Received(Ending(rank, TakeAny(channel->received)));
      case kEndWork:
        return EndWork(rank, event.work);
    }
  }

  void Announce(Channel& channel) {
    channel.first = Channel::First::kOnWire;
    --channel.from->unannounced;
    TouchSender(channel);
  }

  // To be called before the Flow is told: what waits for the instance has its
  // chain of messages too.
  Instance Ending(Rank& rank, Instance instance) {
    const Step& step = rank.flow.step(instance);
    for (const auto* dependents : {&step.on_value, &step.on_done}) {
      for (const Step::Dependent& dependent : *dependents) {
        int& chain = rank.Chain(
            {instance.lane, static_cast<std::uint32_t>(dependent.step)});
        chain = std::max(chain, rank.Chain(instance));
        TouchStep(rank, rank.plan.steps[dependent.step]);
      }
    }
    TouchStep(rank, step);
    return instance;
  }

  void Issue(Rank& rank) {
    const Instance next = rank.flow.next();
    rank.last_issue = rank.flow.Issue();
    if (rank.last_issue == Flow::Issued::kIssued) {
      TouchStep(rank, rank.plan.steps[next.step]);
    }
    if (rank.last_issue == Flow::Issued::kIssued && next.step == 0) {
      // The lane is another sub-chunk's now.
      std::fill_n(
          rank.chains.begin() + static_cast<std::ptrdiff_t>(rank.IndexOf(next)),
          rank.plan.steps.size(), 0);
    }
    if (rank.last_issue == Flow::Issued::kIssued &&
        rank.flow.slot(next) != SlotList::kNone) {
      // Whoever reads the slot before it is written sees that it is not.
      rank.slot_values[rank.flow.slot(next)] = Values::Undefined(rank, next);
    }
  }

  // The target may be written from now on, with anything.
  void Post(Rank& rank, Channel& channel) {
    const Instance instance = *rank.flow.NextReceive(channel.from->number);
    rank.flow.PopReceive(channel.from->number);
    if (rank.flow.step(instance).arrival == Arrival::kInTarget) {
      values_.Write(rank, instance, /*in_memory=*/true,
                    Values::Undefined(rank, instance));
    }
    channel.posted.push_back(instance);
    TouchSender(channel);
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
      if (rank.flow.step(*next).reducer !=
          rank.flow.step(work.instances[0]).reducer) {
        error_ = {StatusCode::kInternal, "two reduce in one pass"};
      }
      work.instances.push_back(*next);
    }
    if (ChooseToApplyNow()) {
      values_.Apply(rank, work);
      work.applied = true;
    }
    rank.work.push_back(work);
  }

  void EndWork(Rank& rank, std::size_t index) {
    const Work work = rank.work[index];
    rank.work.erase(rank.work.begin() + static_cast<std::ptrdiff_t>(index));
    if (!work.applied) {
      values_.Apply(rank, work);
    }
    for (const Instance instance : work.instances) {
      Release(rank, Ending(rank, instance));
      if (work.kind == Event::Kind::kBeginCopyIn) {
        rank.flow.CopiedIn(instance);
      } else if (work.kind == Event::Kind::kBeginReduce) {
        rank.flow.Reduced(instance);
      } else {
        rank.flow.CopiedOut(instance);
      }
    }
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
    message.chain = channel.chain =
        std::max(channel.chain, channel.from->Chain(message.instance) + 1);
    if (message.eager || ChooseToApplyNow()) {
      message.value = values_.ReadSent(rank, message.instance);
    }
    if (message.eager) {
      SayEagerly(rank, message);
    }
    channel.on_wire.push_back(message);
  }

  void SayEagerly(Rank& rank, const Message& message) {
    Channel& channel = *message.channel;
    if (channel.first == Channel::First::kUnsent) {
      Announce(channel);
    }
    channel.sent.push_back(message.instance);
    if (channel.sender.eager_to_all &&
        rank.said.value_or(*message.value) != *message.value) {
      Break("an eager message that is not what the other peers get", channel);
    }
    rank.said = channel.sender.eager_to_all ? message.value : rank.said;
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
    const Terms value = message.value.has_value()
                            ? *message.value
                            : values_.ReadSent(*channel.from, message.instance);
    if (!Fits(channel, message.instance, receive)) {
      return;
    }
    std::uint64_t hash = message.number;
    for (const TermTable::Term term : value) {
      hash = HashPair(hash, terms_.Hash(term));
    }
    channel.hash += hash;
    Log(message, receive);
    const Arrival arrival = channel.to->flow.step(receive).arrival;
    if (arrival == Arrival::kAtPeer) {
      channel.to->Lent(receive) = message;
    } else {
      values_.Write(*channel.to, receive, arrival == Arrival::kInTarget, value);
    }
    channel.received.push_back(receive);
    ++channel.to->unreported;
    TouchReceiver(channel);
    if (!message.eager && (arrival != Arrival::kAtPeer ||
                           options_.fault == Fault::kFreesBeforeRead)) {
      channel.sent.push_back(message.instance);
    }
    Activate(*channel.to);
  }

  void Log(const Message& message, Instance receive) {
    const Channel& channel = *message.channel;
    channel.to->Chain(receive) =
        std::max(channel.to->Chain(receive), message.chain);
    messages_.push_back(
        {.from = channel.from->number,
         .to = channel.to->number,
         .source = channel.from->flow.step(message.instance).transfer.source,
         .reduced = channel.to->flow.step(receive).transfer.kind ==
                    Transfer::Kind::kReceiveReduce,
         .subchunk = channel.to->flow.subchunk(receive),
         .chain = message.chain});
  }

  // A message that lay at the sender has been read.
  void Release(Rank& rank, Instance instance) {
    const auto lent = std::exchange(rank.Lent(instance), std::nullopt);
    if (lent.has_value() && !lent->eager &&
        options_.fault != Fault::kFreesBeforeRead) {
      lent->channel->sent.push_back(lent->instance);
      TouchSender(*lent->channel);
      Activate(*lent->channel->from);
    }
  }

  // Whether a message is as long as its receive, whatever the length of the
  // whole: of the same chunks, unless all are equally long.
  bool Fits(const Channel& channel, Instance send, Instance receive) {
    const Place source = channel.from->flow.step(send).transfer.source;
    const Place target = channel.to->flow.step(receive).transfer.target;
    const int chunks = channel.from->plan.chunks;
    if (source.count == target.count &&
        (channel.from->plan.equal_chunks ||
         (source.chunk - target.chunk) % chunks == 0)) {
      return true;
    }
    Break("\"" + ToString(channel.from->flow.step(send).transfer) +
              "\" meets \"" +
              ToString(channel.to->flow.step(receive).transfer) +
              "\", which is of other chunks",
          channel);
    return false;
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

  const RunOptions& options_;
  TermTable& terms_;
  Values values_;
  std::deque<Rank> ranks_;
  std::map<std::pair<int, int>, Channel> channels_;  // from, to
  std::vector<Rank*> active_;  // at which something may happen
  std::vector<Event> events_;
  std::uint64_t draws_ = 0;
  std::vector<SentMessage> messages_;
  Status error_;
};

}  // namespace

MessageCounts CountMessages(std::span<const SentMessage> messages, int ranks) {
  MessageCounts counts;
  std::vector<int> sent(ranks);
  for (const SentMessage& message : messages) {
    counts.longest_chain = std::max(counts.longest_chain, message.chain);
    counts.sent_by_busiest =
        std::max(counts.sent_by_busiest, ++sent[message.from]);
  }
  return counts;
}

Result<RunResult> RunSymbolically(const std::vector<Plan>& plans,
                                  const RunOptions& options, TermTable& terms,
                                  SymbolicMemory& memory) {
  SymbolicRun run(plans, options, terms, memory);
  RINGPIPE_RETURN_IF_ERROR(run.Run());
  return run.TakeResult();
}

}  // namespace ringpipe
