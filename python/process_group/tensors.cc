#include "python/process_group/tensors.h"

#include <string>

namespace ringpipe::process_group {
namespace {

const char* NameOf(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return "SUM";
    case c10d::ReduceOp::AVG:
      return "AVG";
    case c10d::ReduceOp::PRODUCT:
      return "PRODUCT";
    case c10d::ReduceOp::MIN:
      return "MIN";
    case c10d::ReduceOp::MAX:
      return "MAX";
    case c10d::ReduceOp::BAND:
      return "BAND";
    case c10d::ReduceOp::BOR:
      return "BOR";
    case c10d::ReduceOp::BXOR:
      return "BXOR";
    case c10d::ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "UNUSED";
  }
}

// A logical value is 0 or 1: a sum is "or", as in torch's NCCL backend.
ringpipe_reduce_op LogicalOf(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
      return RINGPIPE_MAX;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
      return RINGPIPE_MIN;
    default:
      TORCH_CHECK(false, "ringpipe cannot reduce bool by ReduceOp.", NameOf(op),
                  "; convert the tensor first: tensor.to(torch.uint8)");
  }
}

// By what PREMUL_SUM multiplies.
double FactorOf(const c10d::ReduceOp& op) {
  const auto& supplement =
      static_cast<const c10d::NCCLPreMulSumSupplement&>(*op.supplement_);
  double factor = supplement.double_factor;
  if (!supplement.tensor_factors.empty()) {
    const at::Tensor& tensor = supplement.tensor_factors.front();
    TORCH_CHECK(supplement.tensor_factors.size() == 1 && tensor.numel() == 1,
                "ringpipe multiplies by one number before PREMUL_SUM; give one "
                "tensor of one element");
    factor = tensor.item<double>();
  }
  TORCH_CHECK(factor != 0,
              "ringpipe cannot multiply by 0 before PREMUL_SUM; "
              "reduce a tensor of zeros instead");
  return factor;
}

}  // namespace

ringpipe_data_type TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return RINGPIPE_FLOAT32;
    case at::kDouble:
      return RINGPIPE_FLOAT64;
    case at::kInt:
      return RINGPIPE_INT32;
    case at::kLong:
      return RINGPIPE_INT64;
    case at::kChar:
      return RINGPIPE_INT8;
    case at::kByte:
    case at::kBool:
      return RINGPIPE_UINT8;
    case at::kHalf:
      return RINGPIPE_FLOAT16;
    case at::kBFloat16:
      return RINGPIPE_BFLOAT16;
    default:
      TORCH_CHECK(false, "ringpipe has no type ", tensor.scalar_type(),
                  "; convert the tensor to another one (complex: "
                  "torch.view_as_real)");
  }
}

Reduction ReductionOf(const c10d::ReduceOp& op, at::ScalarType type) {
  if (type == at::kBool) {
    return {LogicalOf(op.op_)};
  }
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {RINGPIPE_SUM};
    case c10d::ReduceOp::AVG:
      return {RINGPIPE_AVERAGE};
    case c10d::ReduceOp::PRODUCT:
      return {RINGPIPE_PROD};
    case c10d::ReduceOp::MIN:
      return {RINGPIPE_MIN};
    case c10d::ReduceOp::MAX:
      return {RINGPIPE_MAX};
    case c10d::ReduceOp::PREMUL_SUM:
      TORCH_CHECK(at::isFloatingType(type),
                  "ringpipe has ReduceOp.PREMUL_SUM for floating-point types, "
                  "not for ",
                  type);
      return {RINGPIPE_SUM, FactorOf(op)};
    default:
      TORCH_CHECK(false, "ringpipe has no ReduceOp.", NameOf(op.op_),
                  "; it has SUM, AVG, PRODUCT, MIN, MAX and PREMUL_SUM, and "
                  "for bool BAND and BOR");
  }
}

Operands::Operands(ringpipe_collective collective) {
  call_.struct_size = sizeof call_;
  call_.collective = static_cast<std::uint32_t>(collective);
  call_.data_type = RINGPIPE_UINT8;  // of a call without elements
}

void Operands::Check(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(),
              "ringpipe was given a tensor that is undefined");
  TORCH_CHECK(!tensor.is_sparse() && tensor.layout() == at::kStrided,
              "ringpipe has no sparse tensors (this one's layout is ",
              tensor.layout(), "); pass tensor.to_dense()");
  TORCH_CHECK(
      tensor.device().is_cpu(),
      "ringpipe.torch is for tensors in host memory, and this one is on ",
      tensor.device(), "; pass tensor.cpu()");
  TORCH_CHECK(!tensor.is_neg(),
              "ringpipe was given a tensor that is yet to be negated; pass "
              "tensor.resolve_neg()");
  const ringpipe_data_type type = TypeOf(tensor);
  TORCH_CHECK(!has_type_ || tensor.scalar_type() == type_,
              "the tensors of one call have one type, and here are ", type_,
              " and ", tensor.scalar_type(), "; make a call for each");
  has_type_ = true;
  type_ = tensor.scalar_type();
  call_.data_type = static_cast<std::uint32_t>(type);
}

at::Tensor Operands::MemoryOf(const at::Tensor& tensor, bool has_values) {
  Check(tensor);
  at::Tensor memory = tensor.is_contiguous() ? tensor
                      : has_values
                          ? tensor.contiguous()
                          : at::empty(tensor.sizes(), tensor.options());
  memory_.push_back(memory);
  return memory;
}

void Operands::Read(const at::Tensor& tensor) {
  const at::Tensor memory = MemoryOf(tensor, /*has_values=*/true);
  send_.push_back(
      {memory.data_ptr(), static_cast<std::size_t>(memory.numel())});
}

void Operands::Write(const at::Tensor& tensor) {
  const at::Tensor memory = MemoryOf(tensor, /*has_values=*/false);
  receive_.push_back(
      {memory.data_ptr(), static_cast<std::size_t>(memory.numel())});
  if (!memory.is_same(tensor)) {
    copies_.emplace_back(tensor, memory);
  }
}

void Operands::ReadAndWrite(const at::Tensor& tensor) {
  const at::Tensor memory = MemoryOf(tensor, /*has_values=*/true);
  const ringpipe_buffer piece = {memory.data_ptr(),
                                 static_cast<std::size_t>(memory.numel())};
  send_.push_back(piece);
  receive_.push_back(piece);
  if (!memory.is_same(tensor)) {
    copies_.emplace_back(tensor, memory);
  }
}

void Operands::Reduce(const c10d::ReduceOp& op) {
  const Reduction reduction = ReductionOf(op, type_);
  call_.reduce_op = static_cast<std::uint32_t>(reduction.op);
  call_.prescale = reduction.prescale;
}

ringpipe_call& Operands::Finish() {
  if (send_.size() == 1) {
    call_.send = send_.front().data;
  } else {
    call_.send_list = send_.data();
    call_.send_list_length = send_.size();
  }
  if (receive_.size() == 1) {
    call_.receive = receive_.front().data;
  } else {
    call_.receive_list = receive_.data();
    call_.receive_list_length = receive_.size();
  }
  if (!counts.empty()) {
    call_.counts = counts.data();
    call_.counts_length = counts.size();
  }
  if (!receive_counts.empty()) {
    call_.receive_counts = receive_counts.data();
    call_.receive_counts_length = receive_counts.size();
  }
  return call_;
}

}  // namespace ringpipe::process_group
