// What a symbolic run keeps of each rank and of each pair of ranks, and what
// memory and messages hold.
#ifndef RINGPIPE_PIPELINE_SYMBOLIC_STATE_H_
#define RINGPIPE_PIPELINE_SYMBOLIC_STATE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "memory_pool/slot_list.h"
#include "pipeline/flow.h"
#include "pipeline/plan.h"
#include "pipeline/symbolic_run.h"
#include "pipeline/term_table.h"

namespace ringpipe::symbolic {

// Of the chunks of a range, in order.
using Terms = std::vector<TermTable::Term>;

struct Channel;

// Also one that has arrived, and lies at the sender or in the connection's own
// memory.
struct Message {
  Channel* channel = nullptr;
  std::uint64_t number = 0;         // on the channel
  Instance instance = {};           // of the sender
  bool eager = false;               // the source is free
  int chain = 1;                    // SentMessage::chain
  std::optional<Terms> value = {};  // what the source held, once it was read
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
       const RunOptions& options)
      : plan(its_plan),
        number(its_number),
        subchunks_of_inputs(options.SubchunksOfInputs(number)),
        subchunks_of_outputs(options.SubchunksOfOutputs(number)),
        slots(options.SlotsOf(number)),
        slot_values(options.SlotsOf(number)) {
    flow.Start(plan, options.subchunks, options.depth, size, slots,
               {subchunks_of_inputs, subchunks_of_outputs});
    lent.resize(flow.lanes() * plan.steps.size());
    chains.resize(lent.size());
    to_peer.resize(size);
    from_peer.resize(size);
  }

  // What has arrived for the instance without a target.
  std::optional<Message>& Lent(Instance instance) {
    return lent[IndexOf(instance)];
  }
  // The longest chain of messages that has to have arrived before the instance
  // ends; of a send, before it begins.
  int& Chain(Instance instance) { return chains[IndexOf(instance)]; }

  std::size_t IndexOf(Instance instance) const {
    return instance.lane * plan.steps.size() + instance.step;
  }

  const Plan& plan;
  const int number;
  const std::vector<std::uint64_t> subchunks_of_inputs, subchunks_of_outputs;
  Flow flow;
  SlotList slots;
  std::vector<Terms> slot_values;
  std::vector<Work> work;
  std::vector<std::optional<Message>> lent;  // by lane and step
  std::vector<int> chains;                   // likewise
  std::optional<Terms> said = {};            // eagerly, to all peers alike
  std::vector<Channel*> outgoing, incoming;
  // Those of them on which something may be able to happen.
  std::vector<Channel*> live_outgoing, live_incoming;
  std::vector<Channel*> to_peer, from_peer;  // by rank
  int unannounced = 0;  // of outgoing: first messages that are to be sent
  int unreported = 0;   // of incoming: messages in Channel::received
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
  int chain = 0;                  // of the last one that has begun
  std::deque<Instance> posted;    // receives that wait for a message
  std::deque<Message> on_wire;    // that wait to be delivered
  std::deque<Instance> received;  // not yet reported to the receiver
  std::deque<Instance> sent;      // not yet reported to the sender
  std::uint64_t hash = 0;         // of the messages delivered
  // In the list of its sender, of its receiver.
  bool live_at_sender = false, live_at_receiver = false;
};

// What the ranks' memory, slots and messages hold. All of it in terms of the
// ranks' inputs.
class Values {
 public:
  Values(TermTable& terms, SymbolicMemory& memory)
      : terms_(terms), memory_(memory) {}

  // Of as many chunks as the instance has.
  static Terms Undefined(const Rank& rank, Instance instance);

  // Reads what the work reads, and writes what it writes.
  void Apply(Rank& rank, const Work& work);

  // To the instance's target in user memory, or to its slot.
  void Write(Rank& rank, Instance instance, bool in_memory, Terms value);

  // What a send puts on the wire: its source, or its copy of it.
  Terms ReadSent(Rank& rank, Instance instance);

 private:
  Terms Reduce(Rank& rank, Instance instance, Terms value);
  Terms Read(Rank& rank, Instance instance,
             const std::vector<Step::Piece>& pieces);
  Terms ReadSource(Rank& rank, Instance instance);
  Terms ReadOperand(Rank& rank, Instance instance);
  Terms ReadReceived(Rank& rank, Instance instance);

  TermTable& terms_;
  SymbolicMemory& memory_;
};

}  // namespace ringpipe::symbolic

#endif  // RINGPIPE_PIPELINE_SYMBOLIC_STATE_H_
