#include "python/process_group/operations.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "python/process_group/interpreter.h"

namespace ringpipe::process_group {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;

// How long Close waits for calls that are under way, as ringpipe_destroy does
// for other ranks; and then for callbacks that have begun.
constexpr milliseconds kCallPatience(2'000);
constexpr milliseconds kCallbackPatience(10'000);

const at::Tensor& Only(const Tensors& tensors, const char* title,
                       const char* what) {
  TORCH_CHECK(tensors.size() == 1, title, ": ringpipe takes one ", what,
              " a rank, and was given ", tensors.size());
  return tensors.front();
}

// Of a list of lists, which has one for each device of the process.
const Tensors& OnlyList(const TensorLists& lists, int size, const char* title,
                        const char* what) {
  TORCH_CHECK(lists.size() == 1, title, ": ringpipe takes one list of ", what,
              "s a rank, and was given ", lists.size());
  TORCH_CHECK(lists.front().size() == static_cast<std::size_t>(size), title,
              ": there are ", lists.front().size(), " ", what, "s and ", size,
              " ranks; give one for each");
  return lists.front();
}

void CheckElements(const char* title, std::int64_t found,
                   std::int64_t expected) {
  TORCH_CHECK(found == expected, title, ": the tensor with all parts has ",
              found, " elements, and the parts together ", expected);
}

// Of what each rank has a part of: the length of all, or that of each.
void SetParts(const Tensors& parts, Operands& operands) {
  const std::int64_t first = parts.front().numel();
  if (std::all_of(parts.begin(), parts.end(), [&](const at::Tensor& part) {
        return part.numel() == first;
      })) {
    operands.call().count = static_cast<std::uint64_t>(first);
    return;
  }
  for (const at::Tensor& part : parts) {
    operands.counts.push_back(static_cast<std::uint64_t>(part.numel()));
  }
}

// The part of the rank whose own tensor is `own`.
void CheckPart(const char* title, const Tensors& parts, int rank,
               const at::Tensor& own) {
  const at::Tensor& part = parts[static_cast<std::size_t>(rank)];
  TORCH_CHECK(part.numel() == own.numel(), title, ": rank ", rank, " has ",
              own.numel(), " elements, and ", part.numel(),
              " in the list of all ranks");
}

std::vector<std::uint64_t> CountsOf(const Tensors& parts) {
  std::vector<std::uint64_t> counts;
  for (const at::Tensor& part : parts) {
    counts.push_back(static_cast<std::uint64_t>(part.numel()));
  }
  return counts;
}

// Of a tensor whose rows are split so between the ranks; without splits,
// equally.
std::vector<std::uint64_t> CountsOf(const at::Tensor& tensor,
                                    const std::vector<std::int64_t>& splits,
                                    int size, const char* title) {
  const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  const std::int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  if (splits.empty()) {
    TORCH_CHECK(rows % size == 0, title, ": ", rows,
                " rows cannot be split equally between ", size,
                " ranks; give split sizes");
    return std::vector<std::uint64_t>(
        static_cast<std::size_t>(size),
        static_cast<std::uint64_t>(rows / size * row));
  }
  TORCH_CHECK(splits.size() == static_cast<std::size_t>(size) &&
                  std::all_of(splits.begin(), splits.end(),
                              [](std::int64_t split) { return split >= 0; }) &&
                  std::accumulate(splits.begin(), splits.end(),
                                  std::int64_t{0}) == rows,
              title, ": split sizes ", splits, " do not split ", rows,
              " rows between ", size, " ranks");
  std::vector<std::uint64_t> counts;
  for (const std::int64_t split : splits) {
    counts.push_back(static_cast<std::uint64_t>(split * row));
  }
  return counts;
}

}  // namespace

Operations::Operations(const Communicator::Options& options)
    : rank_(options.rank),
      size_(options.size),
      pool_(std::make_shared<CompletionPool>()),
      communicator_(Communicator::Create(options)) {}

Operations::~Operations() { Close(); }

std::shared_ptr<Communicator> Operations::Open() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (communicator_ == nullptr) {
    throw std::runtime_error(
        "ringpipe: this process group is closed, or Python ends");
  }
  if (communicator_->IsChild()) {
    throw std::runtime_error(
        "ringpipe: this process group belongs to the process that made it, "
        "and this process is a child of it; call "
        "torch.distributed.init_process_group here");
  }
  return communicator_;
}

WorkPointer Operations::Start(Work::Description description, Operands& operands,
                              milliseconds timeout) {
  std::shared_ptr<Communicator> communicator = Open();
  if (timeout > milliseconds(0)) {
    operands.call().timeout_ms = timeout.count();
  }
  auto work = Work::Start(std::move(communicator), pool_,
                          std::move(description), operands);
  ++sequence_;
  return work;
}

WorkPointer Operations::AllReduce(const Tensors& tensors,
                                  const c10d::AllreduceOptions& options) {
  Only(tensors, "ringpipe:all_reduce", "tensor");
  return AllReduceCoalesced(tensors, options);
}

WorkPointer Operations::AllReduceCoalesced(
    const Tensors& tensors, const c10d::AllreduceOptions& options) {
  Operands operands(RINGPIPE_ALL_REDUCE);
  for (const at::Tensor& tensor : tensors) {
    operands.ReadAndWrite(tensor);
    operands.call().count += static_cast<std::uint64_t>(tensor.numel());
  }
  operands.Reduce(options.reduceOp);
  return Start({OpType::ALLREDUCE, "ringpipe:all_reduce", tensors, tensors, {}},
               operands, options.timeout);
}

WorkPointer Operations::Broadcast(const Tensors& tensors,
                                  const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = Only(tensors, "ringpipe:broadcast", "tensor");
  Operands operands(RINGPIPE_BROADCAST);
  operands.ReadAndWrite(tensor);
  operands.call().count = static_cast<std::uint64_t>(tensor.numel());
  operands.call().root = static_cast<std::int32_t>(options.rootRank);
  return Start({OpType::BROADCAST, "ringpipe:broadcast", tensors, tensors, {}},
               operands, options.timeout);
}

WorkPointer Operations::Reduce(const Tensors& tensors,
                               const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = Only(tensors, "ringpipe:reduce", "tensor");
  Operands operands(RINGPIPE_REDUCE);
  if (rank_ == options.rootRank) {
    operands.ReadAndWrite(tensor);
  } else {
    operands.Read(tensor);
  }
  operands.Reduce(options.reduceOp);
  operands.call().count = static_cast<std::uint64_t>(tensor.numel());
  operands.call().root = static_cast<std::int32_t>(options.rootRank);
  return Start({OpType::REDUCE, "ringpipe:reduce", tensors, tensors, {}},
               operands, options.timeout);
}

WorkPointer Operations::AllGather(const TensorLists& outputs,
                                  const Tensors& inputs,
                                  const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "ringpipe:all_gather";
  const at::Tensor& input = Only(inputs, kTitle, "input tensor");
  const Tensors& parts = OnlyList(outputs, size_, kTitle, "output tensor");
  CheckPart(kTitle, parts, rank_, input);
  Operands operands(RINGPIPE_ALL_GATHER);
  operands.Read(input);
  for (const at::Tensor& part : parts) {
    operands.Write(part);
  }
  SetParts(parts, operands);
  return Start({OpType::ALLGATHER, kTitle, inputs, parts, {}}, operands,
               options.timeout);
}

WorkPointer Operations::AllGatherBase(const at::Tensor& output,
                                      const at::Tensor& input,
                                      const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "ringpipe:_all_gather_base";
  CheckElements(kTitle, output.numel(), input.numel() * size_);
  Operands operands(RINGPIPE_ALL_GATHER);
  operands.Read(input);
  operands.Write(output);
  operands.call().count = static_cast<std::uint64_t>(input.numel());
  return Start({OpType::_ALLGATHER_BASE, kTitle, {input}, {output}, {}},
               operands, options.timeout);
}

WorkPointer Operations::AllGatherCoalesced(
    const TensorLists& outputs, const Tensors& inputs,
    const c10d::AllgatherOptions& options) {
  constexpr const char* kTitle = "ringpipe:all_gather";
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(size_), kTitle,
              ": there are ", outputs.size(), " output lists and ", size_,
              " ranks; give one for each");
  Operands operands(RINGPIPE_ALL_GATHER);
  for (const at::Tensor& input : inputs) {
    operands.Read(input);
    operands.call().count += static_cast<std::uint64_t>(input.numel());
  }
  Tensors all;
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), kTitle, ": an output list has ",
                list.size(), " tensors, and there are ", inputs.size(),
                " input tensors; give one for each");
    for (std::size_t i = 0; i < list.size(); ++i) {
      TORCH_CHECK(list[i].numel() == inputs[i].numel(), kTitle, ": output ", i,
                  " of a rank has ", list[i].numel(), " elements, and input ",
                  i, " has ", inputs[i].numel());
      operands.Write(list[i]);
      all.push_back(list[i]);
    }
  }
  return Start({OpType::ALLGATHER_COALESCED, kTitle, inputs, std::move(all),
                at::IValue(outputs)},
               operands, options.timeout);
}

