// Calls on memory of a device that the user's CommunicatorOptions name.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/thread_accelerator.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

class AcceleratorMemoryTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, AcceleratorMemoryTest,
                         ::testing::ValuesIn(WaysOf("accelerator_memory_test")),
                         NameOfWay);

TEST_P(AcceleratorMemoryTest, IsReducedWhereItIs) {
  ExpectRanks(
      GetParam(), 3, [](Communicator& c) -> Status { return c.Barrier(); },
      [](int, CommunicatorOptions& options) {
        options.accelerator = std::make_shared<ThreadAccelerator>();
      });
  std::vector<std::shared_ptr<ThreadAccelerator>> devices;
  for (int rank = 0; rank < 3; ++rank) {
    devices.push_back(std::make_shared<ThreadAccelerator>());
  }
  constexpr std::size_t kCount = 50'000;
  ExpectRanks(
      GetParam(), 3,
      [&](Communicator& c) -> Status {
        auto* const memory = static_cast<float*>(
            devices[c.rank()]->Allocate(2 * kCount * sizeof(float)));
        for (std::size_t i = 0; i < kCount; ++i) {
          memory[i] = static_cast<float>(i % 1000 + c.rank());
        }
        RINGPIPE_RETURN_IF_ERROR(c.AllReduce(memory, memory + kCount, kCount,
                                             DataType::kFloat32,
                                             ReduceOp::kAverage));
        for (std::size_t i = 0; i < kCount; ++i) {
          if (memory[kCount + i] != static_cast<float>(i % 1000 + 1)) {
            return {StatusCode::kInternal,
                    "element " + std::to_string(i) + " is wrong"};
          }
        }
        return Status::Ok();
      },
      [&](int rank, CommunicatorOptions& options) {
        options.accelerator = devices[rank];
      });
}

TEST_P(AcceleratorMemoryTest, IsOfOneCommunicatorAtATime) {
  CommunicatorOptions options = RankOptions(GetParam(), 0, 1, NewJob());
  options.accelerator = std::make_shared<ThreadAccelerator>();
  auto first = Communicator::Create(options);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const Status second = Communicator::Create(options).status();
  EXPECT_EQ(second.code(), StatusCode::kInvalidArgument) << second.ToString();
  EXPECT_NE(second.message().find("serves another communicator already"),
            std::string::npos);
  first->reset();
  EXPECT_TRUE(Communicator::Create(options).ok());
}

