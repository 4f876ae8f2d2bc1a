#include "engine/algorithms.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/test_name.h"
#include "gtest/gtest.h"
#include "pipeline/checker.h"
#include "pipeline/plan.h"

namespace ringpipe {
namespace {

#ifdef NDEBUG
constexpr int kLargestSize = 64;
constexpr std::array kLargerSizes = {80, 96, 127, 128, 129, 192, 255, 256};
#else  // with sanitizers
constexpr int kLargestSize = 20;
constexpr std::array kLargerSizes = {24, 33};
#endif

// Where a rank keeps all chunks of all ranks, a check of more ranks than this
// takes minutes.
constexpr int kMostOfAllChunks = 129;

// Every size up to kLargestSize, and a few beyond; in //tests:long every size
// from there up to LARGEST_SIZE.
std::vector<int> Sizes() {
  const char* const largest = std::getenv("LARGEST_SIZE");
  const int first = largest == nullptr ? 1 : kLargestSize + 1;
  const int last = largest == nullptr ? kLargestSize : std::atoi(largest);
  std::vector<int> sizes;
  for (int size = first; size <= last; ++size) {
    sizes.push_back(size);
  }
  if (largest == nullptr) {
    sizes.insert(sizes.end(), kLargerSizes.begin(), kLargerSizes.end());
  }
  return sizes;
}

// All roots of small sizes, three of large ones.
std::vector<int> Roots(Collective collective, int size) {
  std::vector<int> roots = {0};
  if (InfoOf(collective).is_rooted()) {
    for (int root = 1; root < size; ++root) {
      if (size <= 16 || root == size - 1) {
        roots.push_back(root);
      }
    }
  }
  return roots;
}

// Of each rank to each other; the same at both ends.
std::vector<std::vector<Abilities>> RandomAbilities(int size,
                                                    std::mt19937_64& random) {
  std::vector<std::vector<Abilities>> abilities(size,
                                                std::vector<Abilities>(size));
  for (int a = 0; a < size; ++a) {
    for (int b = 0; b < a; ++b) {
      abilities[a][b] = abilities[b][a] = {
          .reads_peer = random() % 2 == 0,
          .eager_bytes = static_cast<std::uint32_t>(64 * (random() % 3)),
          .eager_to_all = random() % 2 == 0};
    }
  }
  return abilities;
}

Reach RandomReach(std::mt19937_64& random) {
  return {static_cast<Reach::Sends>(random() % 3), random() % 2 == 0};
}

// What a rank can do with each peer, by the two ways that it has.
std::vector<PlanOptions::Peer> RandomPeers(
    const std::vector<Abilities>& abilities, std::mt19937_64& random) {
  std::array<PlanOptions::Peer, 2> ways;
  for (PlanOptions::Peer& way : ways) {
    way.input = RandomReach(random);
    way.output = RandomReach(random);
  }
  std::vector<PlanOptions::Peer> peers;
  for (const Abilities& one : abilities) {
    peers.push_back(ways[random() % ways.size()]);
    peers.back().abilities = one;
  }
  return peers;
}

Owner RandomOwner(std::mt19937_64& random) {
  return random() % 2 == 0 ? Owner::kHost : static_cast<Owner>(random() % 3);
}

// Of the next rank. Where it is given who reduces, it has as many more slots as
// the engine adds then: that may differ from rank to rank.
PlanOptions RandomOptions(std::mt19937_64& random, CheckOptions& all) {
  PlanOptions options;
  options.in_place = random() % 2 == 0;
  options.input_owner = RandomOwner(random);
  options.output_owner = RandomOwner(random);
  if (random() % 3 == 0) {
    options.reducer = random() % 2 == 0 ? Owner::kHost : Owner::kDevice;
  }
  all.more_slots.push_back(options.reducer.has_value() ? all.depth : 0);
  options.in_pieces = random() % 4 == 0;
  options.scales_input = random() % 4 == 0;
  return options;
}

class AlgorithmsTest : public testing::TestWithParam<AlgorithmInfo> {
 protected:
  // Whether there are about as many messages as pairs of ranks.
  static bool HasManyMessages() {
    const auto slots = GetParam().slots_of_unlike != nullptr
                           ? GetParam().slots_of_unlike
                           : GetParam().slots;
    return slots({0, 9}, 1) > 8;
  }

