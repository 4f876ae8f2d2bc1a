// ringpipe._torch: what python/ringpipe/torch.py calls.
#include <ATen/ATen.h>
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "python/process_group/process_group.h"

namespace ringpipe::process_group {
namespace {

using Group = ProcessGroupOf<c10d::ProcessGroup>;
using GroupPointer = c10::intrusive_ptr<c10d::ProcessGroup>;

// The groups that this process has open: they are closed before Python ends,
// because their callbacks need it.
class OpenGroups {
 public:
  void Add(const std::shared_ptr<Operations>& operations) {
    std::erase_if(groups_, [](const auto& group) { return group.expired(); });
    groups_.push_back(operations);
  }
  void CloseAll() {
    for (const auto& group : std::exchange(groups_, {})) {
      if (const auto operations = group.lock()) {
        operations->Close();
      }
    }
  }

 private:
  std::vector<std::weak_ptr<Operations>> groups_;  // with Python's lock
};

GroupPointer Create(OpenGroups& open,
                    const c10d::DistributedBackendOptions& given) {
  const Communicator::Options options = {
      .store = given.store,
      .rank = given.group_rank,
      .size = given.group_size,
      .timeout =
          std::chrono::duration_cast<std::chrono::milliseconds>(given.timeout),
      .global_ranks = given.global_ranks_in_group};
  std::shared_ptr<Operations> operations;
  {
    const pybind11::gil_scoped_release without_gil;
    operations = std::make_shared<Operations>(options);
  }
  open.Add(operations);
  return c10::make_intrusive<Group>(operations, options.rank, options.size);
}

Operations& OperationsOf(const GroupPointer& group) {
  auto* const own = dynamic_cast<Group*>(group.get());
  TORCH_CHECK(own != nullptr, "this process group is not ringpipe's: ",
              group == nullptr ? std::string("it is None")
                               : "its backend is " + group->getBackendName());
  return own->operations();
}

}  // namespace
}  // namespace ringpipe::process_group

PYBIND11_MODULE(_torch, module) {
  using ringpipe::process_group::GroupPointer;
  using ringpipe::process_group::OpenGroups;
  using ringpipe::process_group::OperationsOf;
  namespace py = pybind11;
  py::module_::import("torch.distributed");  // whose types these are
  // As long as Python has any of the functions.
  const auto open = std::make_shared<OpenGroups>();
  module.attr("TORCH_VERSION") = TORCH_VERSION;
  module.def("create", [open](const c10d::DistributedBackendOptions& options) {
    return ringpipe::process_group::Create(*open, options);
  });
  module.def("close_all", [open] { open->CloseAll(); });
  module.def("lost_ranks", [](const GroupPointer& group) {
    return OperationsOf(group).LostRanks();
  });
  module.def("allocate_like",
             [](const GroupPointer& group, const at::Tensor& tensor) {
               return OperationsOf(group).AllocateLike(tensor);
             });
}
