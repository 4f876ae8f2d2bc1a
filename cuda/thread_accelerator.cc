#include "cuda/thread_accelerator.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "reduction/host_copy.h"
#include "reduction/host_reduction.h"
#include "reduction/ieee_arithmetic.h"

namespace ringpipe {

// A copy, a reduction or a scaling of `count` elements of `element_bytes`. It
// reads `operands`: of a reduction own, then what was received; else the
// source. A reduction may write `copy` too.
struct ThreadAccelerator::Operation {
  enum class Memory { kSlot, kUser, kEither };

  using Operands = std::array<const void*, 1 + kMostSources>;

  void* target;
  void* copy = nullptr;
  Operands operands;
  std::size_t operand_count = 1;  // more than fit: it fails
  std::size_t count;
  std::size_t element_bytes;
  Memory target_memory;
  Memory operand_memory;  // of each
  enum class Kind { kCopy, kReduce, kScale } kind = Kind::kCopy;
  DataType type = {};
  ReduceOp op = {};
  Scaling scaling = {};           // kScale: by its `result`
  const char* failure = nullptr;  // why it fails, if it does

  std::size_t bytes() const { return count * element_bytes; }

  // Elements [begin, end).
  void Run(std::size_t begin, std::size_t end) const {
    if (begin == end) {
      return;
    }
    std::byte* const to =
        static_cast<std::byte*>(target) + begin * element_bytes;
    Operands from = {};
    for (std::size_t i = 0; i < operand_count; ++i) {
      from[i] =
          static_cast<const std::byte*>(operands[i]) + begin * element_bytes;
    }
    switch (kind) {
      case Kind::kCopy:
        return HostCopy(to, from[0], (end - begin) * element_bytes);
      case Kind::kReduce:
        ReduceAndScale(type, op, to, from[0],
                       std::span(from).subspan(1, operand_count - 1),
                       end - begin, scaling);
        if (copy != nullptr) {
          HostCopy(static_cast<std::byte*>(copy) + begin * element_bytes, to,
                   (end - begin) * element_bytes);
        }
        return;
      case Kind::kScale:
        return FindScale(type)(to, from[0], end - begin, scaling.result);
    }
  }
};

// One thread that executes a queue in order.
//
// It takes all that is queued at once and then, until that is done, no lock:
// each would order the operation after whatever the driver did before it
// unlocked last, and so hide the driver's races from ThreadSanitizer.
class ThreadAccelerator::Worker {
 public:
  Worker(std::uint64_t seed, std::chrono::microseconds max_delay)
      : random_(seed), max_delay_(max_delay), thread_([this] {
          const IeeeArithmetic arithmetic;
          Loop();
        }) {}

  // Executes what is queued first.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      held_ = false;
    }
    changed_.notify_all();
    thread_.join();
  }

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Returns the operation's sequence number, from 1.
  std::uint64_t Push(const Operation& operation) {
    std::uint64_t sequence = 0;
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(operation);
      sequence = ++pushed_;
    }
    changed_.notify_all();
    return sequence;
  }

  void SetHeld(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }

  // Lock-free: the acquire pairs with the release after the operation.
  bool Done(std::uint64_t sequence) const {
    return done_.load(std::memory_order_acquire) >= sequence;
  }

  bool failed() const { return failed_.load(std::memory_order_acquire); }

  Status error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

  bool Drain(Deadline deadline) {
    SetHeld(false);
    std::unique_lock lock(mutex_);
    const auto idle = [this] { return queue_.empty() && !busy_; };
    if (!deadline.infinite()) {
      return changed_.wait_until(lock, deadline.when(), idle);
    }
    changed_.wait(lock, idle);
    return true;
  }

 private:
  void Loop() {
    std::vector<Operation> taken;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(
          lock, [this] { return queue_.empty() ? stopping_ : !held_.load(); });
      if (queue_.empty()) {
        return;
      }
      taken.swap(queue_);
      busy_ = true;
      lock.unlock();
      for (const Operation& operation : taken) {
        AwaitResume();
        Execute(operation);
      }
      taken.clear();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  void AwaitResume() {
    if (held_.load(std::memory_order_relaxed)) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !held_.load(); });
    }
  }

  // In two parts, so that who looks too early sees half of it.
  void Execute(const Operation& operation) {
    if (failed_.load(std::memory_order_relaxed)) {
      return;
    }
    if (operation.failure != nullptr) {
      const std::lock_guard lock(mutex_);
      error_ = Status(StatusCode::kDeviceError, operation.failure);
      failed_.store(true, std::memory_order_release);
      return;
    }
    const std::size_t middle = operation.count / 2;
    Dawdle();
    operation.Run(0, middle);
    Dawdle();
    operation.Run(middle, operation.count);
    done_.fetch_add(1, std::memory_order_release);
  }

  // Not at all, for a few time slices, or up to max_delay_; never busily. This
  // sleep waits for no state: it is the slowness of a device.
  void Dawdle() {
    const std::uint64_t kind = random_() % 4;
    if (kind == 0) {
      return;
    }
    if (kind == 1 || max_delay_.count() <= 0) {
      for (std::uint64_t yields = random_() % 8; yields > 0; --yields) {
        std::this_thread::yield();
      }
      return;
    }
    const auto most = static_cast<std::uint64_t>(max_delay_.count());
    std::this_thread::sleep_for(
        std::chrono::microseconds(random_() % (most + 1)));
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // of anything that mutex_ guards
  std::vector<Operation> queue_;     // not yet taken
  std::uint64_t pushed_ = 0;
  bool busy_ = false;  // with what was taken
  bool stopping_ = false;
  Status error_;

  std::atomic<bool> held_{false};  // written under mutex_
  std::atomic<std::uint64_t> done_{0};
  std::atomic<bool> failed_{false};

  std::mt19937_64 random_;  // the thread's alone
  const std::chrono::microseconds max_delay_;

  std::thread thread_;  // last: it uses all of the above
};

