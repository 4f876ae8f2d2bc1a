#include "python/process_group/completion_pool.h"

#include <pthread.h>

#include <csignal>
#include <exception>
#include <thread>

namespace ringpipe::process_group {
namespace {

constinit thread_local bool is_in_pool = false;

// Signals are for the program's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

void CompletionPool::Queue::Add(Task& task) {
  task.next_ = nullptr;
  (size_ == 0 ? first_ : last_->next_) = &task;
  last_ = &task;
  ++size_;
}

CompletionPool::Task& CompletionPool::Queue::Take() {
  Task& task = *first_;
  first_ = task.next_;
  --size_;
  return task;
}

bool CompletionPool::IsInCallback() { return is_in_pool; }

void CompletionPool::Expect() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (threads_ == 0) {
    StartThread();
  }
  ++expected_;
  ++calls_;
}

void CompletionPool::Forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  CountCallDown();
  CountDown();
}

void CompletionPool::CountCallDown() {
  if (--calls_ == 0) {
    all_done_.notify_all();
  }
}

void CompletionPool::CountDown() {
  if (--expected_ == 0) {
    changed_.notify_all();  // of a closed pool, the threads end
    all_done_.notify_all();
  }
}

void CompletionPool::Add(Task& task, bool is_nested) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  (is_nested ? nested_ : outside_).Add(task);
  CountCallDown();
  // An idle thread may have been told already, and not run yet.
  if (nested_.size() + outside_.size() <= idle_) {
    changed_.notify_one();
  } else if (threads_ < kMostThreads) {
    try {
      StartThread();
    } catch (const std::exception&) {
      // Those that there are come to it later.
      changed_.notify_one();
    }
  }
}

void CompletionPool::StartThread() {
  const SignalsBlocked blocked;
  std::thread([self = shared_from_this()] { self->Run(); }).detach();
  ++threads_;
}

bool CompletionPool::RunOne(std::unique_lock<std::mutex>& lock) {
  const bool is_nested = nested_.size() > 0;
  if (!is_nested &&
      (outside_.size() == 0 || running_outside_ == kMostForOutside)) {
    return false;
  }
  Task& task = (is_nested ? nested_ : outside_).Take();
  running_outside_ += is_nested ? 0 : 1;
  lock.unlock();
  task.Complete();
  lock.lock();
  running_outside_ -= is_nested ? 0 : 1;
  CountDown();
  return true;
}

void CompletionPool::Run() {
  is_in_pool = true;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_closed_ || expected_ > 0) {
    if (!RunOne(lock)) {
      ++idle_;
      changed_.wait(lock);
      --idle_;
    }
  }
  --threads_;
  changed_.notify_all();
  all_done_.notify_all();
}

bool CompletionPool::AwaitCalls(std::chrono::milliseconds patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  return is_in_pool ||
         all_done_.wait_for(lock, patience, [this] { return calls_ == 0; });
}

bool CompletionPool::Close(std::chrono::milliseconds patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
  return !is_in_pool && all_done_.wait_for(lock, patience, [this] {
    return expected_ == 0 && threads_ == 0;
  });
}

}  // namespace ringpipe::process_group
