// For tests of algorithms: what the checker is told of one.
#ifndef RINGPIPE_ENGINE_PROMISE_H_
#define RINGPIPE_ENGINE_PROMISE_H_

#include <algorithm>
#include <ostream>
#include <string>

#include "engine/algorithms.h"
#include "pipeline/checker.h"

namespace ringpipe {

inline Promise PromiseOf(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return Promise::kAllReduce;
    case Collective::kReduceScatter:
      return Promise::kReduceScatter;
    case Collective::kAllGather:
      return Promise::kAllGather;
    case Collective::kBroadcast:
      return Promise::kBroadcast;
    case Collective::kBarrier:
      return Promise::kBarrier;
    case Collective::kReduce:
      return Promise::kReduce;
    case Collective::kGather:
      return Promise::kGather;
    case Collective::kScatter:
      return Promise::kScatter;
    case Collective::kAllToAll:
      return Promise::kAllToAll;
    case Collective::kSendReceive:  // not in the registry
      break;
  }
  return Promise::kBarrier;
}

inline bool IsRooted(Collective collective) {
  return collective == Collective::kBroadcast ||
         collective == Collective::kReduce ||
         collective == Collective::kGather ||
         collective == Collective::kScatter;
}

// "ring_reduce_scatter"
inline std::string TestName(const AlgorithmInfo& info) {
  std::string name =
      std::string(info.name) + "_" + CollectiveName(info.collective);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline void PrintTo(const AlgorithmInfo& info, std::ostream* output) {
  *output << TestName(info);
}

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_PROMISE_H_
