// torch's tensors and operations, as ringpipe has them.
#ifndef RINGPIPE_PYTHON_PROCESS_GROUP_TENSORS_H_
#define RINGPIPE_PYTHON_PROCESS_GROUP_TENSORS_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "engine/ringpipe.h"

namespace ringpipe::process_group {

// Throws what names the type, if ringpipe has none such.
ringpipe_data_type TypeOf(const at::Tensor& tensor);

struct Reduction {
  ringpipe_reduce_op op = RINGPIPE_SUM;
  double prescale = 1;
};
// Of elements of that type. Throws what names the operation, if there is none.
Reduction ReductionOf(const c10d::ReduceOp& op, at::ScalarType type);

// A call that is put together of tensors: the memory that it reads and writes,
// and what keeps that until the call's end. All tensors are of one type, dense
// and in host memory; others are refused by name, with what to do. What is not
// contiguous is copied to what is: ranks may have different strides.
class Operands {
 public:
  explicit Operands(ringpipe_collective collective);

  // The next piece of what the call reads, or writes, or both.
  void Read(const at::Tensor& tensor);
  void Write(const at::Tensor& tensor);
  void ReadAndWrite(const at::Tensor& tensor);
  void Reduce(const c10d::ReduceOp& op);

  // Elements by rank, instead of call().count: of what is read, and written.
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> receive_counts;

  // Only for ringpipe_start, and only as long as this lives. `count`, where
  // there are no counts, is the caller's to set.
  ringpipe_call& call() { return call_; }
  ringpipe_call& Finish();

  at::ScalarType type() const { return type_; }
  // What must live until the call's end.
  std::vector<at::Tensor> TakeMemory() { return std::move(memory_); }
  // What is then to be copied: {to, from}.
  std::vector<std::pair<at::Tensor, at::Tensor>> TakeCopies() {
    return std::move(copies_);
  }

 private:
  void Check(const at::Tensor& tensor);
  // Contiguous, with the values of `tensor` or with any.
  at::Tensor MemoryOf(const at::Tensor& tensor, bool has_values);

  ringpipe_call call_ = {};
  bool has_type_ = false;
  at::ScalarType type_ = at::kFloat;
  std::vector<ringpipe_buffer> send_;
  std::vector<ringpipe_buffer> receive_;
  std::vector<at::Tensor> memory_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

}  // namespace ringpipe::process_group

#endif  // RINGPIPE_PYTHON_PROCESS_GROUP_TENSORS_H_
