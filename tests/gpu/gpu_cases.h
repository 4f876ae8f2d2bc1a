// The calls that gpu_collectives makes.
#ifndef RINGPIPE_TESTS_GPU_GPU_CASES_H_
#define RINGPIPE_TESTS_GPU_GPU_CASES_H_

#include <string>
#include <vector>

#include "engine/call.h"
#include "reduction/data_type.h"
#include "tests/gpu/test_memory.h"
#include "tests/ways.h"

namespace ringpipe::testing {

struct GpuCase {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // this one where the collective has none
  MemoryKind input = MemoryKind::kDevice;
  MemoryKind output = MemoryKind::kDevice;
  Way way = Way::kHostMemory;
  bool in_place = false;

  bool operator==(const GpuCase&) const = default;
};

// "allreduce of float16, sum, from managed to device memory, over rails".
std::string Words(const GpuCase& one);

// Whether ringpipe admits it.
bool IsAllowed(const GpuCase& one);

// All that are allowed with memory of these kinds.
std::vector<GpuCase> AllCases(const std::vector<MemoryKind>& kinds);

// A few of them, in which every two values of members meet that can: which, is
// in `seed`.
std::vector<GpuCase> CasesOfAllPairs(const std::vector<MemoryKind>& kinds,
                                     unsigned seed);

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_GPU_GPU_CASES_H_
