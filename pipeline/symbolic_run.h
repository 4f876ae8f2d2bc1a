// One run of the plans of all ranks, on symbolic values.
#ifndef RINGPIPE_PIPELINE_SYMBOLIC_RUN_H_
#define RINGPIPE_PIPELINE_SYMBOLIC_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory_pool/slot_list.h"
#include "pipeline/checker.h"
#include "pipeline/flow.h"
#include "pipeline/plan.h"
#include "pipeline/term_table.h"

namespace ringpipe {

// Drives one Flow a rank as the executor would, in an order of its choice. All
// that a rank does takes two events, one with which it begins and one with
// which its end is reported to the Flow; memory is read and written at either.
// Not thread-safe.
class SymbolicRun {
 public:
  using Term = TermTable::Term;

  // Keeps `plans` by reference. options.subchunks is not 0.
  SymbolicRun(const std::vector<Plan>& plans, const CheckOptions& options);
  SymbolicRun(const SymbolicRun&) = delete;
  SymbolicRun& operator=(const SymbolicRun&) = delete;

  // User memory: before the run its input, after the run its output.
  Term& Memory(int rank, Place place, std::uint64_t subchunk);

  // Runs until nothing can happen any more. kInternal where that is before the
  // end, or kResourceExhausted where a rank then lacks a slot.
  Status Run();

  // A hash of all messages, in the order of each connection.
  std::uint64_t MessageHash() const;

  TermTable& terms() { return terms_; }

 private:
  // What can happen next. Beginnings come first, ends last.
  struct Event {
    enum class Kind {
      kIssue,
      kRegister,
      kPost,  // index: a channel
      kBeginCopyIn,
      kBeginReduce,
      kBeginCopyOut,
      kBeginSend,       // index: a channel
      kDeliver,         // index: a channel
      kReportSent,      // index: a channel
      kReportReceived,  // index: a channel
      kEndWork,         // index: in Rank::work
    };
    Kind kind = Kind::kIssue;
    int index = 0;
  };

  // A copy or reduction that has begun.
  struct Work {
    Event::Kind kind = Event::Kind::kBeginCopyIn;
    Instance instance;
    bool applied = false;  // it has read and written memory
  };

  struct Rank {
    Rank(const Plan& its_plan, int slots)
        : plan(&its_plan), slots(slots), slot_values(slots) {}

    const Plan* plan;
    Flow flow;
    SlotList slots;
    std::vector<Term> slot_values;
    std::vector<Term> memory;
    std::vector<Work> work;
    std::vector<int> outgoing, incoming;  // channels
    std::uint64_t issued = 0;
    Flow::Issued last_issue = Flow::Issued::kIssued;
    bool active = false;
  };

  // Messages from one rank to another.
  struct Channel {
    struct Message {
      Instance instance;
      bool read = false;  // `value` is what the sender's memory held
      Term value = TermTable::kUndefined;
    };
    int from = 0;
    int to = 0;
    int most_steps = 0;       // sends or receives in a plan
    Fifo<Instance> posted;    // receives that wait for a message
    Fifo<Message> on_wire;    // that wait to be delivered
    Fifo<Instance> received;  // not yet reported to the receiver
    Fifo<Instance> sent;      // not yet reported to the sender
    std::uint64_t hash = 0;   // of the messages delivered
  };

  // The instance that Flow::Issue takes next, where there is one.
  struct Next {
    Instance instance;
    std::uint64_t subchunk = 0;
  };

  void AddChannels();
  Channel& ChannelOf(int from, int to);
  void Activate(int rank);

  // Whether anything can happen at the rank; puts it in events_.
  bool FindEvents(Rank& rank);
  std::size_t Choose(std::size_t choices);
  bool ChooseToApplyNow();
  void Happen(int rank, Event event);
  void Issue(Rank& rank);
  Next NextToIssue(const Rank& rank) const;
  void Post(Rank& rank, Channel& channel);
  void BeginWork(Rank& rank, Event::Kind kind);
  void EndWork(Rank& rank, int index);
  void BeginSend(Rank& rank, Channel& channel);
  void Deliver(Rank& rank, Channel& channel);
  void ReportSent(Rank& rank, Channel& channel);
  void ReportReceived(Rank& rank, Channel& channel);

  Term& MemoryOf(Rank& rank, Place place, std::uint64_t subchunk);
  Term ReadSource(Rank& rank, Instance instance);
  // What a send puts on the wire: its source, or its copy of it.
  Term ReadMessage(Rank& rank, Instance instance);
  void Apply(Rank& rank, const Work& work);

  Status Stuck();
  std::string WhatWaits(Rank& rank);

  const CheckOptions options_;
  const int chunks_;
  TermTable terms_;
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
  std::vector<int> channel_index_;  // from * size + to; -1: none
  std::vector<int> active_;         // ranks at which something may happen
  std::vector<Event> events_;
  std::uint64_t draws_ = 0;
  Status error_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_SYMBOLIC_RUN_H_
