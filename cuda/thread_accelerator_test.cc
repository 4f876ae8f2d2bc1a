#include "cuda/thread_accelerator.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using Lane = Accelerator::Lane;
using Progress = Accelerator::Progress;
using Ticket = Accelerator::Ticket;

// A bound on every wait of this file, for a machine that is very busy.
constexpr std::chrono::seconds kBound{20};

// kPending only if the bound was met.
Progress Await(Accelerator& accelerator, Ticket ticket) {
  const Deadline deadline = Deadline::After(kBound);
  Progress progress = accelerator.Poll(ticket);
  while (progress == Progress::kPending && !deadline.expired()) {
    std::this_thread::yield();
    progress = accelerator.Poll(ticket);
  }
  return progress;
}

class ThreadAcceleratorTest : public testing::Test {
 protected:
  static constexpr std::size_t kCount = 1000;
  static constexpr std::size_t kBytes = kCount * sizeof(std::int32_t);
  static constexpr std::size_t kSlots = 4;

  ThreadAcceleratorTest() : slots_(kSlots * kCount) {
    EXPECT_TRUE(
        accelerator_
            .PrepareSlots(slots_.data(), slots_.size() * sizeof(std::int32_t))
            .ok());
  }

  std::int32_t* slot(std::size_t index) {
    return slots_.data() + index * kCount;
  }

  // User memory full of `value`.
  std::int32_t* User(std::int32_t value) {
    auto* const memory =
        static_cast<std::int32_t*>(accelerator_.Allocate(kBytes));
    std::fill_n(memory, kCount, value);
    return memory;
  }

  // Of kCount elements, with `own`.
  Ticket Reduce(ReduceOp op, std::int32_t* target, const std::int32_t* own,
                const std::vector<const void*>& received, int finish_size = 0) {
    return accelerator_.Reduce(DataType::kInt32, op, target, own, received,
                               kCount, {.complete = finish_size});
  }
  // target = own OP target.
  Ticket ReduceInPlace(ReduceOp op, std::int32_t* target,
                       const std::int32_t* own, int finish_size = 0) {
    return Reduce(op, target, own, {target}, finish_size);
  }

  static bool AllAre(const std::int32_t* memory, std::int32_t value) {
    return std::all_of(memory, memory + kCount,
                       [value](std::int32_t v) { return v == value; });
  }

  std::vector<std::int32_t> slots_;  // outlives the accelerator's threads
  ThreadAccelerator accelerator_;
};

TEST_F(ThreadAcceleratorTest, CopyInHasFilledTheSlotOnceItIsDone) {
  for (std::int32_t round = 1; round <= 100; ++round) {
    std::int32_t* const user = User(round);
    const Ticket ticket = accelerator_.CopyIn(slot(0), user, kBytes);
    ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
    ASSERT_TRUE(AllAre(slot(0), round));
    accelerator_.Free(user);
  }
}

TEST_F(ThreadAcceleratorTest, CopyOutAndCopyWithinFillUserMemory) {
  std::fill_n(slot(1), kCount, 7);
  std::int32_t* const first = User(0);
  std::int32_t* const second = User(0);
  accelerator_.CopyOut(first, slot(1), kBytes);
  const Ticket ticket = accelerator_.CopyWithin(second, first, kBytes);
  ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
  EXPECT_TRUE(AllAre(first, 7));
  EXPECT_TRUE(AllAre(second, 7));
}

TEST_F(ThreadAcceleratorTest, ScalesOperandsAndResult) {
  std::vector<float> slots(2, 3.0F);
  ThreadAccelerator accelerator;
  ASSERT_TRUE(
      accelerator.PrepareSlots(slots.data(), slots.size() * sizeof(float))
          .ok());
  auto* const user = static_cast<float*>(accelerator.Allocate(sizeof(float)));
  *user = 10;
  const void* const received[] = {&slots[0]};
  Await(accelerator,
        accelerator.Reduce(
            DataType::kFloat32, ReduceOp::kAverage, &slots[0], user, received,
            1, {.own = 2, .received = 4, .complete = 2, .result = 5}));
  EXPECT_EQ(slots[0], 80);  // (20 + 12) / 2 * 5
  Await(accelerator,
        accelerator.Scale(Accelerator::Lane::kCopyIn, DataType::kFloat32,
                          &slots[1], user, 1, 0.5));
  EXPECT_EQ(slots[1], 5);
}

