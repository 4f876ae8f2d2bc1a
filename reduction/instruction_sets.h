// For tests: the instruction sets among which the kernels choose.
#ifndef RINGPIPE_REDUCTION_INSTRUCTION_SETS_H_
#define RINGPIPE_REDUCTION_INSTRUCTION_SETS_H_

#include <cstdint>

#include "hwy/targets.h"

namespace ringpipe {

// Calls `check(name)` once for each instruction set of this CPU that the
// kernels were compiled for (or would fall back to), with that one chosen.
template <typename Check>
void ForEachInstructionSet(const Check& check) {
  const std::int64_t supported = hwy::SupportedTargets();
  for (std::int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(supported);
}

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_INSTRUCTION_SETS_H_
