// The pipeline on real memory without bootstrap and engine: ranks are threads,
// connected by hand over the software device.
#include "pipeline/executor.h"

#include <infiniband/verbs.h>

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

using ProtectionDomains = std::vector<std::shared_ptr<verbs::ProtectionDomain>>;

// `count` rails, each the software device.
ProtectionDomains SoftRails(int count, std::uint64_t adversary_seed) {
  ProtectionDomains rails;
  for (int rail = 0; rail < count; ++rail) {
    auto device = verbs::Device::OpenSoftware(
        verbs::soft::CreateSoftLibrary({adversary_seed}),
        "the test asks for it");
    EXPECT_TRUE(device.ok()) << device.status().ToString();
    rails.push_back(
        verbs::ProtectionDomain::Create(std::move(device).value()).value());
  }
  return rails;
}

// By every rail to everyone.
ConnectionSet::Options ConnectionOptions(int rank, int size, int rails) {
  ConnectionSet::Options options;
  options.rank = rank;
  options.size = size;
  std::vector<int> all;
  for (int rail = 0; rail < rails; ++rail) {
    all.push_back(rail);
  }
  options.rails_of_peer.assign(size, all);
  return options;
}

// All ranks of a job in one process.
class Job {
 public:
  Job(int size, int slots, int adversary_seed, int rails = 1) : ranks_(size) {
    for (int rank = 0; rank < size; ++rank) {
      Rank& self = ranks_[rank];
      self.rails =
          SoftRails(rails, adversary_seed == 0 ? 0 : adversary_seed + rank);
      self.abort = AbortSignal::Create().value();
      Executor::Options options;
      options.connections = ConnectionOptions(rank, size, rails);
      options.subchunk_bytes = kSubchunkBytes;
      options.slots = slots;
      options.abort = self.abort.get();
      options.describe = &DescribeForTest;
      // As the bootstrap does: a rank that fails may take its own message with
      // it, so the reason reaches the others another way.
      options.on_error = [this](const Status& reason) {
        for (Rank& other : ranks_) {
          static_cast<void>(other.abort->Raise(reason));
        }
      };
      auto executor =
          Executor::Create(self.rails, self.rails[0]->device(), options);
      EXPECT_TRUE(executor.ok()) << executor.status().ToString();
      self.executor = std::move(executor).value();
    }
    for (int rank = 0; rank < size; ++rank) {
      std::vector<PeerConnection::Address> remotes(size);
      for (int peer = 0; peer < size; ++peer) {
        if (peer != rank) {
          remotes[peer] = ranks_[peer].executor->connections().AddressFor(rank);
        }
      }
      const Status status = ranks_[rank].executor->connections().Connect(
          remotes, Deadline::After(milliseconds(5000)), -1);
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }

  const ProtectionDomains& rails(int rank) const { return ranks_[rank].rails; }
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
    ProtectionDomains rails;
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

Status Register(const ProtectionDomains& rails, std::vector<float>& values,
                Registration& registration) {
  RINGPIPE_ASSIGN_OR_RETURN(
      registration,
      Registration::Create(rails, values.data(), values.size() * sizeof(float),
                           IBV_ACCESS_LOCAL_WRITE, /*relaxed=*/true));
  return Status::Ok();
}

// An allreduce of count floats, rank r's all r + 1, by `info`.
std::vector<Status> AllReduce(Job& job, const AlgorithmInfo& info,
                              std::size_t count, int depth,
                              milliseconds timeout,
                              const PlanOptions& options = {}) {
  return job.OnAll([&](int rank) -> Status {
    const auto host = CreateHostAccelerator();
    RINGPIPE_ASSIGN_OR_RETURN(const Plan plan,
                              Compile(info.algorithm(rank, job.size(), 0), rank,
                                      job.size(), options));
    std::vector<float> input(count, static_cast<float>(rank + 1));
    std::vector<float> output(count, -1);
    Operation operation = MakeOperation(plan, input.data(), output.data(),
                                        count, depth, host.get(), timeout);
    Registration input_registration;
    Registration output_registration;
    if (options.input_registered) {
      RINGPIPE_RETURN_IF_ERROR(
          Register(job.rails(rank), input, input_registration));
      operation.input.lkeys = input_registration.lkeys();
    }
    if (options.output_registered) {
      RINGPIPE_RETURN_IF_ERROR(
          Register(job.rails(rank), output, output_registration));
      operation.output.lkeys = output_registration.lkeys();
    }
    RINGPIPE_RETURN_IF_ERROR(job.executor(rank).Run(operation));
    const int sum_of_ranks = job.size() * (job.size() + 1) / 2;
    const auto sum = static_cast<float>(sum_of_ranks);
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
  const int size = GetParam().size;
  const int depth = GetParam().depth;
  const int seed = GetParam().adversary_seed;
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
  const int size = GetParam().size;
  const int depth = GetParam().depth;
  const int seed = GetParam().adversary_seed;
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

// --- Memory, and several rails
// ------------------------------------------------

class MemoryTest : public ::testing::TestWithParam<Case> {};

// What is registered changes how values travel, not what they are: each of them
// by one rail and by three.
TEST_P(MemoryTest, RegisteredMemoryIsSentFromAndReceivedInto) {
  const int size = GetParam().size;
  const int depth = GetParam().depth;
  const int seed = GetParam().adversary_seed;
  const AlgorithmInfo ring = FindAlgorithm(Collective::kAllReduce).value();
  for (const int rails : {1, 3}) {
    Job job(size, ring.slots(size, depth), seed, rails);
    for (int bits = 0; bits < 8; ++bits) {
      PlanOptions options;
      options.input_registered = (bits & 1) != 0;
      options.output_registered = (bits & 2) != 0;
      options.register_sends = (bits & 4) != 0;
      options.direct_over_sent = true;
      for (const Status& status : AllReduce(job, ring, 20'007, depth,
                                            std::chrono::minutes(1), options)) {
        ASSERT_TRUE(status.ok())
            << rails << " rails, setting " << bits << ": " << status.ToString();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, MemoryTest,
                         ::testing::Values(Case{2, 1, 0}, Case{2, 4, 5},
                                           Case{3, 2, 7}, Case{5, 4, 0}));

TEST(ExecutorTest, WhatIsReceivedIntoUserMemoryIsNotCopied) {
  Job job(2, 8, 0);
  const AlgorithmInfo ring = FindAlgorithm(Collective::kAllReduce).value();
  PlanOptions options;
  options.input_registered = options.output_registered = true;
  options.direct_over_sent = true;
  constexpr std::size_t kCount = 1000;
  for (const Status& status :
       AllReduce(job, ring, kCount, 2, std::chrono::minutes(1), options)) {
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  for (const StageCounters& stage : job.executor(0).stage_counters()) {
    const std::string name = stage.stage;
    if (name == "copy in" || name == "register") {
      EXPECT_EQ(stage.bytes, 0U) << name;
    } else if (name == "copy out") {
      // The half that this rank reduced; the other half came as it is.
      EXPECT_EQ(stage.bytes, kCount / 2 * sizeof(float));
    }
  }
}

TEST(ExecutorTest, EveryRailCarriesItsShare) {
  constexpr int kRails = 2;
  Job job(2, 8, 0, kRails);
  const AlgorithmInfo ring = FindAlgorithm(Collective::kAllReduce).value();
  const auto& rails = job.executor(0).connections().at(1).rails();
  ASSERT_EQ(rails.size(), 2U);
  for (const Status& status :
       AllReduce(job, ring, 20'000, 4, std::chrono::minutes(1))) {
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  EXPECT_GT(rails[0].channel->messages_sent(), 10U);
  EXPECT_EQ(rails[0].channel->messages_sent(),
            rails[1].channel->messages_sent());
}

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

// --- A peer that does not keep to the rules ---------------------------------

// Rank 1 of 2 is a bare connection in the test's hands; rank 0 runs a ring
// allreduce of kCount floats with it.
class RoguePeerTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kCount = 100;
  static constexpr std::uint32_t kHalf = kCount / 2 * sizeof(float);

  void SetUp() override {
    rails_ = SoftRails(1, 0);
    abort_ = AbortSignal::Create().value();
    Executor::Options options;
    options.connections = ConnectionOptions(0, 2, 1);
    options.subchunk_bytes = kSubchunkBytes;
    options.slots = 8;
    options.abort = abort_.get();
    options.describe = &DescribeForTest;
    executor_ = Executor::Create(rails_, rails_[0]->device(), options).value();

    pool_ = SlotPool::Create(rails_, *rails_[0]->device(), kSubchunkBytes, 16)
                .value();
    ConnectionSet::Options rogue = ConnectionOptions(1, 2, 1);
    rogue.receives = 8;
    rogue_set_ =
        ConnectionSet::Create(rails_, rails_[0]->device(), rogue).value();
    const Deadline deadline = Deadline::After(milliseconds(5000));
    const std::vector<PeerConnection::Address> to_rogue = {
        {}, rogue_set_->AddressFor(0)};
    ASSERT_TRUE(executor_->connections().Connect(to_rogue, deadline, -1).ok());
    const std::vector<PeerConnection::Address> to_rank_zero = {
        executor_->connections().AddressFor(1), {}};
    ASSERT_TRUE(rogue_set_->Connect(to_rank_zero, deadline, -1).ok());
    rogue_ = &rogue_set_->at(0);
    for (int i = 0; i < 8; ++i) {
      rogue_->next_receive_rail().channel->AddReceive(
          {}, pool_->data(i), kSubchunkBytes, pool_->lkeys()[0]);
      rogue_->CountReceive();
    }
  }

  Digest GoodDigest() const {
    Digest digest;
    digest.count = kCount;
    return digest;
  }

  Status SendData(std::uint32_t bytes) {
    rogue_->next_send_rail().channel->AddSend({}, pool_->data(15), bytes,
                                              pool_->lkeys()[0]);
    rogue_->CountSend();
    return rogue_->PostSends();
  }

  // Once rank 0 has granted it; kTimeout where it does not.
  Status SendDataWhenGranted(std::uint32_t bytes) {
    const Deadline deadline = Deadline::After(milliseconds(5000));
    while (!deadline.expired()) {
      RINGPIPE_ASSIGN_OR_RETURN(const std::uint64_t credit, rogue_->Credit());
      if (credit > 0) {
        return SendData(bytes);
      }
      std::this_thread::yield();
    }
    return {StatusCode::kTimeout, "rank 0 grants nothing"};
  }

  // Rank 0's allreduce, after what the rogue has sent.
  Status RunRankZero(milliseconds timeout = milliseconds(5000)) {
    const auto host = CreateHostAccelerator();
    const AlgorithmInfo ring = FindAlgorithm(Collective::kAllReduce).value();
    const Plan plan = Compile(ring.algorithm(0, 2, 0), 0, 2, {}).value();
    const std::vector<float> input(kCount, 1);
    std::vector<float> output(kCount);
    Operation operation = MakeOperation(plan, input.data(), output.data(),
                                        kCount, 2, host.get(), timeout);
    operation.digest.sequence = sequence_;
    return executor_->Run(operation);
  }

  void ExpectError(StatusCode code, const std::string& word) {
    const Status status = RunRankZero();
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos);
    EXPECT_NE(status.message().find(word), std::string::npos)
        << status.ToString();
  }

  ProtectionDomains rails_;
  std::unique_ptr<AbortSignal> abort_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<SlotPool> pool_;
  std::unique_ptr<ConnectionSet> rogue_set_;
  PeerConnection* rogue_ = nullptr;
  std::uint64_t sequence_ = 0;  // of rank 0's call
};

TEST_F(RoguePeerTest, ThatKeepsToTheRulesIsServed) {
  // The digest, its grants, and the two messages of the ring.
  ASSERT_TRUE(rogue_->SendDigest(GoodDigest()).ok());
  ASSERT_TRUE(rogue_->PostReceives().ok());
  Status sent;
  std::thread peer([&] {
    sent = SendDataWhenGranted(kHalf);
    if (sent.ok()) {
      sent = SendDataWhenGranted(kHalf);
    }
  });
  const Status status = RunRankZero();
  peer.join();
  EXPECT_TRUE(sent.ok()) << sent.ToString();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_F(RoguePeerTest, ThatGrantsWithoutADigestIsSentNothing) {
  ASSERT_TRUE(rogue_->PostReceives().ok());
  const Status status = RunRankZero(milliseconds(300));
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
  EXPECT_NE(status.message().find("rank 1 to make the same call"),
            std::string::npos);
  EXPECT_EQ(executor_->connections().at(1).rails()[0].channel->messages_sent(),
            0U);
}

TEST_F(RoguePeerTest, ThatSendsAnotherLengthThanTheSchedulesIsAnError) {
  ASSERT_TRUE(rogue_->SendDigest(GoodDigest()).ok());
  ASSERT_TRUE(rogue_->PostReceives().ok());
  Status sent;
  std::thread peer([&] { sent = SendDataWhenGranted(kHalf - 4); });
  ExpectError(StatusCode::kInternal, "where the schedule has 200");
  peer.join();
  EXPECT_TRUE(sent.ok()) << sent.ToString();
}

TEST_F(RoguePeerTest, ThatSendsWhatItWasNotGrantedHarmsNobody) {
  // The device holds back what has no receive.
  ASSERT_TRUE(rogue_->SendDigest(GoodDigest()).ok());
  ASSERT_TRUE(rogue_->PostReceives().ok());
  for (int i = 0; i < 3; ++i) {  // one more than the ring's two
    ASSERT_TRUE(SendData(kHalf).ok());
  }
  const Status status = RunRankZero(milliseconds(5000));
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_F(RoguePeerTest, ThatGrantsTheImpossibleIsAnError) {
  ASSERT_TRUE(rogue_->SendDigest(GoodDigest()).ok());
  auto* word = reinterpret_cast<ControlMemory::CreditWord*>(
      executor_->connections().AddressFor(1).word_address);
  word->grants = 1ULL << 40;
  ExpectError(StatusCode::kInternal, "impossible number");
}

TEST_F(RoguePeerTest, ThatSendsAShortDigestIsAnError) {
  ibv_sge sge = {reinterpret_cast<std::uintptr_t>(pool_->data(15)), 8,
                 pool_->lkeys()[0]};
  ibv_send_wr request = {};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(rogue_->control().queue_pair().get(), &request, &bad),
            0);
  ExpectError(StatusCode::kInternal, "unknown kind or length");
}

TEST_F(RoguePeerTest, ThatWasSixtyFourCallsBehindIsAMismatch) {
  Digest other = GoodDigest();
  other.count = 55;
  ASSERT_TRUE(rogue_->SendDigest(other).ok());
  sequence_ = 64;
  ExpectError(StatusCode::kMismatch, "count 55");
}

// Buffers in "device" memory: copies and reductions end later, on threads of
// their own, so a slot that is reused or read too early shows.
class AcceleratorTest : public ::testing::TestWithParam<Case> {};

TEST_P(AcceleratorTest, EveryStageWaitsForTheAccelerator) {
  const int size = GetParam().size;
  const int depth = GetParam().depth;
  const int seed = GetParam().adversary_seed;
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
  const int size = GetParam().size;
  const int depth = GetParam().depth;
  const int seed = GetParam().adversary_seed;
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
                                           Case{4, 1, 0}));

}  // namespace
}  // namespace ringpipe
