#include "pipeline/checker.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "pipeline/term_table.h"

namespace ringpipe {
namespace {

using Buffer = Place::Buffer;
using Contents = TermTable::Contents;
using Piece = TermTable::Piece;

// What a collective promises about places, not how it is done.
class Contract {
 public:
  Contract(const CheckOptions& options, int size, int chunks)
      : options_(options),
        info_(InfoOf(options.collective)),
        size_(size),
        chunks_(chunks) {}

  // Whether the rank has that part of its user memory.
  bool Has(int rank, Place place) const {
    const CollectiveInfo::Buffers& buffers = info_.Of(rank == options_.root);
    switch (place.buffer == Buffer::kInput ? buffers.input : buffers.output) {
      case Holds::kNothing:
        return false;
      case Holds::kOwnPart:
        return Owner(place.chunk) == rank;
      case Holds::kWhole:
        return true;
    }
    return true;
  }

  bool ChunksBelongToRanks() const { return info_.has_parts; }

  // Whether all ranks are promised the same in output[chunk].
  bool SameOnAllRanks() const {
    return options_.collective != Collective::kAllToAll;
  }

  bool Keeps(int rank, int chunk, std::uint64_t subchunk,
             const Contents& found) const {
    if (options_.collective != Collective::kBarrier) {
      return found == Promised(rank, chunk, subchunk);
    }
    std::vector<bool> heard(size_);
    for (const auto& [piece, times] : found.pieces) {
      heard[piece.rank] = true;
    }
    return std::count(heard.begin(), heard.end(), true) == size_;
  }

  // kBarrier: at least that.
  Contents Promised(int rank, int chunk, std::uint64_t subchunk) const {
    Contents promised;
    switch (options_.collective) {
      case Collective::kAllReduce:
      case Collective::kReduceScatter:
      case Collective::kReduce:
      case Collective::kBarrier:
        for (int other = 0; other < size_; ++other) {
          promised.pieces[{chunk, other, subchunk}] = 1;
        }
        promised.finished =
            size_ > 1 && options_.collective != Collective::kBarrier;
        break;
      case Collective::kAllGather:
      case Collective::kGather:
        promised.pieces[{chunk, Owner(chunk), subchunk}] = 1;
        break;
      case Collective::kBroadcast:
      case Collective::kScatter:
        promised.pieces[{chunk, options_.root, subchunk}] = 1;
        break;
      case Collective::kAllToAll: {
        const int each = chunks_ / size_;
        promised.pieces[{rank * each + chunk % each, Owner(chunk), subchunk}] =
            1;
        break;
      }
      case Collective::kSendReceive:  // nothing that all ranks know
        break;
    }
    return promised;
  }

 private:
  int Owner(int chunk) const {
    return static_cast<int>(std::int64_t{chunk} * size_ / chunks_);
  }

