#include "engine/algorithms.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "pipeline/checker.h"

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
  for (int size = 1; size <= kLargestSize; ++size) {
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
  for (int size = 1; size <= kLargestSize; size += size < 12 ? 1 : 13) {
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
    const Result<AlgorithmInfo> found = FindAlgorithm(collective);
    ASSERT_TRUE(found.ok()) << CollectiveName(collective);
    EXPECT_EQ(found.value().collective, collective);
  }
  EXPECT_EQ(FindAlgorithm(Collective::kAllReduce).value().name, "ring");
}

TEST(AlgorithmsTest, AnAlgorithmIsFoundByItsName) {
  const Result<AlgorithmInfo> found =
      FindAlgorithm(Collective::kAllReduce, "recursive_doubling");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value().algorithm, &RecursiveDoublingAllReduce);
}

TEST(AlgorithmsTest, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  const Result<AlgorithmInfo> found =
      FindAlgorithm(Collective::kAllReduce, "bruck");
  EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(found.status().message(),
            "allreduce has no algorithm \"bruck\"; it has: ring, "
            "recursive_doubling");
}

}  // namespace
}  // namespace ringpipe
