#include "pipeline/symbolic_run.h"

#include <algorithm>
#include <utility>

namespace ringpipe {

using Order = CheckOptions::Order;
using Kind = Transfer::Kind;

SymbolicRun::SymbolicRun(const std::vector<Plan>& plans,
                         const CheckOptions& options)
    : options_(options), chunks_(plans.front().chunks) {
  const int size = static_cast<int>(plans.size());
  ranks_.reserve(size);
  for (const Plan& plan : plans) {
    Rank& rank = ranks_.emplace_back(plan, options.slots);
    rank.flow.Start(plan, options.subchunks, options.depth, size);
    rank.memory.resize(2 * chunks_ * options.subchunks);
  }
  AddChannels();
  for (int rank = size - 1; rank >= 0; --rank) {
    Activate(rank);
  }
}

void SymbolicRun::AddChannels() {
  const int size = static_cast<int>(ranks_.size());
  std::vector<std::pair<int, int>> steps(size * size);  // that send, receive
  for (int rank = 0; rank < size; ++rank) {
    for (const Step& step : ranks_[rank].plan->steps) {
      const Transfer& transfer = step.transfer;
      if (transfer.kind == Kind::kSend) {
        ++steps[rank * size + transfer.peer].first;
      } else if (transfer.receives()) {
        ++steps[transfer.peer * size + rank].second;
      }
    }
  }
  channel_index_.assign(size * size, -1);
  for (int pair = 0; pair < size * size; ++pair) {
    const int most = std::max(steps[pair].first, steps[pair].second);
    if (most == 0) {
      continue;
    }
    const int index = static_cast<int>(channels_.size());
    channel_index_[pair] = index;
    Channel& channel = channels_.emplace_back();
    channel.from = pair / size;
    channel.to = pair % size;
    channel.hash = pair;
    const std::size_t capacity = most * ranks_.front().flow.lanes();
    channel.posted.Reset(capacity);
    channel.on_wire.Reset(capacity);
    channel.received.Reset(capacity);
    channel.sent.Reset(capacity);
    ranks_[channel.from].outgoing.push_back(index);
    ranks_[channel.to].incoming.push_back(index);
  }
}

SymbolicRun::Channel& SymbolicRun::ChannelOf(int from, int to) {
  return channels_[channel_index_[from * ranks_.size() + to]];
}

void SymbolicRun::Activate(int rank) {
  if (!ranks_[rank].active) {
    ranks_[rank].active = true;
    active_.push_back(rank);
  }
}

Status SymbolicRun::Run() {
  while (!active_.empty()) {
    const std::size_t chosen = options_.order == Order::kRandom
                                   ? Choose(active_.size())
                                   : active_.size() - 1;
    const int rank = active_[chosen];
    if (!FindEvents(ranks_[rank])) {
      ranks_[rank].active = false;
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(chosen));
      continue;
    }
    Happen(rank, events_[Choose(events_.size())]);
  }
  RINGPIPE_RETURN_IF_ERROR(error_);
  for (Rank& rank : ranks_) {
    if (!rank.flow.finished()) {
      return Stuck();
    }
    if (rank.slots.counters().in_use != 0) {
      return {StatusCode::kInternal, "slots are in use after the end"};
    }
  }
  return Status::Ok();
}

