// The collectives, and what each of them is: a row of one table, from which
// checks, messages, traces and the checker's contract come.
#ifndef RINGPIPE_PIPELINE_COLLECTIVE_H_
#define RINGPIPE_PIPELINE_COLLECTIVE_H_

#include <array>
#include <cstddef>

namespace ringpipe {

// The numbers are part of the wire format.
enum class Collective {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  // Between pairs, each rank with its own: engine/send_receive.h.
  kSendReceive,
};
// Those whose algorithms the registry lists; kSendReceive has one, which is not
// in it.
inline constexpr int kCollectives = 9;

// What a buffer of a rank holds of a message. Where parts belong to ranks, the
// message has one of `count` elements for each, in their order.
enum class Holds { kNothing, kOwnPart, kWhole };

struct CollectiveInfo {
  struct Buffers {
    Holds input;
    Holds output;

    bool operator==(const Buffers&) const = default;
  };

  const char* name;      // as users write it
  const char* function;  // C's, without its prefix; C++'s is the same in words
                         // that begin with a capital
  const char* mpi;       // what MPI and NCCL call it
  const char* nccl;      // nullptr: NCCL has none
  Buffers root;          // of each rank, where none is the root
  Buffers others;
  bool has_parts;  // the parts belong to ranks
  bool reduces;    // has a ReduceOp
  // What a buffer holds may lie where it is in the other one: in place.
  bool in_place;
  // How often the message passes each rank's link, and whether without the
  // rank's own part: nccl-tests' factor of the bus bandwidth.
  int passes;
  bool passes_less_own;

  constexpr double BusFactor(int ranks) const {
    return passes * (passes_less_own ? (ranks - 1.0) / ranks : 1.0);
  }
  constexpr const Buffers& Of(bool is_root) const {
    return is_root ? root : others;
  }
  constexpr bool is_rooted() const { return root != others; }
  // Whether a part is one rank's, and may be longer than another's.
  constexpr bool takes_counts() const {
    return root.input == Holds::kOwnPart || root.output == Holds::kOwnPart;
  }
  // Whether a part is what one rank has for another one.
  constexpr bool takes_counts_of_pairs() const {
    return has_parts && !takes_counts();
  }
};

// By Collective.
inline constexpr auto kCollectiveTable = [] {
  constexpr CollectiveInfo::Buffers kAll = {Holds::kWhole, Holds::kWhole};
  constexpr CollectiveInfo::Buffers kSplits = {Holds::kWhole, Holds::kOwnPart};
  constexpr CollectiveInfo::Buffers kJoins = {Holds::kOwnPart, Holds::kWhole};
  constexpr CollectiveInfo::Buffers kGives = {Holds::kWhole, Holds::kNothing};
  constexpr CollectiveInfo::Buffers kTakes = {Holds::kNothing, Holds::kWhole};
  constexpr CollectiveInfo::Buffers kGivesPart = {Holds::kOwnPart,
                                                  Holds::kNothing};
  constexpr CollectiveInfo::Buffers kTakesPart = {Holds::kNothing,
                                                  Holds::kOwnPart};
  // name, function, MPI's, NCCL's
  //     root, others, parts, reduces, in place, passes, less own
  return std::array<CollectiveInfo, kCollectives + 1>{{
      {"allreduce", "all_reduce", "MPI_Allreduce", "ncclAllReduce",  //
       kAll, kAll, false, true, true, 2, true},
      {"reduce-scatter", "reduce_scatter", "MPI_Reduce_scatter_block",
       "ncclReduceScatter",  //
       kSplits, kSplits, true, true, true, 1, true},
      {"all-gather", "all_gather", "MPI_Allgather", "ncclAllGather",  //
       kJoins, kJoins, true, false, true, 1, true},
      {"broadcast", "broadcast", "MPI_Bcast", "ncclBroadcast",  //
       kAll, kTakes, false, false, true, 1, false},
      {"barrier", "barrier", "MPI_Barrier", nullptr,  //
       kAll, kAll, false, false, true, 0, false},
      {"reduce", "reduce", "MPI_Reduce", "ncclReduce",  //
       kAll, kGives, false, true, true, 1, false},
      {"gather", "gather", "MPI_Gather", "ncclGather",  //
       kJoins, kGivesPart, true, false, true, 1, true},
      {"scatter", "scatter", "MPI_Scatter", "ncclScatter",  //
       kSplits, kTakesPart, true, false, true, 1, true},
      {"all-to-all", "all_to_all", "MPI_Alltoall", "ncclAlltoAll",  //
       kAll, kAll, true, false, false, 1, true},
      {"send-receive", "send_receive", "MPI_Sendrecv",
       "ncclSend and ncclRecv in a group",  //
       kAll, kAll, false, false, false, 1, false},
  }};
}();

// Whether it is in the enumeration: a peer's may not be.
constexpr bool Exists(Collective collective) {
  return static_cast<std::size_t>(collective) < kCollectiveTable.size();
}

// Of one that exists.
constexpr const CollectiveInfo& InfoOf(Collective collective) {
  return kCollectiveTable[static_cast<std::size_t>(collective)];
}

// "no collective" where it does not exist.
constexpr const char* CollectiveName(Collective collective) {
  return Exists(collective) ? InfoOf(collective).name : "no collective";
}

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_COLLECTIVE_H_
