#include "engine/algorithms.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <string>
#include <vector>

#include "engine/algorithms/families.h"

namespace ringpipe {
namespace {

// What a rank's slots take at most where RINGPIPE_DEPTH can be lowered for it.
constexpr std::uint64_t kMostSlotBytes = 32 << 20;

// --- Which algorithm a call takes -------------------------------------------

enum class Ranks {
  kAny,
  kOfSeveralHosts,
  kOfOneHost,      // all of them share memory
  kOfCrowdedHost,  // and so many of them a processor that each message waits
  kPowerOfTwo,
  kFewerThanEight,
};
// As many as that a processor.
constexpr int kManyRanks = 4;

struct Rule {
  Collective collective;
  Ranks ranks;
  // Where the message has at most so many bytes, and on all ranks together at
  // most so many.
  std::uint64_t bytes;
  std::uint64_t bytes_of_all;
  std::string_view algorithm;
  // Only where the message is one sub-chunk; else its slots would be many.
  bool undivided = false;
  bool by_part = false;  // `bytes` are those of a rank's part
};

constexpr std::uint64_t kAny = ~std::uint64_t{0};
// So short that it takes no longer undivided.
constexpr std::uint64_t kShort = 4096;
// What one rank reads in a time that is short beside that of a few messages.
constexpr std::uint64_t kShortOfAll = 32 * 1024;
// So short that on a crowded host the fewest messages are the fastest.
constexpr std::uint64_t kFewMessages = 256 * 1024;

// The first that holds.
constexpr Rule kOwnRules[] = {
    {Collective::kAllReduce, Ranks::kOfSeveralHosts, kShort, kAny,
     "recursive_doubling"},
    {Collective::kAllReduce, Ranks::kOfSeveralHosts, kAny, kAny, "ring"},
    {Collective::kAllReduce, Ranks::kOfOneHost, kShort, kShortOfAll,
     "one_shot"},
    {Collective::kAllReduce, Ranks::kOfCrowdedHost, kFewMessages, kAny,
     "parameter_server"},
    {Collective::kAllReduce, Ranks::kOfOneHost, kAny, kAny, "all_pairs"},
    {Collective::kReduceScatter, Ranks::kOfSeveralHosts, kShort, kAny,
     "recursive_halving", /*undivided=*/true},
    {Collective::kReduceScatter, Ranks::kOfSeveralHosts, kAny, kAny, "ring"},
    {Collective::kReduceScatter, Ranks::kOfOneHost, kShort, kShortOfAll,
     "one_shot", /*undivided=*/true},
    {Collective::kReduceScatter, Ranks::kOfCrowdedHost, kAny, kAny, "ring"},
    {Collective::kReduceScatter, Ranks::kOfOneHost, kAny, kAny, "all_pairs"},
    {Collective::kAllGather, Ranks::kOfSeveralHosts, kShort, kAny, "bruck",
     /*undivided=*/true},
    {Collective::kAllGather, Ranks::kOfSeveralHosts, kAny, kAny, "ring"},
    {Collective::kAllGather, Ranks::kOfOneHost, kAny, kAny, "all_pairs"},
    {Collective::kBroadcast, Ranks::kOfSeveralHosts, kShort, kAny,
     "binomial_tree", /*undivided=*/true},
    {Collective::kBroadcast, Ranks::kOfSeveralHosts, kAny, kAny, "chain"},
    {Collective::kBroadcast, Ranks::kOfOneHost, kShort, kAny, "one_to_all"},
    {Collective::kBroadcast, Ranks::kOfCrowdedHost, kFewMessages, kAny,
     "one_to_all"},
    {Collective::kBroadcast, Ranks::kOfOneHost, kAny, kAny, "all_pairs"},
    {Collective::kBarrier, Ranks::kOfSeveralHosts, kAny, kAny,
     "recursive_doubling"},
    {Collective::kBarrier, Ranks::kOfOneHost, kAny, kAny, "all_to_all"},
    {Collective::kReduce, Ranks::kAny, kAny, kAny, "binomial_tree"},
    {Collective::kGather, Ranks::kOfSeveralHosts, kShort, kAny, "binomial_tree",
     /*undivided=*/true},
    {Collective::kGather, Ranks::kAny, kAny, kAny, "linear"},
    {Collective::kScatter, Ranks::kOfSeveralHosts, kShort, kAny,
     "binomial_tree", /*undivided=*/true},
    {Collective::kScatter, Ranks::kAny, kAny, kAny, "linear"},
    {Collective::kAllToAll, Ranks::kAny, kAny, kAny, "pairwise"},
};

// "RINGPIPE_ALGORITHM=mpich": Thakur, Rabenseifner and Gropp, "Optimization of
// collective communication operations in MPICH", Int. J. High Perform. Comput.
// Appl. 19, 2005. Where they join a scatter with an all-gather by recursive
// doubling (broadcasts of less than 512 KiB between a power of two), it is the
// one with a ring here.
constexpr Rule kMpichRules[] = {
    {Collective::kAllReduce, Ranks::kAny, 2047, kAny, "recursive_doubling"},
    {Collective::kAllReduce, Ranks::kAny, kAny, kAny, "rabenseifner"},
    {Collective::kReduceScatter, Ranks::kAny, (512 << 10) - 1, kAny,
     "recursive_halving"},
    {Collective::kReduceScatter, Ranks::kAny, kAny, kAny, "pairwise"},
    {Collective::kAllGather, Ranks::kPowerOfTwo, (512 << 10) - 1, kAny,
     "recursive_doubling"},
    {Collective::kAllGather, Ranks::kAny, (80 << 10) - 1, kAny, "bruck"},
    {Collective::kAllGather, Ranks::kAny, kAny, kAny, "ring"},
    {Collective::kBroadcast, Ranks::kFewerThanEight, kAny, kAny,
     "binomial_tree"},
    {Collective::kBroadcast, Ranks::kAny, (12 << 10) - 1, kAny,
     "binomial_tree"},
    {Collective::kBroadcast, Ranks::kAny, kAny, kAny, "scatter_all_gather"},
    {Collective::kReduce, Ranks::kAny, 2047, kAny, "binomial_tree"},
    {Collective::kReduce, Ranks::kAny, kAny, kAny, "rabenseifner"},
    {Collective::kAllToAll, Ranks::kFewerThanEight, 32 << 10, kAny,
     "all_at_once", false, /*by_part=*/true},
    {Collective::kAllToAll, Ranks::kAny, 256, kAny, "bruck", false,
     /*by_part=*/true},
    {Collective::kAllToAll, Ranks::kAny, 32 << 10, kAny, "all_at_once", false,
     /*by_part=*/true},
    {Collective::kAllToAll, Ranks::kAny, kAny, kAny, "pairwise"},
};
constexpr std::string_view kMpichChoice = "mpich";

// With those of other collectives.
std::span<const Rule> RulesFor(Collective collective, bool is_mpichs) {
  const auto is_for = [collective](const Rule& rule) {
    return rule.collective == collective;
  };
  const std::span<const Rule> own = kOwnRules, mpich = kMpichRules;
  return is_mpichs && std::any_of(mpich.begin(), mpich.end(), is_for) ? mpich
                                                                      : own;
}

bool Are(Ranks ranks, int size, const CommonHost& host) {
  const bool one_host = host.ranks > 0;
  switch (ranks) {
    case Ranks::kAny:
      return true;
    case Ranks::kOfSeveralHosts:
      return !one_host;
    case Ranks::kOfOneHost:
      return one_host;
    case Ranks::kOfCrowdedHost:
      return host.processors > 0 && host.ranks >= kManyRanks * host.processors;
    case Ranks::kPowerOfTwo:
      return std::has_single_bit(static_cast<unsigned>(size));
    case Ranks::kFewerThanEight:
      return size < 8;
  }
  return false;
}

// --- What the user has chosen ------------------------------------------------

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
  std::vector<std::string_view> names;
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (CollectiveName(collective) == name) {
      return collective;
    }
    names.emplace_back(CollectiveName(collective));
  }
  return Invalid("there is no collective \"" + std::string(name) +
                 "\"; there are " + Join(names));
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
          chunking.MostOf(shape.widest) > slot_elements);
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
  choice.size_ = of.size;
  choice.subchunk_bytes_ = subchunk_bytes;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    if (entry == kMpichChoice) {
      for (const Rule& rule : kMpichRules) {
        RINGPIPE_RETURN_IF_ERROR(
            CheckSlot(*FindAlgorithm(rule.collective, rule.algorithm), of,
                      subchunk_bytes));
      }
      choice.is_mpichs_ = true;
      continue;
    }
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) {
      return Invalid("\"" + std::string(entry) +
                     "\" is neither mpich nor of the form "
                     "COLLECTIVE:ALGORITHM, such as allreduce:ring");
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

const AlgorithmInfo& AlgorithmChoice::For(Collective collective,
                                          std::uint64_t bytes,
                                          const CommonHost& host) const {
  if (const AlgorithmInfo* const chosen = Chosen(collective)) {
    return *chosen;
  }
  for (const Rule& rule : RulesFor(collective, is_mpichs_)) {
    const std::uint64_t own = rule.by_part ? bytes / size_ : bytes;
    if (rule.collective == collective && Are(rule.ranks, size_, host) &&
        own <= rule.bytes &&
        (rule.bytes_of_all == kAny ||
         bytes * host.ranks <= rule.bytes_of_all) &&
        (!rule.undivided || bytes <= subchunk_bytes_)) {
      return *FindAlgorithm(collective, rule.algorithm);
    }
  }
  assert(false);  // the last rule of each collective holds
  return Algorithms().front();
}

int AlgorithmChoice::SlotsNeeded(const Member& of, int depth,
                                 const CommonHost& host) const {
  int needed = 1;
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (const AlgorithmInfo* const chosen = Chosen(collective)) {
      needed = std::max(needed, SlotsFor(*chosen, of, depth));
      continue;
    }
    for (const Rule& rule : RulesFor(collective, is_mpichs_)) {
      if (rule.collective == collective && Are(rule.ranks, of.size, host)) {
        // Short messages have their ranges whole.
        needed = std::max(
            needed, SlotsFor(*FindAlgorithm(collective, rule.algorithm), of,
                             rule.undivided ? 1 : depth,
                             /*split=*/rule.by_part || rule.bytes > kShort));
      }
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
