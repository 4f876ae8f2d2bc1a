#include "engine/call_order.h"

#include <string>
#include <system_error>
#include <utility>

#include "base/signals_blocked.h"

namespace ringpipe {

CallOrder::~CallOrder() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) {
    worker_.join();
  }
}

void CallOrder::WaitForTurn(std::unique_lock<std::mutex>& lock,
                            std::uint64_t sequence) {
  changed_.wait(lock, [&] { return turn_ == sequence; });
}

// With the mutex held, as the next two.
std::uint64_t CallOrder::AddCall(Deadline deadline) {
  while (!expiries_.empty() && expiries_.back().when >= deadline.when()) {
    expiries_.pop_back();
  }
  expiries_.push_back({next_sequence_, deadline.when()});
  TellEarliestDeadline();
  return next_sequence_++;
}

void CallOrder::EndTurn() {
  if (!expiries_.empty() && expiries_.front().sequence == turn_) {
    expiries_.pop_front();
  }
  TellEarliestDeadline();
  ++turn_;
  changed_.notify_all();
}

void CallOrder::TellEarliestDeadline() {
  earliest_deadline_ =
      expiries_.empty() ? Clock::time_point::max() : expiries_.front().when;
}

Status CallOrder::RunNow(Deadline deadline, const Run& run) {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::uint64_t sequence = AddCall(deadline);
  WaitForTurn(lock, sequence);
  lock.unlock();
  Status status = run(sequence);
  lock.lock();
  EndTurn();
  return status;
}

Status CallOrder::RunLater(Deadline deadline, Run run, End end) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!worker_.joinable()) {
      RINGPIPE_RETURN_IF_ERROR(StartWorker());
    }
    const std::uint64_t sequence = AddCall(deadline);
    queue_.push_back({sequence, std::move(run), std::move(end)});
  }
  changed_.notify_all();
  return Status::Ok();
}

Status CallOrder::StartWorker() {
  const SignalsBlocked blocked;
  try {
    worker_ = std::thread([this] { Work(); });
  } catch (const std::system_error& error) {
    return {StatusCode::kResourceExhausted,
            std::string("starting the progress thread: ") + error.what() +
                "; raise the limit on threads (ulimit -u)"};
  }
  return Status::Ok();
}

void CallOrder::Work() {
  pthread_setname_np(pthread_self(), "ringpipe-calls");
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    const Queued call = std::move(queue_.front());
    queue_.pop_front();
    WaitForTurn(lock, call.sequence);
    lock.unlock();
    const Status status = call.run(call.sequence);
    lock.lock();
    // Both under one lock: nobody sees the call ended while it is still its
    // turn.
    call.end(status);
    EndTurn();
  }
}

}  // namespace ringpipe
