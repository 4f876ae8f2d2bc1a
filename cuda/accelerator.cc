#include "cuda/accelerator.h"

namespace ringpipe {

Result<std::shared_ptr<StreamMark>> Accelerator::Mark(void* /*stream*/,
                                                      bool /*own_memory*/) {
  return Status(StatusCode::kInvalidArgument,
                "there are no streams of " + name());
}

}  // namespace ringpipe
