#include "engine/algorithms.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <vector>

#include "engine/algorithms/families.h"

namespace ringpipe {
namespace {

// What a rank's slots take at most where RINGPIPE_DEPTH can be lowered for it.
constexpr std::uint64_t kMostSlotBytes = 32 << 20;

// An allreduce of at most so many bytes takes no longer undivided.
constexpr std::uint64_t kShortBytes = 4096;

// What one rank reads in a time that is short beside that of a few messages.
constexpr std::uint64_t kShortOfAll = 32 * 1024;

// Where so many ranks share a processor, each message waits for its turn: an
// allreduce of at most so many bytes takes the form with the fewest.
constexpr int kManyRanks = 4;
constexpr std::uint64_t kFewMessagesBytes = 256 * 1024;

constexpr std::array<const char*, kCollectives> kNames = {
    "allreduce", "reduce-scatter", "all-gather", "broadcast", "barrier",
    "reduce",    "gather",         "scatter",    "all-to-all"};

// Of those that a communicator has calls for.
constexpr std::array kCalled = {
    Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
    Collective::kBroadcast, Collective::kBarrier};

// "a, b or c" of all whose `is` holds.
template <typename Names>
std::string Join(const Names& names) {
  std::string joined;
  for (std::size_t i = 0; i < names.size(); ++i) {
    joined += i == 0 ? "" : i + 1 == names.size() ? " or " : ", ";
    joined += names[i];
  }
  return joined;
}

Status Invalid(const std::string& why) {
  return {StatusCode::kInvalidArgument, "RINGPIPE_ALGORITHM: " + why};
}

Result<Collective> ParseCollective(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    return Invalid("there is no collective \"" + std::string(name) +
                   "\"; there are " + Join(kNames));
  }
  return static_cast<Collective>(found - kNames.begin());
}

Result<const AlgorithmInfo*> ParseAlgorithm(Collective collective,
                                            std::string_view name,
                                            const Member& of) {
  std::vector<std::string_view> names;
  for (const AlgorithmInfo& info : Algorithms()) {
    if (info.collective == collective && Exists(info, of)) {
      if (info.name == name) {
        return &info;
      }
      names.push_back(info.name);
    }
  }
  return Invalid(std::string(CollectiveName(collective)) +
                 " has no algorithm \"" + std::string(name) + "\" for " +
                 std::to_string(of.size) + " ranks on these hosts; it has " +
                 Join(names));
}

// A slot holds an element, at least, of each chunk of the widest range.
Status CheckSlot(const AlgorithmInfo& info, const Member& of,
                 std::uint64_t subchunk_bytes) {
  const std::uint64_t least = ShapeOf(info, of).widest * sizeof(double);
  if (WalkOf(info.collective) != Walk::kSegments || least <= subchunk_bytes) {
    return Status::Ok();
  }
  return Invalid(std::string(CollectiveName(info.collective)) + ":" +
                 std::string(info.name) + " with " + std::to_string(of.size) +
                 " ranks needs RINGPIPE_SUBCHUNK_BYTES of at least " +
                 std::to_string(least));
}

}  // namespace

const char* CollectiveName(Collective collective) {
  const auto index = static_cast<std::size_t>(collective);
  return collective == Collective::kSendReceive ? "send-receive"
         : index < kNames.size()                ? kNames[index]
                                                : "no collective";
}

Walk WalkOf(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kBarrier:
      return Walk::kSegments;
    default:
      return Walk::kChunks;
  }
}

std::span<const AlgorithmInfo> Algorithms() {
  // Threads that still run at exit use it.
  static const std::vector<AlgorithmInfo>& algorithms = *[] {
    auto* const all = new std::vector<AlgorithmInfo>;
    for (const auto family :
         {Rings(), AllPairs(), RecursiveExchanges(), BinaryBlocks(),
          BruckAlgorithms(), BinomialTrees(), DoubleBinaryTrees(), Grids(),
          Linear()}) {
      all->insert(all->end(), family.begin(), family.end());
    }
    return all;
  }();
  return algorithms;
}

const AlgorithmInfo* FindAlgorithm(Collective collective,
                                   std::string_view name) {
  for (const AlgorithmInfo& info : Algorithms()) {
    if (info.collective == collective && info.name == name) {
      return &info;
    }
  }
  return nullptr;
}

Shape ShapeOf(const AlgorithmInfo& info, const Member& of) {
  Shape shape;
  for (int rank = 0; rank < of.size; ++rank) {
    const Schedule schedule = info.algorithm({rank, of.size, 0, of.hosts});
    shape.chunks = schedule.chunks;
    for (const Transfer& transfer : schedule.transfers) {
      shape.widest = std::max(shape.widest, transfer.count());
    }
  }
  return shape;
}