WorkPointer Operations::Gather(const TensorLists& outputs,
                               const Tensors& inputs,
                               const c10d::GatherOptions& options) {
  constexpr const char* kTitle = "ringpipe:gather";
  const at::Tensor& input = Only(inputs, kTitle, "input tensor");
  Operands operands(RINGPIPE_GATHER);
  operands.Read(input);
  Tensors parts;
  if (rank_ == options.rootRank) {
    parts = OnlyList(outputs, size_, kTitle, "output tensor");
    for (const at::Tensor& part : parts) {
      TORCH_CHECK(part.numel() == input.numel(), kTitle,
                  ": an output tensor has ", part.numel(),
                  " elements, and the input tensor ", input.numel());
      operands.Write(part);
    }
  } else {
    TORCH_CHECK(outputs.empty(), kTitle, ": only the root, rank ",
                options.rootRank, ", has output tensors");
  }
  operands.call().count = static_cast<std::uint64_t>(input.numel());
  operands.call().root = static_cast<std::int32_t>(options.rootRank);
  return Start({OpType::GATHER, kTitle, inputs, std::move(parts), {}}, operands,
               options.timeout);
}

WorkPointer Operations::Scatter(const Tensors& outputs,
                                const TensorLists& inputs,
                                const c10d::ScatterOptions& options) {
  constexpr const char* kTitle = "ringpipe:scatter";
  const at::Tensor& output = Only(outputs, kTitle, "output tensor");
  Operands operands(RINGPIPE_SCATTER);
  Tensors parts;
  if (rank_ == options.rootRank) {
    parts = OnlyList(inputs, size_, kTitle, "input tensor");
    for (const at::Tensor& part : parts) {
      TORCH_CHECK(part.numel() == output.numel(), kTitle,
                  ": an input tensor has ", part.numel(),
                  " elements, and the output tensor ", output.numel());
      operands.Read(part);
    }
  } else {
    TORCH_CHECK(inputs.empty(), kTitle, ": only the root, rank ",
                options.rootRank, ", has input tensors");
  }
  operands.Write(output);
  operands.call().count = static_cast<std::uint64_t>(output.numel());
  operands.call().root = static_cast<std::int32_t>(options.rootRank);
  return Start({OpType::SCATTER, kTitle, std::move(parts), outputs, {}},
               operands, options.timeout);
}

