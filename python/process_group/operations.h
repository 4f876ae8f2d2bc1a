#ifndef RINGPIPE_PYTHON_PROCESS_GROUP_OPERATIONS_H_
#define RINGPIPE_PYTHON_PROCESS_GROUP_OPERATIONS_H_

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "python/process_group/communicator.h"
#include "python/process_group/completion_pool.h"
#include "python/process_group/tensors.h"
#include "python/process_group/work.h"

namespace ringpipe::process_group {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// What a process group does, whatever torch's base class for that is: the
// functions are those of c10d::ProcessGroup, whose arguments they have. Each
// starts a call, in the order in which they are called, and throws if it
// cannot. Thread-safe.
class Operations {
 public:
  explicit Operations(const Communicator::Options& options);
  ~Operations();
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  WorkPointer AllReduce(const Tensors& tensors,
                        const c10d::AllreduceOptions& options);
  WorkPointer AllReduceCoalesced(const Tensors& tensors,
                                 const c10d::AllreduceOptions& options);
  WorkPointer Broadcast(const Tensors& tensors,
                        const c10d::BroadcastOptions& options);
  WorkPointer Reduce(const Tensors& tensors,
                     const c10d::ReduceOptions& options);
  WorkPointer AllGather(const TensorLists& outputs, const Tensors& inputs,
                        const c10d::AllgatherOptions& options);
  WorkPointer AllGatherBase(const at::Tensor& output, const at::Tensor& input,
                            const c10d::AllgatherOptions& options);
  WorkPointer AllGatherCoalesced(const TensorLists& outputs,
                                 const Tensors& inputs,
                                 const c10d::AllgatherOptions& options);
  WorkPointer Gather(const TensorLists& outputs, const Tensors& inputs,
                     const c10d::GatherOptions& options);
  WorkPointer Scatter(const Tensors& outputs, const TensorLists& inputs,
                      const c10d::ScatterOptions& options);
  WorkPointer ReduceScatter(const Tensors& outputs, const TensorLists& inputs,
                            const c10d::ReduceScatterOptions& options);
  WorkPointer ReduceScatterBase(const at::Tensor& output,
                                const at::Tensor& input,
                                const c10d::ReduceScatterOptions& options);
  WorkPointer AllToAll(const Tensors& outputs, const Tensors& inputs,
                       const c10d::AllToAllOptions& options);
  WorkPointer AllToAllBase(const at::Tensor& output, const at::Tensor& input,
                           const std::vector<std::int64_t>& output_splits,
                           const std::vector<std::int64_t>& input_splits,
                           const c10d::AllToAllOptions& options);
  WorkPointer Barrier(const c10d::BarrierOptions& options);
  // Waits for it. Its error names a rank that has not come.
  void MonitoredBarrier(const c10d::BarrierOptions& options);

  // Calls that have been started.
  std::uint64_t sequence() const { return sequence_; }

  // A tensor of that type and shape, of zeros, in memory that other ranks of
  // this host read and write where it lies. Outlives the group.
  at::Tensor AllocateLike(const at::Tensor& tensor) const;
  std::vector<std::int64_t> LostRanks() const;

  // Waits for what is in flight, for 2 s at most, then ends it, and leaves the
  // other ranks. Later calls throw. Does nothing the second time, and in a
  // child of fork.
  void Close();

 private:
  // Throws what says why no call can be made; otherwise the communicator.
  std::shared_ptr<Communicator> Open() const;
  WorkPointer Start(Work::Description description, Operands& operands,
                    std::chrono::milliseconds timeout);

  const int rank_;
  const int size_;
  const std::shared_ptr<CompletionPool> pool_;
  std::atomic<std::uint64_t> sequence_{0};
  mutable std::mutex mutex_;
  std::shared_ptr<Communicator> communicator_;  // nullptr: closed
};

}  // namespace ringpipe::process_group

#endif  // RINGPIPE_PYTHON_PROCESS_GROUP_OPERATIONS_H_