TEST_F(ThreadAcceleratorTest, ReduceAddsUserMemoryAndSlotsAndDivides) {
  std::fill_n(slot(0), kCount, 10);
  std::fill_n(slot(1), kCount, 20);
  ReduceInPlace(ReduceOp::kSum, slot(0), slot(1));
  const Ticket ticket =
      ReduceInPlace(ReduceOp::kAverage, slot(0), User(-130), 3);
  ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
  EXPECT_TRUE(AllAre(slot(0), -33));  // -100 / 3, toward zero
}

TEST_F(ThreadAcceleratorTest, ReduceTakesSeveralOfAnyMemoryIntoAnyMemory) {
  std::fill_n(slot(0), kCount, 10);
  std::fill_n(slot(1), kCount, 20);
  std::int32_t* const target = User(0);
  Ticket ticket =
      Reduce(ReduceOp::kSum, target, User(1), {slot(0), User(300), slot(1)});
  ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
  EXPECT_TRUE(AllAre(target, 331));
  ticket = Reduce(ReduceOp::kAverage, slot(2), slot(0), {target, slot(1)}, 2);
  ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
  EXPECT_TRUE(AllAre(slot(2), 180));
  EXPECT_TRUE(AllAre(target, 331));
}

TEST_F(ThreadAcceleratorTest, TheTargetOfReduceMayBeOwnOrReceived) {
  std::fill_n(slot(0), kCount, 10);
  std::fill_n(slot(1), kCount, 20);
  Reduce(ReduceOp::kSum, slot(0), slot(0), {User(1), slot(1)});
  const Ticket ticket =
      Reduce(ReduceOp::kSum, slot(1), User(100), {slot(0), slot(1)});
  ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
  EXPECT_TRUE(AllAre(slot(0), 31));
  EXPECT_TRUE(AllAre(slot(1), 151));
}

TEST_F(ThreadAcceleratorTest, TheArrayOfPointersIsNeededOnlyDuringTheCall) {
  std::fill_n(slot(0), kCount, 10);
  std::fill_n(slot(1), kCount, 20);
  accelerator_.Hold(Lane::kReduce);
  std::vector<const void*> received = {slot(0), slot(1)};
  const Ticket ticket = Reduce(ReduceOp::kSum, slot(2), User(1), received);
  received.assign(2, nullptr);
  accelerator_.Resume(Lane::kReduce);
  ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
  EXPECT_TRUE(AllAre(slot(2), 31));
}

TEST_F(ThreadAcceleratorTest, ReduceTakesTheMostSourcesAndNoMore) {
  const std::vector<const void*> most(Accelerator::kMostSources, User(2));
  Ticket ticket = Reduce(ReduceOp::kSum, slot(0), User(1), most);
  ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
  EXPECT_TRUE(AllAre(slot(0), 2 * Accelerator::kMostSources + 1));
  const std::vector<const void*> too_many(most.size() + 1, User(2));
  ticket = Reduce(ReduceOp::kSum, slot(1), User(1), too_many);
  EXPECT_EQ(Await(accelerator_, ticket), Progress::kFailed);
  EXPECT_NE(accelerator_.error().message().find("kMostSources"),
            std::string::npos);
}

TEST_F(ThreadAcceleratorTest, ReduceOfNoSourceFails) {
  const Ticket ticket = Reduce(ReduceOp::kSum, slot(0), User(1), {});
  EXPECT_EQ(Await(accelerator_, ticket), Progress::kFailed);
}

