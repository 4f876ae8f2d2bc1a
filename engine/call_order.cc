#include "engine/call_order.h"

#include <system_error>
#include <utility>

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

void CallOrder::EndTurn() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++turn_;
  }
  changed_.notify_all();
}

Status CallOrder::RunNow(const Run& run) {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::uint64_t sequence = next_sequence_++;
  WaitForTurn(lock, sequence);
  lock.unlock();
  const Status status = run(sequence);
  EndTurn();
  return status;
}

Status CallOrder::RunLater(Run run, End end) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!worker_.joinable()) {
      try {
        worker_ = std::thread([this] { Work(); });
      } catch (const std::system_error& error) {
        return {StatusCode::kResourceExhausted,
                std::string("starting the progress thread: ") + error.what()};
      }
    }
    queue_.push_back({next_sequence_++, std::move(run), std::move(end)});
  }
  changed_.notify_all();
  return Status::Ok();
}

void CallOrder::Work() {
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
    // One step for all who look: the call has ended, and the next may run.
    call.end(status);
    ++turn_;
    changed_.notify_all();
  }
}

}  // namespace ringpipe
