// A call that fails before it begins lets go of what was found out, or
// registered, for it.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "pipeline/quiet_transport.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

// Can reach what a call reads, and fails at what it writes.
class FailingTransport final : public QuietTransport {
 public:
  explicit FailingTransport(int* held) : held_(held) {}
  Connection* connection(int /*peer*/) override { return nullptr; }
  Result<Reached> ReachOf(const UserMemory& memory) override {
    if (memory.written) {
      return Status(StatusCode::kDeviceError, "cannot register this");
    }
    *held_ = 1;
    return Reached();
  }
  void End() override { *held_ = 0; }

 private:
  int* const held_;
};

class Factory final : public TransportFactory {
 public:
  explicit Factory(int* held) : held_(held) {}
  std::unique_ptr<Transport> Create(int /*rank*/,
                                    const CallCheck& /*check*/) override {
    return std::make_unique<FailingTransport>(held_);
  }

 private:
  int* const held_;
};

TEST(DroppedCallTest, HoldsNothingOfTheBufferThatWasReached) {
  int held = -1;
  CommunicatorOptions options = RankOptions(Way::kHostMemory, 0, 1, NewJob());
  options.transport = std::make_shared<Factory>(&held);
  auto communicator = Communicator::Create(options);
  ASSERT_TRUE(communicator.ok()) << communicator.status().ToString();
  const std::vector<float> send(100);
  std::vector<float> receive(100);
  const Status status =
      (*communicator)
          ->AllReduce(send.data(), receive.data(), send.size(),
                      DataType::kFloat32, ReduceOp::kSum);
  EXPECT_EQ(status.code(), StatusCode::kDeviceError) << status.ToString();
  EXPECT_EQ(held, 0);
}

}  // namespace
}  // namespace ringpipe::testing
