#include "pipeline/host_accelerator.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

using Progress = Accelerator::Progress;

class HostAcceleratorTest : public testing::Test {
 protected:
  const std::unique_ptr<Accelerator> accelerator_ = CreateHostAccelerator();
};

TEST_F(HostAcceleratorTest, EveryCopyIsDoneWhenItReturns) {
  const std::vector<float> user = {1, 2, 3};
  std::vector<float> slot(3);
  std::vector<float> within(3);
  std::vector<float> out(3);
  const std::size_t bytes = 3 * sizeof(float);
  EXPECT_EQ(
      accelerator_->Poll(accelerator_->CopyIn(slot.data(), user.data(), bytes)),
      Progress::kDone);
  EXPECT_EQ(slot, user);
  EXPECT_EQ(accelerator_->Poll(
                accelerator_->CopyWithin(within.data(), slot.data(), bytes)),
            Progress::kDone);
  EXPECT_EQ(within, user);
  EXPECT_EQ(accelerator_->Poll(
                accelerator_->CopyOut(out.data(), within.data(), bytes)),
            Progress::kDone);
  EXPECT_EQ(out, user);
  EXPECT_TRUE(accelerator_->error().ok());
}

TEST_F(HostAcceleratorTest, AStreamCopiesFromAndToWhereNoCacheLineBegins) {
  std::vector<unsigned char> slot(1000);
  std::iota(slot.begin(), slot.end(), 1);
  for (const std::size_t bytes : {0, 1, 63, 64, 200, 900}) {
    for (const std::size_t from : {0, 5}) {
      for (const std::size_t to : {0, 3, 64}) {
        std::vector<unsigned char> user(1000);
        std::vector<unsigned char> expected(1000);
        std::copy_n(&slot[from], bytes, &expected[to]);
        EXPECT_EQ(accelerator_->Poll(accelerator_->CopyOutNonTemporal(
                      &user[to], &slot[from], bytes)),
                  Progress::kDone);
        EXPECT_EQ(user, expected) << bytes << " from " << from << " to " << to;
      }
    }
  }
}

TEST_F(HostAcceleratorTest, ReduceAverageDividesOnlyWhenItIsTold) {
  const std::vector<double> own = {1, 2, 3};
  std::vector<double> slot = {2, 3, 5};
  const void* const received[] = {slot.data()};
  accelerator_->Reduce(DataType::kFloat64, ReduceOp::kAverage, slot.data(),
                       own.data(), received, 3, {});
  EXPECT_EQ(slot, (std::vector<double>{3, 5, 8}));
  accelerator_->Reduce(DataType::kFloat64, ReduceOp::kAverage, slot.data(),
                       own.data(), received, 3, {.complete = 2});
  EXPECT_EQ(slot, (std::vector<double>{2, 3.5, 5.5}));
}

TEST_F(HostAcceleratorTest, ReduceTakesAllThatWasReceivedIntoOtherMemory) {
  const std::vector<double> own = {1, 2, 3};
  const std::vector<std::vector<double>> slots(Accelerator::kMostSources,
                                               {2, 3, 5});
  std::vector<const void*> received;
  for (const std::vector<double>& slot : slots) {
    received.push_back(slot.data());
  }
  std::vector<double> target(3);
  EXPECT_EQ(accelerator_->Poll(accelerator_->Reduce(
                DataType::kFloat64, ReduceOp::kAverage, target.data(),
                own.data(), received, 3, {.complete = 2})),
            Progress::kDone);
  EXPECT_EQ(target, (std::vector<double>{8.5, 13, 21.5}));
  EXPECT_EQ(own, (std::vector<double>{1, 2, 3}));
}

TEST_F(HostAcceleratorTest, FinishSizeChangesNothingForASum) {
  const std::vector<double> own = {1};
  std::vector<double> slot = {2};
  const void* const received[] = {slot.data()};
  accelerator_->Reduce(DataType::kFloat64, ReduceOp::kSum, slot.data(),
                       own.data(), received, 1, {.complete = 2});
  EXPECT_EQ(slot[0], 3);
}

TEST_F(HostAcceleratorTest, NullPointersOfNoElementsAreFine) {
  accelerator_->CopyIn(nullptr, nullptr, 0);
  accelerator_->CopyOut(nullptr, nullptr, 0);
  const void* const received[] = {nullptr};
  accelerator_->Reduce(DataType::kInt8, ReduceOp::kAverage, nullptr, nullptr,
                       received, 0, {.complete = 3});
  EXPECT_TRUE(accelerator_->Drain(Deadline::Infinite()));
  EXPECT_TRUE(accelerator_->error().ok());
}

TEST_F(HostAcceleratorTest, OwnsEveryPointerAndPreparesAnySlots) {
  int value = 0;
  EXPECT_TRUE(accelerator_->Owns(&value).value());
  EXPECT_TRUE(accelerator_->PrepareSlots(&value, sizeof(value)).ok());
  accelerator_->ReleaseSlots(&value);
}

}  // namespace
}  // namespace ringpipe
