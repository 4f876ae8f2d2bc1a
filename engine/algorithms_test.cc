#include "engine/algorithms.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "pipeline/checker.h"
#include "pipeline/plan.h"

namespace ringpipe {
namespace {

#ifdef NDEBUG
constexpr int kLargestSize = 64;
#else
constexpr int kLargestSize = 20;  // with sanitizers
#endif

Promise PromiseOf(Collective collective) {
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
  }
  return Promise::kBarrier;
}

// All roots of small sizes, three of large ones.
std::vector<int> Roots(Collective collective, int size) {
  std::vector<int> roots = {0};
  if (collective == Collective::kBroadcast) {
    for (int root = 1; root < size; ++root) {
      if (size <= 12 || root == size / 2 || root == size - 1) {
        roots.push_back(root);
      }
    }
  }
  return roots;
}

std::string Name(const testing::TestParamInfo<AlgorithmInfo>& test) {
  std::string name = std::string(test.param.name) + "_" +
                     CollectiveName(test.param.collective);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
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
          .writes_peer = random() % 2 == 0,
          .shares_memory = random() % 2 == 0,
          .eager_bytes = static_cast<std::uint32_t>(64 * (random() % 3)),
          .eager_to_all = random() % 2 == 0};
    }
  }
  return abilities;
}

PlanOptions RandomOptions(std::mt19937_64& random) {
  PlanOptions options;
  options.in_place = random() % 2 == 0;
  options.input_registered = random() % 2 == 0;
  options.output_registered = random() % 2 == 0;
  options.input_shared = random() % 2 == 0;
  options.output_shared = random() % 2 == 0;
  options.register_sends = random() % 2 == 0;
  options.on_host = random() % 4 != 0;
  return options;
}

