// The GPU of a rank reads what others of its host send where it lies, in their
// slots: with ranks as processes, each with a fake driver of its own.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda_driver.h"
#include "cuda/fake_driver/control_client.h"
#include "cuda/test_device.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::seconds;

constexpr seconds kPatience(120);  // sanitizers, a busy machine
constexpr int kRanks = 3;
constexpr std::size_t kCount = 100'000;
constexpr std::size_t kBytes = kCount * sizeof(float);

// --- Roles ---

// A rank's communicator, and its fake GPU with two buffers, of which the first
// holds the rank's number + 1.
struct GpuRank {
  fake_cuda::Control fake;
  std::unique_ptr<TestDevice> device;
  float* send = nullptr;
  float* receive = nullptr;
  std::unique_ptr<Communicator> communicator;

  static Result<GpuRank> Create() {
    GpuRank self;
    const auto fake = fake_cuda::Control::Find();
    if (!fake.has_value()) {
      return Status(StatusCode::kUnavailable, "no fake driver");
    }
    self.fake = *fake;
    RINGPIPE_ASSIGN_OR_RETURN(self.device, TestDevice::Open());
    RINGPIPE_ASSIGN_OR_RETURN(void* const send, self.device->Allocate(kBytes));
    RINGPIPE_ASSIGN_OR_RETURN(void* const receive,
                              self.device->Allocate(kBytes));
    self.send = static_cast<float*>(send);
    self.receive = static_cast<float*>(receive);
    RINGPIPE_ASSIGN_OR_RETURN(const auto options,
                              CommunicatorOptions::FromProcess());
    RINGPIPE_ASSIGN_OR_RETURN(self.communicator, Communicator::Create(options));
    const std::vector<float> values(
        kCount, static_cast<float>(self.communicator->rank() + 1));
    RINGPIPE_RETURN_IF_ERROR(
        self.device->Copy(self.send, values.data(), kBytes));
    return self;
  }

  Status AllReduce(Timeout timeout = kPatience) {
    RINGPIPE_RETURN_IF_ERROR(communicator->AllReduce(
        send, receive, kCount, DataType::kFloat32, ReduceOp::kSum, timeout));
    return Expect(kRanks * (kRanks + 1) / 2);
  }
  // Broadcasts of what rank 1 has, as a sum of two calls, in its own memory and
  // in memory that the ranks share: no GPU has pinned either.
  Status BroadcastFromTheHost() {
    RINGPIPE_ASSIGN_OR_RETURN(void* const memory,
                              communicator->Allocate(kBytes));
    auto* const shared = static_cast<float*>(memory);
    std::vector<float> own(kCount, 5);
    std::fill_n(shared, kCount, 7.0F);
    for (float* const source : {own.data(), shared}) {
      float* const buffer = communicator->rank() == 1 ? source : receive;
      RINGPIPE_RETURN_IF_ERROR(communicator->Broadcast(
          buffer, buffer, kCount, DataType::kFloat32, 1, kPatience));
      if (communicator->rank() != 1) {
        RINGPIPE_RETURN_IF_ERROR(Expect(source == shared ? 7 : 5));
      }
    }
    return Status::Ok();
  }
  // All elements of the result.
  Status Expect(int expected) {
    std::vector<float> got(kCount);
    RINGPIPE_RETURN_IF_ERROR(device->Copy(got.data(), receive, kBytes));
    for (std::size_t i = 0; i < kCount; ++i) {
      if (got[i] != static_cast<float>(expected)) {
        return {StatusCode::kInternal, "element " + std::to_string(i) + " is " +
                                           std::to_string(got[i])};
      }
    }
    return Status::Ok();
  }
  // Pieces of memory that are pinned.
  long pinned() {
    return fake.fake_cuda_calls("cuMemHostRegister") -
           fake.fake_cuda_calls("cuMemHostUnregister");
  }
};

// Prints what is pinned after the calls, and after the communicator.
Status CallAndLeave(GpuRank& self) {
  for (int call = 0; call < 3; ++call) {
    RINGPIPE_RETURN_IF_ERROR(self.AllReduce());
  }
  RINGPIPE_RETURN_IF_ERROR(self.BroadcastFromTheHost());
  RINGPIPE_RETURN_IF_ERROR(self.communicator->Barrier());
  Print("pinned " + std::to_string(self.pinned()));
  self.communicator.reset();
  Print("then " + std::to_string(self.pinned()));
  return Status::Ok();
}