ThreadAccelerator::ThreadAccelerator(const Options& options)
    : name_(options.name), neighbour_(options.neighbour) {
  std::uint64_t seed = options.seed * workers_.size();
  for (std::unique_ptr<Worker>& worker : workers_) {
    worker = std::make_unique<Worker>(seed++, options.max_delay);
  }
}

ThreadAccelerator::~ThreadAccelerator() { Drain(Deadline::Infinite()); }

void* ThreadAccelerator::Allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  // At least one, so that even no bytes have an address that is owned.
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  memory_.push_back(std::make_unique<std::byte[]>(size));
  owned_.push_back({memory_.back().get(), size});
  return memory_.back().get();
}

void ThreadAccelerator::Free(void* memory) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (memory_[i].get() == memory) {
      memory_.erase(memory_.begin() + static_cast<std::ptrdiff_t>(i));
      owned_.erase(owned_.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
  }
}

void ThreadAccelerator::FailAfter(std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  operations_left_ = count;
}

void ThreadAccelerator::FailToPrepare(const Status& status) {
  const std::lock_guard lock(mutex_);
  preparation_ = status;
}

void ThreadAccelerator::FailToTellOwner(const Status& status) {
  const std::lock_guard lock(mutex_);
  ownership_ = status;
}

std::size_t ThreadAccelerator::prepared() const {
  const std::lock_guard lock(mutex_);
  return slots_.size();
}

std::size_t ThreadAccelerator::reads_of(const void* slots) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(
      slots_.begin(), slots_.end(),
      [slots](const Range& range) { return range.begin == slots; });
  return found == slots_.end() ? 0 : found->reads;
}

void ThreadAccelerator::Hold(Lane lane) { worker(lane).SetHeld(true); }

void ThreadAccelerator::Resume(Lane lane) { worker(lane).SetHeld(false); }

Result<bool> ThreadAccelerator::Owns(const void* pointer) {
  {
    const std::lock_guard lock(mutex_);
    if (!ownership_.ok()) {
      return std::exchange(ownership_, Status());
    }
  }
  if (neighbour_ != nullptr && neighbour_->Allocated(pointer)) {
    return Status(StatusCode::kInvalidArgument,
                  "memory of " + neighbour_->name() + ", not of " + name());
  }
  return Allocated(pointer);
}

bool ThreadAccelerator::Allocated(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  return Contains(owned_, pointer, 1);
}

Status ThreadAccelerator::PrepareSlots(void* slots, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!preparation_.ok()) {
    return std::exchange(preparation_, Status());
  }
  slots_.push_back({static_cast<const std::byte*>(slots), bytes});
  return Status::Ok();
}

bool ThreadAccelerator::ReleaseSlots(void* slots) {
  const std::lock_guard lock(mutex_);
  std::erase_if(slots_,
                [slots](const Range& range) { return range.begin == slots; });
  return true;
}

bool ThreadAccelerator::IsSlot(const void* memory, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return Contains(slots_, memory, bytes);
}

Accelerator::Ticket ThreadAccelerator::CopyIn(void* slot, const void* user,
                                              std::size_t bytes) {
  return Start(Lane::kCopyIn, {.target = slot,
                               .operands = {user},
                               .count = bytes,
                               .element_bytes = 1,
                               .target_memory = Operation::Memory::kSlot,
                               .operand_memory = Operation::Memory::kUser});
}

Accelerator::Ticket ThreadAccelerator::CopyOut(void* user, const void* slot,
                                               std::size_t bytes) {
  return Start(Lane::kCopyOut, {.target = user,
                                .operands = {slot},
                                .count = bytes,
                                .element_bytes = 1,
                                .target_memory = Operation::Memory::kUser,
                                .operand_memory = Operation::Memory::kSlot});
}

Accelerator::Ticket ThreadAccelerator::CopyWithin(void* target,
                                                  const void* source,
                                                  std::size_t bytes) {
  return Start(Lane::kCopyOut, {.target = target,
                                .operands = {source},
                                .count = bytes,
                                .element_bytes = 1,
                                .target_memory = Operation::Memory::kUser,
                                .operand_memory = Operation::Memory::kUser});
}

