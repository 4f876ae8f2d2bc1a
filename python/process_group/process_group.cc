#include "python/process_group/process_group.h"

namespace ringpipe::process_group {

template class ProcessGroupOf<c10d::ProcessGroup>;
template class ProcessGroupOf<c10d::Backend>;

}  // namespace ringpipe::process_group
