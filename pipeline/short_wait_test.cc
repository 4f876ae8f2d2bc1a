// What the executor does in a short call for which it waits.
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/algorithms.h"
#include "gtest/gtest.h"
#include "pipeline/executor.h"
#include "pipeline/host_accelerator.h"
#include "pipeline/quiet_transport.h"
#include "pipeline/short_run.h"
#include "pipeline/test_job.h"

namespace ringpipe {
namespace {

constexpr std::chrono::milliseconds kTimeout(20);

// On a host on which it takes as long as the call may last until a rank that
// gives its core away gets it again.
class SlowTransport final : public QuietTransport {
 public:
  Result<bool> Poll(Connection::Events& /*events*/) override {
    if (++polls == 1) {
      std::this_thread::sleep_for(2 * kTimeout);
    }
    return false;
  }
  int polls = 0;
};

TEST(ShortWaitTest, WhoGivesItsCoreAwayLooksAtTheClockBeforeItDoesSoAgain) {
  const auto abort = AbortSignal::Create().value();
  CallCheck check(0, &DescribeForTest);
  Executor::Options options;
  options.rank = 0;
  options.size = 2;
  options.oversubscribed = true;
  options.abort = abort.get();
  options.check = &check;
  const OwnedDomains rails = SoftRails(1);
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<SlowTransport>());
  auto& transport = static_cast<SlowTransport&>(*transports[0]);
  Executor executor(
      SlotPool::Create(rails, *rails[0]->device(), kSubchunkBytes, 8).value(),
      std::move(transports), options);
  const AlgorithmInfo doubling =
      AlgorithmChoice().For(Collective::kAllReduce, sizeof(float));
  const auto peers = executor.transports().Peers({}, {});
  PlanOptions plan_options;
  plan_options.message_bytes = 64;
  plan_options.peers = peers;
  const Plan plan =
      Compile(doubling.algorithm({0, 2}), 0, 2, plan_options).value();
  const auto host = CreateHostAccelerator();
  const float input = 1;
  float output = 0;
  Operation operation =
      MakeOperation(plan, &input, &output, 1, 1, host.get(), kTimeout);
  ShortRun::Measure(operation);
  ASSERT_FALSE(operation.short_steps.empty());
  EXPECT_EQ(executor.Run(operation).code(), StatusCode::kTimeout);
  EXPECT_LE(transport.polls, 2);
}

}  // namespace
}  // namespace ringpipe
