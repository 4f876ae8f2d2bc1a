#include "engine/planner.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "pipeline/host_accelerator.h"
#include "pipeline/test_network.h"

namespace ringpipe {
namespace {

constexpr int kSize = 3;
constexpr std::size_t kLong = 100'000;  // floats

std::string Describe(const Digest& /*digest*/) { return "a call"; }

// Of rank 1 of three: rank 0 by one transport, rank 2 by another, whose reach
// the test decides.
class PlannerTest : public ::testing::Test {
 protected:
  PlannerTest()
      : host_(CreateHostAccelerator()), device_(CreateHostAccelerator()) {
    std::vector<std::unique_ptr<Transport>> transports;
    for (int way = 0; way < 2; ++way) {
      TestNetwork::Options options;
      options.size = kSize;
      options.abilities = [](int, int) {
        return Abilities{.eager_bytes = 4096};
      };
      options.connects = [way](int a, int b) {
        return std::max(a, b) == way + 1;
      };
      options.reach = [this, way](const UserMemory& memory) {
        asked_.push_back(memory);
        return reach_[way];
      };
      networks_.push_back(std::make_unique<TestNetwork>(options));
      transports.push_back(networks_[way]->Create(1, check_));
    }
    transports_ = Transports(std::move(transports), kSize);
    job_.rank = 1;
    job_.size = kSize;
    job_.subchunk_bytes = 64 * 1024;
    job_.depth = 2;
    job_.transports = &transports_;
    job_.host = host_.get();
  }

  CheckedCall AllReduce(std::size_t count) {
    CheckedCall checked;
    checked.call = {Collective::kAllReduce, input_.data(), output_.data(),
                    count, DataType::kFloat32};
    checked.buffers = CheckCall(checked.call, 1, kSize).value();
    return checked;
  }

  const Operation& Prepare(Planner& planner, const CheckedCall& checked) {
    const auto operation = planner.Prepare(checked, {});
    EXPECT_TRUE(operation.ok()) << operation.status().ToString();
    return **operation;
  }

  // Whether a message to the peer leaves the user's memory as it lies there.
  static bool SendsInPlace(const Plan& plan, int peer) {
    return std::any_of(plan.steps.begin(), plan.steps.end(),
                       [&](const Step& step) {
                         return step.transfer.kind == Transfer::Kind::kSend &&
                                step.transfer.peer == peer &&
                                step.source[0].step < 0 && !step.takes_slot;
                       });
  }

  std::array<Reach, 2> reach_;
  std::vector<UserMemory> asked_;