  // The stated ones; what one alone cannot copy needs one, which a rank always
  // has.
  static int SlotsOfAnyMemory(int size, int depth, bool split) {
    return std::max(1, SlotsFor(GetParam(), {0, size}, depth, split));
  }

  // Sub-chunks in a round: the more ranks, the fewer.
  static std::vector<int> DepthsFor(int size) {
    if (size <= 13 || (size <= 16 && !HasManyMessages())) {
      return {1, 2, 4};
    }
    return {size > 64 || HasManyMessages() ? 1 : 2};
  }

  // With exactly the stated slots, and one fewer.
  void ExpectProven(int size, int depth, int root) {
    CheckOptions options;
    options.collective = GetParam().collective;
    options.root = root;
    options.same_bits = GetParam().same_bits;
    options.depth = depth;
    const std::vector<Schedule> schedules =
        SchedulesOf(GetParam().algorithm, size, root);
    if (schedules[0].scratch > kMostOfAllChunks * kMostOfAllChunks) {
      EXPECT_GT(size, kMostOfAllChunks);
      std::cout << "not proven for " << size
                << " ranks: " << TestName(GetParam()) << "\n";
      return;
    }
    const int slots = GetParam().slots({0, size}, depth);
    options.slots = slots;
    ExpectOk(Check(schedules, options), size, options);
    if ((depth == 2 || (size > 13 && size <= 32)) && GetParam().in_place) {
      options.plan.in_place = true;
      ExpectOk(Check(schedules, options), size, options);
      options.plan.in_place = false;
    }
    if (slots > 0) {
      options.slots = slots - 1;
      const Status stuck = Check(schedules, options);
      EXPECT_EQ(stuck.code(), StatusCode::kResourceExhausted)
          << "size " << size << ", root " << root << ", depth " << depth << ": "
          << stuck.ToString();
    }
  }

