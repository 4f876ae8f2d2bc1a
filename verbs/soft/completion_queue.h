#ifndef RINGPIPE_VERBS_SOFT_COMPLETION_QUEUE_H_
#define RINGPIPE_VERBS_SOFT_COMPLETION_QUEUE_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "verbs/soft/extended_completion_queue.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/random.h"

namespace ringpipe::verbs::soft {

class CompletionQueue;
class Context;
class QueuePair;

// An ibv_comp_channel: an eventfd that counts, which peers write to as well.
// Thread-safe.
class CompletionChannel : public ibv_comp_channel {
 public:
  // nullptr, with errno, where there is no descriptor left.
  static std::unique_ptr<CompletionChannel> Create(Context* context,
                                                   std::uint32_t id);

  void Attach(CompletionQueue* cq);
  void Detach(CompletionQueue* cq);
  bool in_use();
  std::uint32_t id() const { return id_; }

  // As ibv_get_cq_event.
  int GetEvent(ibv_cq** cq, void** cq_context);

  // A peer has died, perhaps between owing an event and writing it: writes what
  // is missing, and no more, as a program that finds the descriptor readable
  // takes it for an error if there is no event.
  void RepairEvents();

 private:
  CompletionChannel(Context* context, std::uint32_t id, FileDescriptor event);
  bool WaitUntilReadable();

  const std::uint32_t id_;
  FileDescriptor event_;
  std::mutex mutex_;
  std::vector<CompletionQueue*> queues_;
};

// Tells the owner of `cq` of a completion that was just made visible, if it
// asked to be told. `event_fd` is its channel, -1: none. Hot path.
void NotifyCompletion(SharedCompletionQueue& cq, int event_fd, bool solicited);

// An ibv_cq. Completions come from two sides: those of send requests and
// flushes from this process, kept here; receive completions from the rings of
// the attached queue pairs, where peers put them. Thread-safe.
class CompletionQueue : public ibv_cq_ex {
 public:
  CompletionQueue(Context* context, std::uint32_t index, int entries,
                  void* cq_context, CompletionChannel* channel,
                  std::uint64_t adversary_seed);
  ~CompletionQueue();

  static CompletionQueue& From(ibv_cq* cq) {
    return *static_cast<CompletionQueue*>(reinterpret_cast<ibv_cq_ex*>(cq));
  }
  ibv_cq* verbs() { return ibv_cq_ex_to_cq(this); }

  // The ibv_cq_ex interface: after creation, before anybody else knows of this.
  void Extend(std::unique_ptr<ExtendedCompletionQueue> extended) {
    extended_ = std::move(extended);
  }
  ExtendedCompletionQueue* extended() { return extended_.get(); }

  int Poll(int count, ibv_wc* completions);
  int RequestNotification(bool solicited_only);
  // As ibv_resize_cq: room for `entries`; EINVAL where more completions wait.
  int Resize(int entries);

  // It was asked to tell of completions, and UD queue pairs complete here.
  bool waits_for_datagrams() const {
    return datagram_receivers_.load() != 0 &&
           shared_.armed.load() != SharedCompletionQueue::kNotArmed;
  }

  // Adds the completion of send request `sequence` of `qp`.
  void PushSend(QueuePair* qp, std::uint32_t sequence,
                const ibv_wc& completion);
  // Receive completions of the queue pair with this index are there.
  void ReceivesReady(std::uint32_t qp_index, bool solicited);
  // The same, and an event in any case: the peer that completed them may have
  // died between taking `armed` and writing the event.
  void WakeForCertain(std::uint32_t qp_index);
  // As CompletionChannel::RepairEvents.
  void RepairEvents();

  // A queue pair that completes its sends, its receives or both here, once or
  // twice. Detach also discards its completions.
  void Attach(QueuePair* qp);
  void Detach(QueuePair* qp);
  bool in_use();

  std::uint32_t index() const { return index_; }
  SharedCompletionQueue& shared() { return shared_; }
  int event_fd() const { return channel != nullptr ? channel->fd : -1; }

  // For the channel: takes one event that is owed; false: none is.
  bool TakeEvent();
  std::uint32_t owed_events();
  void Acknowledge(std::uint32_t events);
  void WaitForAcknowledgements();

  // Whether an overrun happened that nobody has reported yet.
  bool TakeOverrun() { return overrun_report_.exchange(false); }
  std::vector<std::uint32_t> AttachedQueuePairs();

 private:
  struct SendCompletion {
    ibv_wc completion;
    QueuePair* qp;
    std::uint32_t sequence;
  };

  int Take(int count, ibv_wc* completions);
  int TakeSends(int count, ibv_wc* completions);
  int TakeReceives(int count, ibv_wc* completions);
  int TakeFromFew(int count, ibv_wc* completions);
  int TakeArrived(int count, ibv_wc* completions);  // one of the two
  int TakeAtRandom(int count, ibv_wc* completions);
  void RemoveSend(std::uint32_t position, ibv_wc* completion);
  void CollectReady();
  bool NextReady(std::uint32_t* qp_index);
  void CheckOverrun();
  void Overrun();
  void UpdateLimits();

  Context* const context_;
  const std::uint32_t index_;
  SharedCompletionQueue& shared_;

  std::mutex mutex_;
  // Completed sends, a ring of `cqe` entries.
  std::unique_ptr<SendCompletion[]> sends_;
  std::uint32_t sends_head_ = 0;
  std::uint32_t sends_count_ = 0;
  bool failed_sends_ = false;   // among them
  bool receives_next_ = false;  // whose turn it is
  // Ready bits taken from the segment but not worked off yet.
  std::uint64_t pending_[kMaxQueuePairs / 64] = {};
  std::uint32_t words_ = 0;   // of `pending_` in use
  std::uint32_t cursor_ = 0;  // the queue pair to look at next
  std::unique_ptr<QueuePair*[]> receivers_;
  // All of them, where they are few enough to ask each at every poll. Then the
  // ready bits stay set, and no line of memory changes hands for them.
  std::vector<QueuePair*> few_receivers_;
  std::unique_ptr<ExtendedCompletionQueue> extended_;
  std::vector<QueuePair*> attached_;
  std::atomic<int> datagram_receivers_{0};  // UD queue pairs
  bool may_overrun_ = false;
  bool overrun_ = false;
  std::atomic<bool> overrun_report_{false};
  std::uint32_t empty_polls_ = 0;
  Random random_;

  std::mutex events_mutex_;
  std::condition_variable acknowledged_;
  std::uint32_t events_taken_ = 0;
  std::uint32_t events_acknowledged_ = 0;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_COMPLETION_QUEUE_H_