WorkPointer Operations::ReduceScatter(
    const Tensors& outputs, const TensorLists& inputs,
    const c10d::ReduceScatterOptions& options) {
  constexpr const char* kTitle = "ringpipe:reduce_scatter";
  const at::Tensor& output = Only(outputs, kTitle, "output tensor");
  const Tensors& parts = OnlyList(inputs, size_, kTitle, "input tensor");
  CheckPart(kTitle, parts, rank_, output);
  Operands operands(RINGPIPE_REDUCE_SCATTER);
  for (const at::Tensor& part : parts) {
    operands.Read(part);
  }
  operands.Write(output);
  operands.Reduce(options.reduceOp);
  SetParts(parts, operands);
  return Start({OpType::REDUCE_SCATTER, kTitle, parts, outputs, {}}, operands,
               options.timeout);
}

WorkPointer Operations::ReduceScatterBase(
    const at::Tensor& output, const at::Tensor& input,
    const c10d::ReduceScatterOptions& options) {
  constexpr const char* kTitle = "ringpipe:_reduce_scatter_base";
  CheckElements(kTitle, input.numel(), output.numel() * size_);
  Operands operands(RINGPIPE_REDUCE_SCATTER);
  operands.Read(input);
  operands.Write(output);
  operands.Reduce(options.reduceOp);
  operands.call().count = static_cast<std::uint64_t>(output.numel());
  return Start({OpType::_REDUCE_SCATTER_BASE, kTitle, {input}, {output}, {}},
               operands, options.timeout);
}