// In a job of one rank all of it is a copy from one to the other.
TEST_P(AcceleratorMemoryTest, OfOneBufferGoesWithHostMemoryOfTheOther) {
  auto device = std::make_shared<ThreadAccelerator>();
  CommunicatorOptions options = RankOptions(GetParam(), 0, 1, NewJob());
  options.accelerator = device;
  auto communicator = Communicator::Create(options);
  ASSERT_TRUE(communicator.ok()) << communicator.status().ToString();
  constexpr std::size_t kCount = 200'000;
  std::vector<float> host(kCount, 3), result(kCount);
  auto* const memory =
      static_cast<float*>(device->Allocate(kCount * sizeof(float)));
  for (const double prescale : {1.0, 0.5}) {
    Call call = {.collective = Collective::kAllReduce,
                 .send = host.data(),
                 .receive = memory,
                 .count = kCount,
                 .type = DataType::kFloat32,
                 .prescale = prescale};
    for (const auto& [send, receive] :
         {std::pair(host.data(), memory), std::pair(memory, result.data())}) {
      call.send = send;
      call.receive = receive;
      const Status status = (*communicator)->Run(call);
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    const auto expected = static_cast<float>(3 * prescale * prescale);
    EXPECT_EQ(std::count(result.begin(), result.end(), expected), kCount);
  }
}

// The root's part for rank 1 is on its device, which stands still; what it has
// for rank 2 is host memory, and comes meanwhile.
TEST_P(AcceleratorMemoryTest, WhatTheHostHasDoneDoesNotWaitForTheDevice) {
  const auto device = std::make_shared<ThreadAccelerator>();
  constexpr std::size_t kCount = 20'000;
  std::atomic<bool> has_come = false;
  ExpectRanks(
      GetParam(), 3,
      [&](Communicator& c) -> Status {
        std::vector<float> host(2 * kCount, 1), part(kCount);
        auto* const memory =
            static_cast<float*>(device->Allocate(kCount * sizeof(float)));
        std::fill_n(memory, kCount, 1.0F);
        const std::vector<Buffer> parts = {{host.data(), kCount},
                                           {memory, kCount},
                                           {host.data() + kCount, kCount}};
        Call call = {.collective = Collective::kScatter,
                     .receive = part.data(),
                     .count = kCount,
                     .type = DataType::kFloat32};
        std::thread well;
        if (c.rank() == 0) {
          call.send_list = parts;
          device->Hold(Accelerator::Lane::kCopyIn);
          well = std::thread([&] {
            for (int i = 0; i < 3000 && !has_come; ++i) {
              std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }
            EXPECT_TRUE(has_come);
            device->Resume(Accelerator::Lane::kCopyIn);
          });
        }
        Status status = c.Run(call);
        has_come = has_come || c.rank() == 2;
        if (well.joinable()) {
          well.join();
        }
        EXPECT_EQ(std::ranges::count(part, 1.0F), kCount);
        return status;
      },
      [&](int rank, CommunicatorOptions& options) {
        options.accelerator = rank == 0 ? device : nullptr;
        options.environment.algorithm = "scatter:linear";
      });
}

TEST_P(AcceleratorMemoryTest, TheDeviceIsPreparedAtTheFirstCallThatUsesIt) {
  std::vector<std::shared_ptr<ThreadAccelerator>> devices;
  for (int rank = 0; rank < 2; ++rank) {
    devices.push_back(std::make_shared<ThreadAccelerator>());
  }
  ExpectRanks(
      GetParam(), 2,
      [&](Communicator& c) -> Status {
        ThreadAccelerator& device = *devices[c.rank()];
        EXPECT_EQ(device.prepared(), 0U) << "at creation";
        std::vector<float> host(100, 1);
        RINGPIPE_RETURN_IF_ERROR(c.AllReduce(
            host.data(), host.data(), 100, DataType::kFloat32, ReduceOp::kSum));
        EXPECT_EQ(device.prepared(), 0U) << "by a call on host memory";
        // Rank 0 alone uses its device, so that the ranks do not do it alike.
        auto* const memory =
            c.rank() == 0
                ? static_cast<float*>(device.Allocate(100 * sizeof(float)))
                : host.data();
        std::fill_n(memory, 100, 1.0F);
        for (int call = 0; call < 2; ++call) {
          RINGPIPE_RETURN_IF_ERROR(c.AllReduce(
              memory, memory, 100, DataType::kFloat32, ReduceOp::kSum));
          EXPECT_EQ(device.prepared(), c.rank() == 0 ? 1U : 0U);
        }
        EXPECT_EQ(memory[99], 4.0F);
        return Status::Ok();
      },
      [&](int rank, CommunicatorOptions& options) {
        options.accelerator = devices[rank];
      });
  EXPECT_EQ(devices[0]->prepared(), 0U) << "released with the communicator";
}

TEST_P(AcceleratorMemoryTest, SlotsThatCannotBePinnedFailNoCallOnHostMemory) {
  const auto device = std::make_shared<ThreadAccelerator>();
  device->FailToPrepare({StatusCode::kResourceExhausted, "cannot be pinned"});
  CommunicatorOptions options = RankOptions(GetParam(), 0, 1, NewJob());
  options.accelerator = device;
  auto communicator = Communicator::Create(options);
  ASSERT_TRUE(communicator.ok()) << communicator.status().ToString();
  std::vector<float> host(10, 1);
  EXPECT_TRUE((*communicator)
                  ->AllReduce(host.data(), host.data(), 10, DataType::kFloat32,
                              ReduceOp::kSum)
                  .ok());
  void* const memory = device->Allocate(40);
  const Status status =
      (*communicator)
          ->AllReduce(memory, memory, 10, DataType::kFloat32, ReduceOp::kSum);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_NE(status.message().find("cannot be pinned"), std::string::npos);
}

TEST_P(AcceleratorMemoryTest, SlotsThatOneRankCannotPinEndTheCallOnAllRanks) {
  std::vector<std::shared_ptr<ThreadAccelerator>> devices;
  for (int rank = 0; rank < 2; ++rank) {
    devices.push_back(std::make_shared<ThreadAccelerator>());
  }
  devices[1]->FailToPrepare(
      {StatusCode::kResourceExhausted, "cannot be pinned"});
  const auto statuses = RunRanks(
      GetParam(), 2,
      [&](Communicator& c) -> Status {
        void* const memory = devices[c.rank()]->Allocate(40);
        return c.AllReduce(memory, memory, 10, DataType::kFloat32,
                           ReduceOp::kSum);
      },
      [&](int rank, CommunicatorOptions& options) {
        options.accelerator = devices[rank];
      });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted)
        << status.ToString();
  }
  EXPECT_EQ(statuses[1].message(),
            "device memory cannot be used: cannot be pinned");
  EXPECT_EQ(statuses[0].message(), "rank 1: " + statuses[1].message());
}

// The others would take this rank's next call for the one that it lacks.
TEST_P(AcceleratorMemoryTest,
       WhoseOwnerOneRankCannotTellEndsTheCallOnAllRanks) {
  std::vector<std::shared_ptr<ThreadAccelerator>> devices;
  for (int rank = 0; rank < 2; ++rank) {
    devices.push_back(std::make_shared<ThreadAccelerator>());
  }
  devices[1]->FailToTellOwner({StatusCode::kDeviceError, "it is lost"});
  const auto statuses = RunRanks(
      GetParam(), 2,
      [&](Communicator& c) -> Status {
        float value = 1;
        return c.AllReduce(&value, &value, 1, DataType::kFloat32,
                           ReduceOp::kSum);
      },
      [&](int rank, CommunicatorOptions& options) {
        options.accelerator = devices[rank];
      });
  EXPECT_EQ(statuses[1].message(), "allreduce: it is lost");
  EXPECT_EQ(statuses[0].message(), "rank 1: allreduce: it is lost");
}

TEST_P(AcceleratorMemoryTest, MemoryOfAnotherDeviceIsRefusedByName) {
  ThreadAccelerator other;
  ThreadAccelerator::Options device_options;
  device_options.name = "thread:1";
  device_options.neighbour = &other;
  const auto device = std::make_shared<ThreadAccelerator>(device_options);
  CommunicatorOptions options = RankOptions(GetParam(), 0, 1, NewJob());
  options.accelerator = device;
  auto communicator = Communicator::Create(options);
  ASSERT_TRUE(communicator.ok()) << communicator.status().ToString();
  void* const memory = other.Allocate(40);
  const Status status =
      (*communicator)
          ->AllReduce(memory, memory, 10, DataType::kFloat32, ReduceOp::kSum);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  EXPECT_NE(status.message().find("allreduce"), std::string::npos)
      << status.ToString();
  EXPECT_NE(status.message().find("thread:1"), std::string::npos)
      << status.ToString();
  EXPECT_TRUE((*communicator)->Barrier().ok());
}

}  // namespace
}  // namespace ringpipe::testing
