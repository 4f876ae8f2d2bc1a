// The pipeline on real memory without bootstrap and engine: ranks are threads,
// connected by hand over the software device.
#include "pipeline/executor.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/thread_accelerator.h"
#include "engine/algorithms.h"
#include "gtest/gtest.h"
#include "verbs/device.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kSubchunkBytes = 1024;

std::string DescribeForTest(const Digest& digest) {
  return "call(count " + std::to_string(digest.count) + ")";
}

// All ranks of a job in one process.
class Job {
 public:
  Job(int size, int data_slots, int adversary_seed) : ranks_(size) {
    for (int rank = 0; rank < size; ++rank) {
      Rank& self = ranks_[rank];
      const std::uint64_t seed =
          adversary_seed == 0 ? 0 : adversary_seed + rank;
      auto device =
          verbs::Device::Open({verbs::DeviceRequest::Kind::kSoftware, "", 0},
                              Status(StatusCode::kUnavailable, "not asked for"),
                              verbs::soft::CreateSoftLibrary({seed}));
      auto pd = verbs::ProtectionDomain::Create(std::move(device).value());
      self.abort = AbortSignal::Create().value();
      Executor::Options options;
      options.rank = rank;
      options.size = size;
      options.subchunk_bytes = kSubchunkBytes;
      options.data_slots = data_slots;
      options.abort = self.abort.get();
      options.describe = &DescribeForTest;
      auto executor = Executor::Create(std::move(pd).value(), options);
      EXPECT_TRUE(executor.ok()) << executor.status().ToString();
      self.executor = std::move(executor).value();
    }
    for (int a = 0; a < size; ++a) {
      for (int b = 0; b < size; ++b) {
        if (a != b) {
          const Status status =
              ranks_[a].executor->Connect(b, ranks_[b].executor->AddressFor(a));
          EXPECT_TRUE(status.ok()) << status.ToString();
        }
      }
    }
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  Executor& executor(int rank) { return *ranks_[rank].executor; }

  // `body(rank)` on a thread for each rank.
  template <typename Body>
  std::vector<Status> OnAll(Body body) {
    std::vector<Status> statuses(size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] { statuses[rank] = body(rank); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return statuses;
  }

 private:
  struct Rank {
    std::unique_ptr<AbortSignal> abort;
    std::unique_ptr<Executor> executor;
  };
  std::vector<Rank> ranks_;
};

Operation MakeOperation(const Plan& plan, const float* input, float* output,
                        std::size_t count, int depth, Accelerator* accelerator,
                        milliseconds timeout) {
  Operation operation;
  operation.plan = &plan;
  operation.name = &DescribeForTest;
  operation.digest.count = count;
  operation.input.base = reinterpret_cast<std::uintptr_t>(input);
  operation.output.base = reinterpret_cast<std::uintptr_t>(output);
  operation.accelerator = accelerator;
  operation.chunking =
      Chunking(count, plan.chunks, kSubchunkBytes / sizeof(float));
  operation.depth = depth;
  operation.deadline = Deadline::After(timeout);
  return operation;
}

// An allreduce of count floats, rank r's all r + 1, by `info`.
std::vector<Status> AllReduce(Job& job, const AlgorithmInfo& info,
                              std::size_t count, int depth,
                              milliseconds timeout) {
  return job.OnAll([&](int rank) -> Status {
    const auto host = CreateHostAccelerator();
    RINGPIPE_ASSIGN_OR_RETURN(const Plan plan,
                              Compile(info.algorithm(rank, job.size(), 0), rank,
                                      job.size(), PlanOptions{}));
    const std::vector<float> input(count, static_cast<float>(rank + 1));
    std::vector<float> output(count, -1);
    RINGPIPE_RETURN_IF_ERROR(job.executor(rank).Run(MakeOperation(
        plan, input.data(), output.data(), count, depth, host.get(), timeout)));
    const auto sum = static_cast<float>(job.size() * (job.size() + 1) / 2);
    return output == std::vector<float>(count, sum)
               ? Status::Ok()
               : Status(StatusCode::kInternal, "wrong result");
  });
}

struct Case {
  int size;
  int depth;
  int adversary_seed;
};

class SlotsTest : public ::testing::TestWithParam<Case> {};

TEST_P(SlotsTest, TheSmallestNumberOfSlotsSuffices) {
  const auto& [size, depth, seed] = GetParam();
  for (const AlgorithmInfo& info : Algorithms()) {
    if (info.collective != Collective::kAllReduce) {
      continue;
    }
    Job job(size, info.slots(size, depth), seed);
    for (const Status& status :
         AllReduce(job, info, 20'000, depth, std::chrono::minutes(1))) {
      EXPECT_TRUE(status.ok()) << info.name << ": " << status.ToString();
    }
  }
}

TEST_P(SlotsTest, OneFewerEndsByTheDeadline) {
  const auto& [size, depth, seed] = GetParam();
  const AlgorithmInfo ring = FindAlgorithm(Collective::kAllReduce).value();
  Job job(size, ring.slots(size, depth) - 1, seed);
  const auto start = Clock::now();
  for (const Status& status :
       AllReduce(job, ring, 20'000, depth, milliseconds(300))) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
    EXPECT_NE(status.message().find("rank"), std::string::npos);
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
}

INSTANTIATE_TEST_SUITE_P(Sizes, SlotsTest,
                         ::testing::Values(Case{2, 1, 0}, Case{2, 4, 5},
                                           Case{3, 2, 0}, Case{4, 4, 0},
                                           Case{5, 1, 5}, Case{8, 4, 0}));

TEST(ExecutorTest, DigestsThatDifferAreAMismatchAtBothEnds) {
  Job job(2, 8, 0);
  const AlgorithmInfo ring = FindAlgorithm(Collective::kAllReduce).value();
  const auto statuses = job.OnAll([&](int rank) -> Status {
    const auto host = CreateHostAccelerator();
    RINGPIPE_ASSIGN_OR_RETURN(
        const Plan plan,
        Compile(ring.algorithm(rank, 2, 0), rank, 2, PlanOptions{}));
    const std::size_t count = 100 + rank;
    const std::vector<float> input(count, 1);
    std::vector<float> output(count);
    return job.executor(rank).Run(
        MakeOperation(plan, input.data(), output.data(), count, 2, host.get(),
                      milliseconds(5000)));
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.ToString();
    EXPECT_NE(status.message().find("count 100"), std::string::npos);
    EXPECT_NE(status.message().find("count 101"), std::string::npos);
  }
}

// Buffers in "device" memory: copies and reductions end later, on threads of
// their own, so a slot that is reused or read too early shows.
class AcceleratorTest : public ::testing::TestWithParam<Case> {};

TEST_P(AcceleratorTest, EveryStageWaitsForTheAccelerator) {
  const auto& [size, depth, seed] = GetParam();
  const AlgorithmInfo ring = FindAlgorithm(Collective::kAllReduce).value();
  Job job(size, ring.slots(size, depth) + 3, seed);
  constexpr std::size_t kCount = 10'007;
  const auto statuses = job.OnAll([&](int rank) -> Status {
    ThreadAccelerator device({.seed = 17ULL + rank});
    const SlotPool& pool = job.executor(rank).pool();
    RINGPIPE_RETURN_IF_ERROR(
        device.PrepareSlots(pool.memory(), pool.memory_bytes()));
    RINGPIPE_ASSIGN_OR_RETURN(
        const Plan plan,
        Compile(ring.algorithm(rank, size, 0), rank, size, PlanOptions{}));
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
        const auto expected =
            static_cast<float>(size * (i % 100 + call) + size * (size - 1) / 2);
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
  const auto& [size, depth, seed] = GetParam();
  const AlgorithmInfo ring = FindAlgorithm(Collective::kAllReduce).value();
  Job job(size, ring.slots(size, depth), seed);
  const auto statuses = job.OnAll([&](int rank) -> Status {
    ThreadAccelerator device;
    const SlotPool& pool = job.executor(rank).pool();
    RINGPIPE_RETURN_IF_ERROR(
        device.PrepareSlots(pool.memory(), pool.memory_bytes()));
    device.FailAfter(5);
    RINGPIPE_ASSIGN_OR_RETURN(
        const Plan plan,
        Compile(ring.algorithm(rank, size, 0), rank, size, PlanOptions{}));
    auto* const memory =
        static_cast<float*>(device.Allocate(20'000 * sizeof(float)));
    const Status status = job.executor(rank).Run(
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
                                           Case{4, 1, 0}));

}  // namespace
}  // namespace ringpipe