bool HasToSplit(const Chunking& chunking, Walk walk, const Shape& shape,
                std::uint64_t slot_elements) {
  return walk == Walk::kChunks && shape.widest > 1 &&
         (chunking.subchunks() > 1 ||
          chunking.Count(0, shape.widest, 0) > slot_elements);
}

bool SameToAll(const AlgorithmInfo& info, const Member& of) {
  for (int rank = 0; rank < of.size; ++rank) {
    if (!SaysTheSameToAll(info.algorithm({rank, of.size, of.root, of.hosts}))) {
      return false;
    }
  }
  return true;
}

int SlotsFor(const AlgorithmInfo& info, const Member& of, int depth,
             bool split) {
  int slots = 0;
  for (const auto bound : {info.slots, info.slots_of_unlike,
                           split ? info.slots_of_split : nullptr}) {
    slots = std::max(slots, bound == nullptr ? 0 : bound(of, depth));
  }
  return slots;
}

Result<AlgorithmChoice> AlgorithmChoice::Parse(std::string_view text,
                                               const Member& of,
                                               std::uint64_t subchunk_bytes) {
  AlgorithmChoice choice;
  choice.subchunk_bytes_ = subchunk_bytes;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) {
      return Invalid("\"" + std::string(entry) +
                     "\" is not of the form COLLECTIVE:ALGORITHM, such as "
                     "allreduce:ring");
    }
    RINGPIPE_ASSIGN_OR_RETURN(const Collective collective,
                              ParseCollective(entry.substr(0, colon)));
    RINGPIPE_ASSIGN_OR_RETURN(
        const AlgorithmInfo* const chosen,
        ParseAlgorithm(collective, entry.substr(colon + 1), of));
    RINGPIPE_RETURN_IF_ERROR(CheckSlot(*chosen, of, subchunk_bytes));
    choice.chosen_[static_cast<std::size_t>(collective)] = chosen;
  }
  return choice;
}

std::string_view AlgorithmChoice::BestFor(Collective collective,
                                          std::uint64_t bytes,
                                          const CommonHost& host) const {
  const bool one_host = host.ranks > 0;
  const bool is_short = bytes <= kShortBytes;
  const bool is_tiny = is_short && bytes * host.ranks <= kShortOfAll;
  switch (collective) {
    case Collective::kAllReduce:
      if (!one_host) {
        return is_short ? "recursive_doubling" : "ring";
      }
      return is_tiny ? "one_shot"
             : host.processors > 0 &&
                     host.ranks >= kManyRanks * host.processors &&
                     bytes <= kFewMessagesBytes
                 ? "parameter_server"
                 : "all_pairs";
    case Collective::kReduceScatter:
      // Undivided, or its slots would be many.
      return !one_host                             ? "ring"
             : is_tiny && bytes <= subchunk_bytes_ ? "one_shot"
                                                   : "all_pairs";
    case Collective::kAllGather:
      return !one_host ? "ring" : "all_pairs";
    case Collective::kBroadcast:
      return !one_host ? "chain" : is_short ? "one_to_all" : "all_pairs";
    case Collective::kBarrier:
      return !one_host ? "recursive_doubling" : "all_to_all";
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
      return "binomial_tree";
    case Collective::kAllToAll:
      return "pairwise";
    case Collective::kSendReceive:
      break;
  }
  return "";
}

const AlgorithmInfo& AlgorithmChoice::For(Collective collective,
                                          std::uint64_t bytes,
                                          const CommonHost& host) const {
  const AlgorithmInfo* const chosen =
      chosen_[static_cast<std::size_t>(collective)];
  const AlgorithmInfo* const taken =
      chosen != nullptr
          ? chosen
          : FindAlgorithm(collective, BestFor(collective, bytes, host));
  assert(taken != nullptr);
  return *taken;
}

int AlgorithmChoice::SlotsNeeded(const Member& of, int depth,
                                 const CommonHost& host) const {
  int needed = 1;
  for (const Collective collective : kCalled) {
    const bool is_chosen = chosen_[static_cast<std::size_t>(collective)];
    for (const std::uint64_t bytes :
         {std::uint64_t{0}, kFewMessagesBytes, kFewMessagesBytes + 1}) {
      // What the engine takes for short messages has its ranges whole.
      needed = std::max(needed, SlotsFor(For(collective, bytes, host), of,
                                         depth, is_chosen || bytes > 0));
    }
  }
  return needed;
}

// Twice what a round needs, so that rounds follow each other without a gap.
int AlgorithmChoice::Slots(const Member& of, int depth,
                           const CommonHost& host) const {
  return std::max(SlotsNeeded(of, depth, host), 4 * depth + 2);
}

int AlgorithmChoice::DepthFor(int depth, std::uint64_t subchunk_bytes,
                              const Member& of, const CommonHost& host) const {
  while (host.ranks > 0 && depth > 1 &&
         SlotsNeeded(of, depth, host) * subchunk_bytes > kMostSlotBytes) {
    --depth;
  }
  return depth;
}

}  // namespace ringpipe