TEST_F(ThreadAcceleratorTest, FinishSizeChangesNothingForOtherOperations) {
  std::fill_n(slot(0), kCount, 10);
  const Ticket ticket = ReduceInPlace(ReduceOp::kMax, slot(0), User(12), 3);
  ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
  EXPECT_TRUE(AllAre(slot(0), 12));
}

TEST_F(ThreadAcceleratorTest, OperationsOfALaneCompleteInTheirOrder) {
  std::vector<std::int32_t*> users;
  std::vector<Ticket> tickets;
  for (std::int32_t i = 0; i < 50; ++i) {
    users.push_back(User(i));
    tickets.push_back(accelerator_.CopyIn(slot(0), users.back(), kBytes));
  }
  const Deadline deadline = Deadline::After(kBound);
  while (accelerator_.Poll(tickets.back()) != Progress::kDone) {
    ASSERT_FALSE(deadline.expired());
    // From the back: what is done after a later one was not is no violation.
    bool later_done = false;
    for (auto ticket = tickets.rbegin(); ticket != tickets.rend(); ++ticket) {
      const bool done = accelerator_.Poll(*ticket) == Progress::kDone;
      ASSERT_TRUE(done || !later_done);
      later_done = done;
    }
    std::this_thread::yield();
  }
  EXPECT_TRUE(AllAre(slot(0), 49));
}

TEST_F(ThreadAcceleratorTest, LanesOverlap) {
  accelerator_.Hold(Lane::kCopyIn);
  const Ticket held = accelerator_.CopyIn(slot(0), User(1), kBytes);
  const Ticket reduced = ReduceInPlace(ReduceOp::kSum, slot(1), User(2));
  const Ticket copied = accelerator_.CopyOut(User(0), slot(2), kBytes);
  EXPECT_EQ(Await(accelerator_, reduced), Progress::kDone);
  EXPECT_EQ(Await(accelerator_, copied), Progress::kDone);
  EXPECT_EQ(accelerator_.Poll(held), Progress::kPending);
  EXPECT_TRUE(AllAre(slot(0), 0)) << "before its turn";
  accelerator_.Resume(Lane::kCopyIn);
  EXPECT_EQ(Await(accelerator_, held), Progress::kDone);
  EXPECT_TRUE(AllAre(slot(0), 1));
}

TEST_F(ThreadAcceleratorTest, TheSourceIsReadLate) {
  // Held, so that this test does not depend on luck; the rewriting is ordered
  // by Resume and is no race.
  accelerator_.Hold(Lane::kCopyIn);
  std::int32_t* const user = User(1);
  const Ticket ticket = accelerator_.CopyIn(slot(0), user, kBytes);
  std::fill_n(user, kCount, 2);
  accelerator_.Resume(Lane::kCopyIn);
  ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
  EXPECT_TRUE(AllAre(slot(0), 2));
}

TEST_F(ThreadAcceleratorTest, WithoutHoldACopyIsSometimesPendingAfterItsCall) {
  bool pending = false;
  for (int i = 0; i < 1000 && !pending; ++i) {
    const Ticket ticket = accelerator_.CopyIn(slot(0), User(i), kBytes);
    pending = accelerator_.Poll(ticket) == Progress::kPending;
    ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone);
  }
  EXPECT_TRUE(pending);
}

TEST_F(ThreadAcceleratorTest, FailAfterLetsThatManySucceed) {
  accelerator_.FailAfter(2);
  const Ticket first = accelerator_.CopyIn(slot(0), User(1), kBytes);
  EXPECT_EQ(Await(accelerator_, first), Progress::kDone);
  const Ticket second = accelerator_.CopyIn(slot(1), User(2), kBytes);
  EXPECT_EQ(Await(accelerator_, second), Progress::kDone);
  EXPECT_TRUE(accelerator_.error().ok());
  const Ticket third = accelerator_.CopyIn(slot(2), User(3), kBytes);
  EXPECT_EQ(Await(accelerator_, third), Progress::kFailed);
  EXPECT_EQ(accelerator_.error().code(), StatusCode::kDeviceError);
  EXPECT_NE(accelerator_.error().message(), "");
  EXPECT_TRUE(AllAre(slot(2), 0)) << "a failed operation wrote";
}

