// The pipeline on real memory without bootstrap and engine: ranks are threads,
// connected by hand over the software device, over the test network, or to some
// peers by one and to some by the other.
#include "pipeline/executor.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/thread_accelerator.h"
#include "engine/algorithms.h"
#include "gtest/gtest.h"
#include "pipeline/host_accelerator.h"
#include "pipeline/rails/rail_transport.h"
#include "pipeline/test_network.h"
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

enum class Way { kRails, kTestNetwork, kBoth };

// Which two ranks the test network connects.
bool ByTestNetwork(Way way, int a, int b) {
  return way == Way::kTestNetwork || (way == Way::kBoth && (a + b) % 2 != 0);
}

// By every rail to everyone whom the test network does not connect.
RailTransport::Options RailOptions(int rank, int size, int rails,
                                   const CallCheck& check,
                                   Way way = Way::kRails) {
  RailTransport::Options options;
  options.rank = rank;
  options.size = size;
  options.rails_of_peer.resize(size);
  options.check = &check;
  for (int peer = 0; peer < size; ++peer) {
    for (int rail = 0; rail < rails && !ByTestNetwork(way, rank, peer);
         ++rail) {
      options.rails_of_peer[peer].push_back(rail);
    }
  }
  return options;
}

// All ranks of a job in one process.
class Job {
 public:
  struct Options {
    int size = 2;
    int slots = 8;
    int seed = 0;  // of whatever is adversarial
    int rails = 1;
    Way way = Way::kRails;
    std::size_t subchunk_bytes = kSubchunkBytes;
    std::function<Abilities(int, int)> abilities = {};  // the test network's
  };