WorkPointer Operations::AllToAll(const Tensors& outputs, const Tensors& inputs,
                                 const c10d::AllToAllOptions& options) {
  constexpr const char* kTitle = "ringpipe:all_to_all";
  OnlyList({outputs}, size_, kTitle, "output tensor");
  OnlyList({inputs}, size_, kTitle, "input tensor");
  Operands operands(RINGPIPE_ALL_TO_ALL);
  for (int rank = 0; rank < size_; ++rank) {
    operands.Read(inputs[static_cast<std::size_t>(rank)]);
    operands.Write(outputs[static_cast<std::size_t>(rank)]);
  }
  // Also where all are equally long: that may not be so on another rank.
  operands.counts = CountsOf(inputs);
  operands.receive_counts = CountsOf(outputs);
  return Start({OpType::ALLTOALL, kTitle, inputs, outputs, {}}, operands,
               options.timeout);
}

WorkPointer Operations::AllToAllBase(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<std::int64_t>& output_splits,
    const std::vector<std::int64_t>& input_splits,
    const c10d::AllToAllOptions& options) {
  constexpr const char* kTitle = "ringpipe:all_to_all";
  Operands operands(RINGPIPE_ALL_TO_ALL);
  operands.Read(input);
  operands.Write(output);
  if (input_splits.empty() && output_splits.empty()) {
    CheckElements(kTitle, output.numel(), input.numel());
  }
  // As in AllToAll.
  operands.counts = CountsOf(input, input_splits, size_, kTitle);
  operands.receive_counts = CountsOf(output, output_splits, size_, kTitle);
  return Start({OpType::ALLTOALL_BASE, kTitle, {input}, {output}, {}}, operands,
               options.timeout);
}

WorkPointer Operations::Barrier(const c10d::BarrierOptions& options) {
  Operands operands(RINGPIPE_BARRIER);
  return Start({OpType::BARRIER, "ringpipe:barrier", {}, {}, {}}, operands,
               options.timeout);
}

void Operations::MonitoredBarrier(const c10d::BarrierOptions& options) {
  Barrier(options)->wait(kNoTimeout);
}

at::Tensor Operations::AllocateLike(const at::Tensor& tensor) const {
  const auto communicator = Open();
  if (tensor.numel() == 0) {
    return at::empty(tensor.sizes(), tensor.options());
  }
  void* memory = nullptr;
  if (ringpipe_allocate(communicator->get(), tensor.nbytes(), &memory) !=
      RINGPIPE_OK) {
    throw std::runtime_error(communicator->Describe(
        "ringpipe.torch.allocate_like", ringpipe_error_message()));
  }
  // Of a child of fork, it is not there to be freed.
  const auto free = [communicator](void* allocated) {
    if (!communicator->IsChild()) {
      static_cast<void>(ringpipe_free(communicator->get(), allocated));
    }
  };
  return at::from_blob(memory, tensor.sizes(), free, tensor.options());
}

std::vector<std::int64_t> Operations::LostRanks() const {
  return Open()->LostRanks();
}

void Operations::Close() {
  std::shared_ptr<Communicator> communicator;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (communicator_ == nullptr || communicator_->IsChild()) {
      return;
    }
    communicator = std::move(communicator_);
  }
  const WithoutGil without_gil;
  if (!pool_->AwaitCalls(kCallPatience)) {
    ringpipe_abort(
        communicator->get(),
        "its process group was destroyed while a call was under way");
  }
  if (pool_->Close(kCallbackPatience)) {
    // Now, and not when the last tensor of its memory goes. What fails here is
    // done then.
    static_cast<void>(ringpipe_leave(communicator->get()));
  }
}

}  // namespace ringpipe::process_group
