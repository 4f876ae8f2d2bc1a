// For tests of algorithms: what one is called in the names of tests.
#ifndef RINGPIPE_ENGINE_TEST_NAME_H_
#define RINGPIPE_ENGINE_TEST_NAME_H_

#include <algorithm>
#include <ostream>
#include <string>

#include "engine/algorithms.h"

namespace ringpipe {

// "ring_reduce_scatter"
inline std::string TestName(const AlgorithmInfo& info) {
  std::string name =
      std::string(info.name) + "_" + InfoOf(info.collective).name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline void PrintTo(const AlgorithmInfo& info, std::ostream* output) {
  *output << TestName(info);
}

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_TEST_NAME_H_
