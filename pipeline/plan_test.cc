#include "pipeline/plan.h"

#include <string>
#include <utility>
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

// The step in whose slot the source lies, all of it; -1: in memory.
int HolderOf(const Step& step) {
  EXPECT_EQ(step.source.size(), 1u);
  return step.source.empty() ? -2 : step.source[0].step;
}

constexpr PlanOptions kInPlace = {.in_place = true};
constexpr PlanOptions::Peer kReachInput = {.input = kReached};
constexpr PlanOptions::Peer kReachOutput = {.output = kReached};

TEST(PlanTest, ASendOfMemoryThatIsNotReachedCopiesItIntoASlotOfItsOwn) {
  const Plan plan = CompileOrFail({1, 0, {Transfer::Send(Input(0), 1)}});
  EXPECT_TRUE(plan.steps[0].takes_slot);
  EXPECT_TRUE(plan.steps[0].copies_in);
  EXPECT_EQ(HolderOf(plan.steps[0]), -1);
}

TEST(PlanTest, ASendOfMemoryThatIsReachedTakesNoSlot) {
  const Schedule schedule = {1, 0, {Transfer::Send(Input(0), 1)}};
  EXPECT_FALSE(
      CompileOrFail(schedule, {.each_peer = kReachInput}).steps[0].takes_slot);
  // That output is reached says nothing of input, in place either: where one is
  // a part of the other, only that may be reached.
  for (const bool in_place : {false, true}) {
    const PlanOptions input = {.in_place = in_place, .each_peer = kReachInput};
    const PlanOptions output = {.in_place = in_place,
                                .each_peer = kReachOutput};
    EXPECT_FALSE(CompileOrFail(schedule, input).steps[0].takes_slot);
    EXPECT_TRUE(CompileOrFail(schedule, output).steps[0].takes_slot);
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
    EXPECT_EQ(HolderOf(plan.steps[send]), 0);
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
  EXPECT_EQ(HolderOf(plan.steps[1]), -1);
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
  EXPECT_EQ(HolderOf(plan.steps[1]), 0);
  EXPECT_EQ(HolderOf(plan.steps[2]), 0);
  EXPECT_EQ(plan.steps[2].write_waits, 0);
  EXPECT_TRUE(plan.steps[2].takes_slot);
  EXPECT_EQ(HolderOf(plan.steps[3]), 2);
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
  EXPECT_EQ(HolderOf(plan.steps[2]), 0);
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
  EXPECT_EQ(HolderOf(plan.steps[2]), 0);
}

TEST(PlanTest, AfterACopyOverItAPlaceIsReadFromMemory) {
  const Plan plan = CompileOrFail({1,
                                   0,
                                   {Transfer::ReceiveCopy(Output(0), 1),
                                    Transfer::LocalCopy(Input(0), Output(0)),
                                    Transfer::Send(Output(0), 1)}});
  EXPECT_EQ(plan.steps[1].write_waits, 1);
  EXPECT_EQ(HolderOf(plan.steps[2]), -1);
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

// --- Ranges ------------------------------------------------------------------

constexpr PlanOptions::Peer kThreePieces = {{.pieces = 3}};

TEST(PlanTest, ARangeThatCameInOneMessageIsReadFromOneSlot) {
  const Plan plan = CompileOrFail({4,
                                   4,
                                   {Transfer::ReceiveCopy(Scratch(2, 3), 1),
                                    Transfer::Send(Scratch(3, 2), 2)}});
  ASSERT_EQ(plan.steps[1].source.size(), 1u);
  EXPECT_EQ(plan.steps[1].source[0].step, 0);
  EXPECT_EQ(plan.steps[1].source[0].place, Scratch(3, 2));
  EXPECT_EQ(plan.steps[0].readers, 1);
}

TEST(PlanTest, ARangeOfSeveralSlotsIsSentInPiecesOrPacked) {
  const Schedule schedule = {
      4,
      4,
      {Transfer::ReceiveCopy(Scratch(1, 2), 1),
       Transfer::ReceiveCopy(Scratch(3), 1), Transfer::Send(Scratch(2, 2), 2)}};
  const Plan pieces = CompileOrFail(schedule, {.each_peer = kThreePieces});
  ASSERT_EQ(pieces.steps[2].source.size(), 2u);
  EXPECT_EQ(pieces.steps[2].source[0].place, Scratch(2));
  EXPECT_EQ(pieces.steps[2].source[1].place, Scratch(3));
  EXPECT_EQ(pieces.steps[2].holders, (std::vector<int>{0, 1}));
  EXPECT_EQ(pieces.steps[2].read_waits, 2);
  EXPECT_FALSE(pieces.steps[2].takes_slot);
  EXPECT_EQ(pieces.most_pieces, 2u);
  const Plan packed = CompileOrFail(schedule);  // a message has one piece
  EXPECT_TRUE(packed.steps[2].takes_slot);
  EXPECT_TRUE(packed.steps[2].copies_in);
}

// The slot begins with chunk 0: chunks 1 and 0 do not follow each other there.
TEST(PlanTest, ARangeThatGoesOnAtTheFirstChunkOfASlotIsInTwoPieces) {
  const Plan plan = CompileOrFail({2,
                                   2,
                                   {Transfer::ReceiveCopy(Scratch(0, 2), 1),
                                    Transfer::Send(Scratch(1, 2), 1)}},
                                  {.each_peer = kThreePieces});
  EXPECT_EQ(plan.steps[1].source.size(), 2U);
}

TEST(PlanTest, ARangeOfMemoryIsInTwoPiecesWhereItGoesOnAtTheFirstChunk) {
  const Plan plan = CompileOrFail({4, 0, {Transfer::Send(Input(2, 3), 1)}},
                                  {.each_peer = {{.pieces = 3}, kReached}});
  ASSERT_EQ(plan.steps[0].source.size(), 2u);
  EXPECT_EQ(plan.steps[0].source[0].place, Input(2, 2));
  EXPECT_EQ(plan.steps[0].source[1].place, Input(0));
  EXPECT_FALSE(plan.steps[0].takes_slot);
}

TEST(PlanTest, AMessageDoesNotArriveInATargetOfTwoPieces) {
  for (const auto& [target, arrival] :
       {std::pair(Output(1, 3), Step::Arrival::kInTarget),
        std::pair(Output(2, 3), Step::Arrival::kInSlot)}) {
    const Plan plan =
        CompileOrFail({4, 0, {Transfer::ReceiveCopy(target, 1)}},
                      {.each_peer = {{.pieces = 3}, {}, kReached}});
    EXPECT_EQ(plan.steps[0].arrival, arrival);
  }
}

// Whatever connections could do with memory that lies together.
TEST(PlanTest, FromAListOfPiecesNothingIsSentAndNothingArrivesInOne) {
  const Schedule schedule = {1,
                             0,
                             {Transfer::Send(Input(0), 1),
                              Transfer::ReceiveReduce(Input(0), Output(0), 1)}};
  PlanOptions options = {
      .message_bytes = 64,
      .each_peer = {{.eager_bytes = 64}, kReached, kReached}};
  EXPECT_TRUE(CompileOrFail(schedule, options).all_eager);
  options.in_pieces = true;
  const Plan plan = CompileOrFail(schedule, options);
  EXPECT_FALSE(plan.all_eager);
  EXPECT_TRUE(plan.peers[0].eager);  // as the other end has it
  EXPECT_TRUE(plan.steps[0].copies_in);
  EXPECT_EQ(plan.steps[1].arrival, Step::Arrival::kInSlot);
  EXPECT_TRUE(plan.steps[1].in_memory);  // the reduction writes it
}

TEST(PlanTest, AReductionIsDoneByWhoseMemoryAnOperandIs) {
  const Schedule schedule = {
      1,
      1,
      {Transfer::ReceiveReduce(Input(0), Scratch(0), 1),
       Transfer::ReceiveReduce(Scratch(0), Output(0), 2)}};
  for (const Owner owner : {Owner::kHost, Owner::kDevice, Owner::kBoth}) {
    const Plan plan = CompileOrFail(
        schedule, {.input_owner = owner, .each_peer = {{.reads_peer = true}}});
    EXPECT_EQ(plan.steps[0].reducer, owner);
    // What lies at the peer is read there by one of them, not by both.
    EXPECT_EQ(plan.steps[0].arrival, owner == Owner::kBoth
                                         ? Step::Arrival::kInSlot
                                         : Step::Arrival::kAtPeer);
    EXPECT_EQ(plan.steps[0].device_reads, owner == Owner::kDevice);
    // Slots are everybody's.
    EXPECT_EQ(plan.steps[1].reducer, Owner::kHost);
    EXPECT_EQ(plan.steps[1].arrival, Step::Arrival::kAtPeer);
  }
}

// There is a slot for what is out of the device's reach, at the peer or here.
TEST(PlanTest, WhatADeviceReadsAtAPeerHasASlot) {
  const PlanOptions device = {.input_owner = Owner::kDevice,
                              .output_owner = Owner::kDevice,
                              .each_peer = {{.reads_peer = true}}};
  const Plan plan =
      CompileOrFail({2,
                     0,
                     {Transfer::ReceiveReduce(Input(0), Output(0), 1),
                      Transfer::ReceiveCopy(Output(1), 1)}},
                    device);
  for (const Step& step : plan.steps) {
    EXPECT_EQ(step.arrival, Step::Arrival::kAtPeer);
    EXPECT_TRUE(step.device_reads);
    EXPECT_TRUE(step.in_memory);
    EXPECT_TRUE(step.takes_slot);
  }
  // What is sent on goes by the slot: there the peer writes it.
  const Plan forwards = CompileOrFail(
      {1,
       0,
       {Transfer::ReceiveCopy(Output(0), 1), Transfer::Send(Output(0), 2)}},
      device);
  EXPECT_EQ(forwards.steps[0].arrival, Step::Arrival::kInSlot);
  EXPECT_FALSE(forwards.steps[0].device_reads);
}

// What the device has reduced, and a peer is to get, goes to the slot and to
// the output at once; unless the output is what is being sent, on which the
// peer may wait.
TEST(PlanTest, ADeviceReducesIntoSlotAndOutputAtOnce) {
  const auto plan_of = [](Owner owner, bool in_place) {
    return CompileOrFail(
        {1,
         0,
         {Transfer::Send(Input(0), 1),
          Transfer::ReceiveReduce(Input(0), Output(0), 1),
          Transfer::Send(Output(0), 2)}},
        {.in_place = in_place, .input_owner = owner, .output_owner = owner});
  };
  const Plan plan = plan_of(Owner::kDevice, false);
  EXPECT_TRUE(plan.steps[1].in_both);
  EXPECT_TRUE(plan.steps[1].to_memory);
  EXPECT_FALSE(plan.steps[1].in_memory);
  EXPECT_TRUE(plan.steps[1].takes_slot);
  EXPECT_FALSE(plan_of(Owner::kDevice, true).steps[1].in_both);
  // In one pass, which would have to end before it could write.
  const Plan passes =
      CompileOrFail({1,
                     1,
                     {Transfer::ReceiveReduce(Input(0), Scratch(0), 1),
                      Transfer::ReceiveReduce(Scratch(0), Output(0), 2),
                      Transfer::Send(Output(0), 1)}},
                    {.in_place = true,
                     .input_owner = Owner::kDevice,
                     .output_owner = Owner::kDevice,
                     .reducer = Owner::kDevice});
  EXPECT_FALSE(passes.steps[1].in_both);
  EXPECT_FALSE(plan_of(Owner::kHost, false).steps[1].in_both);
}

TEST(PlanTest, AReductionWritesMemoryThatIsItsReducers) {
  for (const Owner input : {Owner::kHost, Owner::kDevice, Owner::kBoth}) {
    for (const Owner output : {Owner::kHost, Owner::kDevice, Owner::kBoth}) {
      const Plan plan = CompileOrFail(
          {1, 0, {Transfer::ReceiveReduce(Input(0), Output(0), 1)}},
          {.input_owner = input, .output_owner = output});
      EXPECT_EQ(plan.steps[0].in_memory,
                input == output && input != Owner::kBoth);
    }
  }
}

// The device's is reduced where it is, the other one in a slot.
TEST(PlanTest, OfTwoOperandsInUnlikeMemoryOneIsCopiedIntoASlot) {
  const Plan plan = CompileOrFail(
      {1, 0, {Transfer::LocalReduce(Input(0), Output(0), Output(0))}},
      {.output_owner = Owner::kDevice});
  ASSERT_EQ(plan.steps.size(), 2U);
  EXPECT_EQ(plan.steps[0].transfer.kind, Transfer::Kind::kLocalCopy);
  EXPECT_TRUE(plan.steps[0].takes_slot);
  EXPECT_EQ(HolderOf(plan.steps[0]), -1);
  EXPECT_EQ(plan.steps[1].reducer, Owner::kDevice);
  EXPECT_EQ(HolderOf(plan.steps[1]), 0);
  EXPECT_EQ(plan.steps[1].operand[0].step, -1);
  EXPECT_EQ(plan.steps[1].read_waits, 1);
}

TEST(PlanTest, OfTwoListsWithPiecesOfBothEachIsCopiedIntoASlot) {
  const Plan plan = CompileOrFail(
      {1, 0, {Transfer::LocalReduce(Input(0), Output(0), Output(0))}},
      {.input_owner = Owner::kBoth, .output_owner = Owner::kBoth});
  ASSERT_EQ(plan.steps.size(), 3U);
  EXPECT_EQ(HolderOf(plan.steps[2]), 0);
  EXPECT_EQ(plan.steps[2].operand[0].step, 1);
}

// Both ends of an exchange order their operands alike, whatever is copied.
TEST(PlanTest, TheOrderOfOperandsDoesNotDependOnWhoseMemoryTheyAre) {
  const Schedule schedule = {1,
                             0,
                             {Transfer::Send(Input(0), 1),
                              Transfer::ReceiveReduce(Input(0), Output(0), 1)}};
  for (const Owner owner : {Owner::kHost, Owner::kDevice, Owner::kBoth}) {
    for (const Owner reducer : {Owner::kHost, Owner::kDevice}) {
      const Result<Plan> plan =
          Compile(schedule, 2, 4, {.input_owner = owner, .reducer = reducer});
      EXPECT_EQ(plan->steps.size(), owner == reducer ? 2U : 3U);
      EXPECT_EQ(plan->steps.back().reducer, reducer);
      EXPECT_TRUE(plan->steps.back().received_first);
    }
  }
}

TEST(PlanTest, ALocalCopyFromOnesMemoryToAnothersTakesASlot) {
  for (const Owner input : {Owner::kHost, Owner::kDevice, Owner::kBoth}) {
    for (const Owner output : {Owner::kHost, Owner::kDevice, Owner::kBoth}) {
      const Plan plan =
          CompileOrFail({1, 0, {Transfer::LocalCopy(Input(0), Output(0))}},
                        {.input_owner = input, .output_owner = output});
      EXPECT_EQ(plan.steps[0].takes_slot,
                input != output || input == Owner::kBoth);
      EXPECT_NE(plan.steps[0].in_memory, plan.steps[0].takes_slot);
    }
  }
}

TEST(PlanTest, OnlyHostMemoryIsSentEagerlyFromWhereItLies) {
  for (const Owner owner : {Owner::kHost, Owner::kDevice, Owner::kBoth}) {
    const Plan plan = CompileOrFail({1, 0, {Transfer::Send(Input(0), 1)}},
                                    {.input_owner = owner,
                                     .message_bytes = 64,
                                     .each_peer = {{.eager_bytes = 64}}});
    EXPECT_EQ(plan.steps[0].eager, owner == Owner::kHost);
    EXPECT_EQ(plan.steps[0].copies_in, owner != Owner::kHost);
    // Peers need not know.
    EXPECT_TRUE(plan.peers[0].eager);
    EXPECT_EQ(plan.all_eager, owner == Owner::kHost);
  }
}

TEST(PlanTest, OverlappingRangesAreOrderedLikeEqualPlaces) {
  const Schedule schedule = {4,
                             0,
                             {Transfer::ReceiveCopy(Output(0, 3), 1),
                              Transfer::LocalCopy(Input(2, 2), Output(2, 2)),
                              Transfer::Send(Output(1, 3), 2)}};
  const Plan plan = CompileOrFail(schedule, {.each_peer = kThreePieces});
  EXPECT_TRUE(Has(plan.steps[0].on_done, 1, true));
  EXPECT_TRUE(Has(plan.steps[1].on_done, 2, false));
  EXPECT_EQ(plan.steps[1].write_waits, 1);
  // Chunk 1 lies in the slot in which it came, 2 and 3 in memory.
  EXPECT_EQ(plan.steps[2].source.size(), 2u);
  EXPECT_EQ(plan.steps[2].read_waits, 2);
}

TEST(PlanTest, RangesThatAreNotOfTheSameChunksAreAnError) {
  for (const Transfer& transfer :
       {Transfer::LocalCopy(Input(0, 2), Output(0, 1)),
        Transfer::LocalCopy(Input(0), Output(1)),
        Transfer::ReceiveReduce(Input(0, 2), Output(1, 2), 1),
        Transfer::LocalReduce(Input(0, 2), Input(0, 3), Output(0, 2))}) {
    EXPECT_NE(ErrorOf({4, 0, {transfer}}).find("other chunks"),
              std::string::npos);
  }
  ErrorOf({4, 0, {Transfer::Send(Input(0, 5), 1)}});
  ErrorOf({4, 0, {Transfer::Send(Input(0, 0), 1)}});
  ErrorOf({4, 2, {Transfer::ReceiveCopy(Scratch(1, 2), 1)}});
}

}  // namespace
}  // namespace ringpipe