std::size_t SymbolicRun::Choose(std::size_t choices) {
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

bool SymbolicRun::ChooseToApplyNow() {
  return options_.order == Order::kEager ||
         (options_.order == Order::kRandom && Choose(2) == 0);
}

bool SymbolicRun::FindEvents(Rank& rank) {
  using enum Event::Kind;
  events_.clear();
  if (rank.last_issue == Flow::Issued::kIssued) {
    events_.push_back({kIssue});
  }
  if (!rank.flow.to_register().empty()) {
    events_.push_back({kRegister});
  }
  for (const int index : rank.incoming) {
    if (rank.flow.NextReceive(channels_[index].from) != nullptr) {
      events_.push_back({kPost, index});
    }
  }
  if (!rank.flow.to_copy_in().empty()) {
    events_.push_back({kBeginCopyIn});
  }
  if (!rank.flow.to_reduce().empty()) {
    events_.push_back({kBeginReduce});
  }
  if (!rank.flow.to_copy_out().empty()) {
    events_.push_back({kBeginCopyOut});
  }
  for (const int index : rank.outgoing) {
    Channel& channel = channels_[index];
    // A message may go into a receive that is posted and not spoken for.
    if (channel.posted.size() > channel.on_wire.size() &&
        rank.flow.NextSend(channel.to) != nullptr) {
      events_.push_back({kBeginSend, index});
    }
    if (!channel.on_wire.empty()) {
      events_.push_back({kDeliver, index});
    }
    if (!channel.sent.empty()) {
      events_.push_back({kReportSent, index});
    }
  }
  for (const int index : rank.incoming) {
    if (!channels_[index].received.empty()) {
      events_.push_back({kReportReceived, index});
    }
  }
  for (int index = static_cast<int>(rank.work.size()) - 1; index >= 0;
       --index) {
    events_.push_back({kEndWork, index});
  }
  return !events_.empty();
}

void SymbolicRun::Happen(int number, Event event) {
  Rank& rank = ranks_[number];
  switch (event.kind) {
    case Event::Kind::kIssue:
      return Issue(rank);
    case Event::Kind::kRegister:
      return rank.flow.Registered(rank.flow.to_register().pop());
    case Event::Kind::kPost:
      return Post(rank, channels_[event.index]);
    case Event::Kind::kBeginCopyIn:
    case Event::Kind::kBeginReduce:
    case Event::Kind::kBeginCopyOut:
      return BeginWork(rank, event.kind);
    case Event::Kind::kBeginSend:
      return BeginSend(rank, channels_[event.index]);
    case Event::Kind::kDeliver:
      return Deliver(rank, channels_[event.index]);
    case Event::Kind::kReportSent:
      return ReportSent(rank, channels_[event.index]);
    case Event::Kind::kReportReceived:
      return ReportReceived(rank, channels_[event.index]);
    case Event::Kind::kEndWork:
      return EndWork(rank, event.index);
  }
}

void SymbolicRun::Issue(Rank& rank) {
  const Next next = NextToIssue(rank);
  rank.last_issue = rank.flow.Issue(rank.slots);
  if (rank.last_issue != Flow::Issued::kIssued) {
    return;
  }
  ++rank.issued;
  const int slot = rank.flow.slot(next.instance);
  if (slot != SlotList::kNone) {
    // Whoever reads the slot before it is written sees that it is not.
    rank.slot_values[slot] = TermTable::kUndefined;
  }
}

// By Flow's order of issue: rounds, steps, sub-chunks of the round.
SymbolicRun::Next SymbolicRun::NextToIssue(const Rank& rank) const {
  const std::uint64_t steps = rank.plan->steps.size();
  if (steps == 0) {
    return {};
  }
  const std::uint64_t first =
      rank.issued / (steps * options_.depth) * options_.depth;
  if (first >= options_.subchunks) {
    return {};
  }
  const std::uint64_t in_round =
      std::min<std::uint64_t>(options_.depth, options_.subchunks - first);
  const std::uint64_t rest = rank.issued - first * steps;
  const std::uint64_t subchunk = first + rest % in_round;
  return {{static_cast<std::uint32_t>(subchunk % rank.flow.lanes()),
           static_cast<std::uint32_t>(rest / in_round)},
          subchunk};
}

void SymbolicRun::Post(Rank& rank, Channel& channel) {
  channel.posted.push(*rank.flow.NextReceive(channel.from));
  rank.flow.PopReceive(channel.from);
  Activate(channel.from);
}

void SymbolicRun::BeginWork(Rank& rank, Event::Kind kind) {
  Work work;
  work.kind = kind;
  if (kind == Event::Kind::kBeginCopyIn) {
    work.instance = rank.flow.to_copy_in().pop();
  } else if (kind == Event::Kind::kBeginReduce) {
    work.instance = rank.flow.to_reduce().pop();
  } else {
    work.instance = rank.flow.to_copy_out().pop();
  }
  if (ChooseToApplyNow()) {
    Apply(rank, work);
    work.applied = true;
  }
  rank.work.push_back(work);
}

void SymbolicRun::EndWork(Rank& rank, int index) {
  const Work work = rank.work[index];
  rank.work.erase(rank.work.begin() + index);
  if (!work.applied) {
    Apply(rank, work);
  }
  if (work.kind == Event::Kind::kBeginCopyIn) {
    rank.flow.CopiedIn(work.instance, rank.slots);
  } else if (work.kind == Event::Kind::kBeginReduce) {
    rank.flow.Reduced(work.instance, rank.slots);
  } else {
    rank.flow.CopiedOut(work.instance, rank.slots);
  }
  rank.last_issue = Flow::Issued::kIssued;
}

void SymbolicRun::Apply(Rank& rank, const Work& work) {
  const Transfer& transfer = rank.flow.step(work.instance).transfer;
  const int slot = rank.flow.slot(work.instance);
  if (work.kind == Event::Kind::kBeginCopyIn) {
    rank.slot_values[slot] = ReadSource(rank, work.instance);
  } else if (work.kind == Event::Kind::kBeginReduce) {
    Term& value = rank.slot_values[slot];
    value = terms_.Reduce(value, ReadSource(rank, work.instance));
    if (transfer.finish) {
      value = terms_.Finish(value);
    }
  } else {
    MemoryOf(rank, transfer.target, rank.flow.subchunk(work.instance)) =
        transfer.kind == Kind::kLocalCopy ? ReadSource(rank, work.instance)
                                          : rank.slot_values[slot];
  }
}

void SymbolicRun::BeginSend(Rank& rank, Channel& channel) {
  Channel::Message message;
  message.instance = *rank.flow.NextSend(channel.to);
  rank.flow.PopSend(channel.to);
  if (ChooseToApplyNow()) {
    message.value = ReadMessage(rank, message.instance);
    message.read = true;
  }
  channel.on_wire.push(message);
}

void SymbolicRun::Deliver(Rank& rank, Channel& channel) {
  const Channel::Message message = channel.on_wire.pop();
  const Term value =
      message.read ? message.value : ReadMessage(rank, message.instance);
  channel.hash = HashPair(channel.hash, terms_.Hash(value));
  const Instance receive = channel.posted.pop();
  Rank& receiver = ranks_[channel.to];
  const Step& step = receiver.flow.step(receive);
  if (step.direct) {
    MemoryOf(receiver, step.transfer.target, receiver.flow.subchunk(receive)) =
        value;
  } else {
    receiver.slot_values[receiver.flow.slot(receive)] = value;
  }
  channel.received.push(receive);
  channel.sent.push(message.instance);
  Activate(channel.to);
}

void SymbolicRun::ReportSent(Rank& rank, Channel& channel) {
  rank.flow.Sent(channel.sent.pop(), rank.slots);
  rank.last_issue = Flow::Issued::kIssued;
}

void SymbolicRun::ReportReceived(Rank& rank, Channel& channel) {
  rank.flow.Received(channel.received.pop(), rank.slots);
  rank.last_issue = Flow::Issued::kIssued;
}

SymbolicRun::Term& SymbolicRun::Memory(int rank, Place place,
                                       std::uint64_t subchunk) {
  return MemoryOf(ranks_[rank], place, subchunk);
}

SymbolicRun::Term& SymbolicRun::MemoryOf(Rank& rank, Place place,
                                         std::uint64_t subchunk) {
  const bool in_output =
      place.buffer == Place::Buffer::kOutput || options_.plan.in_place;
  return rank
      .memory[((in_output ? chunks_ : 0) + place.chunk) * options_.subchunks +
              subchunk];
}

SymbolicRun::Term SymbolicRun::ReadSource(Rank& rank, Instance instance) {
  const Step& step = rank.flow.step(instance);
  const int slot = rank.flow.source_slot(instance);
  return slot != SlotList::kNone ? rank.slot_values[slot]
                                 : MemoryOf(rank, step.transfer.source,
                                            rank.flow.subchunk(instance));
}

SymbolicRun::Term SymbolicRun::ReadMessage(Rank& rank, Instance instance) {
  return rank.flow.step(instance).copies_in
             ? rank.slot_values[rank.flow.slot(instance)]
             : ReadSource(rank, instance);
}

std::uint64_t SymbolicRun::MessageHash() const {
  std::uint64_t hash = 0;
  for (const Channel& channel : channels_) {
    hash = HashPair(hash, channel.hash);
  }
  return hash;
}

Status SymbolicRun::Stuck() {
  constexpr int kMostRanks = 8;
  std::string message = "deadlock with " + std::to_string(options_.slots) +
                        " slots, " + std::to_string(options_.depth) +
                        " sub-chunks a round";
  bool lacks_slots = false;
  int stuck = 0;
  for (std::size_t number = 0; number < ranks_.size(); ++number) {
    Rank& rank = ranks_[number];
    if (rank.flow.finished()) {
      continue;
    }
    lacks_slots |= rank.last_issue == Flow::Issued::kNoSlot;
    if (++stuck <= kMostRanks) {
      message += "; rank " + std::to_string(number) + WhatWaits(rank);
    }
  }
  if (stuck > kMostRanks) {
    message += "; and " + std::to_string(stuck - kMostRanks) + " more ranks";
  }
  return {lacks_slots ? StatusCode::kResourceExhausted : StatusCode::kInternal,
          message};
}

std::string SymbolicRun::WhatWaits(Rank& rank) {
  std::string text;
  if (rank.last_issue == Flow::Issued::kNoSlot) {
    const Next next = NextToIssue(rank);
    text += " has no slot for \"" +
            ToString(rank.plan->steps[next.instance.step].transfer) +
            "\" of sub-chunk " + std::to_string(next.subchunk);
  }
  for (const int index : rank.outgoing) {
    const Channel& channel = channels_[index];
    if (const Instance* next = rank.flow.NextSend(channel.to)) {
      text += (text.empty() ? " has" : ", has") + std::string(" \"") +
              ToString(rank.flow.step(*next).transfer) + "\" of sub-chunk " +
              std::to_string(rank.flow.subchunk(*next)) +
              " ready and no receive posted there";
    }
  }
  for (const int index : rank.incoming) {
    Channel& channel = channels_[index];
    if (!channel.posted.empty()) {
      const Instance next = channel.posted.front();
      text += (text.empty() ? " waits" : ", waits") +
              std::string(" for the message of \"") +
              ToString(rank.flow.step(next).transfer) + "\" of sub-chunk " +
              std::to_string(rank.flow.subchunk(next));
    }
  }
  return text.empty() ? " waits for a value" : text;
}

}  // namespace ringpipe
