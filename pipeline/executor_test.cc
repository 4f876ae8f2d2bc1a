// The pipeline on real memory: ranks are threads, connected over the software
// device, over the test network, or to some peers by one and to some by the
// other.
#include "pipeline/executor.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cuda/thread_accelerator.h"
#include "engine/algorithms.h"
#include "gtest/gtest.h"
#include "pipeline/host_accelerator.h"
#include "pipeline/test_job.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;

Status Register(const ProtectionDomains& rails, std::span<float> values,
                Registration& registration) {
  RINGPIPE_ASSIGN_OR_RETURN(
      registration,
      Registration::Create(rails, values.data(), values.size() * sizeof(float),
                           IBV_ACCESS_LOCAL_WRITE, /*relaxed=*/true));
  return Status::Ok();
}

// `count` floats: of `shared`, where there is such.
class Floats {
 public:
  Floats(MemorySource* shared, std::size_t count)
      : own_(shared == nullptr ? count : 0) {
    values_ = own_;
    if (shared != nullptr) {
      memory_ = shared->Allocate(count * sizeof(float)).value();
      values_ = {reinterpret_cast<float*>(memory_.data()), count};
    }
  }
  std::span<float> get() const { return values_; }

 private:
  std::vector<float> own_;
  Allocation memory_;
  std::span<float> values_;
};

// What one rank gives to an allreduce.
struct Buffers {
  std::span<float> input;
  std::span<float> output;
  Registration input_registration;
  Registration output_registration;
};

Status Register(const ProtectionDomains& rails, const PlanOptions& options,
                Buffers& buffers, Operation& operation) {
  if (options.input_registered) {
    RINGPIPE_RETURN_IF_ERROR(
        Register(rails, buffers.input, buffers.input_registration));
    operation.input.lkeys = buffers.input_registration.lkeys();
  }
  if (options.output_registered) {
    RINGPIPE_RETURN_IF_ERROR(
        Register(rails, buffers.output, buffers.output_registration));
    operation.output.lkeys = buffers.output_registration.lkeys();
  }
  return Status::Ok();
}

using OptionsOfRank = std::function<PlanOptions(int rank)>;

// `calls` allreduces of count floats, in call c rank r's all r + 1 + c, by
// `info`. Whether they are eager is for `message_bytes` to say.
std::vector<Status> AllReduce(
    Job& job, const AlgorithmInfo& info, std::size_t count, int depth,
    milliseconds timeout,
    const OptionsOfRank& options_of = [](int) { return PlanOptions(); },
    int calls = 1) {
  const std::uint64_t sequence = job.TakeSequence(calls);
  return job.OnAll([&](int rank) -> Status {
    const auto host = CreateHostAccelerator();
    PlanOptions options = options_of(rank);
    options.abilities = job.executor(rank).abilities();
    options.direct_over_sent = info.direct_over_sent;
    options.same_to_all = info.same_to_all;
    // Where ranks share memory, what is registered stands for what is shared.
    MemorySource* const shared = job.shared_memory(rank);
    options.input_shared = shared != nullptr && options.input_registered;
    options.output_shared = shared != nullptr && options.output_registered;
    RINGPIPE_ASSIGN_OR_RETURN(const Plan plan,
                              Compile(info.algorithm(rank, job.size(), 0), rank,
                                      job.size(), options));
    const Floats input(options.input_shared ? shared : nullptr, count);
    const Floats output(options.output_shared ? shared : nullptr, count);
    for (int call = 0; call < calls; ++call) {
      Buffers buffers = {input.get(), output.get(), {}, {}};
      const auto value = static_cast<float>(rank + 1 + call);
      std::fill(buffers.input.begin(), buffers.input.end(), value);
      std::fill(buffers.output.begin(), buffers.output.end(),
                options.in_place ? value : -1);
      Operation operation = MakeOperation(
          plan, options.in_place ? buffers.output.data() : buffers.input.data(),
          buffers.output.data(), count, depth, host.get(), timeout);
      operation.digest.sequence = sequence + call;
      RINGPIPE_RETURN_IF_ERROR(
          Register(job.rails(rank), options, buffers, operation));
      if (options.in_place) {
        operation.input.lkeys = operation.output.lkeys;
      }
      RINGPIPE_RETURN_IF_ERROR(job.executor(rank).Run(operation));
      const int sum = job.size() * (job.size() + 1) / 2 + job.size() * call;
      if (std::count(buffers.output.begin(), buffers.output.end(),
                     static_cast<float>(sum)) != static_cast<int>(count)) {
        return {StatusCode::kInternal, "wrong result"};
      }
    }
    return Status::Ok();
  });
}