TEST_F(ThreadAcceleratorTest, AfterAFailureNothingThatIsStartedSucceeds) {
  accelerator_.FailAfter(0);
  const Ticket ticket = accelerator_.CopyOut(User(0), slot(0), kBytes);
  ASSERT_EQ(Await(accelerator_, ticket), Progress::kFailed);
  const Ticket later = accelerator_.CopyIn(slot(0), User(1), kBytes);
  EXPECT_EQ(Await(accelerator_, later), Progress::kFailed);
  ASSERT_TRUE(accelerator_.Drain(Deadline::Infinite()));
  EXPECT_TRUE(AllAre(slot(0), 0));
}

TEST_F(ThreadAcceleratorTest, AfterDrainEverythingStartedIsDone) {
  std::vector<Ticket> tickets;
  std::int32_t* const out = User(0);
  std::fill_n(slot(2), kCount, 5);
  for (std::int32_t i = 0; i < 20; ++i) {
    tickets.push_back(accelerator_.CopyIn(slot(0), User(i), kBytes));
    tickets.push_back(ReduceInPlace(ReduceOp::kSum, slot(1), User(1)));
    tickets.push_back(accelerator_.CopyOut(out, slot(2), kBytes));
  }
  ASSERT_TRUE(accelerator_.Drain(Deadline::Infinite()));
  for (const Ticket ticket : tickets) {
    EXPECT_EQ(accelerator_.Poll(ticket), Progress::kDone);
  }
  EXPECT_TRUE(AllAre(slot(0), 19));
  EXPECT_TRUE(AllAre(slot(1), 20));
  EXPECT_TRUE(AllAre(out, 5));
}

TEST_F(ThreadAcceleratorTest, DrainLiftsAHold) {
  accelerator_.Hold(Lane::kReduce);
  const Ticket ticket = ReduceInPlace(ReduceOp::kSum, slot(0), User(3));
  ASSERT_TRUE(accelerator_.Drain(Deadline::Infinite()));
  EXPECT_EQ(accelerator_.Poll(ticket), Progress::kDone);
  EXPECT_TRUE(AllAre(slot(0), 3));
}

TEST_F(ThreadAcceleratorTest, OwnsWhatItAllocatedUntilItIsFreed) {
  auto* const memory = static_cast<std::byte*>(accelerator_.Allocate(100));
  EXPECT_TRUE(accelerator_.Owns(memory).value());
  EXPECT_TRUE(accelerator_.Owns(memory + 99).value());
  EXPECT_FALSE(accelerator_.Owns(memory + 100).value());
  EXPECT_FALSE(accelerator_.Owns(slot(0)).value());
  EXPECT_FALSE(accelerator_.Owns(nullptr).value());
  const void* const empty = accelerator_.Allocate(0);
  EXPECT_TRUE(accelerator_.Owns(empty).value());
  accelerator_.Free(memory);
  EXPECT_FALSE(accelerator_.Owns(memory).value());
}

TEST_F(ThreadAcceleratorTest, ASlotThatWasNotPreparedFails) {
  std::vector<std::int32_t> other(kCount);
  const Ticket ticket = accelerator_.CopyIn(other.data(), User(1), kBytes);
  EXPECT_EQ(Await(accelerator_, ticket), Progress::kFailed);
  EXPECT_NE(accelerator_.error().message().find("target"), std::string::npos);
}

TEST_F(ThreadAcceleratorTest, ASlotThatWasReleasedFails) {
  accelerator_.ReleaseSlots(slots_.data());
  const Ticket ticket = accelerator_.CopyOut(User(1), slot(0), kBytes);
  EXPECT_EQ(Await(accelerator_, ticket), Progress::kFailed);
  EXPECT_NE(accelerator_.error().message().find("source"), std::string::npos);
}