Accelerator::Ticket ThreadAccelerator::Reduce(
    DataType type, ReduceOp op, Targets targets, const void* own,
    std::span<const void* const> received, std::size_t count,
    const Scaling& scaling) {
  Operation operation = {.target = targets.first,
                         .copy = targets.second,
                         .operands = {own},
                         .operand_count = 1 + received.size(),
                         .count = count,
                         .element_bytes = SizeOf(type),
                         .target_memory = Operation::Memory::kEither,
                         .operand_memory = Operation::Memory::kEither,
                         .kind = Operation::Kind::kReduce,
                         .type = type,
                         .op = op,
                         .scaling = scaling};
  const auto fit =
      received.first(std::min<std::size_t>(received.size(), kMostSources));
  std::copy(fit.begin(), fit.end(), operation.operands.begin() + 1);
  return Start(Lane::kReduce, operation);
}

Accelerator::Ticket ThreadAccelerator::Scale(Lane lane, DataType type,
                                             void* target, const void* source,
                                             std::size_t count, double factor) {
  return Start(lane, {.target = target,
                      .operands = {source},
                      .count = count,
                      .element_bytes = SizeOf(type),
                      .target_memory = Operation::Memory::kEither,
                      .operand_memory = Operation::Memory::kEither,
                      .kind = Operation::Kind::kScale,
                      .type = type,
                      .scaling = {.result = factor}});
}

Accelerator::Ticket ThreadAccelerator::Start(Lane lane,
                                             const Operation& operation) {
  Operation checked = operation;
  {
    const std::lock_guard lock(mutex_);
    checked.failure = Objection(operation);
    for (Range& slots : slots_) {
      slots.reads +=
          std::any_of(
              operation.operands.begin(), operation.operands.end(),
              [&](const void* operand) { return Contains(slots, operand, 1); })
              ? 1
              : 0;
    }
    if (operations_left_ == 0) {
      checked.failure = "thread accelerator: injected failure";
    } else if (operations_left_ != UINT64_MAX) {
      --operations_left_;
    }
  }
  return {lane, worker(lane).Push(checked)};
}

const char* ThreadAccelerator::Objection(const Operation& operation) const {
  using Memory = Operation::Memory;
  const auto is = [&](Memory memory, const void* pointer) {
    return (memory != Memory::kSlot &&
            Contains(owned_, pointer, operation.bytes())) ||
           (memory != Memory::kUser &&
            Contains(slots_, pointer, operation.bytes()));
  };
  const auto overlaps_target_in_part = [&](const void* pointer) {
    const auto target = reinterpret_cast<std::uintptr_t>(operation.target);
    const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
    const auto distance = std::max(target, begin) - std::min(target, begin);
    return distance != 0 && distance < operation.bytes();
  };
  if (operation.operand_count > operation.operands.size() ||
      (operation.kind == Operation::Kind::kReduce &&
       operation.operand_count < 2)) {
    return "thread accelerator: a reduction of no source, or of more than "
           "kMostSources";
  }
  if (operation.count == 0) {
    return nullptr;
  }
  if (!is(operation.target_memory, operation.target) ||
      (operation.copy != nullptr &&
       !is(operation.target_memory, operation.copy))) {
    return "thread accelerator: the target of an operation is not (all) of "
           "the kind of memory that the operation writes";
  }
  for (std::size_t i = 0; i < operation.operand_count; ++i) {
    const void* const operand = operation.operands[i];
    if (!is(operation.operand_memory, operand)) {
      return "thread accelerator: the source of an operation is not (all) of "
             "the kind of memory that the operation reads";
    }
    if (overlaps_target_in_part(operand)) {
      return "thread accelerator: the target of an operation overlaps its "
             "source in part";
    }
  }
  return nullptr;
}

bool ThreadAccelerator::Contains(const Range& range, const void* pointer,
                                 std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const auto first = reinterpret_cast<std::uintptr_t>(range.begin);
  return begin >= first && begin - first < range.bytes &&
         bytes <= range.bytes - (begin - first);
}

bool ThreadAccelerator::Contains(const std::vector<Range>& ranges,
                                 const void* pointer, std::size_t bytes) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    return Contains(range, pointer, bytes);
  });
}

Accelerator::Progress ThreadAccelerator::Poll(Ticket ticket) {
  if (worker(ticket.lane).Done(ticket.sequence)) {
    return Progress::kDone;
  }
  const bool failed =
      std::any_of(workers_.begin(), workers_.end(),
                  [](const std::unique_ptr<Worker>& w) { return w->failed(); });
  return failed ? Progress::kFailed : Progress::kPending;
}

Status ThreadAccelerator::error() const {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker->failed()) {
      return worker->error();
    }
  }
  return Status::Ok();
}

bool ThreadAccelerator::Drain(Deadline deadline) {
  bool drained = true;
  for (const std::unique_ptr<Worker>& worker : workers_) {
    drained &= worker->Drain(deadline);
  }
  return drained;
}

}  // namespace ringpipe
