#ifndef RINGPIPE_CUDA_FAKE_DRIVER_QUEUES_H_
#define RINGPIPE_CUDA_FAKE_DRIVER_QUEUES_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "cuda/fake_driver/abi.h"

namespace fake_cuda {

// Whether an operation is done; shared by all who wait for it.
struct Completion {
  std::atomic<bool> done{false};
};
using CompletionPointer = std::shared_ptr<Completion>;

// The hardware of one device: a few queues, each with a thread that takes one
// operation after another. Streams share them, so that an operation may wait
// for one of another stream that happens to be in its queue ("false
// dependencies", CUDA Programming Guide, CUDA_DEVICE_MAX_CONNECTIONS). An
// operation takes long at random, by a seed. Thread-safe.
class Queues {
 public:
  // Lets time pass in the middle of an operation: it may take a while, or, on a
  // stuck device, not end.
  using Dawdle = std::function<void()>;
  using Work = std::function<void(const Dawdle&)>;

  Queues(Device device, int queues, unsigned seed, long delay_us);
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  // Begins when all of `after` are done, and what was put into the queue
  // before. Operations that are put in by several threads have one order for
  // all queues, so that waiting for each other ends.
  CompletionPointer Put(int queue, Work work,
                        std::vector<CompletionPointer> after);

  // Waits for it without a bound.
  void Await(const CompletionPointer& completion);
  // For all that was put in.
  void AwaitAll();

  void Stick(bool stuck);
  int pending() const;
  int queues() const { return static_cast<int>(queues_.size()); }

 private:
  struct Operation {
    Work work;
    std::vector<CompletionPointer> after;
    CompletionPointer completion;
  };
  struct Queue {
    std::deque<Operation> operations;
    std::mt19937 random;
    bool started = false;  // its thread
  };

  void Loop(Queue& queue);
  void Sleep(Queue& queue);

  const long delay_us_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Queue> queues_;
  int pending_ = 0;
  bool stuck_ = false;
};

}  // namespace fake_cuda

#endif  // RINGPIPE_CUDA_FAKE_DRIVER_QUEUES_H_