  const CheckOptions& options_;
  const CollectiveInfo& info_;
  const int size_;
  const int chunks_;
};

std::string Name(Place place, std::uint64_t subchunk) {
  return std::string(place.buffer == Buffer::kInput ? "input" : "output") +
         "[" + std::to_string(place.chunk) + "], sub-chunk " +
         std::to_string(subchunk);
}

Status Wrong(const std::string& message) {
  return {StatusCode::kInternal, message};
}

Status CheckPlaces(const std::vector<Plan>& plans, const Contract& contract) {
  const int size = static_cast<int>(plans.size());
  for (int rank = 0; rank < size; ++rank) {
    const std::string who = "rank " + std::to_string(rank);
    if (plans[rank].chunks != plans[0].chunks) {
      return Wrong(who + " divides the message into " +
                   std::to_string(plans[rank].chunks) +
                   " chunks, rank 0 into " + std::to_string(plans[0].chunks));
    }
    if (plans[rank].equal_chunks && !contract.ChunksBelongToRanks()) {
      return Wrong(who + " relies on chunks that are all equally long");
    }
    for (const Step& step : plans[rank].steps) {
      const Transfer& transfer = step.transfer;
      for (const auto& [used, place] :
           {std::pair(transfer.reads(), transfer.source),
            std::pair(transfer.kind == Transfer::Kind::kLocalReduce,
                      transfer.operand),
            std::pair(transfer.writes(), transfer.target)}) {
        for (int i = 0; used && i < place.count; ++i) {
          if (place.buffer != Buffer::kScratch &&
              !contract.Has(rank, place.At(i, plans[rank].chunks))) {
            return Wrong(who + ": \"" + ToString(transfer) +
                         "\" uses memory that the user does not give");
          }
        }
      }
    }
  }
  if (size > 0 && contract.ChunksBelongToRanks() &&
      plans[0].chunks % size != 0) {
    return Wrong(std::to_string(plans[0].chunks) + " chunks for " +
                 std::to_string(size) + " ranks");
  }
  return Status::Ok();
}

// Whether all that lies there in user memory is `one`'s to touch.
bool Reaches(const Plan& plan, const std::vector<Step::Piece>& pieces,
             Owner one) {
  return std::all_of(
      pieces.begin(), pieces.end(), [&](const Step::Piece& piece) {
        return piece.step >= 0 || plan.OwnerOf(piece.place) == one;
      });
}

// Whether nobody touches memory that is another's.
bool KeepsToItsMemory(const Plan& plan, const Step& step) {
  const Transfer& transfer = step.transfer;
  const Owner target = plan.OwnerOf(transfer.target);
  const bool at_peer = step.arrival == Step::Arrival::kAtPeer;
  const Owner reader = step.device_reads ? Owner::kDevice : Owner::kHost;
  if ((step.device_reads && (!at_peer || !step.takes_slot)) ||
      (step.in_both && (!step.takes_slot || step.in_memory))) {
    return false;
  }
  switch (transfer.kind) {
    case Transfer::Kind::kSend:
      return !step.eager || Reaches(plan, step.source, Owner::kHost);
    case Transfer::Kind::kReceiveCopy:
      return !at_peer ||
             (step.in_memory ? target == reader : reader == Owner::kHost);
    case Transfer::Kind::kLocalCopy:
      return !step.in_memory || Reaches(plan, step.source, target);
    case Transfer::Kind::kReceiveReduce:
    case Transfer::Kind::kLocalReduce:
      return Reaches(plan, step.source, step.reducer) &&
             Reaches(plan, step.operand, step.reducer) &&
             (!(step.in_memory || step.in_both) || target == step.reducer) &&
             (!at_peer || step.reducer == reader);
  }
  return true;
}

// What is of both is touched piece by piece: not beside what else may be.
bool KeepsPiecesApart(const Plan& plan, const Step& step) {
  const auto in_memory = [](const std::vector<Step::Piece>& pieces) {
    return std::any_of(pieces.begin(), pieces.end(),
                       [](const Step::Piece& piece) { return piece.step < 0; });
  };
  const bool is_both =
      (step.transfer.reduces() && step.reducer == Owner::kBoth) ||
      (step.transfer.kind == Transfer::Kind::kLocalCopy && step.in_memory &&
       plan.OwnerOf(step.transfer.target) == Owner::kBoth);
  return !is_both || int{in_memory(step.source)} +
                             int{in_memory(step.operand)} +
                             int{step.in_memory} <
                         2;
}

Status CheckOwners(const std::vector<Plan>& plans) {
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    for (const Step& step : plans[rank].steps) {
      if (!KeepsToItsMemory(plans[rank], step) ||
          !KeepsPiecesApart(plans[rank], step)) {
        return Wrong("rank " + std::to_string(rank) + ": \"" +
                     ToString(step.transfer) +
                     "\" has the host or the device touch what is the other's");
      }
    }
  }
  return Status::Ok();
}

void WriteInputs(const Contract& contract, const std::vector<Plan>& plans,
                 std::uint64_t subchunks, TermTable& terms,
                 SymbolicMemory& memory) {
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    for (int chunk = 0; chunk < plans[rank].chunks; ++chunk) {
      if (!contract.Has(rank, Input(chunk))) {
        continue;
      }
      for (std::uint64_t subchunk = 0; subchunk < subchunks; ++subchunk) {
        const TermTable::Piece piece = {chunk, rank, subchunk};
        memory.At(rank, Input(chunk), subchunk) = plans[rank].scales_input
                                                      ? terms.Unscaled(piece)
                                                      : terms.Input(piece);
      }
    }
  }
}

Status CheckOutput(const Contract& contract, int rank, int chunk,
                   std::uint64_t subchunk, const Contents& found) {
  if (contract.Keeps(rank, chunk, subchunk, found)) {
    return Status::Ok();
  }
  return Wrong("rank " + std::to_string(rank) + ", " +
               Name(Output(chunk), subchunk) + ": expected " +
               ToString(contract.Promised(rank, chunk, subchunk)) + "; found " +
               ToString(found));
}