  explicit Job(const Options& options)
      : network_({options.size, static_cast<std::uint64_t>(options.seed) + 1,
                  options.abilities,
                  [way = options.way](int a, int b) {
                    return ByTestNetwork(way, a, b);
                  }}),
        ranks_(options.size) {
    for (int rank = 0; rank < options.size; ++rank) {
      Create(rank, options);
    }
    for (std::size_t i = 0; i < ranks_[0].executor->transports().size(); ++i) {
      Connect(i);
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
    std::unique_ptr<CallCheck> check;
    std::unique_ptr<Executor> executor;
  };

  void Create(int rank, const Options& options) {
    Rank& self = ranks_[rank];
    self.rails =
        SoftRails(options.rails, options.seed == 0 ? 0 : options.seed + rank);
    self.abort = AbortSignal::Create().value();
    self.check = std::make_unique<CallCheck>(rank, &DescribeForTest);
    std::vector<std::unique_ptr<Transport>> transports;
    if (options.way != Way::kTestNetwork) {
      RailTransport::Options rails = RailOptions(
          rank, options.size, options.rails, *self.check, options.way);
      rails.receives = options.slots;
      transports.push_back(
          RailTransport::Create(self.rails, self.rails[0]->device(), rails)
              .value());
    }
    if (options.way != Way::kRails) {
      transports.push_back(network_.Create(rank, *self.check));
    }
    Executor::Options executor;
    executor.rank = rank;
    executor.size = options.size;
    executor.subchunk_bytes = options.subchunk_bytes;
    executor.slots = options.slots;
    executor.abort = self.abort.get();
    executor.check = self.check.get();
    // As the bootstrap does: a rank that fails may take its own message with
    // it, so the reason reaches the others another way.
    executor.on_error = [this](const Status& reason) {
      for (Rank& other : ranks_) {
        static_cast<void>(other.abort->Raise(reason));
      }
    };
    self.executor = Executor::Create(self.rails, *self.rails[0]->device(),
                                     std::move(transports), executor)
                        .value();
  }

  void Connect(std::size_t transport) {
    for (int rank = 0; rank < size(); ++rank) {
      std::vector<std::string> addresses;
      for (int peer = 0; peer < size(); ++peer) {
        addresses.push_back(
            ranks_[peer].executor->transports()[transport]->AddressFor(rank));
      }
      const Status status =
          ranks_[rank].executor->transports()[transport]->Connect(
              addresses, Deadline::After(milliseconds(5000)), -1);
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }

  TestNetwork network_;
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

// What one rank gives to an allreduce.
struct Buffers {
  std::vector<float> input;
  std::vector<float> output;
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
  return job.OnAll([&](int rank) -> Status {
    const auto host = CreateHostAccelerator();
    PlanOptions options = options_of(rank);
    options.abilities = job.executor(rank).abilities();
    options.direct_over_sent = info.direct_over_sent;
    RINGPIPE_ASSIGN_OR_RETURN(const Plan plan,
                              Compile(info.algorithm(rank, job.size(), 0), rank,
                                      job.size(), options));
    for (int call = 0; call < calls; ++call) {
      Buffers buffers;
      buffers.output.assign(count, -1);
      buffers.input.assign(count, static_cast<float>(rank + 1 + call));
      if (options.in_place) {
        buffers.output = buffers.input;
      }
      Operation operation = MakeOperation(
          plan, options.in_place ? buffers.output.data() : buffers.input.data(),
          buffers.output.data(), count, depth, host.get(), timeout);
      operation.digest.sequence = call;
      RINGPIPE_RETURN_IF_ERROR(
          Register(job.rails(rank), options, buffers, operation));
      if (options.in_place) {
        operation.input.lkeys = operation.output.lkeys;
      }
      RINGPIPE_RETURN_IF_ERROR(job.executor(rank).Run(operation));
      const int sum = job.size() * (job.size() + 1) / 2 + job.size() * call;
      if (buffers.output !=
          std::vector<float>(count, static_cast<float>(sum))) {
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
  constexpr const char* kWays[] = {"rails", "test_network", "both"};
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
    Case{8, 4, 8, Way::kBoth});

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
      if (rails > 1 && way == Way::kTestNetwork) {
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
  for (const Way way : {Way::kRails, Way::kTestNetwork}) {
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
    RailTransport::Options rails = RailOptions(0, 2, 1, check_);
    rails.receives = 8;
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(
        RailTransport::Create(rails_, rails_[0]->device(), rails).value());
    Transport& transport = *transports[0];
    own_end_ = static_cast<RailConnection*>(transport.connection(1));
    Executor::Options options;
    options.size = 2;
    options.subchunk_bytes = kSubchunkBytes;
    options.slots = 8;
    options.abort = abort_.get();
    options.check = &check_;
    executor_ = Executor::Create(rails_, *rails_[0]->device(),
                                 std::move(transports), options)
                    .value();

    pool_ = SlotPool::Create(rails_, *rails_[0]->device(), kSubchunkBytes, 16)
                .value();
    rails = RailOptions(1, 2, 1, rogue_check_);
    rails.receives = 8;
    rogue_transport_ =
        RailTransport::Create(rails_, rails_[0]->device(), rails).value();
    const Deadline deadline = Deadline::After(milliseconds(5000));
    const std::vector<std::string> to_rogue = {"",
                                               rogue_transport_->AddressFor(0)};
    ASSERT_TRUE(transport.Connect(to_rogue, deadline, -1).ok());
    const std::vector<std::string> to_rank_zero = {transport.AddressFor(1), ""};
    ASSERT_TRUE(rogue_transport_->Connect(to_rank_zero, deadline, -1).ok());
    rogue_ = rogue_transport_->connection(0);
  }

  static Digest GoodDigest() {
    Digest digest;
    digest.count = kCount;
    return digest;
  }

  // The first message, and the receives of the ring.
  Status Begin(const Digest& digest = GoodDigest()) {
    rogue_check_.Begin(digest);
    rogue_->Begin({&digest, true, true, false});
    for (std::uint32_t i = 0; i < 2; ++i) {
      rogue_->Expect({0, i}, Slot(static_cast<int>(i), kSubchunkBytes));
    }
    return rogue_->Push(events_).status();
  }

  Memory Slot(int slot, std::uint32_t bytes) const {
    return {pool_->data(slot), bytes, &pool_->lkeys()};
  }

  // Whatever was granted.
  Status SendData(std::uint32_t bytes) {
    DataChannel& channel = *rogue_->rails()[0].channel;
    channel.AddSend({}, Slot(15, bytes));
    return channel.PostSends();
  }

  // Once rank 0 has granted it; kTimeout where it does not.
  Status SendDataWhenGranted(std::uint32_t bytes) {
    const Deadline deadline = Deadline::After(milliseconds(5000));
    while (!deadline.expired()) {
      RINGPIPE_RETURN_IF_ERROR(rogue_transport_->Poll(events_).status());
      RINGPIPE_ASSIGN_OR_RETURN(const bool granted, rogue_->CanSend());
      if (granted) {
        RINGPIPE_RETURN_IF_ERROR(rogue_->Send({}, Slot(15, bytes)).status());
        return rogue_->Push(events_).status();
      }
      std::this_thread::yield();
    }
    return {StatusCode::kTimeout, "rank 0 grants nothing"};
  }

  // Rank 0's allreduce, after what the rogue has sent.
  Status RunRankZero(milliseconds timeout = milliseconds(5000)) {
    const auto host = CreateHostAccelerator();
    const AlgorithmInfo ring = AlgorithmFor(Collective::kAllReduce, 1 << 20);
    const Plan plan = Compile(ring.algorithm(0, 2, 0), 0, 2,
                              {.message_bytes = message_bytes_,
                               .abilities = executor_->abilities()})
                          .value();
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

  struct NoEvents final : Connection::Events {
    Status Arrived(Instance, const std::byte*, std::uint32_t) override {
      return Status::Ok();
    }
    Status Sent(Instance) override { return Status::Ok(); }
  };

  ProtectionDomains rails_;
  std::unique_ptr<AbortSignal> abort_;
  CallCheck check_{0, &DescribeForTest};
  CallCheck rogue_check_{1, &DescribeForTest};
  std::unique_ptr<Executor> executor_;
  RailConnection* own_end_ = nullptr;
  std::unique_ptr<SlotPool> pool_;
  std::unique_ptr<RailTransport> rogue_transport_;
  RailConnection* rogue_ = nullptr;
  NoEvents events_;
  std::uint64_t sequence_ = 0;  // of rank 0's call
  std::uint32_t message_bytes_ = 0;
};

TEST_F(RoguePeerTest, ThatKeepsToTheRulesIsServed) {
  ASSERT_TRUE(Begin().ok());
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
  own_end_->control().memory().word->grants = 2;
  const Status status = RunRankZero(milliseconds(300));
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
  EXPECT_NE(status.message().find("rank 1 to make the same call"),
            std::string::npos);
  EXPECT_EQ(own_end_->rails()[0].channel->messages_sent(), 0U);
}

TEST_F(RoguePeerTest, ThatSendsAnotherLengthThanTheSchedulesIsAnError) {
  ASSERT_TRUE(Begin().ok());
  Status sent;
  std::thread peer([&] { sent = SendDataWhenGranted(kHalf - 4); });
  ExpectError(StatusCode::kInternal, "where the schedule has 200");
  peer.join();
  EXPECT_TRUE(sent.ok()) << sent.ToString();
}

TEST_F(RoguePeerTest, ThatSendsWhatItWasNotGrantedHarmsNobody) {
  // The device holds back what has no receive.
  ASSERT_TRUE(Begin().ok());
  for (int i = 0; i < 3; ++i) {  // one more than the ring's two
    ASSERT_TRUE(SendData(kHalf).ok());
  }
  const Status status = RunRankZero(milliseconds(5000));
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_F(RoguePeerTest, ThatGrantsTheImpossibleIsAnError) {
  ASSERT_TRUE(Begin().ok());
  own_end_->control().memory().word->grants = 1ULL << 40;
  ExpectError(StatusCode::kInternal, "impossible number");
}

TEST_F(RoguePeerTest, ThatGrantsTheImpossibleWithItsDigestIsAnError) {
  ControlHeader header;
  header.digest = GoodDigest();
  header.grants = 1ULL << 40;
  ASSERT_TRUE(rogue_->control().Send(header).ok());
  ExpectError(StatusCode::kInternal, "impossible number");
}

TEST_F(RoguePeerTest, ThatSendsAShortDigestIsAnError) {
  const Memory memory = Slot(15, 8);
  ibv_sge sge = {reinterpret_cast<std::uintptr_t>(memory.data), memory.bytes,
                 (*memory.lkeys)[0]};
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

TEST_F(RoguePeerTest, ThatSendsAnEagerMessageInALongCallIsAnError) {
  ControlHeader header;
  header.digest = GoodDigest();
  header.has_payload = 1;
  ASSERT_TRUE(rogue_->control().Send(header, pool_->data(15), kHalf).ok());
  ExpectError(StatusCode::kInternal, "eager message");
}

TEST_F(RoguePeerTest, ThatSendsTwoEagerMessagesIsAnError) {
  message_bytes_ = kEagerBytes;
  ControlHeader header;
  header.digest = GoodDigest();
  header.has_payload = 1;
  ASSERT_TRUE(rogue_->control().Send(header, pool_->data(15), kHalf).ok());
  ASSERT_TRUE(rogue_->control().Send(header, pool_->data(15), kHalf).ok());
  ExpectError(StatusCode::kInternal, "eager message");
}

TEST_F(RoguePeerTest, ThatSendsAnEagerMessageOfAnotherLengthIsAnError) {
  message_bytes_ = kEagerBytes;
  for (const std::uint32_t bytes : {kHalf - 4, kEagerBytes}) {
    SetUp();
    ControlHeader header;
    header.digest = GoodDigest();
    header.has_payload = 1;
    ASSERT_TRUE(rogue_->control().Send(header, pool_->data(0), bytes).ok());
    ExpectError(StatusCode::kInternal, "where the schedule has");
  }
}

TEST_F(RoguePeerTest, ThatWasSixtyFourCallsBehindIsAMismatch) {
  Digest other = GoodDigest();
  other.count = 55;
  ASSERT_TRUE(Begin(other).ok());
  sequence_ = 64;
  ExpectError(StatusCode::kMismatch, "count 55");
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
                                           Case{4, 2, 3, Way::kBoth}),
                         NameOf);

}  // namespace
}  // namespace ringpipe
