#include "engine/gpu_sharing.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <set>

#include "bootstrap/bootstrap.h"

namespace ringpipe {

std::string SharedGpuWarning(int rank, const std::string& name,
                             const std::map<int, std::uint64_t>& gpu_of,
                             const std::vector<std::uint64_t>& visible) {
  const std::uint64_t own = gpu_of.at(rank);
  std::set<int> sharers;
  std::set<std::uint64_t> used;
  std::size_t undecided = 0;
  for (const auto& [peer, gpu] : gpu_of) {
    if (gpu == own) {
      sharers.insert(peer);
    }
    used.insert(gpu);
    undecided += gpu == 0 ? 1 : 0;
  }
  const auto unused = static_cast<std::size_t>(
      std::count_if(visible.begin(), visible.end(),
                    [&](std::uint64_t gpu) { return !used.contains(gpu); }));
  if (own == 0 || sharers.size() < 2 || *sharers.begin() != rank ||
      unused <= undecided) {
    return "";
  }
  return "ranks " + FormatRanks(sharers) +
         " of this host use the same GPU, which is " + name + " of rank " +
         std::to_string(rank) + ", while " + std::to_string(unused) +
         " of the " + std::to_string(visible.size()) +
         " GPUs that this rank sees are used by no rank with which it shares "
         "memory. If that "
         "is not meant, let each rank choose its own before it allocates, by "
         "the variable LOCAL_RANK (of torchrun; OMPI_COMM_WORLD_LOCAL_RANK, "
         "MPI_LOCALRANKID or SLURM_LOCALID of others): "
         "cudaSetDevice(atoi(getenv(\"LOCAL_RANK\"))), or in PyTorch "
         "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))";
}

void GpuSharing::Tell(const Accelerator& device, Transports transports) {
  if (told_) {
    return;
  }
  gpus_ = device.gpus();
  name_ = device.name();
  told_ = true;
  settled_ = gpus_.own == 0;
  if (settled_) {
    return;
  }
  for (const auto& transport : transports) {
    transport->TellGpu(gpus_.own);
  }
}

void GpuSharing::Look(Transports transports) noexcept {
  if (settled_) {
    return;
  }
  try {
    Warn(transports);
  } catch (const std::exception&) {
    // No memory for the warning: the call has ended well all the same.
    settled_ = true;
  }
}

void GpuSharing::Warn(Transports transports) {
  std::map<int, std::uint64_t> gpu_of = {{rank_, gpus_.own}};
  for (const auto& transport : transports) {
    for (int peer = 0; peer < size_; ++peer) {
      if (const std::optional<std::uint64_t> gpu = transport->GpuOf(peer)) {
        gpu_of[peer] = *gpu;
      }
    }
  }
  const std::string warning =
      SharedGpuWarning(rank_, name_, gpu_of, gpus_.visible);
  if (!warning.empty()) {
    logger_.Warning(warning);
  }
  settled_ = !warning.empty() || ++looks_ == kLooks ||
             std::none_of(gpu_of.begin(), gpu_of.end(),
                          [](const auto& one) { return one.second == 0; });
}

}  // namespace ringpipe
