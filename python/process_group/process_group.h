// torch's process groups, over ringpipe.
#ifndef RINGPIPE_PYTHON_PROCESS_GROUP_PROCESS_GROUP_H_
#define RINGPIPE_PYTHON_PROCESS_GROUP_PROCESS_GROUP_H_

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "python/process_group/operations.h"

namespace ringpipe::process_group {

// Base is c10d::ProcessGroup, which PyTorch 1.13 has backends derive from, or
// c10d::Backend, which PyTorch 2 has them derive from: the functions are the
// same. With the second it is compiled, and has not run.
template <typename Base>
class ProcessGroupOf final : public Base {
 public:
  ProcessGroupOf(std::shared_ptr<Operations> operations, int rank, int size)
      : Base(rank, size), operations_(std::move(operations)) {}
  ~ProcessGroupOf() override { operations_->Close(); }

  Operations& operations() { return *operations_; }

  const std::string getBackendName() const override { return "ringpipe"; }

  WorkPointer broadcast(Tensors& tensors,
                        const c10d::BroadcastOptions& options) override {
    return operations_->Broadcast(tensors, options);
  }
  WorkPointer allreduce(Tensors& tensors,
                        const c10d::AllreduceOptions& options) override {
    return operations_->AllReduce(tensors, options);
  }
  WorkPointer allreduce_coalesced(
      Tensors& tensors,
      const c10d::AllreduceCoalescedOptions& options) override {
    return operations_->AllReduceCoalesced(tensors, options);
  }
  WorkPointer reduce(Tensors& tensors,
                     const c10d::ReduceOptions& options) override {
    return operations_->Reduce(tensors, options);
  }
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override {
    return operations_->AllGather(outputs, inputs, options);
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override {
    return operations_->AllGatherBase(output, input, options);
  }
  WorkPointer allgather_coalesced(
      TensorLists& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& options) override {
    return operations_->AllGatherCoalesced(outputs, inputs, options);
  }
  WorkPointer gather(TensorLists& outputs, Tensors& inputs,
                     const c10d::GatherOptions& options) override {
    return operations_->Gather(outputs, inputs, options);
  }
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ScatterOptions& options) override {
    return operations_->Scatter(outputs, inputs, options);
  }
  WorkPointer reduce_scatter(
      Tensors& outputs, TensorLists& inputs,
      const c10d::ReduceScatterOptions& options) override {
    return operations_->ReduceScatter(outputs, inputs, options);
  }
  WorkPointer _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& options) override {
    return operations_->ReduceScatterBase(output, input, options);
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits,
                            std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override {
    return operations_->AllToAllBase(output, input, output_splits, input_splits,
                                     options);
  }
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override {
    return operations_->AllToAll(outputs, inputs, options);
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    return operations_->Barrier(options);
  }
  // Both with and without `wait_for_all`: the first rank that has not come ends
  // the group.
  void monitoredBarrier(const c10d::BarrierOptions& options,
                        bool /*wait_for_all*/) override {
    operations_->MonitoredBarrier(options);
  }

  WorkPointer send(Tensors& /*tensors*/, int /*to*/, int /*tag*/) override {
    RefusePointToPoint("send");
  }
  WorkPointer recv(Tensors& /*tensors*/, int /*from*/, int /*tag*/) override {
    RefusePointToPoint("recv");
  }
  WorkPointer recvAnysource(Tensors& /*tensors*/, int /*tag*/) override {
    RefusePointToPoint("recv from any source");
  }

  // ringpipe's calls have numbers of their own, which begin at 0.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override {
    return operations_->sequence();
  }

 private:
  [[noreturn]] static void RefusePointToPoint(const char* what) {
    TORCH_CHECK(false, "ringpipe has no ", what,
                " yet: messages between two ranks come with a later version. "
                "Use a group of the two ranks and broadcast, or a second group "
                "with the backend gloo");
  }

  const std::shared_ptr<Operations> operations_;
};

extern template class ProcessGroupOf<c10d::ProcessGroup>;
extern template class ProcessGroupOf<c10d::Backend>;

}  // namespace ringpipe::process_group

#endif  // RINGPIPE_PYTHON_PROCESS_GROUP_PROCESS_GROUP_H_
