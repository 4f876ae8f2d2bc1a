#ifndef RINGPIPE_BENCH_TENSORS_H_
#define RINGPIPE_BENCH_TENSORS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"

namespace ringpipe {

// The elements of each tensor of a model's gradients, in the order of its
// layers. "resnet50": He et al., "Deep Residual Learning for Image
// Recognition", 2015, table 1, as ImageNet's classifiers have it.
// kInvalidArgument, with the models that there are, for others.
Result<std::vector<std::size_t>> TensorsOf(const std::string& model);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_TENSORS_H_