  const std::unique_ptr<Accelerator> host_;
  const std::unique_ptr<Accelerator> device_;
  CallCheck check_{1, &Describe};
  std::vector<std::unique_ptr<TestNetwork>> networks_;
  Transports transports_;
  Planner::Job job_;
  std::vector<float> input_ = std::vector<float>(kLong);
  std::vector<float> output_ = std::vector<float>(kLong);
};

TEST_F(PlannerTest, EachTransportIsAskedOnceACallForEachBuffer) {
  Planner planner(job_);
  Prepare(planner, AllReduce(kLong));
  ASSERT_EQ(asked_.size(), 4U);
  for (int i = 0; i < 4; ++i) {
    const bool written = i >= 2;
    EXPECT_EQ(asked_[i].written, written);
    EXPECT_EQ(asked_[i].data, written ? output_.data() : input_.data());
    EXPECT_EQ(asked_[i].bytes, kLong * sizeof(float));
    EXPECT_GT(asked_[i].message_bytes, 0U);
    EXPECT_LE(asked_[i].message_bytes, job_.subchunk_bytes);
  }
  Prepare(planner, AllReduce(kLong));
  EXPECT_EQ(asked_.size(), 8U);
}

TEST_F(PlannerTest, AMessageLeavesMemoryThatItsOwnConnectionReaches) {
  // All pairs, so that there is a message to each.
  job_.algorithms =
      AlgorithmChoice::Parse("allreduce:all_pairs", {1, kSize}).value();
  Planner planner(job_);
  for (const bool reaches_first : {false, true}) {
    for (const bool reaches_second : {false, true}) {
      reach_ = {reaches_first ? kReached : Reach(),
                reaches_second ? kReached : Reach()};
      const Plan& plan = *Prepare(planner, AllReduce(kLong)).plan;
      EXPECT_EQ(SendsInPlace(plan, 0), reaches_first);
      EXPECT_EQ(SendsInPlace(plan, 2), reaches_second);
    }
  }
}

TEST_F(PlannerTest, CallsOfOneReachShareAPlan) {
  Planner planner(job_);
  const Plan* const without = Prepare(planner, AllReduce(kLong)).plan;
  reach_[0] = kReached;
  const Plan* const with = Prepare(planner, AllReduce(kLong)).plan;
  EXPECT_NE(with, without);
  EXPECT_EQ(Prepare(planner, AllReduce(kLong - 3)).plan, with);
  reach_[0] = Reach();
  EXPECT_EQ(Prepare(planner, AllReduce(kLong)).plan, without);
}

TEST_F(PlannerTest, HandlesGoWithTheBuffers) {
  Planner planner(job_);
  reach_[1] = kReached;
  const Operation& operation = Prepare(planner, AllReduce(kLong));
  EXPECT_EQ(operation.input.reached[0].reach, Reach());
  EXPECT_EQ(operation.input.reached[1].reach, kReached);
  EXPECT_EQ(operation.output.reached[1].reach, kReached);
  // Which is the test network's: where the buffer begins.
  for (const int way : {0, 1}) {
    EXPECT_EQ(operation.input.reached[way].handle, input_.data());
    EXPECT_EQ(operation.output.reached[way].handle, output_.data());
  }
}

TEST_F(PlannerTest, AShortCallThatIsRepeatedAsksNobody) {
  job_.common_host = {
      .ranks = kSize,
      .processors = kSize};  // so that a short allreduce is one shot
  Planner planner(job_);
  const CheckedCall checked = AllReduce(2);
  EXPECT_EQ(planner.PrepareAgain(checked, {}), nullptr);
  EXPECT_FALSE(Prepare(planner, checked).short_steps.empty());
  const std::size_t asked = asked_.size();
  const Operation* const again = planner.PrepareAgain(checked, {.sequence = 7});
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->digest.sequence, 7U);
  EXPECT_EQ(asked_.size(), asked);
  CheckedCall other = checked;
  other.call.op = ReduceOp::kMax;
  EXPECT_EQ(planner.PrepareAgain(other, {}), nullptr);
}

TEST_F(PlannerTest, ALongCallIsNotPreparedAgain) {
  Planner planner(job_);
  Prepare(planner, AllReduce(kLong));
  EXPECT_EQ(planner.PrepareAgain(AllReduce(kLong), {}), nullptr);
}

// It is the device that reaches it. Of host memory beside it they are asked.
TEST_F(PlannerTest, MemoryOfADeviceIsAskedOfNoTransport) {
  job_.algorithms =
      AlgorithmChoice::Parse("allreduce:all_pairs", {1, kSize}).value();
  reach_ = {kReached, kReached};
  Planner planner(job_);
  CheckedCall checked = AllReduce(kLong);
  checked.device = device_.get();
  for (const Owner input : {Owner::kHost, Owner::kDevice}) {
    for (const Owner output : {Owner::kHost, Owner::kDevice}) {
      if (input == Owner::kHost && output == Owner::kHost) {
        continue;
      }
      asked_.clear();
      checked.buffers.input_owner = input;
      checked.buffers.output_owner = output;
      const Operation& operation = Prepare(planner, checked);
      for (const UserMemory& memory : asked_) {
        EXPECT_EQ(memory.written ? output : input, Owner::kHost);
      }
      EXPECT_EQ(asked_.size(), (input == Owner::kHost ? 2U : 0U) +
                                   (output == Owner::kHost ? 2U : 0U));
      // It sends of both.
      EXPECT_EQ(SendsInPlace(*operation.plan, 0),
                input == Owner::kHost || output == Owner::kHost);
      EXPECT_EQ(operation.input.on_device, input == Owner::kDevice);
      EXPECT_EQ(operation.output.on_device, output == Owner::kDevice);
      EXPECT_EQ(operation.device, device_.get());
    }
  }
}

// What is kept of a short call is of host memory, which the same addresses need
// not be the next time.
TEST_F(PlannerTest, AShortCallWithMemoryOfADeviceIsNotPreparedAgain) {
  job_.common_host = {.ranks = kSize, .processors = kSize};
  Planner planner(job_);
  const CheckedCall host = AllReduce(2);
  CheckedCall mixed = host;
  mixed.device = device_.get();
  mixed.buffers.output_owner = Owner::kDevice;
  EXPECT_TRUE(Prepare(planner, mixed).short_steps.empty());
  EXPECT_EQ(planner.PrepareAgain(host, {}), nullptr);
  Prepare(planner, host);
  EXPECT_NE(planner.PrepareAgain(host, {}), nullptr);
  EXPECT_EQ(planner.PrepareAgain(mixed, {}), nullptr);
}

// What both ends choose alike does not depend on what one rank reaches.
TEST_F(PlannerTest, TheDigestDoesNotDependOnReach) {
  Planner planner(job_);
  const Digest without = Prepare(planner, AllReduce(kLong)).digest;
  reach_ = {kReached, {Reach::Sends::kAfterRegistering}};
  EXPECT_EQ(Prepare(planner, AllReduce(kLong)).digest, without);
}

TEST_F(PlannerTest, TheAlgorithmThatTheUserChoseIsTaken) {
  job_.algorithms =
      AlgorithmChoice::Parse("allreduce:rabenseifner", {1, kSize}).value();
  Planner planner(job_);
  const Operation& operation = Prepare(planner, AllReduce(kLong));
  EXPECT_EQ(Algorithms()[operation.digest.algorithm].name, "rabenseifner");
}

}  // namespace
}  // namespace ringpipe
