// Schedules with one fault each.
#ifndef RINGPIPE_TESTS_SCHEDULES_MUTATION_H_
#define RINGPIPE_TESTS_SCHEDULES_MUTATION_H_

#include <string>
#include <vector>

#include "pipeline/schedule.h"

namespace ringpipe {

struct Mutation {
  // kSource and kTarget: to any other place; kFinish: set or cleared.
  enum class Kind {
    kDropped,
    kDoubled,
    kSwapped,
    kPeer,
    kSource,
    kTarget,
    kFinish,
  };
  static constexpr int kKinds = 7;

  Kind kind = Kind::kDropped;
  std::string what;  // "swapped 3 and 5: ..."
  Schedule schedule;
};

const char* MutationName(Mutation::Kind kind);

// Every single mutation of the schedule of one rank among `size`: each transfer
// dropped, doubled, swapped with any later one, or with another peer, source,
// target or finish.
std::vector<Mutation> Mutations(const Schedule& schedule, int rank, int size);

}  // namespace ringpipe

#endif  // RINGPIPE_TESTS_SCHEDULES_MUTATION_H_
