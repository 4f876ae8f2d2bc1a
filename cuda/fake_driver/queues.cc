#include "cuda/fake_driver/queues.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace fake_cuda {

Queues::Queues(Device device, int queues, unsigned seed, long delay_us)
    : delay_us_(delay_us), queues_(static_cast<std::size_t>(queues)) {
  unsigned number = 0;
  for (Queue& queue : queues_) {
    queue.random.seed(seed * 7919 + static_cast<unsigned>(device) * 104729 +
                      number++);
  }
}

CompletionPointer Queues::Put(int queue, Work work,
                              std::vector<CompletionPointer> after) {
  auto completion = std::make_shared<Completion>();
  const std::lock_guard lock(mutex_);
  Queue& to = queues_[static_cast<std::size_t>(queue)];
  to.operations.push_back({std::move(work), std::move(after), completion});
  ++pending_;
  if (!to.started) {
    to.started = true;
    // The device outlives the program.
    std::thread([this, &to] { Loop(to); }).detach();
  }
  changed_.notify_all();
  return completion;
}

void Queues::Sleep(Queue& queue) {
  if (delay_us_ > 0 && queue.random() % 3 != 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(
        queue.random() % (static_cast<unsigned long>(delay_us_) + 1)));
  }
}

void Queues::Loop(Queue& queue) {
  const Dawdle dawdle = [&] {
    Sleep(queue);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !stuck_; });
  };
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !queue.operations.empty(); });
    // What is put in later goes behind it.
    Operation& operation = queue.operations.front();
    const auto may_begin = [&] {
      return !stuck_ &&
             std::all_of(operation.after.begin(), operation.after.end(),
                         [](const auto& other) { return other->done.load(); });
    };
    // What it waits for may be another device's, which tells nobody here.
    while (!changed_.wait_for(lock, std::chrono::milliseconds(1), may_begin)) {
    }
    lock.unlock();
    Sleep(queue);
    operation.work(dawdle);
    dawdle();
    lock.lock();
    operation.completion->done.store(true);
    queue.operations.pop_front();
    --pending_;
    changed_.notify_all();
  }
}

void Queues::Await(const CompletionPointer& completion) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completion->done.load(); });
}

void Queues::AwaitAll() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_ == 0; });
}

void Queues::Stick(bool stuck) {
  {
    const std::lock_guard lock(mutex_);
    stuck_ = stuck;
  }
  changed_.notify_all();
}

int Queues::pending() const {
  const std::lock_guard lock(mutex_);
  return pending_;
}

}  // namespace fake_cuda
