#include "bench/tensors.h"

namespace ringpipe {
namespace {

// A convolution without a bias, and the two parameters of each of its channels
// in the normalisation that follows.
void AddConvolution(std::size_t kernel, std::size_t in, std::size_t out,
                    std::vector<std::size_t>& tensors) {
  tensors.insert(tensors.end(), {kernel * kernel * in * out, out, out});
}

std::vector<std::size_t> ResNet50() {
  constexpr std::size_t kExpansion = 4;
  struct Stage {
    std::size_t blocks;
    std::size_t width;
  };
  std::vector<std::size_t> tensors;
  AddConvolution(7, 3, 64, tensors);
  std::size_t channels = 64;
  for (const auto& [blocks, width] :
       {Stage{3, 64}, Stage{4, 128}, Stage{6, 256}, Stage{3, 512}}) {
    for (std::size_t block = 0; block < blocks; ++block) {
      AddConvolution(1, channels, width, tensors);
      AddConvolution(3, width, width, tensors);
      AddConvolution(1, width, kExpansion * width, tensors);
      if (block == 0) {
        // The shortcut past it.
        AddConvolution(1, channels, kExpansion * width, tensors);
      }
      channels = kExpansion * width;
    }
  }
  constexpr std::size_t kClasses = 1000;
  tensors.insert(tensors.end(), {channels * kClasses, kClasses});
  return tensors;
}

}  // namespace

Result<std::vector<std::size_t>> TensorsOf(const std::string& model) {
  if (model == "resnet50") {
    return ResNet50();
  }
  return Status(
      StatusCode::kInvalidArgument,
      "there are no tensors of \"" + model + "\"; allowed is resnet50");
}

}  // namespace ringpipe