  static void ExpectOk(const Status& status, int size,
                       const CheckOptions& options) {
    EXPECT_TRUE(status.ok())
        << "size " << size << ", root " << options.root << ", depth "
        << options.depth << (options.plan.in_place ? ", in place: " : ": ")
        << status.ToString();
  }
};

TEST_P(AlgorithmsTest, ProvenForEverySizeWithTheStatedSlotsAndNotWithOneFewer) {
  for (const int size : Sizes()) {
    if (!Exists(GetParam(), {0, size})) {
      continue;
    }
    for (const int depth : DepthsFor(size)) {
      for (const int root : Roots(GetParam().collective, size)) {
        ExpectProven(size, depth, root);
      }
    }
    if (HasFailure()) {
      return;  // one size's messages are enough
    }
  }
}

TEST_P(AlgorithmsTest, SplitRangesNeedNoMoreSlotsThanStated) {
  if (WalkOf(GetParam().collective) != Walk::kChunks) {
    return;
  }
  for (int size = 2; size <= 24; ++size) {
    for (const int depth : {1, 2, 4}) {
      for (const int root : Roots(GetParam().collective, size)) {
        if (!Exists(GetParam(), {0, size})) {
          continue;
        }
        CheckOptions options;
        options.collective = GetParam().collective;
        options.root = root;
        options.depth = depth;
        options.slots = SlotsFor(GetParam(), {0, size}, depth);
        std::vector<Schedule> schedules =
            SchedulesOf(GetParam().algorithm, size, root);
        for (Schedule& schedule : schedules) {
          schedule = SplitRanges(schedule);
        }
        const Status status = Check(schedules, options);
        ASSERT_TRUE(status.ok())
            << "size " << size << ", root " << root << ", depth " << depth
            << ": " << status.ToString();
      }
    }
  }
}

// Of parts that are not equally long some end early, and some are empty.
TEST_P(AlgorithmsTest, IsProvenForPartsOfAnyLength) {
  if (!InfoOf(GetParam().collective).takes_counts()) {
    return;
  }
  for (int size = 1; size <= 13; ++size) {
    for (std::uint64_t seed = 0; Exists(GetParam(), {0, size}) && seed < 40;
         ++seed) {
      std::mt19937_64 random(1000 * seed + size);
      CheckOptions options;
      options.collective = GetParam().collective;
      options.root = static_cast<int>(random() % size);
      options.depth = 1 + static_cast<int>(random() % 3);
      options.order = static_cast<CheckOptions::Order>(random() % 3);
      options.seed = seed;
      options.subchunks = 1;
      for (int part = 0; part < size; ++part) {
        options.subchunks_of_chunks.push_back(
            random() % 3 == 0 ? 0 : random() % (4 * options.depth));
        options.subchunks =
            std::max(options.subchunks, options.subchunks_of_chunks.back());
      }
      options.slots = SlotsOfAnyMemory(size, options.depth,
                                       /*split=*/options.subchunks > 1);
      const std::uint32_t message_bytes =
          options.subchunks == 1 ? 64 * (random() % 3) : 0;
      const auto abilities = RandomAbilities(size, random);
      std::vector<Plan> plans;
      for (int rank = 0; rank < size; ++rank) {
        const Schedule schedule =
            GetParam().algorithm({rank, size, options.root});
        ASSERT_EQ(schedule.chunks, size);
        ASSERT_FALSE(schedule.equal_chunks);
        PlanOptions plan = RandomOptions(random, options);
        plan.in_place = plan.in_place && GetParam().in_place;
        plan.direct_over_sent = GetParam().direct_over_sent;
        plan.same_to_all = SameToAll(GetParam(), {0, size, options.root});
        plan.message_bytes = message_bytes;
        const auto peers = RandomPeers(abilities[rank], random);
        plan.peers = peers;
        plans.push_back(
            Compile(options.subchunks > 1 ? SplitRanges(schedule) : schedule,
                    rank, size, plan)
                .value());
      }
      const Status status = CheckPlans(plans, options);
      ASSERT_TRUE(status.ok())
          << "size " << size << ", seed " << seed << ": " << status.ToString();
    }
  }
}

// Of pairs some have nothing for each other, and none knows of the others.
TEST_P(AlgorithmsTest, IsProvenForPairsOfAnyLength) {
  if (!GetParam().takes_counts_of_pairs) {
    return;
  }
  for (int size = 1; size <= 9; ++size) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      std::mt19937_64 random(1000 * seed + size);
      CheckOptions options;
      options.collective = GetParam().collective;
      options.depth = 1 + static_cast<int>(random() % 3);
      options.slots = SlotsOfAnyMemory(size, options.depth, /*split=*/true);
      options.order = static_cast<CheckOptions::Order>(random() % 3);
      options.seed = seed;
      options.subchunks = 4 * static_cast<std::uint64_t>(options.depth);
      for (int from = 0; from < size; ++from) {
        auto& lengths = options.subchunks_of_pairs.emplace_back();
        for (int to = 0; to < size; ++to) {
          lengths.push_back(
              random() % 3 == 0 ? 0 : random() % (options.subchunks + 1));
        }
      }
      const auto abilities = RandomAbilities(size, random);
      std::vector<Plan> plans;
      for (int rank = 0; rank < size; ++rank) {
        PlanOptions plan = RandomOptions(random, options);
        plan.in_place = false;
        plan.message_bytes = 0;
        const auto peers = RandomPeers(abilities[rank], random);
        plan.peers = peers;
        plans.push_back(
            Compile(GetParam().algorithm({rank, size}), rank, size, plan)
                .value());
      }
      const Status status = CheckPlans(plans, options);
      ASSERT_TRUE(status.ok())
          << "size " << size << ", seed " << seed << ": " << status.ToString();
    }
  }
}

TEST_P(AlgorithmsTest, MemoryThatIsReachedNeedsNoMoreSlots) {
  const int largest = HasManyMessages() ? 12 : kLargestSize;
  for (int size = 1; size <= largest; size += size < 10 ? 1 : 18) {
    for (int bits = 1; bits < 16; ++bits) {
      if (!Exists(GetParam(), {0, size}) ||
          (!GetParam().in_place && (bits & 1) != 0)) {
        continue;
      }
      CheckOptions options;
      options.collective = GetParam().collective;
      options.same_bits = GetParam().same_bits;
      options.depth = 2;
      options.slots = GetParam().slots({0, size}, options.depth);
      options.plan.in_place = (bits & 1) != 0;
      const Reach other = {(bits & 8) != 0 ? Reach::Sends::kAfterRegistering
                                           : Reach::Sends::kNo};
      options.plan.each_peer = {.input = (bits & 2) != 0 ? kReached : other,
                                .output = (bits & 4) != 0 ? kReached : other};
      options.plan.direct_over_sent = GetParam().direct_over_sent;
      const Status status =
          Check(SchedulesOf(GetParam().algorithm, size, 0), options);
      ASSERT_TRUE(status.ok())
          << "size " << size << ", setting " << bits << status.ToString();
    }
  }
}

