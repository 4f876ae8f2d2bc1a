// Schedules with one fault each.
#ifndef RINGPIPE_TESTS_SCHEDULES_MUTATION_H_
#define RINGPIPE_TESTS_SCHEDULES_MUTATION_H_

#include <string>
#include <vector>

#include "pipeline/schedule.h"

namespace ringpipe {

struct Mutation {
  // kSource and kTarget: to any other place; kShifted: all places begin one
  // chunk earlier or later; kLength: a chunk more or less at the end; kSplit: a
  // range as two messages; kFinish: set or cleared.
  enum class Kind {
    kDropped,
    kDoubled,
    kSwapped,
    kPeer,
    kSource,
    kTarget,
    kShifted,
    kLength,
    kSplit,
    kFinish,
  };
  static constexpr int kKinds = 10;

  Kind kind = Kind::kDropped;
  // Of a message, not of a local copy or reduction.
  bool of_message = false;
  std::string what;  // "swapped 3 and 5: ..."
  Schedule schedule;
};

const char* MutationName(Mutation::Kind kind);

// Every single mutation of the schedule of one rank among `size`: each transfer
// dropped, doubled, split, swapped with any later one, or with another peer,
// source, target, beginning, length or finish.
std::vector<Mutation> Mutations(const Schedule& schedule, int rank, int size);

}  // namespace ringpipe

#endif  // RINGPIPE_TESTS_SCHEDULES_MUTATION_H_
