#include "pipeline/plan.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

// The plan of rank 0 among 4.
Plan CompileOrFail(const Schedule& schedule, const PlanOptions& options = {}) {
  Result<Plan> plan = Compile(schedule, 0, 4, options);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return plan.ok() ? std::move(plan).value() : Plan();
}

std::string ErrorOf(const Schedule& schedule) {
  const Result<Plan> plan = Compile(schedule, 0, 4, {});
  EXPECT_EQ(plan.status().code(), StatusCode::kInternal);
  return plan.status().message();
}

bool Has(const std::vector<Step::Dependent>& dependents, int step, bool write) {
  for (const Step::Dependent& dependent : dependents) {
    if (dependent.step == step && dependent.write == write) {
      return true;
    }
  }
  return false;
}

constexpr PlanOptions kInPlace = {true, false, false};

TEST(PlanTest, ASendOfUnregisteredMemoryCopiesItIntoASlotOfItsOwn) {
  const Plan plan = CompileOrFail({1, 0, {Transfer::Send(Input(0), 1)}});
  EXPECT_TRUE(plan.steps[0].takes_slot);
  EXPECT_TRUE(plan.steps[0].copies_in);
  EXPECT_EQ(plan.steps[0].source_step, -1);
}

TEST(PlanTest, ASendOfRegisteredMemoryTakesNoSlot) {
  const Schedule schedule = {1, 0, {Transfer::Send(Input(0), 1)}};
  EXPECT_FALSE(
      CompileOrFail(schedule, {false, true, false}).steps[0].takes_slot);
  // Output's registration says nothing of input, in place either: where one is
  // a part of the other, only that may be registered.
  for (const bool in_place : {false, true}) {
    EXPECT_FALSE(
        CompileOrFail(schedule, {in_place, true, false}).steps[0].takes_slot);
    EXPECT_TRUE(
        CompileOrFail(schedule, {in_place, false, true}).steps[0].takes_slot);
  }
}

TEST(PlanTest, AReceivedValueIsReadFromTheSlotInWhichItCame) {
  const Plan plan = CompileOrFail(
      {1,
       0,
       {Transfer::ReceiveCopy(Output(0), 1), Transfer::Send(Output(0), 2),
        Transfer::Send(Output(0), 3)}});
  EXPECT_TRUE(plan.steps[0].takes_slot);
  EXPECT_TRUE(plan.steps[0].to_memory);
  EXPECT_EQ(plan.steps[0].readers, 2);
  for (const int send : {1, 2}) {
    EXPECT_EQ(plan.steps[send].source_step, 0);
    EXPECT_FALSE(plan.steps[send].takes_slot);
    EXPECT_EQ(plan.steps[send].read_waits, 1);
    EXPECT_TRUE(Has(plan.steps[0].on_value, send, false));
  }
}

TEST(PlanTest, AReadWaitsForTheWriteOfMemoryBeforeIt) {
  const Plan plan = CompileOrFail({1,
                                   0,
                                   {Transfer::LocalCopy(Input(0), Output(0)),
                                    Transfer::Send(Output(0), 1)}});
  EXPECT_EQ(plan.steps[1].source_step, -1);
  EXPECT_EQ(plan.steps[1].read_waits, 1);
  EXPECT_TRUE(Has(plan.steps[0].on_done, 1, false));
}

TEST(PlanTest, AWriteWaitsForEveryReadOfTheMemoryBeforeIt) {
  const Schedule schedule = {
      1,
      0,
      {Transfer::Send(Input(0), 1), Transfer::Send(Input(0), 2),
       Transfer::ReceiveCopy(Output(0), 3)}};
  EXPECT_EQ(CompileOrFail(schedule).steps[2].write_waits, 0);
  const Plan plan = CompileOrFail(schedule, kInPlace);
  EXPECT_EQ(plan.steps[2].write_waits, 2);
  EXPECT_TRUE(Has(plan.steps[0].on_done, 2, true));
  EXPECT_TRUE(Has(plan.steps[1].on_done, 2, true));
}

TEST(PlanTest, AWriteWaitsForTheWriteOfTheMemoryBeforeIt) {
  const Plan plan = CompileOrFail({1,
                                   0,
                                   {Transfer::ReceiveCopy(Output(0), 1),
                                    Transfer::ReceiveCopy(Output(0), 1)}});
  EXPECT_EQ(plan.steps[1].write_waits, 1);
  EXPECT_TRUE(Has(plan.steps[0].on_done, 1, true));
}

TEST(PlanTest, AReadBeforeAWriteThatWasWaitedForIsNotWaitedForAgain) {
  const Plan plan = CompileOrFail(
      {1,
       0,
       {Transfer::Send(Input(0), 1), Transfer::ReceiveCopy(Output(0), 1),
        Transfer::ReceiveCopy(Output(0), 1)}},
      kInPlace);
  EXPECT_EQ(plan.steps[2].write_waits, 1);
  EXPECT_TRUE(Has(plan.steps[1].on_done, 2, true));
}

