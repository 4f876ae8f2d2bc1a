#ifndef RINGPIPE_VERBS_COMPLETION_QUEUE_H_
#define RINGPIPE_VERBS_COMPLETION_QUEUE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "verbs/device.h"

namespace ringpipe::verbs {

// RAII over ibv_cq and its ibv_comp_channel, which it shares with no other
// queue. One thread at a time.
class CompletionQueue {
 public:
  // Room for at least `entries` completions, 1 or more. More outstanding work
  // requests than that overrun it, after which nothing works.
  // kResourceExhausted past a limit of the device's, with the limit and what to
  // lower.
  static Result<std::shared_ptr<CompletionQueue>> Create(
      std::shared_ptr<Device> device, int entries);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // Fills `out` from the front; returns how many, or a negative number after a
  // CQ error (overrun). Hot path.
  int Poll(std::span<ibv_wc> out) {
    return ibv_poll_cq(cq_, static_cast<int>(out.size()), out.data());
  }

  // To sleep: Arm, Poll once more (what arrived before Arm raises no event),
  // poll() on fd() for reading, ConsumeEvents.
  Status Arm();
  // Of the completion channel, non-blocking; the queue owns it.
  int fd() const { return channel_->fd; }
  // Takes and acknowledges the events that are there; never blocks.
  void ConsumeEvents();

  ibv_cq* get() const { return cq_; }

 private:
  explicit CompletionQueue(std::shared_ptr<Device> device)
      : device_(std::move(device)) {}
  Status Open(int entries);

  std::shared_ptr<Device> device_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
};

// A completion status in words, both parts short clauses.
struct CompletionMeaning {
  const char* name;    // "IBV_WC_RETRY_EXC_ERR"; nullptr: verbs has none such
  const char* cause;   // the likely one
  const char* advice;  // what to do; "" where an earlier error says it
};
CompletionMeaning MeaningOfCompletion(ibv_wc_status status);

// "IBV_WC_RETRY_EXC_ERR, vendor error 0x81"; the latter only where it is not 0.
std::string NameCompletion(ibv_wc_status status, std::uint32_t vendor_err);

// The name, and "(CAUSE: ADVICE)". Where the queue pair is known,
// QueuePair::DescribeFailure says more.
std::string DescribeCompletion(ibv_wc_status status,
                               std::uint32_t vendor_err = 0);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_COMPLETION_QUEUE_H_
