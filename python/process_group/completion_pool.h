#ifndef RINGPIPE_PYTHON_PROCESS_GROUP_COMPLETION_POOL_H_
#define RINGPIPE_PYTHON_PROCESS_GROUP_COMPLETION_POOL_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

namespace ringpipe::process_group {

// The threads that run what torch and Python have attached to the end of a
// call. A callback may wait for another call, whose own callbacks then need
// another thread: where all are busy, one more is started. One that waits for a
// future, in place of the call, waits for a thread; where all of kMostThreads
// do that, none comes.
//
// Thread-safe. Held by shared_ptr: the threads have references of their own.
class CompletionPool : public std::enable_shared_from_this<CompletionPool> {
 public:
  static constexpr int kMostThreads = 8;
  // So many run callbacks of calls that were started outside of callbacks. The
  // others are for calls that were started in one: it may wait for them.
  static constexpr int kMostForOutside = kMostThreads - 2;

  // One call's. Adding it allocates nothing.
  class Task {
   public:
    // Runs on one of the threads. The pool uses the task no more.
    virtual void Complete() noexcept = 0;

   protected:
    ~Task() = default;

   private:
    friend class CompletionPool;
    Task* next_ = nullptr;
  };

  CompletionPool() = default;
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // Whether the calling thread is one of any pool's.
  static bool IsInCallback();

  // A task will be added, or will not after all.
  void Expect();
  void Forget();
  // Runs an expected task on one of the threads. `is_nested`: its call was
  // started in a callback.
  void Add(Task& task, bool is_nested) noexcept;

  // Whether all expected tasks have been added, within `patience`. In a
  // callback, which may be what they wait for, at once.
  bool AwaitCalls(std::chrono::milliseconds patience);
  // Whether all expected tasks have run, within `patience`; likewise. The
  // threads end when nothing is expected any more.
  bool Close(std::chrono::milliseconds patience);

 private:
  // First in, first out.
  class Queue {
   public:
    void Add(Task& task);
    Task& Take();  // of one that is not empty
    std::size_t size() const { return size_; }

   private:
    Task* first_ = nullptr;
    Task* last_ = nullptr;
    std::size_t size_ = 0;
  };

  void StartThread();
  void Run();
  // Runs one task; false where there is none that this thread may run.
  bool RunOne(std::unique_lock<std::mutex>& lock);
  void CountCallDown();
  void CountDown();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable all_done_;
  Queue nested_;
  Queue outside_;
  int expected_ = 0;  // tasks that have not run
  int calls_ = 0;     // those of them that have not been added
  int threads_ = 0;
  std::size_t idle_ = 0;
  int running_outside_ = 0;
  bool is_closed_ = false;
};

}  // namespace ringpipe::process_group

#endif  // RINGPIPE_PYTHON_PROCESS_GROUP_COMPLETION_POOL_H_
