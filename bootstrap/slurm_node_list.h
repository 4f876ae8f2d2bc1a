// Slurm's compressed host lists, such as "gpu[03-05,9]-ib,x1".
#ifndef RINGPIPE_BOOTSTRAP_SLURM_NODE_LIST_H_
#define RINGPIPE_BOOTSTRAP_SLURM_NODE_LIST_H_

#include <string>

#include "base/status.h"

namespace ringpipe {

// The first host that `list` names: "gpu03-ib" for the list above.
// kInvalidArgument where the list is empty or its brackets do not match.
Result<std::string> FirstSlurmHost(const std::string& list);

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_SLURM_NODE_LIST_H_