class AlgorithmsTest : public testing::TestWithParam<AlgorithmInfo> {
 protected:
  // With exactly the stated slots, and one fewer.
  void ExpectProven(int size, int depth, int root) {
    CheckOptions options;
    options.promise = PromiseOf(GetParam().collective);
    options.root = root;
    options.depth = depth;
    const std::vector<Schedule> schedules =
        SchedulesOf(GetParam().algorithm, size, root);
    const int slots = GetParam().slots(size, depth);
    options.slots = slots;
    ExpectOk(Check(schedules, options), size, options);
    if (depth == 2) {
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
  // With as many messages as pairs of ranks the larger ones take minutes.
  const int largest = GetParam().one_host ? 13 : kLargestSize;
  for (int size = 1; size <= largest; ++size) {
    for (const int depth : {1, 2, 4}) {
      for (const int root : Roots(GetParam().collective, size)) {
        ExpectProven(size, depth, root);
      }
    }
    if (HasFailure()) {
      return;  // one size's messages are enough
    }
  }
}

TEST_P(AlgorithmsTest, RegisteredMemoryNeedsNoMoreSlots) {
  const int largest = GetParam().one_host ? 12 : kLargestSize;
  for (int size = 1; size <= largest; size += size < 12 ? 1 : 13) {
    for (int bits = 1; bits < 16; ++bits) {
      CheckOptions options;
      options.promise = PromiseOf(GetParam().collective);
      options.depth = 2;
      options.slots = GetParam().slots(size, options.depth);
      options.plan.in_place = (bits & 1) != 0;
      options.plan.input_registered = (bits & 2) != 0;
      options.plan.output_registered = (bits & 4) != 0;
      options.plan.register_sends = (bits & 8) != 0;
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
  for (const int size : {2, 3, 4, 7, 8, 13}) {
    const std::vector<Schedule> schedules =
        SchedulesOf(GetParam().algorithm, size, size / 2);
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      std::mt19937_64 random(seed * 1'000 + size);
      CheckOptions options;
      options.promise = PromiseOf(GetParam().collective);
      options.root = size / 2;
      options.depth = 1 + static_cast<int>(random() % 3);
      const auto slots = GetParam().slots_of_unlike != nullptr
                             ? GetParam().slots_of_unlike
                             : GetParam().slots;
      options.slots = slots(size, options.depth);
      options.order = static_cast<CheckOptions::Order>(random() % 3);
      options.seed = seed;
      options.subchunks = random() % 2;
      const std::uint32_t message_bytes =
          options.subchunks == 1 ? 64 * (random() % 3) : 0;
      const auto abilities = RandomAbilities(size, random);
      std::vector<Plan> plans;
      for (int rank = 0; rank < size; ++rank) {
        PlanOptions plan = RandomOptions(random);
        plan.direct_over_sent = GetParam().direct_over_sent;
        plan.same_to_all = GetParam().same_to_all;
        plan.message_bytes = message_bytes;
        plan.abilities = abilities[rank];
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
    for (int subchunks = 1; subchunks <= 10; ++subchunks) {
      CheckOptions options;
      options.promise = PromiseOf(GetParam().collective);
      options.depth = 3;
      options.subchunks = subchunks;
      options.slots = GetParam().slots(size, options.depth);
      const Status status =
          Check(SchedulesOf(GetParam().algorithm, size, 0), options);
      EXPECT_TRUE(status.ok()) << subchunks << ": " << status.ToString();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AlgorithmsTest,
                         testing::ValuesIn(Algorithms().begin(),
                                           Algorithms().end()),
                         Name);

// The header's table: what each rank sends, in chunks of the message.
int Sends(const Schedule& schedule) {
  return static_cast<int>(
      std::count_if(schedule.transfers.begin(), schedule.transfers.end(),
                    [](const Transfer& transfer) {
                      return transfer.kind == Transfer::Kind::kSend;
                    }));
}

TEST(AlgorithmsTest, RingsSendWhatTheTableSays) {
  for (int size = 2; size <= 64; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(RingAllReduce(rank, size, 0).chunks, size);
      EXPECT_EQ(Sends(RingAllReduce(rank, size, 0)), 2 * (size - 1));
      EXPECT_EQ(Sends(RingReduceScatter(rank, size, 0)), size - 1);
      EXPECT_EQ(Sends(RingAllGather(rank, size, 0)), size - 1);
      EXPECT_EQ(Sends(RingBroadcast(rank, size, 0)), rank < size - 1 ? 1 : 0);
    }
  }
}

TEST(AlgorithmsTest, RecursiveDoublingSendsAtMostLogOfSizeAndOneMoreMessages) {
  for (int size = 2; size <= 64; ++size) {
    const int log = std::bit_width(static_cast<unsigned>(size)) - 1;
    const bool folds = !std::has_single_bit(static_cast<unsigned>(size));
    int most = 0;
    for (int rank = 0; rank < size; ++rank) {
      most = std::max(most, Sends(RecursiveDoublingAllReduce(rank, size, 0)));
    }
    EXPECT_EQ(most, log + (folds ? 1 : 0)) << size;
  }
}

TEST(AlgorithmsTest, EveryCollectiveHasADefault) {
  for (const auto collective :
       {Collective::kAllReduce, Collective::kReduceScatter,
        Collective::kAllGather, Collective::kBroadcast, Collective::kBarrier}) {
    EXPECT_EQ(AlgorithmFor(collective, 1 << 20).collective, collective);
  }
  EXPECT_EQ(AlgorithmFor(Collective::kAllReduce, 4097).name, "ring");
}

TEST(AlgorithmsTest, AShortAllReduceHasAnAlgorithmOfItsOwn) {
  EXPECT_EQ(AlgorithmFor(Collective::kAllReduce, 4096).algorithm,
            &RecursiveDoublingAllReduce);
}

TEST(AlgorithmsTest, TheTableSaysHowManyChunksThereAre) {
  for (const AlgorithmInfo& info : Algorithms()) {
    for (int size = 1; size <= 9; ++size) {
      EXPECT_EQ(info.algorithm(0, size, 0).chunks, info.whole ? 1 : size)
          << info.name << ", " << CollectiveName(info.collective);
    }
  }
}

TEST(AlgorithmsTest, RanksOfOneHostHaveTheirOwn) {
  const auto allreduce = [](std::uint64_t bytes, int ranks) {
    return AlgorithmFor(Collective::kAllReduce, bytes, ranks).algorithm;
  };
  EXPECT_EQ(allreduce(1 << 20, 8), &AllPairsAllReduce);
  EXPECT_EQ(allreduce(4096, 8), &OneShotAllReduce);
  EXPECT_EQ(allreduce(4097, 8), &AllPairsAllReduce);
  // All inputs together are too much for one rank to read.
  EXPECT_EQ(allreduce(4096, 9), &AllPairsAllReduce);
  EXPECT_EQ(allreduce(256, 128), &OneShotAllReduce);
  EXPECT_EQ(allreduce(264, 128), &AllPairsAllReduce);
  EXPECT_EQ(AlgorithmFor(Collective::kBarrier, 0, 128).algorithm,
            &OneShotAllReduce);
}

}  // namespace
}  // namespace ringpipe