// Every pin but the first, which is of the rank's own slots, is refused.
Status CallWithoutPins(GpuRank& self) {
  for (int peer = 1; peer < kRanks; ++peer) {
    self.fake.fake_cuda_fail("cuMemHostRegister", 1 + peer,
                             CudaDriver::kOutOfMemory);
  }
  for (int call = 0; call < 3; ++call) {
    RINGPIPE_RETURN_IF_ERROR(self.AllReduce());
  }
  RINGPIPE_RETURN_IF_ERROR(self.BroadcastFromTheHost());
  Print("refused " +
        std::to_string(self.fake.fake_cuda_calls("cuMemHostRegister") - 1));
  self.communicator.reset();
  Print("unpinned " +
        std::to_string(self.fake.fake_cuda_calls("cuMemHostUnregister")));
  return Status::Ok();
}

std::string NameOf(StatusCode code) {
  return "code " + std::to_string(static_cast<int>(code));
}

// Rank 0's GPU stands still in a call, and goes on when the others have gone.
Status OutlivePeers(GpuRank& self) {
  for (int call = 0; call < 3; ++call) {
    RINGPIPE_RETURN_IF_ERROR(self.AllReduce());
  }
  RINGPIPE_RETURN_IF_ERROR(self.communicator->Barrier());
  const bool stands = self.communicator->rank() == 0;
  if (stands) {
    self.fake.fake_cuda_stick(0, 1);
  }
  // Time for the others' messages to come to the GPU.
  const Status status =
      self.AllReduce(stands ? Timeout(seconds(3)) : Timeout(kPatience));
  Print(NameOf(status.code()));
  self.communicator.reset();
  if (stands) {
    AwaitGo();
    self.fake.fake_cuda_stick(0, 0);
    Print(std::to_string(self.device->context_synchronize()));
  }
  return Status::Ok();
}

template <Status (*kBody)(GpuRank&)>
int Play(Way /*way*/) {
  Status status;
  {
    auto self = GpuRank::Create();
    status = self.ok() ? kBody(*self) : self.status();
  }
  if (!status.ok()) {
    Print(status.ToString());
  }
  return status.ok() ? 0 : 1;
}

// --- Tests ---

TEST(PeerSlotsTest, ArePinnedAndLetGoOfWithTheCommunicator) {
  auto ranks = StartRanks(Way::kHostMemory, "call", kRanks, NewJob());
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.ReadLine(kPatience), "pinned " + std::to_string(kRanks));
    EXPECT_EQ(rank.ReadLine(kPatience), "then 0");
    EXPECT_EQ(rank.Wait(kPatience), 0);
  }
}

TEST(PeerSlotsTest, ThatCannotBePinnedTheHostReads) {
  auto ranks = StartRanks(Way::kHostMemory, "no_pins", kRanks, NewJob());
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.ReadLine(kPatience),
              "refused " + std::to_string(kRanks - 1));
    EXPECT_EQ(rank.ReadLine(kPatience), "unpinned 1");
    EXPECT_EQ(rank.Wait(kPatience), 0);
  }
}

// What a GPU might still read stays mapped, also of a process that is gone:
// else this is the end of rank 0.
TEST(PeerSlotsTest, StayMappedForAGpuThatStandsStill) {
  auto ranks = StartRanks(Way::kHostMemory, "outlive", kRanks, NewJob());
  EXPECT_EQ(ranks[0].ReadLine(kPatience), NameOf(StatusCode::kMemoryHeld));
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_NE(ranks[rank].ReadLine(kPatience), NameOf(StatusCode::kOk));
    EXPECT_EQ(ranks[rank].Wait(kPatience), 0);
  }
  ranks[0].Go();
  EXPECT_EQ(ranks[0].ReadLine(kPatience), "0");
  EXPECT_EQ(ranks[0].Wait(kPatience), 0);
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using ringpipe::testing::Play;
  return ringpipe::testing::RunRoleOrTests(
      argc, argv,
      {{"call", &Play<ringpipe::testing::CallAndLeave>},
       {"no_pins", &Play<ringpipe::testing::CallWithoutPins>},
       {"outlive", &Play<ringpipe::testing::OutlivePeers>}});
}
