#ifndef RINGPIPE_ENGINE_GPU_SHARING_H_
#define RINGPIPE_ENGINE_GPU_SHARING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "cuda/accelerator.h"
#include "pipeline/connection.h"

namespace ringpipe {

// What to say to the user where ranks of a host use one GPU though another one
// would be left: "": nothing. `gpu_of` has the ranks of the host, `rank` among
// them, with the numbers of their GPUs (Accelerator::Gpus); 0: it uses none
// yet. `visible`: the GPUs that `rank` sees; `name`: its own, as it calls it.
//
// Something is said only if it stays true: if more visible GPUs are unused than
// ranks may still choose one. Of the ranks that share a GPU, the first speaks.
std::string SharedGpuWarning(int rank, const std::string& name,
                             const std::map<int, std::uint64_t>& gpu_of,
                             const std::vector<std::uint64_t>& visible);

// Of a communicator: tells the ranks with which this one shares host memory
// which GPU it uses, each at its own first call with device memory, and warns
// once where they share one by mistake. Ranks that do not share memory are not
// told. One thread at a time.
class GpuSharing {
 public:
  static constexpr int kLooks = 100;
  using Transports = std::span<const std::unique_ptr<Transport>>;

  GpuSharing(int rank, int size, const Logger& logger)
      : rank_(rank), size_(size), logger_(logger) {}

  // Before a call with memory of `device`, whose slots are prepared. Only the
  // first time does anything.
  void Tell(const Accelerator& device, Transports transports);
  // After such a call: ranks that took part in it with device memory have told
  // theirs. Those that have not after kLooks of them may never. Fails nothing.
  void Look(Transports transports) noexcept;

 private:
  void Warn(Transports transports);

  const int rank_;
  const int size_;
  const Logger logger_;
  bool told_ = false;
  int looks_ = 0;
  bool settled_ = false;  // there is nothing more to find out, or to say
  std::string name_;
  Accelerator::Gpus gpus_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_GPU_SHARING_H_