void ExpectOk(const std::vector<Status>& statuses, const std::string& what) {
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << what << ": " << status.ToString();
  }
}

struct Case {
  int size;
  int depth;
  int seed;
  Way way = Way::kRails;
};

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  constexpr const char* kWays[] = {"rails", "test_network", "both",
                                   "host_memory", "host_and_test_network"};
  return std::string(kWays[static_cast<int>(info.param.way)]) + "_" +
         std::to_string(info.param.size) + "ranks_" +
         std::to_string(info.param.depth) + "deep_seed" +
         std::to_string(info.param.seed);
}

class SlotsTest : public ::testing::TestWithParam<Case> {};

TEST_P(SlotsTest, TheSmallestNumberOfSlotsSuffices) {
  const auto [size, depth, seed, way] = GetParam();
  for (const AlgorithmInfo& info : Algorithms()) {
    if (info.collective == Collective::kAllReduce) {
      Job job({size, info.slots(size, depth), seed, 1, way});
      ExpectOk(AllReduce(job, info, 20'000, depth, std::chrono::minutes(1)),
               std::string(info.name));
    }
  }
}

// Over rails: other connections need fewer slots.
TEST_P(SlotsTest, OneFewerEndsByTheDeadline) {
  const auto [size, depth, seed, way] = GetParam();
  if (way != Way::kRails) {
    return;
  }
  const AlgorithmInfo ring = AlgorithmFor(Collective::kAllReduce, 1 << 20);
  Job job({size, ring.slots(size, depth) - 1, seed});
  const auto start = Clock::now();
  for (const Status& status :
       AllReduce(job, ring, 20'000, depth, milliseconds(300))) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
    EXPECT_NE(status.message().find("rank"), std::string::npos);
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
}

const auto kSizes = ::testing::Values(
    Case{2, 1, 0}, Case{2, 4, 5}, Case{3, 2, 0}, Case{4, 4, 0}, Case{5, 1, 5},
    Case{8, 4, 0}, Case{2, 1, 1, Way::kTestNetwork},
    Case{2, 4, 2, Way::kTestNetwork}, Case{3, 2, 3, Way::kTestNetwork},
    Case{5, 1, 4, Way::kTestNetwork}, Case{8, 4, 5, Way::kTestNetwork},
    Case{3, 2, 6, Way::kBoth}, Case{4, 1, 7, Way::kBoth},
    Case{8, 4, 8, Way::kBoth}, Case{2, 1, 1, Way::kHostMemory},
    Case{2, 4, 2, Way::kHostMemory}, Case{3, 2, 3, Way::kHostMemory},
    Case{5, 1, 4, Way::kHostMemory}, Case{8, 4, 5, Way::kHostMemory},
    Case{4, 2, 6, Way::kHostAndTestNetwork},
    Case{5, 3, 7, Way::kHostAndTestNetwork});

INSTANTIATE_TEST_SUITE_P(Sizes, SlotsTest, kSizes, NameOf);

// --- Memory, several rails, eager messages ----------------------------------

// A number that leaves a rest everywhere.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kElements = 4'007;
#else
constexpr std::size_t kElements = 20'007;
#endif

class MemoryTest : public ::testing::TestWithParam<Case> {};

PlanOptions OptionsFromBits(int bits) {
  PlanOptions options;
  options.input_registered = (bits & 1) != 0;
  options.output_registered = (bits & 2) != 0;
  options.register_sends = (bits & 4) != 0;
  options.in_place = (bits & 8) != 0;
  options.input_registered =
      options.in_place ? options.output_registered : options.input_registered;
  return options;
}

// What is registered changes how values travel, not what they are: each of them
// by one rail and by three.
TEST_P(MemoryTest, RegisteredMemoryIsSentFromAndReceivedInto) {
  const auto [size, depth, seed, way] = GetParam();
  for (const AlgorithmInfo& info : Algorithms()) {
    if (info.collective != Collective::kAllReduce) {
      continue;
    }
    for (const int rails : {1, 3}) {
      if (rails > 1 && way != Way::kRails && way != Way::kBoth) {
        continue;
      }
      Job job({size, info.slots(size, depth), seed, rails, way});
      for (int bits = 0; bits < 16; ++bits) {
        ExpectOk(AllReduce(job, info, kElements, depth, std::chrono::minutes(1),
                           [&](int) { return OptionsFromBits(bits); }),
                 std::string(info.name) + " " + std::to_string(rails) +
                     " rails, setting " + std::to_string(bits));
      }
    }
  }
}

// It is each rank's own business.
TEST_P(MemoryTest, RanksMayHaveDifferentBuffers) {
  const auto [size, depth, seed, way] = GetParam();
  for (const AlgorithmInfo& info : Algorithms()) {
    if (info.collective != Collective::kAllReduce) {
      continue;
    }
    Job job({size, info.slots(size, depth), seed, 1, way});
    for (int shift = 0; shift < 16; shift += 3) {
      ExpectOk(AllReduce(job, info, kElements, depth, std::chrono::minutes(1),
                         [&](int rank) {
                           return OptionsFromBits((5 * rank + shift) % 16);
                         }),
               std::string(info.name) + ", shift " + std::to_string(shift));
    }
  }
}

// Many short calls: an end is a call ahead of the other, eager messages come
// before they are expected, first messages before the call has begun.
TEST_P(MemoryTest, ShortCallsFollowEachOther) {
  const auto [size, depth, seed, way] = GetParam();
  for (const AlgorithmInfo& info : Algorithms()) {
    if (info.collective != Collective::kAllReduce) {
      continue;
    }
    for (const std::size_t count : {1, 16, 256}) {
      Job job({size, info.slots(size, depth), seed, 1, way});
      ExpectOk(AllReduce(
                   job, info, count, depth, std::chrono::minutes(1),
                   [count = count](int rank) {
                     PlanOptions options = OptionsFromBits(5 * rank % 16);
                     options.message_bytes = count <= 16 ? 64 : 1024;
                     return options;
                   },
                   /*calls=*/50),
               std::string(info.name) + ", " + std::to_string(count));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, MemoryTest, kSizes, NameOf);

TEST(ExecutorTest, WhatIsReceivedOrReducedIntoUserMemoryIsNotCopied) {
  Job job({2, 8});
  const AlgorithmInfo ring = AlgorithmFor(Collective::kAllReduce, 1 << 20);
  ExpectOk(AllReduce(job, ring, 1000, 2, std::chrono::minutes(1),
                     [](int) { return OptionsFromBits(3); }),
           "ring");
  for (const StageCounters& stage : job.executor(0).stage_counters()) {
    const std::string name = stage.stage;
    if (name == "copy in" || name == "register" || name == "copy out") {
      EXPECT_EQ(stage.bytes, 0U) << name;
    }
  }
}

TEST(ExecutorTest, EveryRailCarriesItsShare) {
  Job job({.size = 2, .slots = 8, .rails = 2});
  const AlgorithmInfo ring = AlgorithmFor(Collective::kAllReduce, 1 << 20);
  const auto& rails = static_cast<RailConnection*>(
                          job.executor(0).transports()[0]->connection(1))
                          ->rails();
  ASSERT_EQ(rails.size(), 2U);
  ExpectOk(AllReduce(job, ring, 20'000, 4, std::chrono::minutes(1)), "ring");
  EXPECT_GT(rails[0].channel->messages_sent(), 10U);
  EXPECT_EQ(rails[0].channel->messages_sent(),
            rails[1].channel->messages_sent());
}

// Two ranks that read each other's memory, and write what the other reads.
TEST(ExecutorTest, RanksThatReadEachOtherExchangeOnePlace) {
  const AlgorithmInfo doubling = AlgorithmFor(Collective::kAllReduce, 8);
  for (int seed = 1; seed <= 20; ++seed) {
    Job job(
        {.size = 2,
         .slots = doubling.slots(2, 2),
         .seed = seed,
         .way = Way::kTestNetwork,
         .abilities = [](int, int) { return Abilities{.reads_peer = true}; }});
    ExpectOk(AllReduce(job, doubling, 5'000, 2, std::chrono::minutes(1),
                       [](int) { return OptionsFromBits(8 + 2); }),
             "seed " + std::to_string(seed));
  }
}

TEST(ExecutorTest, DigestsThatDifferAreAMismatchAtBothEnds) {
  for (const Way way : {Way::kRails, Way::kTestNetwork, Way::kHostMemory}) {
    for (const std::uint32_t message_bytes : {0, 64}) {
      Job job({.way = way});
      const AlgorithmInfo ring = AlgorithmFor(Collective::kAllReduce, 1 << 20);
      const auto statuses = job.OnAll([&](int rank) -> Status {
        const auto host = CreateHostAccelerator();
        RINGPIPE_ASSIGN_OR_RETURN(
            const Plan plan,
            Compile(ring.algorithm(rank, 2, 0), rank, 2,
                    PlanOptions{.message_bytes = message_bytes,
                                .abilities = job.executor(rank).abilities()}));
        const std::size_t count = 10 + rank;
        const std::vector<float> input(count, 1);
        std::vector<float> output(count);
        return job.executor(rank).Run(
            MakeOperation(plan, input.data(), output.data(), count, 2,
                          host.get(), milliseconds(5000)));
      });
      for (const Status& status : statuses) {
        EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.ToString();
        EXPECT_NE(status.message().find("count 10"), std::string::npos);
        EXPECT_NE(status.message().find("count 11"), std::string::npos);
      }
    }
  }
}

// Buffers in "device" memory: copies and reductions end later, on threads of
// their own, so a slot that is reused or read too early shows.
class AcceleratorTest : public ::testing::TestWithParam<Case> {};

TEST_P(AcceleratorTest, EveryStageWaitsForTheAccelerator) {
  const auto [size, depth, seed, way] = GetParam();
  const AlgorithmInfo ring = AlgorithmFor(Collective::kAllReduce, 1 << 20);
  Job job({size, ring.slots(size, depth) + 3, seed, 1, way});
  constexpr std::size_t kCount = 10'007;
  const auto statuses = job.OnAll([&, size = size,
                                   depth = depth](int rank) -> Status {
    ThreadAccelerator device({.seed = 17ULL + rank});
    const SlotPool& pool = job.executor(rank).pool();
    RINGPIPE_RETURN_IF_ERROR(
        device.PrepareSlots(pool.memory(), pool.memory_bytes()));
    RINGPIPE_ASSIGN_OR_RETURN(
        const Plan plan,
        Compile(
            ring.algorithm(rank, size, 0), rank, size,
            {.on_host = false, .abilities = job.executor(rank).abilities()}));
    auto* const input =
        static_cast<float*>(device.Allocate(kCount * sizeof(float)));
    auto* const output =
        static_cast<float*>(device.Allocate(kCount * sizeof(float)));
    for (int call = 0; call < 3; ++call) {
      for (std::size_t i = 0; i < kCount; ++i) {
        input[i] = static_cast<float>(i % 100 + rank + call);
      }
      std::fill(output, output + kCount, -1.0F);
      Operation operation = MakeOperation(plan, input, output, kCount, depth,
                                          &device, std::chrono::minutes(1));
      operation.digest.sequence = call;
      RINGPIPE_RETURN_IF_ERROR(job.executor(rank).Run(operation));
      for (std::size_t i = 0; i < kCount; ++i) {
        const std::size_t ranks = size * (size - 1) / 2;
        const auto expected =
            static_cast<float>(size * (i % 100 + call) + ranks);
        if (output[i] != expected) {
          return {StatusCode::kInternal, "element " + std::to_string(i) +
                                             " of call " +
                                             std::to_string(call) + " is " +
                                             std::to_string(output[i])};
        }
      }
    }
    device.ReleaseSlots(pool.memory());
    return Status::Ok();
  });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST_P(AcceleratorTest, AFailureOfTheAcceleratorEndsTheCallWithItsReason) {
  const auto [size, depth, seed, way] = GetParam();
  const AlgorithmInfo ring = AlgorithmFor(Collective::kAllReduce, 1 << 20);
  Job job({size, ring.slots(size, depth), seed, 1, way});
  const auto statuses =
      job.OnAll([&, size = size, depth = depth](int rank) -> Status {
        ThreadAccelerator device;
        const SlotPool& pool = job.executor(rank).pool();
        RINGPIPE_RETURN_IF_ERROR(
            device.PrepareSlots(pool.memory(), pool.memory_bytes()));
        device.FailAfter(5);
        RINGPIPE_ASSIGN_OR_RETURN(
            const Plan plan,
            Compile(ring.algorithm(rank, size, 0), rank, size,
                    {.on_host = false,
                     .abilities = job.executor(rank).abilities()}));
        auto* const memory =
            static_cast<float*>(device.Allocate(20'000 * sizeof(float)));
        Status status = job.executor(rank).Run(
            MakeOperation(plan, memory, memory + 10'000, 10'000, depth, &device,
                          milliseconds(2000)));
        device.ReleaseSlots(pool.memory());
        return status;
      });
  for (const Status& status : statuses) {
    EXPECT_FALSE(status.ok());
  }
  EXPECT_EQ(std::count_if(statuses.begin(), statuses.end(),
                          [](const Status& status) {
                            return status.code() == StatusCode::kDeviceError;
                          }) > 0,
            true);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AcceleratorTest,
                         ::testing::Values(Case{2, 2, 0}, Case{3, 4, 9},
                                           Case{4, 1, 0},
                                           Case{3, 4, 2, Way::kTestNetwork},
                                           Case{4, 2, 3, Way::kBoth},
                                           Case{4, 2, 4, Way::kHostMemory}),
                         NameOf);

}  // namespace
}  // namespace ringpipe
