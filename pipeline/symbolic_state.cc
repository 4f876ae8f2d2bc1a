#include "pipeline/symbolic_state.h"

#include <utility>

namespace ringpipe::symbolic {
namespace {

using Arrival = Step::Arrival;

TermTable::Term InSlot(const Rank& rank, Instance holder, Place chunk) {
  const int chunks = rank.plan.chunks;
  const int first = rank.flow.step(holder).transfer.target.chunk;
  const int slot = rank.flow.slot(holder);
  return slot == SlotList::kNone
             ? TermTable::kUndefined
             : rank.slot_values[slot][(chunk.chunk - first + chunks) % chunks];
}

}  // namespace

Terms Values::Undefined(const Rank& rank, Instance instance) {
  return Terms(rank.flow.step(instance).transfer.count(),
               TermTable::kUndefined);
}

void Values::Apply(Rank& rank, const Work& work) {
  const Instance last = work.instances.back();
  const Step& step = rank.flow.step(last);
  const bool copies_out = work.kind == Event::Kind::kBeginCopyOut;
  Terms value;
  if (rank.flow.IsNoMessage(last)) {
    value = Undefined(rank, last);
  } else if (work.kind == Event::Kind::kBeginReduce) {
    value = ReadSource(rank, work.instances.front());
    for (const Instance instance : work.instances) {
      value = Reduce(rank, instance, value);
    }
    if (step.transfer.finish) {
      for (TermTable::Term& term : value) {
        term = terms_.Finish(term);
      }
    }
  } else if (copies_out && !step.in_memory) {  // complete in its slot
    value = rank.slot_values[rank.flow.slot(last)];
  } else {
    value = step.transfer.receives() ? ReadReceived(rank, last)
                                     : ReadSource(rank, last);
  }
  if (step.in_both) {
    Write(rank, last, /*in_memory=*/true, value);
  }
  Write(rank, last, step.in_memory || copies_out, value);
}

// `value` and what the instance adds to it.
Terms Values::Reduce(Rank& rank, Instance instance, Terms value) {
  Terms other = rank.flow.step(instance).transfer.receives()
                    ? ReadReceived(rank, instance)
                    : ReadOperand(rank, instance);
  if (rank.flow.step(instance).received_first) {
    std::swap(value, other);
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    value[i] = terms_.Reduce(value[i], other[i]);
  }
  return value;
}

void Values::Write(Rank& rank, Instance instance, bool in_memory, Terms value) {
  if (!in_memory) {
    rank.slot_values[rank.flow.slot(instance)] = std::move(value);
    return;
  }
  const Place target = rank.flow.step(instance).transfer.target;
  for (int position = 0; position < target.count; ++position) {
    memory_.At(rank.number, target.At(position, rank.plan.chunks),
               rank.flow.subchunk(instance)) = value[position];
  }
}

Terms Values::Read(Rank& rank, Instance instance,
                   const std::vector<Step::Piece>& pieces) {
  Terms value;
  for (const auto& [holder, place, unscaled] : pieces) {
    for (int position = 0; position < place.count; ++position) {
      const Place chunk = place.At(position, rank.plan.chunks);
      const TermTable::Term read =
          holder < 0
              ? memory_.At(rank.number, chunk, rank.flow.subchunk(instance))
              : InSlot(rank,
                       {instance.lane, static_cast<std::uint32_t>(holder)},
                       chunk);
      value.push_back(unscaled ? terms_.Scale(read) : read);
    }
  }
  return value;
}

Terms Values::ReadSource(Rank& rank, Instance instance) {
  return Read(rank, instance, rank.flow.step(instance).source);
}

Terms Values::ReadOperand(Rank& rank, Instance instance) {
  return Read(rank, instance, rank.flow.step(instance).operand);
}

Terms Values::ReadSent(Rank& rank, Instance instance) {
  return rank.flow.step(instance).copies_in
             ? rank.slot_values[rank.flow.slot(instance)]
             : ReadSource(rank, instance);
}

// What a message holds that has arrived for `instance`.
Terms Values::ReadReceived(Rank& rank, Instance instance) {
  if (rank.flow.IsNoMessage(instance)) {
    return Undefined(rank, instance);
  }
  if (rank.flow.step(instance).arrival != Arrival::kAtPeer) {
    return rank.slot_values[rank.flow.slot(instance)];
  }
  const std::optional<Message>& lent = rank.Lent(instance);
  return !lent.has_value() ? Undefined(rank, instance)
         : lent->eager     ? *lent->value
                           : ReadSent(*lent->channel->from, lent->instance);
}

}  // namespace ringpipe::symbolic
