#include "verbs/soft/completion_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "verbs/soft/context.h"
#include "verbs/soft/queue_pair.h"

namespace ringpipe::verbs::soft {
namespace {

// Where more ranks than cores poll, one that spins starves the one that it
// waits for: every so many empty polls give way.
constexpr std::uint32_t kEmptyPollsPerYield = 16;

// So many queue pairs' rings are looked at in the time of one exchange of a
// word that other processes write, too.
constexpr std::size_t kFewReceivers = 4;

void WriteEvent(int fd) {
  const std::uint64_t one = 1;
  // A counter that is full, by a peer's fault, would block; it wakes whoever
  // waits as it is.
  pollfd writable = {fd, POLLOUT, 0};
  if (!IsEvent(fd) || poll(&writable, 1, 0) != 1 ||
      (writable.revents & POLLOUT) == 0) {
    return;
  }
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
}

// How many writes to an eventfd nobody has read yet; nullopt: the kernel does
// not say.
std::optional<std::uint64_t> EventCount(int fd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
  for (std::string word; info >> word;) {
    std::uint64_t count;
    if (word == "eventfd-count:" && info >> std::hex >> count) {
      return count;
    }
  }
  return std::nullopt;
}

// Takes one of those writes, without waiting for it.
bool TakeWakeUp(int fd) {
  pollfd readable = {fd, POLLIN, 0};
  std::uint64_t count;
  return IsEvent(fd) && poll(&readable, 1, 0) == 1 &&
         read(fd, &count, sizeof count) == sizeof count;
}

// What a peer wrote bounds no loop.
constexpr std::uint32_t kMostEvents = 1024;

}  // namespace

void NotifyCompletion(SharedCompletionQueue& cq, int event_fd, bool solicited) {
  std::uint32_t armed = cq.armed.load(std::memory_order_seq_cst);
  if (armed == SharedCompletionQueue::kNotArmed ||
      (armed == SharedCompletionQueue::kSolicited && !solicited) ||
      event_fd < 0) {
    return;
  }
  if (cq.armed.compare_exchange_strong(armed,
                                       SharedCompletionQueue::kNotArmed)) {
    cq.events.fetch_add(1, std::memory_order_release);
    WriteEvent(event_fd);
  }
}

// --- CompletionChannel -------------------------------------------------------

CompletionChannel::CompletionChannel(Context* context, std::uint32_t id,
                                     FileDescriptor event)
    : ibv_comp_channel{}, id_(id), event_(std::move(event)) {
  this->context = &context->verbs();
  fd = event_.get();
}

std::unique_ptr<CompletionChannel> CompletionChannel::Create(Context* context,
                                                             std::uint32_t id) {
  FileDescriptor event(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  if (!event) {
    return nullptr;
  }
  return std::unique_ptr<CompletionChannel>(
      new CompletionChannel(context, id, std::move(event)));
}

void CompletionChannel::Attach(CompletionQueue* cq) {
  std::lock_guard lock(mutex_);
  queues_.push_back(cq);
  refcnt = static_cast<int>(queues_.size());
}

void CompletionChannel::Detach(CompletionQueue* cq) {
  std::lock_guard lock(mutex_);
  // Its events that nobody has fetched go with it.
  for (std::uint32_t owed = std::min(cq->owed_events(), kMostEvents);
       owed > 0 && TakeWakeUp(fd); --owed) {
  }
  std::erase(queues_, cq);
  refcnt = static_cast<int>(queues_.size());
}

bool CompletionChannel::in_use() {
  std::lock_guard lock(mutex_);
  return !queues_.empty();
}

// Waits for a wake-up; false with errno where there is none and the program
// made the descriptor non-blocking, at a signal, or where somebody has closed
// it.
bool CompletionChannel::WaitUntilReadable() {
  if (!event_.IsOpen()) {
    errno = EBADF;
    return false;
  }
  const bool blocks = (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
  pollfd readable = {fd, POLLIN, 0};
  const int ready = poll(&readable, 1, blocks ? -1 : 0);
  if (ready == 0) {
    errno = EAGAIN;
  }
  return ready > 0 && (readable.revents & POLLNVAL) == 0;
}

int CompletionChannel::GetEvent(ibv_cq** cq, void** cq_context) {
  while (WaitUntilReadable()) {
    // The wake-up and its event are taken as one: RepairEvents compares them.
    std::lock_guard lock(mutex_);
    if (!TakeWakeUp(fd)) {
      continue;  // another thread was faster
    }
    const auto owing =
        std::find_if(queues_.begin(), queues_.end(),
                     [](CompletionQueue* queue) { return queue->TakeEvent(); });
    if (owing != queues_.end()) {
      CompletionQueue* const found = *owing;
      // Round robin, so that a busy queue does not hide the others.
      std::rotate(owing, owing + 1, queues_.end());
      *cq = found->verbs();
      *cq_context = found->cq_context;
      return 0;
    }
  }
  return -1;
}

void CompletionChannel::RepairEvents() {
  std::lock_guard lock(mutex_);
  std::uint32_t owed = 0;
  for (CompletionQueue* queue : queues_) {
    owed += queue->owed_events();
  }
  const std::optional<std::uint64_t> written = EventCount(fd);
  for (std::uint32_t i = 0; written && *written + i < owed && i < kMostEvents;
       ++i) {
    WriteEvent(fd);
  }
}

// --- CompletionQueue ---------------------------------------------------------

CompletionQueue::CompletionQueue(Context* context, std::uint32_t index,
                                 int entries, void* cq_context,
                                 CompletionChannel* channel,
                                 std::uint64_t adversary_seed)
    : ibv_cq_ex{},
      context_(context),
      index_(index),
      shared_(context->shared().completion_queues[index]),
      sends_(std::make_unique_for_overwrite<SendCompletion[]>(entries)),
      receivers_(std::make_unique<QueuePair*[]>(kMaxQueuePairs)),
      random_(adversary_seed, 0x10000 + index) {
  this->context = &context->verbs();
  this->channel = channel;
  this->cq_context = cq_context;
  handle = index;
  cqe = entries;
  shared_.armed = SharedCompletionQueue::kNotArmed;
  shared_.events = 0;
  for (auto& word : shared_.ready) {
    word = 0;
  }
  if (channel != nullptr) {
    channel->Attach(this);
  }
}

CompletionQueue::~CompletionQueue() {
  if (channel != nullptr) {
    static_cast<CompletionChannel*>(channel)->Detach(this);
  }
}

int CompletionQueue::Poll(int count, ibv_wc* completions) {
  if (context_->HasStalledWork()) {
    context_->ProgressStalled();
  }
  if (datagram_receivers_.load(std::memory_order_relaxed) != 0) {
    context_->datagrams().Drain();
  }
  bool give_way = false;
  int taken;
  {
    std::lock_guard lock(mutex_);
    taken = Take(count, completions);
    give_way = taken == 0 && ++empty_polls_ % kEmptyPollsPerYield == 0;
  }
  if (give_way) {
    sched_yield();
  }
  return taken;
}

int CompletionQueue::Take(int count, ibv_wc* completions) {
  if (few_receivers_.empty()) {
    CollectReady();
  }
  if (may_overrun_) {
    CheckOverrun();
  }
  if (overrun_) {
    return -1;
  }
  if (random_.enabled()) {
    return TakeAtRandom(count, completions);
  }
  // Both kinds in turn, so that neither starves where the other comes as fast
  // as it is taken. But an error of a send comes before the receives that it
  // flushes.
  const bool fair = sends_count_ > 0 && !failed_sends_;
  receives_next_ = fair && !receives_next_;
  int taken = receives_next_ ? TakeArrived((count + 1) / 2, completions) : 0;
  taken += TakeSends(fair && !receives_next_ ? (count + 1) / 2 : count - taken,
                     completions + taken);
  taken += TakeArrived(count - taken, completions + taken);
  return taken + TakeSends(count - taken, completions + taken);
}

int CompletionQueue::TakeArrived(int count, ibv_wc* completions) {
  return few_receivers_.empty() ? TakeReceives(count, completions)
                                : TakeFromFew(count, completions);
}

int CompletionQueue::TakeSends(int count, ibv_wc* completions) {
  int taken = 0;
  for (; taken < count && sends_count_ > 0; ++taken) {
    RemoveSend(0, &completions[taken]);
  }
  failed_sends_ = failed_sends_ && sends_count_ > 0;
  return taken;
}

void CompletionQueue::RemoveSend(std::uint32_t position, ibv_wc* completion) {
  const auto at = [this](std::uint32_t i) -> SendCompletion& {
    const std::uint32_t slot = sends_head_ + i;
    const auto entries = static_cast<std::uint32_t>(cqe);
    return sends_[slot < entries ? slot : slot - entries];
  };
  const SendCompletion& entry = at(position);
  *completion = entry.completion;
  entry.qp->send_queue().Retire(entry.sequence);
  for (; position > 0; --position) {
    at(position) = at(position - 1);
  }
  sends_head_ =
      sends_head_ + 1 == static_cast<std::uint32_t>(cqe) ? 0 : sends_head_ + 1;
  --sends_count_;
}

void CompletionQueue::CollectReady() {
  for (std::uint32_t word = 0; word < words_; ++word) {
    // seq_cst: the counterpart of the requester, which first advances
    // `completed` and then looks whether the bit is still set.
    if (shared_.ready[word].load(std::memory_order_relaxed) != 0) {
      pending_[word] |=
          shared_.ready[word].exchange(0, std::memory_order_seq_cst);
    }
  }
}

bool CompletionQueue::NextReady(std::uint32_t* qp_index) {
  for (std::uint32_t i = 0; i <= words_; ++i) {
    const std::uint32_t word = words_ == 0 ? 0 : (cursor_ / 64 + i) % words_;
    std::uint64_t bits = pending_[word];
    if (i == 0) {
      bits &= ~std::uint64_t{0} << cursor_ % 64;
    }
    if (bits != 0) {
      *qp_index = word * 64 + std::countr_zero(bits);
      return true;
    }
  }
  return false;
}

int CompletionQueue::TakeReceives(int count, ibv_wc* completions) {
  int taken = 0;
  std::uint32_t index;
  while (taken < count && NextReady(&index)) {
    QueuePair* qp = receivers_[index];
    const int got =
        qp == nullptr ? 0
                      : qp->receives().Take(count - taken, completions + taken);
    taken += got;
    if (taken < count || got == 0) {
      pending_[index / 64] &= ~(std::uint64_t{1} << index % 64);
    }
    cursor_ = (index + 1) % (words_ * 64);
  }
  return taken;
}

int CompletionQueue::TakeFromFew(int count, ibv_wc* completions) {
  int taken = 0;
  ++cursor_;  // each is the first one at times
  for (std::size_t i = 0; i < few_receivers_.size() && taken < count; ++i) {
    QueuePair* qp = few_receivers_[(cursor_ + i) % few_receivers_.size()];
    taken += qp->receives().Take(count - taken, completions + taken);
  }
  return taken;
}

int CompletionQueue::TakeAtRandom(int count, ibv_wc* completions) {
  int taken = 0;
  while (taken < count) {
    const bool from_sends = random_.Below(2) == 0;
    cursor_ = words_ == 0 ? 0 : random_.Below(words_ * 64);
    std::uint32_t next;
    if (sends_count_ > 0 && NextReady(&next) && receivers_[next] != nullptr &&
        receivers_[next]->receives().flushed()) {
      // Not before the error that they are a consequence of.
      RemoveSend(0, &completions[taken++]);
    } else if (from_sends && sends_count_ > 0) {
      // The first completion of the queue pair that owns a random one.
      const auto entries = static_cast<std::uint32_t>(cqe);
      const std::uint32_t pick = random_.Below(sends_count_);
      const QueuePair* qp = sends_[(sends_head_ + pick) % entries].qp;
      std::uint32_t first = 0;
      while (sends_[(sends_head_ + first) % entries].qp != qp) {
        ++first;
      }
      RemoveSend(first, &completions[taken++]);
    } else {
      const int got = TakeReceives(1, completions + taken);
      taken += got;
      if (got == 0 && sends_count_ == 0) {
        break;
      }
    }
    // Fewer than there are, but never none: after arming, an empty poll means
    // that there is nothing.
    if (taken > 0 && random_.Below(4) == 0) {
      break;
    }
  }
  return taken;
}

int CompletionQueue::RequestNotification(bool solicited_only) {
  if (solicited_only) {
    // An earlier request for any completion stands.
    std::uint32_t expected = SharedCompletionQueue::kNotArmed;
    shared_.armed.compare_exchange_strong(expected,
                                          SharedCompletionQueue::kSolicited);
  } else {
    shared_.armed.store(SharedCompletionQueue::kNext,
                        std::memory_order_seq_cst);
  }
  if (datagram_receivers_.load() != 0) {
    context_->datagrams().Arm();
  }
  return 0;
}

int CompletionQueue::Resize(int entries) {
  std::lock_guard lock(mutex_);
  if (entries < 1 || entries > kMaxCqe ||
      static_cast<std::uint32_t>(entries) < sends_count_) {
    return EINVAL;
  }
  auto sends = std::make_unique_for_overwrite<SendCompletion[]>(entries);
  for (std::uint32_t i = 0; i < sends_count_; ++i) {
    sends[i] = sends_[(sends_head_ + i) % static_cast<std::uint32_t>(cqe)];
  }
  sends_ = std::move(sends);
  sends_head_ = 0;
  cqe = entries;
  UpdateLimits();
  return 0;
}

void CompletionQueue::PushSend(QueuePair* qp, std::uint32_t sequence,
                               const ibv_wc& completion) {
  {
    std::lock_guard lock(mutex_);
    if (overrun_) {
      return;
    }
    if (sends_count_ == static_cast<std::uint32_t>(cqe)) {
      Overrun();
      return;
    }
    failed_sends_ |= completion.status != IBV_WC_SUCCESS;
    const std::uint32_t slot = sends_head_ + sends_count_++;
    const auto entries = static_cast<std::uint32_t>(cqe);
    sends_[slot < entries ? slot : slot - entries] = {completion, qp, sequence};
  }
  // No arming is missed: a poll after it either finds the completion or took
  // the mutex before us, and then the arming is visible here.
  NotifyCompletion(shared_, event_fd(), completion.status != IBV_WC_SUCCESS);
}

void CompletionQueue::ReceivesReady(std::uint32_t qp_index, bool solicited) {
  shared_.ready[qp_index / 64].fetch_or(std::uint64_t{1} << qp_index % 64,
                                        std::memory_order_seq_cst);
  NotifyCompletion(shared_, event_fd(), solicited);
}

void CompletionQueue::RepairEvents() {
  if (channel != nullptr) {
    static_cast<CompletionChannel*>(channel)->RepairEvents();
  }
}

void CompletionQueue::WakeForCertain(std::uint32_t qp_index) {
  const bool armed = shared_.armed.load() == SharedCompletionQueue::kNext;
  ReceivesReady(qp_index, /*solicited=*/true);
  if (!armed && event_fd() >= 0) {
    shared_.events.fetch_add(1, std::memory_order_release);
    WriteEvent(event_fd());
  }
}

void CompletionQueue::Attach(QueuePair* qp) {
  std::unique_lock lock(mutex_);
  std::erase(attached_, qp);
  attached_.push_back(qp);
  if (&qp->receive_queue_cq() == this) {
    receivers_[qp->index()] = qp;
    words_ = std::max(words_, qp->index() / 64 + 1);
  }
  UpdateLimits();
  lock.unlock();
  if (waits_for_datagrams()) {
    context_->datagrams().Arm();  // it was armed before there was a queue pair
  }
}

void CompletionQueue::Detach(QueuePair* qp) {
  std::lock_guard lock(mutex_);
  std::erase(attached_, qp);
  if (receivers_[qp->index()] == qp) {
    receivers_[qp->index()] = nullptr;
    const std::uint64_t bit = std::uint64_t{1} << qp->index() % 64;
    pending_[qp->index() / 64] &= ~bit;
    shared_.ready[qp->index() / 64].fetch_and(~bit);
  }
  std::uint32_t kept = 0;
  const auto entries = static_cast<std::uint32_t>(cqe);
  for (std::uint32_t i = 0; i < sends_count_; ++i) {
    const SendCompletion& entry = sends_[(sends_head_ + i) % entries];
    if (entry.qp != qp) {
      sends_[(sends_head_ + kept++) % entries] = entry;
    }
  }
  sends_count_ = kept;
  UpdateLimits();
}

bool CompletionQueue::in_use() {
  std::lock_guard lock(mutex_);
  return !attached_.empty();
}

std::vector<std::uint32_t> CompletionQueue::AttachedQueuePairs() {
  std::lock_guard lock(mutex_);
  std::vector<std::uint32_t> indexes;
  for (const QueuePair* qp : attached_) {
    indexes.push_back(qp->index());
  }
  return indexes;
}

// A queue with room for everything that can be outstanding cannot overrun, and
// need not be checked at each poll.
void CompletionQueue::UpdateLimits() {
  std::uint64_t most = 0;
  int datagram_receivers = 0;
  for (QueuePair* qp : attached_) {
    datagram_receivers +=
        qp->type() == IBV_QPT_UD && &qp->receive_queue_cq() == this ? 1 : 0;
    most += &qp->send_queue_cq() == this ? qp->send_queue().depth() : 0;
    most += &qp->receive_queue_cq() == this ? qp->receives().depth() : 0;
  }
  datagram_receivers_ = datagram_receivers;
  few_receivers_.clear();
  std::copy_if(
      attached_.begin(), attached_.end(), std::back_inserter(few_receivers_),
      [this](QueuePair* qp) { return &qp->receive_queue_cq() == this; });
  if (few_receivers_.size() > kFewReceivers || random_.enabled()) {
    few_receivers_.clear();
    cursor_ = 0;
  }
  may_overrun_ = most > static_cast<std::uint64_t>(cqe);
}

void CompletionQueue::CheckOverrun() {
  std::uint64_t waiting = sends_count_;
  for (QueuePair* qp : attached_) {
    waiting += &qp->receive_queue_cq() == this ? qp->receives().waiting() : 0;
  }
  if (waiting > static_cast<std::uint64_t>(cqe)) {
    Overrun();
  }
}

void CompletionQueue::Overrun() {
  if (!std::exchange(overrun_, true)) {
    overrun_report_ = true;
    context_->WakeHousekeeper();
  }
}

bool CompletionQueue::TakeEvent() {
  std::lock_guard lock(events_mutex_);
  if (shared_.events.load(std::memory_order_acquire) == events_taken_) {
    return false;
  }
  ++events_taken_;
  return true;
}

std::uint32_t CompletionQueue::owed_events() {
  std::lock_guard lock(events_mutex_);
  return shared_.events.load(std::memory_order_acquire) - events_taken_;
}

void CompletionQueue::Acknowledge(std::uint32_t events) {
  std::lock_guard lock(events_mutex_);
  events_acknowledged_ += events;
  comp_events_completed += events;
  acknowledged_.notify_all();
}

void CompletionQueue::WaitForAcknowledgements() {
  std::unique_lock lock(events_mutex_);
  acknowledged_.wait(lock,
                     [this] { return events_acknowledged_ == events_taken_; });
}

}  // namespace ringpipe::verbs::soft