// Some peers by memory, some by rails; ranks whose buffers are different, in
// place on some; short messages that are eager on some connections. All by the
// seed, with the stated slots.
TEST_P(AlgorithmsTest, IsProvenForMixedConnectionsAndDifferentBuffers) {
  for (const int size : {2, 3, 4, 7, 8, 13, 24}) {
    if (!Exists(GetParam(), {0, size})) {
      continue;
    }
    const std::vector<Schedule> schedules =
        SchedulesOf(GetParam().algorithm, size, size / 2);
    const std::uint64_t seeds = size > 13 ? 4 : 60;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      std::mt19937_64 random(seed * 1'000 + size);
      CheckOptions options;
      options.collective = GetParam().collective;
      options.same_bits = GetParam().same_bits;
      options.root = size / 2;
      options.depth = 1 + static_cast<int>(random() % 3);
      options.slots = SlotsOfAnyMemory(size, options.depth, /*split=*/false);
      options.order = static_cast<CheckOptions::Order>(random() % 3);
      options.seed = seed;
      options.subchunks = random() % 2;
      const std::uint32_t message_bytes =
          options.subchunks == 1 ? 64 * (random() % 3) : 0;
      const auto abilities = RandomAbilities(size, random);
      std::vector<Plan> plans;
      for (int rank = 0; rank < size; ++rank) {
        PlanOptions plan = RandomOptions(random, options);
        plan.in_place = plan.in_place && GetParam().in_place;
        plan.direct_over_sent = GetParam().direct_over_sent;
        plan.same_to_all = SameToAll(GetParam(), {0, size, size / 2});
        plan.message_bytes = message_bytes;
        const auto peers = RandomPeers(abilities[rank], random);
        plan.peers = peers;
        plans.push_back(Compile(schedules[rank], rank, size, plan).value());
      }
      const Status status = CheckPlans(plans, options);
      ASSERT_TRUE(status.ok())
          << "size " << size << ", seed " << seed << ": " << status.ToString();
    }
  }
}

TEST_P(AlgorithmsTest, IsProvenForEveryNumberOfSubchunks) {
  for (const int size : {2, 3, 8}) {
    if (!Exists(GetParam(), {0, size})) {
      continue;
    }
    for (int subchunks = 1; subchunks <= 10; ++subchunks) {
      CheckOptions options;
      options.collective = GetParam().collective;
      options.same_bits = GetParam().same_bits;
      options.depth = 3;
      options.subchunks = subchunks;
      options.slots = GetParam().slots({0, size}, options.depth);
      const Status status =
          Check(SchedulesOf(GetParam().algorithm, size, 0), options);
      EXPECT_TRUE(status.ok()) << subchunks << ": " << status.ToString();
    }
  }
}

// By rank, for ranks that a launcher has given hosts in all ways.
std::vector<std::vector<int>> LayoutsOf(int size) {
  std::vector<std::vector<int>> layouts(5);
  for (int rank = 0; rank < size; ++rank) {
    layouts[0].push_back(7);         // one host
    layouts[1].push_back(rank / 2);  // two ranks each, block by block
    layouts[2].push_back(rank % ((size + 1) / 2));  // the same in turn
    layouts[3].push_back(rank % 2);
    layouts[4].push_back(rank == 0 ? 1 : 0);  // one alone
  }
  return layouts;
}