TEST(PlanTest, AReductionInPlaceDoesNotWaitForItself) {
  const Plan plan = CompileOrFail(
      {1, 0, {Transfer::ReceiveReduce(Input(0), Output(0), 1)}}, kInPlace);
  EXPECT_EQ(plan.steps[0].read_waits, 0);
  EXPECT_EQ(plan.steps[0].write_waits, 0);
}

TEST(PlanTest, EachWriteOfScratchIsAnotherSlotSoThatNothingWaitsForReaders) {
  const Plan plan = CompileOrFail(
      {1,
       1,
       {Transfer::ReceiveCopy(Scratch(0), 1), Transfer::Send(Scratch(0), 2),
        Transfer::ReceiveReduce(Scratch(0), Scratch(0), 1),
        Transfer::Send(Scratch(0), 3)}});
  EXPECT_EQ(plan.steps[0].readers, 2);
  EXPECT_EQ(plan.steps[1].source_step, 0);
  EXPECT_EQ(plan.steps[2].source_step, 0);
  EXPECT_EQ(plan.steps[2].write_waits, 0);
  EXPECT_TRUE(plan.steps[2].takes_slot);
  EXPECT_EQ(plan.steps[3].source_step, 2);
}

TEST(PlanTest, ACopyOfOneSlotIntoScratchIsThatSlot) {
  const Plan plan = CompileOrFail(
      {1,
       2,
       {Transfer::ReceiveCopy(Scratch(0), 1),
        Transfer::LocalCopy(Scratch(0), Scratch(1)),
        // Scratch(1) keeps what Scratch(0) held.
        Transfer::ReceiveCopy(Scratch(0), 1), Transfer::Send(Scratch(1), 2)}});
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_EQ(plan.steps[2].source_step, 0);
}

TEST(PlanTest, ACopyOfMemoryIntoScratchIsASlotOfItsOwn) {
  const Plan plan = CompileOrFail(
      {1,
       1,
       {Transfer::LocalCopy(Input(0), Scratch(0)),
        Transfer::ReceiveCopy(Output(0), 1), Transfer::Send(Scratch(0), 1)}},
      kInPlace);
  EXPECT_TRUE(plan.steps[0].takes_slot);
  EXPECT_FALSE(plan.steps[0].to_memory);
  EXPECT_EQ(plan.steps[1].write_waits, 1);
  EXPECT_EQ(plan.steps[2].source_step, 0);
}

TEST(PlanTest, AfterACopyOverItAPlaceIsReadFromMemory) {
  const Plan plan = CompileOrFail({1,
                                   0,
                                   {Transfer::ReceiveCopy(Output(0), 1),
                                    Transfer::LocalCopy(Input(0), Output(0)),
                                    Transfer::Send(Output(0), 1)}});
  EXPECT_EQ(plan.steps[1].write_waits, 1);
  EXPECT_EQ(plan.steps[2].source_step, -1);
  EXPECT_TRUE(Has(plan.steps[1].on_done, 2, false));
}

TEST(PlanTest, InPlaceACopyOfInputToTheSameChunkOfOutputIsNothing) {
  const Schedule schedule = {2, 0, {Transfer::LocalCopy(Input(1), Output(1))}};
  EXPECT_EQ(CompileOrFail(schedule).steps.size(), 1u);
  EXPECT_TRUE(CompileOrFail(schedule, kInPlace).steps.empty());
}

TEST(PlanTest, APlaceThatDoesNotExistIsAnError) {
  const std::string message = ErrorOf({2, 1, {Transfer::Send(Input(2), 1)}});
  EXPECT_EQ(message,
            "schedule of rank 0: \"send input[2] -> rank 1\" uses a place that "
            "does not exist");
  ErrorOf({2, 1, {Transfer::Send(Input(-1), 1)}});
  ErrorOf({2, 1, {Transfer::ReceiveCopy(Output(2), 1)}});
  ErrorOf({2, 1, {Transfer::ReceiveCopy(Scratch(1), 1)}});
  ErrorOf({2, 1, {Transfer::ReceiveReduce(Input(0), Output(2), 1)}});
}

TEST(PlanTest, APeerThatDoesNotExistIsAnError) {
  for (const int peer : {-1, 0, 4}) {
    EXPECT_NE(ErrorOf({1, 0, {Transfer::Send(Input(0), peer)}}).find("peer"),
              std::string::npos);
  }
}

TEST(PlanTest, AWriteOfInputIsAnError) {
  EXPECT_NE(ErrorOf({1, 0, {Transfer::ReceiveCopy(Input(0), 1)}})
                .find("writes the input"),
            std::string::npos);
}

TEST(PlanTest, ScratchThatIsReadBeforeItIsWrittenIsAnError) {
  for (const Transfer& transfer :
       {Transfer::Send(Scratch(0), 1),
        Transfer::ReceiveReduce(Scratch(0), Output(0), 1),
        Transfer::LocalCopy(Scratch(0), Output(0)),
        Transfer::LocalCopy(Scratch(0), Scratch(0))}) {
    EXPECT_NE(ErrorOf({1, 1, {transfer}}).find("never written"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace ringpipe