TEST_F(ThreadAcceleratorTest, EveryPointerOfAReductionIsChecked) {
  std::vector<std::int32_t> other(kCount);
  const auto message = [&](void* target, const void* own,
                           const std::vector<const void*>& received) {
    ThreadAccelerator accelerator;
    EXPECT_TRUE(accelerator.PrepareSlots(slots_.data(), 4 * kBytes).ok());
    const Ticket ticket = accelerator.Reduce(DataType::kInt32, ReduceOp::kSum,
                                             target, own, received, kCount, {});
    Await(accelerator, ticket);
    return accelerator.error().message();
  };
  void* const bad = other.data();
  EXPECT_EQ(message(slot(0), slot(1), {slot(2), slot(3)}), "");
  EXPECT_NE(message(bad, slot(1), {slot(2), slot(3)}).find("the target"),
            std::string::npos);
  EXPECT_NE(message(slot(0), bad, {slot(2), slot(3)}).find("the source"),
            std::string::npos);
  EXPECT_NE(message(slot(0), slot(1), {bad, slot(3)}).find("the source"),
            std::string::npos);
  EXPECT_NE(message(slot(0), slot(1), {slot(2), bad}).find("the source"),
            std::string::npos);
  EXPECT_NE(message(slot(0), slot(1), {slot(2), slot(0) + 1}).find("in part"),
            std::string::npos);
  EXPECT_NE(message(slot(1), slot(1) - 1, {slot(2)}).find("in part"),
            std::string::npos);
}

TEST_F(ThreadAcceleratorTest, UserMemoryThatIsTooSmallFails) {
  const Ticket ticket =
      accelerator_.CopyIn(slot(0), User(1), kBytes + sizeof(std::int32_t));
  EXPECT_EQ(Await(accelerator_, ticket), Progress::kFailed);
}

TEST_F(ThreadAcceleratorTest, NothingIsDoneForNoBytes) {
  const Ticket copied = accelerator_.CopyIn(nullptr, nullptr, 0);
  EXPECT_EQ(Await(accelerator_, copied), Progress::kDone);
  const void* const received[] = {nullptr};
  const Ticket reduced =
      accelerator_.Reduce(DataType::kFloat64, ReduceOp::kSum, nullptr, nullptr,
                          received, 0, {.complete = 2});
  EXPECT_EQ(Await(accelerator_, reduced), Progress::kDone);
}

TEST_F(ThreadAcceleratorTest, ReduceHandlesEveryTypeAndOperation) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      // Zero is zero in every type, and 0 OP 0 is 0.
      const void* const received[] = {slot(0), slot(1)};
      const Ticket ticket =
          accelerator_.Reduce(type, op, slot(0), User(0), received,
                              kBytes / SizeOf(type), {.complete = 2});
      ASSERT_EQ(Await(accelerator_, ticket), Progress::kDone)
          << Name(type) << " " << Name(op);
      ASSERT_TRUE(AllAre(slot(0), 0)) << Name(type) << " " << Name(op);
    }
  }
}

TEST_F(ThreadAcceleratorTest, OtherThreadsMayAskForOwnershipMeanwhile) {
  std::vector<std::thread> threads;
  const void* const user = User(1);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([this, user] {
      for (int j = 0; j < 200; ++j) {
        void* const mine = accelerator_.Allocate(16);
        EXPECT_TRUE(accelerator_.Owns(mine).value());
        EXPECT_TRUE(accelerator_.Owns(user).value());
        accelerator_.Free(mine);
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    accelerator_.CopyIn(slot(0), user, kBytes);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ASSERT_TRUE(accelerator_.Drain(Deadline::Infinite()));
  EXPECT_TRUE(AllAre(slot(0), 1));
}

}  // namespace
}  // namespace ringpipe
