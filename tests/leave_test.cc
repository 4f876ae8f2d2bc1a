// ringpipe_leave: the other ranks need not wait for who keeps memory of the
// communicator, and that memory stays.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "engine/ringpipe.h"
#include "gtest/gtest.h"
#include "tests/create_in_c.h"
#include "tests/holdings.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

constexpr int kRanks = 4;
constexpr std::size_t kCount = 100'000;

class LeaveTest : public ::testing::TestWithParam<Way> {
 private:
  const WayOfThisProcess way_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Ways, LeaveTest,
                         ::testing::ValuesIn(WaysOf("leave_test")), NameOfWay);

std::atomic<int> warnings = 0;

ringpipe_communicator* Join(int rank, int size, const std::string& job) {
  const std::string root = "unix:@" + job;
  ringpipe_options options = OptionsInC(rank, size, root, job);
  options.log = [](ringpipe_log_level level, const char*, void*) {
    warnings += level <= RINGPIPE_LOG_WARNING ? 1 : 0;
  };
  ringpipe_communicator* own = nullptr;
  EXPECT_EQ(ringpipe_create(&options, &own), RINGPIPE_OK)
      << ringpipe_error_message();
  return own;
}

float* AllocateOnes(ringpipe_communicator* own) {
  void* memory = nullptr;
  EXPECT_EQ(ringpipe_allocate(own, kCount * sizeof(float), &memory),
            RINGPIPE_OK);
  std::fill_n(static_cast<float*>(memory), kCount, 1.0F);
  return static_cast<float*>(memory);
}

ringpipe_status Sum(ringpipe_communicator* own, float* x) {
  return ringpipe_all_reduce(own, x, x, kCount, RINGPIPE_FLOAT32, RINGPIPE_SUM,
                             RINGPIPE_DEFAULT_TIMEOUT, nullptr);
}

// A job whose rank 1 keeps memory of its communicator until the others have
// destroyed theirs.
void RunJobInWhichOneKeepsMemory() {
  const std::string job = NewJob();
  std::latch others_have_ended(kRanks - 1);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      ringpipe_communicator* const own = Join(rank, kRanks, job);
      float* const x = AllocateOnes(own);
      EXPECT_EQ(Sum(own, x), RINGPIPE_OK);
      if (rank == 1) {
        EXPECT_EQ(ringpipe_leave(own), RINGPIPE_OK);
        others_have_ended.wait();
        EXPECT_TRUE(std::all_of(x, x + kCount,
                                [](float value) { return value == kRanks; }));
        std::fill_n(x, kCount, 7.0F);
        EXPECT_EQ(ringpipe_free(own, x), RINGPIPE_OK);
        EXPECT_EQ(ringpipe_free(own, x), RINGPIPE_INVALID_ARGUMENT);
      }
      ringpipe_destroy(own);
      if (rank != 1) {
        others_have_ended.count_down();
      }
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
}

// A warning says that a rank has waited in vain: for one that stays, in each
// job; for one that gets no core for a while, on a busy machine.
TEST_P(LeaveTest, NobodyWaitsForARankThatKeepsMemoryWhichStays) {
  constexpr int kJobs = 3;
  warnings = 1;
  for (int job = 0; job < kJobs && warnings != 0; ++job) {
    warnings = 0;
    RunJobInWhichOneKeepsMemory();
  }
  EXPECT_EQ(warnings, 0);
}

TEST_P(LeaveTest, ReleasesAllButTheMemory) {
  // What lasts as long as the process is made by the first one.
  ringpipe_destroy(Join(0, 1, NewJob()));
  const Holdings before;
  ringpipe_communicator* const own = Join(0, 1, NewJob());
  float* const x = AllocateOnes(own);
  EXPECT_EQ(ringpipe_leave(own), RINGPIPE_OK);
  x[kCount - 1] = 3;
  ringpipe_destroy(own);
  EXPECT_EQ(WhatIsLeft(before), "");
}

TEST_P(LeaveTest, NothingButFreeAndDestroyIsAllowedAfterwards) {
  ringpipe_communicator* const own = Join(0, 1, NewJob());
  void* memory = AllocateOnes(own);
  EXPECT_EQ(ringpipe_leave(own), RINGPIPE_OK);
  void* other = nullptr;
  std::size_t count = 0;
  ringpipe_call call = {};
  call.struct_size = sizeof call;
  ringpipe_stage_counters stage = {};
  ringpipe_slot_counters slots = {};
  ringpipe_request* request = nullptr;
  const std::array<ringpipe_status, 12> statuses = {
      ringpipe_leave(own),
      ringpipe_allocate(own, 1, &other),
      ringpipe_register(own, &count, sizeof count),
      ringpipe_deregister(own, &count),
      ringpipe_run(own, &call),
      ringpipe_start(own, &call, &request),
      ringpipe_barrier(own, RINGPIPE_DEFAULT_TIMEOUT, nullptr),
      ringpipe_exchange(own, nullptr, 0, nullptr, 0, nullptr),
      ringpipe_failure(own),
      ringpipe_lost_ranks(own, nullptr, 0, &count),
      ringpipe_device(own, nullptr, 0, nullptr),
      ringpipe_read_stage(own, 0, &stage),
  };
  for (const ringpipe_status status : statuses) {
    EXPECT_EQ(status, RINGPIPE_INVALID_ARGUMENT);
  }
  EXPECT_EQ(ringpipe_read_slots(own, &slots), RINGPIPE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ringpipe_error_message()).find("has been left"),
            std::string::npos)
      << ringpipe_error_message();
  EXPECT_EQ(ringpipe_rank(own), -1);
  EXPECT_EQ(ringpipe_size(own), -1);
  ringpipe_abort(own, "nothing");
  EXPECT_EQ(ringpipe_free(own, memory), RINGPIPE_OK);
  ringpipe_destroy(own);
  EXPECT_EQ(ringpipe_leave(nullptr), RINGPIPE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace ringpipe::testing