// How many there are of a chunk of the rank's output.
std::uint64_t SubchunksOf(const CheckOptions& options, int rank, int chunk) {
  return !options.subchunks_of_pairs.empty()
             ? options.subchunks_of_pairs[chunk][rank]
         : !options.subchunks_of_chunks.empty()
             ? options.subchunks_of_chunks[chunk]
             : options.subchunks;
}

// Compares all output with the promise; hashes it into `data_flow`.
Status CheckOutputs(const Contract& contract, const CheckOptions& options,
                    int size, int chunks, const TermTable& terms,
                    SymbolicMemory& memory, std::uint64_t& data_flow) {
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (std::uint64_t subchunk = 0; subchunk < options.subchunks; ++subchunk) {
      // The last that was found to be as promised.
      std::optional<TermTable::Term> good;
      for (int rank = 0; rank < size; ++rank) {
        if (!contract.Has(rank, Output(chunk)) ||
            subchunk >= SubchunksOf(options, rank, chunk)) {
          continue;
        }
        const TermTable::Term found = memory.At(rank, Output(chunk), subchunk);
        data_flow = HashPair(data_flow, terms.Hash(found));
        if (contract.SameOnAllRanks() && good == found) {
          continue;
        }
        RINGPIPE_RETURN_IF_ERROR(
            CheckOutput(contract, rank, chunk, subchunk, terms.Expand(found)));
        if (options.collective == Collective::kAllReduce && options.same_bits &&
            good.has_value()) {
          return Wrong("rank " + std::to_string(rank) + ", " +
                       Name(Output(chunk), subchunk) +
                       ": reduced in another order than on rank 0, so not the "
                       "same bits");
        }
        good = found;
      }
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckPlans(const std::vector<Plan>& plans, const CheckOptions& given,
                  RunResult* result) {
  if (plans.empty() || given.depth < 1 || given.slots < 0) {
    return {StatusCode::kInvalidArgument,
            "the checker needs a rank, a depth from 1, slots from 0"};
  }
  CheckOptions options = given;
  if (options.subchunks == 0) {
    options.subchunks = 3 * static_cast<std::uint64_t>(options.depth) + 1;
  }
  const int size = static_cast<int>(plans.size());
  const int chunks = plans[0].chunks;
  const Contract contract(options, size, chunks);
  RINGPIPE_RETURN_IF_ERROR(CheckPlaces(plans, contract));
  RINGPIPE_RETURN_IF_ERROR(CheckOwners(plans));
  TermTable terms;
  SymbolicMemory memory(plans, options.subchunks);
  WriteInputs(contract, plans, options.subchunks, terms, memory);
  RINGPIPE_ASSIGN_OR_RETURN(RunResult run,
                            RunSymbolically(plans, options, terms, memory));
  RINGPIPE_RETURN_IF_ERROR(CheckOutputs(contract, options, size, chunks, terms,
                                        memory, run.data_flow));
  if (result != nullptr) {
    *result = std::move(run);
  }
  return Status::Ok();
}

Status Check(const std::vector<Schedule>& schedules,
             const CheckOptions& options, RunResult* result) {
  const int size = static_cast<int>(schedules.size());
  std::vector<Plan> plans;
  for (int rank = 0; rank < size; ++rank) {
    RINGPIPE_ASSIGN_OR_RETURN(
        Plan plan, Compile(schedules[rank], rank, size, options.plan));
    plans.push_back(std::move(plan));
  }
  return CheckPlans(plans, options, result);
}

std::vector<Schedule> SchedulesOf(Algorithm algorithm, int size, int root,
                                  std::span<const int> hosts) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank) {
    schedules.push_back(algorithm({rank, size, root, hosts}));
  }
  return schedules;
}

Result<int> SmallestSlots(const std::vector<Schedule>& schedules,
                          const CheckOptions& options) {
  // A slot for every instance in flight is always enough. More slots never
  // hurt, so the smallest number that is enough is found by halving.
  std::size_t steps = 0;
  for (const Schedule& schedule : schedules) {
    steps = std::max(steps, schedule.transfers.size());
  }
  int too_few = -1;
  int enough = 2 * options.depth * static_cast<int>(steps);
  CheckOptions attempt = options;
  attempt.slots = enough;
  RINGPIPE_RETURN_IF_ERROR(Check(schedules, attempt));
  while (enough - too_few > 1) {
    attempt.slots = too_few + (enough - too_few) / 2;
    (Check(schedules, attempt).ok() ? enough : too_few) = attempt.slots;
  }
  return enough;
}

}  // namespace ringpipe
