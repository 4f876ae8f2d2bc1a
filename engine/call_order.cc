#include "engine/call_order.h"

#include <exception>
#include <system_error>
#include <utility>

#include "base/signals_blocked.h"
#include "base/thread_shortage.h"
#include "base/while_waiting.h"

namespace ringpipe {

Status CallOrder::Closed() {
  return {StatusCode::kAborted, "the communicator is being destroyed"};
}

CallOrder::~CallOrder() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) {
    worker_.join();
  }
  // Who leaves tells nobody: that would cost each call more than this poll.
  while (callers_ > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void CallOrder::WaitForTurn(std::unique_lock<std::mutex>& lock,
                            std::uint64_t sequence) {
  const auto is_its_turn = [&] { return turn_ == sequence; };
  if (WaitUntil(changed_, lock, Deadline::Infinite(), is_its_turn) ==
      Waited::kEnded) {
    // The turn comes all the same: the calls before it end.
    lock.unlock();
    end_calls_();
    lock.lock();
    changed_.wait(lock, is_its_turn);
  }
}

// With the mutex held, as the next two. Where it throws, nothing has changed.
std::uint64_t CallOrder::AddCall(Deadline deadline, int numbers) {
  expiries_.push_back({next_sequence_, deadline.when()});
  while (expiries_.size() > first_expiry_ + 1 &&
         expiries_[expiries_.size() - 2].when >= deadline.when()) {
    expiries_.erase(expiries_.end() - 2);
  }
  TellEarliestDeadline();
  return std::exchange(next_sequence_, next_sequence_ + numbers);
}

void CallOrder::EndTurn(int numbers) {
  if (first_expiry_ < expiries_.size() &&
      expiries_[first_expiry_].sequence == turn_) {
    ++first_expiry_;
    // Moves each of them once or so.
    if (2 * first_expiry_ >= expiries_.size()) {
      expiries_.erase(
          expiries_.begin(),
          expiries_.begin() + static_cast<std::ptrdiff_t>(first_expiry_));
      first_expiry_ = 0;
    }
  }
  TellEarliestDeadline();
  turn_ += numbers;
  if (turn_ != next_sequence_) {
    changed_.notify_all();
  }
}

void CallOrder::LockAndEndTurn(int numbers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  EndTurn(numbers);
}

void CallOrder::TellEarliestDeadline() {
  earliest_deadline_.store(first_expiry_ == expiries_.size()
                               ? Clock::time_point::max()
                               : expiries_[first_expiry_].when,
                           std::memory_order_relaxed);
}

std::optional<std::uint64_t> CallOrder::BeginTurn(Deadline deadline,
                                                  int numbers) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (closed_) {
    return std::nullopt;
  }
  const std::uint64_t sequence = AddCall(deadline, numbers);
  WaitForTurn(lock, sequence);
  return sequence;
}

bool CallOrder::RunIfIdle(const std::function<void()>& run) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (turn_ != next_sequence_) {
      return false;
    }
    AddCall(Deadline::Infinite(), 1);
  }
  const Turn turn(*this, 1);
  run();
  return true;
}

Status CallOrder::RunLater(Deadline deadline, Run run, End end, End after,
                           int numbers) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
      return Closed();
    }
    if (!worker_.joinable()) {
      RINGPIPE_RETURN_IF_ERROR(StartWorker());
    }
    queue_.push_back({next_sequence_, numbers, std::move(run), std::move(end),
                      std::move(after)});
    try {
      AddCall(deadline, numbers);
    } catch (...) {
      queue_.pop_back();
      throw;
    }
  }
  changed_.notify_all();
  return Status::Ok();
}

Status CallOrder::StartWorker() {
  const SignalsBlocked blocked;
  try {
    worker_ = std::thread([this] { Work(); });
  } catch (const std::system_error& error) {
    return ThreadShortage("starting the progress thread", error.code().value());
  }
  return Status::Ok();
}

Status CallOrder::RunQueued(const Queued& call) {
  try {
    return call.run(call.sequence);
  } catch (const std::exception&) {
    return OutOfMemory();
  }
}

void CallOrder::Work() {
  pthread_setname_np(pthread_self(), "ringpipe-calls");
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    Queued call = std::move(queue_.front());
    queue_.pop_front();
    WaitForTurn(lock, call.sequence);
    lock.unlock();
    Status status = RunQueued(call);
    // What it holds goes before anybody hears of the end, and without the lock.
    call.run = {};
    lock.lock();
    // Both under one lock: nobody sees the call ended while it is still its
    // turn.
    try {
      call.end(status);
    } catch (const std::exception&) {
      status = OutOfMemory();  // which needs none
      call.end(status);
    }
    EndTurn(call.numbers);
    if (call.after) {
      lock.unlock();
      // What it holds is a user's, and is destroyed without the lock, too.
      std::exchange(call.after, {})(status);
      lock.lock();
    }
  }
}

}  // namespace ringpipe