TEST_P(AlgorithmsTest, IsProvenForRanksThatShareHosts) {
  for (int size = 2; size <= 12; ++size) {
    for (const std::vector<int>& hosts : LayoutsOf(size)) {
      const Member member = {0, size, size / 2, hosts};
      if (!Exists(GetParam(), member)) {
        continue;
      }
      CheckOptions options;
      options.collective = GetParam().collective;
      options.root = member.root;
      options.same_bits = GetParam().same_bits;
      options.depth = 2;
      options.slots = GetParam().slots(member, options.depth);
      const std::vector<Schedule> schedules =
          SchedulesOf(GetParam().algorithm, size, member.root, hosts);
      ExpectOk(Check(schedules, options), size, options);
      --options.slots;
      EXPECT_EQ(Check(schedules, options).code(),
                StatusCode::kResourceExhausted)
          << size;
      if (HasFailure()) {
        return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AlgorithmsTest,
                         testing::ValuesIn(Algorithms().begin(),
                                           Algorithms().end()),
                         [](const auto& test) { return TestName(test.param); });

TEST(AlgorithmsTest, EveryCollectiveHasAnAlgorithmForEveryNumberOfRanks) {
  const AlgorithmChoice choice;
  for (int collective = 0; collective < kCollectives; ++collective) {
    for (const CommonHost host :
         {CommonHost(), CommonHost{3, 2}, CommonHost{12, 2}}) {
      for (const std::uint64_t bytes : {0, 4096, 4097, 1 << 20}) {
        const AlgorithmInfo& info =
            choice.For(static_cast<Collective>(collective), bytes, host);
        EXPECT_EQ(static_cast<int>(info.collective), collective);
        EXPECT_EQ(info.exists, nullptr);
      }
    }
  }
}

// A message crosses each host's wire once, whatever order the launcher gave.
TEST(AlgorithmsTest, RingsVisitTheRanksOfAHostOneAfterTheOther) {
  constexpr std::array kHosts = {2, 0, 1, 2, 0, 1, 2, 0, 1, 1};
  int rings = 0;
  for (const AlgorithmInfo& info : Algorithms()) {
    if (!info.name.ends_with("ring") && info.name != "chain") {
      continue;
    }
    ++rings;
    std::set<std::pair<int, int>> crossings;
    for (int rank = 0; rank < 10; ++rank) {
      for (const Transfer& transfer :
           info.algorithm({rank, 10, 3, kHosts}).transfers) {
        if (transfer.kind == Transfer::Kind::kSend &&
            kHosts[rank] != kHosts[transfer.peer]) {
          crossings.emplace(rank, transfer.peer);
        }
      }
    }
    EXPECT_EQ(crossings.size(), 3) << TestName(info);
  }
  EXPECT_EQ(rings, 5);
}

TEST(AlgorithmsTest, SomeSayTheSameToAll) {
  const Member of = {0, 4, 1};
  for (const auto& [collective, name, same] :
       {std::tuple(Collective::kAllReduce, "one_shot", true),
        std::tuple(Collective::kAllReduce, "ring", true),
        std::tuple(Collective::kAllReduce, "all_pairs", false),
        // The same place, with another value.
        std::tuple(Collective::kAllReduce, "recursive_doubling", false),
        std::tuple(Collective::kReduceScatter, "one_shot", true),
        std::tuple(Collective::kReduceScatter, "all_pairs", false),
        std::tuple(Collective::kAllGather, "all_pairs", true),
        std::tuple(Collective::kBroadcast, "one_to_all", true),
        std::tuple(Collective::kBarrier, "all_to_all", true)}) {
    EXPECT_EQ(SameToAll(*FindAlgorithm(collective, name), of), same)
        << CollectiveName(collective) << " " << name;
  }
}

TEST(AlgorithmsTest, NamesAreUnique) {
  for (const AlgorithmInfo& info : Algorithms()) {
    EXPECT_EQ(FindAlgorithm(info.collective, info.name), &info) << info.name;
    EXPECT_FALSE(info.source.empty());
  }
}

std::string_view AllReduceFor(std::uint64_t bytes, const CommonHost& host) {
  return AlgorithmChoice().For(Collective::kAllReduce, bytes, host).name;
}

TEST(AlgorithmsTest, AShortAllReduceHasAnAlgorithmOfItsOwn) {
  EXPECT_EQ(AllReduceFor(4096, {}), "recursive_doubling");
  EXPECT_EQ(AllReduceFor(4097, {}), "ring");
}

// Between hosts each message costs its latency, of which these have lg p one
// after the other, and those of long messages p - 1.
TEST(AlgorithmsTest, ShortMessagesBetweenHostsHaveFewSteps) {
  const auto choose = [](Collective collective, std::uint64_t bytes) {
    return AlgorithmChoice().For(collective, bytes, {}).name;
  };
  EXPECT_EQ(choose(Collective::kReduceScatter, 4096), "recursive_halving");
  EXPECT_EQ(choose(Collective::kReduceScatter, 4097), "ring");
  EXPECT_EQ(choose(Collective::kAllGather, 4096), "bruck");
  EXPECT_EQ(choose(Collective::kAllGather, 4097), "ring");
  EXPECT_EQ(choose(Collective::kBroadcast, 4096), "binomial_tree");
  EXPECT_EQ(choose(Collective::kBroadcast, 4097), "chain");
  // In sub-chunks, a pipeline has them all under way at once.
  const auto choice = AlgorithmChoice::Parse("", {0, 8}, 1024);
  ASSERT_TRUE(choice.ok()) << choice.status().ToString();
  EXPECT_EQ(choice->For(Collective::kReduceScatter, 4096).name, "ring");
  EXPECT_EQ(choice->For(Collective::kAllGather, 4096).name, "ring");
  EXPECT_EQ(choice->For(Collective::kBroadcast, 4096).name, "chain");
}

TEST(AlgorithmsTest, RanksOfOneHostHaveTheirOwn) {
  EXPECT_EQ(AllReduceFor(1 << 20, {8, 8}), "all_pairs");
  EXPECT_EQ(AllReduceFor(4096, {8, 8}), "one_shot");
  EXPECT_EQ(AllReduceFor(4097, {8, 8}), "all_pairs");
  // All inputs together are too much for one rank to read.
  EXPECT_EQ(AllReduceFor(4096, {9, 9}), "all_pairs");
  EXPECT_EQ(AllReduceFor(256, {128, 128}), "one_shot");
  EXPECT_EQ(AllReduceFor(264, {128, 128}), "all_pairs");
}

TEST(AlgorithmsTest, ManyRanksOfAProcessorSendFewMessages) {
  EXPECT_EQ(AllReduceFor(64 << 10, {8, 2}), "parameter_server");
  EXPECT_EQ(AllReduceFor(64 << 10, {7, 2}), "all_pairs");
  EXPECT_EQ(AllReduceFor(64 << 10, {8, 0}), "all_pairs");
  EXPECT_EQ(AllReduceFor(4096, {8, 2}), "one_shot");
  EXPECT_EQ(AllReduceFor(4096, {16, 2}), "parameter_server");
  EXPECT_EQ(AllReduceFor((256 << 10) + 1, {8, 2}), "all_pairs");
  const auto choose = [](Collective collective, std::uint64_t bytes) {
    return AlgorithmChoice().For(collective, bytes, {8, 2}).name;
  };
  EXPECT_EQ(choose(Collective::kBroadcast, 256 << 10), "one_to_all");
  EXPECT_EQ(choose(Collective::kBroadcast, (256 << 10) + 1), "all_pairs");
  EXPECT_EQ(choose(Collective::kReduceScatter, 4096), "one_shot");
  EXPECT_EQ(choose(Collective::kReduceScatter, 4097), "ring");
  EXPECT_EQ(choose(Collective::kReduceScatter, 16 << 20), "ring");
}

// Those of what a call may take, and not those of the hungriest of all.
TEST(AlgorithmsTest, SlotsAreThoseOfWhatMayBeTaken) {
  const Member of = {0, 16};
  EXPECT_EQ(AlgorithmChoice().SlotsNeeded(of, 4, {}), 5);
  EXPECT_EQ(AlgorithmChoice().SlotsNeeded(of, 4, {16, 2}), 61);
  const auto choice = AlgorithmChoice::Parse(
      "allreduce:rabenseifner,barrier:dissemination", of);
  ASSERT_TRUE(choice.ok()) << choice.status().ToString();
  EXPECT_EQ(choice->SlotsNeeded(of, 4, {}), 21);
}

TEST(AlgorithmsTest, TheUsersChoiceIsTaken) {
  const auto choice = AlgorithmChoice::Parse(
      "allreduce:rabenseifner,barrier:dissemination", {0, 5});
  ASSERT_TRUE(choice.ok()) << choice.status().ToString();
  EXPECT_EQ(choice->For(Collective::kAllReduce, 8, {5, 5}).name,
            "rabenseifner");
  EXPECT_EQ(choice->For(Collective::kBarrier, 0).name, "dissemination");
  EXPECT_EQ(choice->For(Collective::kBroadcast, 8).name, "binomial_tree");
}

// By the switch points that it has published.
TEST(AlgorithmsTest, MpichsChoiceCanBeTaken) {
  const auto choose = [](int size, Collective collective, std::uint64_t bytes) {
    const auto choice = AlgorithmChoice::Parse("mpich", {0, size});
    EXPECT_TRUE(choice.ok()) << choice.status().ToString();
    return choice->For(collective, bytes, {size, size}).name;
  };
  for (const auto& [size, collective, bytes, name] :
       {std::tuple(8, Collective::kAllReduce, 2047, "recursive_doubling"),
        std::tuple(8, Collective::kAllReduce, 2048, "rabenseifner"),
        std::tuple(8, Collective::kReduce, 2047, "binomial_tree"),
        std::tuple(8, Collective::kReduce, 2048, "rabenseifner"),
        std::tuple(8, Collective::kReduceScatter, 524'287, "recursive_halving"),
        std::tuple(8, Collective::kReduceScatter, 524'288, "pairwise"),
        std::tuple(8, Collective::kAllGather, 524'287, "recursive_doubling"),
        std::tuple(8, Collective::kAllGather, 524'288, "ring"),
        std::tuple(9, Collective::kAllGather, 81'919, "bruck"),
        std::tuple(9, Collective::kAllGather, 81'920, "ring"),
        std::tuple(7, Collective::kBroadcast, 1 << 20, "binomial_tree"),
        std::tuple(8, Collective::kBroadcast, 12'287, "binomial_tree"),
        std::tuple(8, Collective::kBroadcast, 12'288, "scatter_all_gather"),
        std::tuple(8, Collective::kAllToAll, 8 * 256, "bruck"),
        std::tuple(7, Collective::kAllToAll, 7 * 256, "all_at_once"),
        std::tuple(8, Collective::kAllToAll, 8 * 257, "all_at_once"),
        std::tuple(8, Collective::kAllToAll, 8 * 32'769, "pairwise"),
        // It says nothing of that: as without it.
        std::tuple(8, Collective::kBarrier, 0, "all_to_all")}) {
    EXPECT_EQ(choose(size, collective, bytes), name)
        << CollectiveName(collective) << ", " << size << " ranks, " << bytes;
  }
  const auto both =
      AlgorithmChoice::Parse("mpich,allreduce:ring", {0, 8}).value();
  EXPECT_EQ(both.For(Collective::kAllReduce, 8).name, "ring");
  EXPECT_EQ(both.For(Collective::kReduce, 8).name, "binomial_tree");
  EXPECT_FALSE(AlgorithmChoice::Parse("mpich", {0, 65}, 256).ok());
}

TEST(AlgorithmsTest, AWrongChoiceListsTheRightOnes) {
  for (const auto& [text, part] :
       {std::pair("allreduce:tree", "parameter_server"),
        std::pair("all-reduce:ring", "allreduce"),
        std::pair("ring", "COLLECTIVE:ALGORITHM"),
        std::pair("reduce-scatter:recursive_doubling", "for 3 ranks"),
        std::pair("allreduce:", "rabenseifner"),
        std::pair(",", "COLLECTIVE:ALGORITHM")}) {
    const Status status = AlgorithmChoice::Parse(text, {0, 3}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(part), std::string::npos)
        << status.ToString();
  }
}

// Its largest message is an element, at least, of each of 64 chunks.
TEST(AlgorithmsTest, AChoiceWhoseMessagesDoNotFitASlotIsRefused) {
  const Status status =
      AlgorithmChoice::Parse("allreduce:rabenseifner", {1, 65}, 256).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("RINGPIPE_SUBCHUNK_BYTES of at least 512"),
            std::string::npos)
      << status.ToString();
  EXPECT_TRUE(
      AlgorithmChoice::Parse("allreduce:rabenseifner", {1, 65}, 512).ok());
}

}  // namespace
}  // namespace ringpipe
