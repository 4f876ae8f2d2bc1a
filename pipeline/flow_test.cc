#include "pipeline/flow.h"

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

constexpr int kSize = 4;

class FlowTest : public testing::Test {
 protected:
  // Rank 0 among 4.
  void Start(const Schedule& schedule, std::uint64_t subchunks, int depth,
             const PlanOptions& options = {}) {
    Result<Plan> plan = Compile(schedule, 0, kSize, options);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    plan_ = std::move(plan).value();
    posted_.clear();
    flow_.Start(plan_, subchunks, depth, kSize, slots_);
  }

  // Issues as much as it can and returns why it stopped.
  Flow::Issued IssueAll() {
    Flow::Issued issued;
    do {
      issued = flow_.Issue();
    } while (issued == Flow::Issued::kIssued);
    return issued;
  }

  // (sub-chunk, step) of all in the queue.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> Drain(
      Fifo<Instance>& queue) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
    while (!queue.empty()) {
      const Instance instance = queue.pop();
      order.emplace_back(flow_.subchunk(instance), instance.step);
    }
    return order;
  }

  // (sub-chunk, step) of the receives that can be posted, in that order.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> PostAll(int peer) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
    while (const Instance* next = flow_.NextReceive(peer)) {
      order.emplace_back(flow_.subchunk(*next), next->step);
      posted_[peer].push_back(*next);
      flow_.PopReceive(peer);
    }
    return order;
  }

  // The next message from the peer arrives.
  void Receive(int peer) {
    PostAll(peer);
    ASSERT_FALSE(posted_[peer].empty());
    const Instance instance = posted_[peer].front();
    posted_[peer].pop_front();
    flow_.Received(instance);
  }

  void Send(int peer) {
    const Instance* next = flow_.NextSend(peer);
    ASSERT_NE(next, nullptr);
    const Instance instance = *next;
    flow_.PopSend(peer);
    flow_.Sent(instance);
  }

  // In which the source lies, all of it.
  int SourceSlot(Instance instance) const {
    const std::vector<Step::Piece>& source = flow_.step(instance).source;
    return source.size() == 1 && source[0].step >= 0
               ? flow_.slot_of(instance, source[0].step)
               : SlotList::kNone;
  }

  std::uint64_t in_use() const { return slots_.counters().in_use; }

  Plan plan_;
  Flow flow_;
  SlotList slots_{16};
  std::map<int, std::deque<Instance>> posted_;  // receives, by peer
};

// The connections reach the input, or the output too.
constexpr PlanOptions::Peer kReachInput = {.input = kReached};
constexpr PlanOptions::Peer kReachBoth = {.input = kReached,
                                          .output = kReached};
constexpr PlanOptions::Peer kTwoPieces = {{.pieces = 2}};
const Schedule kTwoReceives = {
    2,
    0,
    {Transfer::ReceiveCopy(Output(0), 1), Transfer::ReceiveCopy(Output(1), 2)}};
const Schedule kForward = {
    1,
    1,
    {Transfer::ReceiveCopy(Scratch(0), 1), Transfer::Send(Scratch(0), 2)}};

TEST_F(FlowTest, IssuesRoundsThenStepsThenTheSubchunksOfARound) {
  Start(kTwoReceives, 3, 2);
  EXPECT_EQ(IssueAll(), Flow::Issued::kNothing);
  const std::vector<std::pair<std::uint64_t, std::uint32_t>> from_one = {
      {0, 0}, {1, 0}, {2, 0}};
  const std::vector<std::pair<std::uint64_t, std::uint32_t>> from_two = {
      {0, 1}, {1, 1}, {2, 1}};
  EXPECT_EQ(PostAll(1), from_one);
  EXPECT_EQ(PostAll(2), from_two);
}

TEST_F(FlowTest, ARoundBeginsWhenTheOneTwoBeforeHasEnded) {
  Start(kForward, 3, 1);
  EXPECT_EQ(flow_.lanes(), 2);
  EXPECT_EQ(IssueAll(), Flow::Issued::kWindow);
  EXPECT_EQ(PostAll(1).size(), 2u);
  Receive(1);
  EXPECT_EQ(flow_.Issue(), Flow::Issued::kWindow);
  Send(2);
  EXPECT_EQ(IssueAll(), Flow::Issued::kNothing);
  EXPECT_EQ(PostAll(1).size(), 1u);
}

TEST_F(FlowTest, WithoutAFreeSlotNothingLaterIsIssued) {
  slots_ = SlotList(1);
  Start({1,
         0,
         {Transfer::Send(Input(0), 1), Transfer::ReceiveCopy(Output(0), 1),
          Transfer::Send(Input(0), 2)}},
        1, 1);
  EXPECT_EQ(IssueAll(), Flow::Issued::kNoSlot);
  EXPECT_EQ(flow_.NextReceive(1), nullptr);
  EXPECT_FALSE(flow_.HasSends(2));
  flow_.CopiedIn(flow_.to_copy_in().pop());
  Send(1);
  EXPECT_EQ(flow_.Issue(), Flow::Issued::kIssued);
  EXPECT_EQ(PostAll(1).size(), 1u);
}

TEST_F(FlowTest, SendsToOnePeerKeepScheduleOrderAndOthersDoNotWait) {
  Start({1,
         1,
         {Transfer::ReceiveCopy(Scratch(0), 1), Transfer::Send(Scratch(0), 2),
          Transfer::Send(Input(0), 2), Transfer::Send(Input(0), 3)}},
        1, 1, {.each_peer = kReachInput});
  IssueAll();
  // The second send to rank 2 is ready, the first is not.
  EXPECT_EQ(flow_.NextSend(2), nullptr);
  ASSERT_NE(flow_.NextSend(3), nullptr);
  Receive(1);
  ASSERT_NE(flow_.NextSend(2), nullptr);
  EXPECT_EQ(flow_.NextSend(2)->step, 1u);
  Send(2);
  EXPECT_EQ(flow_.NextSend(2)->step, 2u);
}

TEST_F(FlowTest, ASlotIsFreeAfterItsLastReaderAndTheCopyToMemory) {
  Start({1,
         0,
         {Transfer::ReceiveCopy(Output(0), 1), Transfer::Send(Output(0), 2),
          Transfer::Send(Output(0), 3)}},
        1, 1);
  IssueAll();
  EXPECT_EQ(in_use(), 1u);
  Receive(1);
  const Instance receive = flow_.to_copy_out().pop();
  EXPECT_EQ(SourceSlot(*flow_.NextSend(2)), flow_.slot(receive));
  Send(2);
  flow_.CopiedOut(receive);
  EXPECT_EQ(in_use(), 1u);
  EXPECT_FALSE(flow_.finished());
  Send(3);
  EXPECT_EQ(in_use(), 0u);
  EXPECT_TRUE(flow_.finished());
}

TEST_F(FlowTest, AValueThatNobodyReadsGivesItsSlotBackAtOnce) {
  Start({1, 1, {Transfer::ReceiveCopy(Scratch(0), 1)}}, 1, 1);
  IssueAll();
  Receive(1);
  EXPECT_EQ(in_use(), 0u);
  EXPECT_TRUE(flow_.finished());
}

TEST_F(FlowTest, AReductionWaitsForItsMessageAndForItsSource) {
  const Schedule schedule = {
      1,
      1,
      {Transfer::ReceiveCopy(Scratch(0), 1),
       Transfer::ReceiveReduce(Scratch(0), Output(0), 2)}};
  for (const auto& [first, second] : {std::pair(1, 2), std::pair(2, 1)}) {
    Start(schedule, 1, 1);
    IssueAll();
    Receive(first);
    EXPECT_TRUE(flow_.to_reduce().empty());
    Receive(second);
    ASSERT_EQ(flow_.to_reduce().size(), 1u);
    EXPECT_EQ(in_use(), 2u);
    flow_.Reduced(flow_.to_reduce().pop());
    EXPECT_EQ(in_use(), 0u);  // the result is in memory
    EXPECT_TRUE(flow_.finished());
  }
}

TEST_F(FlowTest, AResultThatIsSentOnFromUnregisteredMemoryStaysInItsSlotToo) {
  Start({1,
         0,
         {Transfer::ReceiveReduce(Input(0), Output(0), 1),
          Transfer::Send(Output(0), 2)}},
        1, 1);
  IssueAll();
  Receive(1);
  flow_.Reduced(flow_.to_reduce().pop());
  ASSERT_NE(flow_.NextSend(2), nullptr);
  EXPECT_NE(SourceSlot(*flow_.NextSend(2)), SlotList::kNone);
  EXPECT_EQ(flow_.to_copy_out().size(), 1u);
}

TEST_F(FlowTest, AReductionIntoMemoryWaitsForTheSendFromIt) {
  Start({1,
         0,
         {Transfer::Send(Input(0), 1),
          Transfer::ReceiveReduce(Input(0), Output(0), 1)}},
        1, 1, {.in_place = true, .each_peer = kReachBoth});
  IssueAll();
  Receive(1);
  EXPECT_TRUE(flow_.to_reduce().empty());
  Send(1);
  EXPECT_EQ(flow_.to_reduce().size(), 1u);
}

// --- Several reductions in one pass

const Schedule kThreeInARow = {
    1,
    1,
    {Transfer::ReceiveReduce(Input(0), Scratch(0), 1),
     Transfer::ReceiveReduce(Scratch(0), Scratch(0), 2),
     Transfer::ReceiveReduce(Scratch(0), Output(0), 3, true)}};

TEST_F(FlowTest, ReductionsThatFollowEachOtherAreJoinedWhereTheirMessagesAre) {
  Start(kThreeInARow, 1, 1);
  IssueAll();
  Receive(2);
  Receive(1);
  const Instance first = flow_.to_reduce().pop();
  const auto second = flow_.JoinNext(first);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->step, 1u);
  EXPECT_FALSE(flow_.JoinNext(*second).has_value());  // nothing from rank 3
  EXPECT_EQ(flow_.Joined(first), second);
  EXPECT_FALSE(flow_.Joined(*second).has_value());
  Receive(3);
  EXPECT_TRUE(flow_.to_reduce().empty());
  flow_.Reduced(first);
  EXPECT_TRUE(flow_.to_reduce().empty());  // the second is under way
  flow_.Reduced(*second);
  ASSERT_EQ(flow_.to_reduce().size(), 1u);
  flow_.Reduced(flow_.to_reduce().pop());
  EXPECT_TRUE(flow_.finished());
  EXPECT_EQ(in_use(), 0u);
}

// The device begins the sum with its memory, the host goes on in the slots.
TEST_F(FlowTest, ReductionsByTheDeviceAndByTheHostAreNotJoined) {
  Start(kThreeInARow, 1, 1, {.input_owner = Owner::kDevice});
  IssueAll();
  Receive(1);
  Receive(2);
  Receive(3);
  const Instance by_device = flow_.to_reduce().pop();
  EXPECT_FALSE(flow_.JoinNext(by_device).has_value());
  flow_.Reduced(by_device);
  const Instance by_host = flow_.to_reduce().pop();
  EXPECT_TRUE(flow_.JoinNext(by_host).has_value());
}

TEST_F(FlowTest, AValueThatIsAlsoSentIsNotPassedOver) {
  Start({1,
         1,
         {Transfer::ReceiveReduce(Input(0), Scratch(0), 1),
          Transfer::Send(Scratch(0), 3),
          Transfer::ReceiveReduce(Scratch(0), Output(0), 2)}},
        1, 1);
  IssueAll();
  Receive(2);
  Receive(1);
  EXPECT_FALSE(flow_.JoinNext(flow_.to_reduce().pop()).has_value());
}

// --- Messages that lie at the peer

constexpr PlanOptions::Peer kReads = {{.reads_peer = true}};

TEST_F(FlowTest, WhatLiesAtThePeerNeedsNoSlotToBeReducedOrCopiedIntoMemory) {
  slots_ = SlotList(0);
  Start({2,
         0,
         {Transfer::ReceiveReduce(Input(0), Output(0), 1),
          Transfer::ReceiveCopy(Output(1), 2)}},
        1, 1, {.each_peer = kReads});
  EXPECT_EQ(IssueAll(), Flow::Issued::kNothing);
  Receive(1);
  flow_.Reduced(flow_.to_reduce().pop());
  Receive(2);
  flow_.CopiedOut(flow_.to_copy_out().pop());
  EXPECT_TRUE(flow_.finished());
}

TEST_F(FlowTest, WhatLiesAtThePeerIsCopiedIntoASlotThatIsScratch) {
  Start(kForward, 1, 1, {.each_peer = kReads});
  IssueAll();
  EXPECT_EQ(in_use(), 1u);
  Receive(1);
  EXPECT_EQ(flow_.NextSend(2), nullptr);
  flow_.CopiedIn(flow_.to_copy_in().pop());
  Send(2);
  EXPECT_TRUE(flow_.finished());
}

// Each would hold the other's memory until its own was read.
TEST_F(FlowTest, ASlotIsBetweenTwoRanksThatExchangeOnePlace) {
  Start({1,
         0,
         {Transfer::Send(Input(0), 1),
          Transfer::ReceiveReduce(Input(0), Output(0), 1)}},
        1, 1,
        {.in_place = true,
         .each_peer = {{.reads_peer = true}, kReached, kReached}});
  IssueAll();
  Receive(1);
  ASSERT_EQ(flow_.to_reduce().size(), 1u);  // although nothing was sent yet
  flow_.Reduced(flow_.to_reduce().pop());
  EXPECT_TRUE(flow_.to_copy_out().empty());
  Send(1);
  EXPECT_EQ(flow_.to_copy_out().size(), 1u);
}

constexpr PlanOptions::Peer kEager[kSize] = {
    {}, {{.eager_bytes = 64}}, {{.eager_bytes = 63}}, {}};

TEST_F(FlowTest, OnlyTheFirstMessageToAPeerIsEager) {
  Start({1,
         0,
         {Transfer::Send(Input(0), 1), Transfer::Send(Input(0), 1),
          Transfer::Send(Input(0), 2)}},
        1, 1, {.message_bytes = 64, .peers = kEager});
  IssueAll();
  EXPECT_NE(flow_.NextSend(1), nullptr);  // without a copy
  EXPECT_EQ(in_use(), 2u);
  EXPECT_EQ(flow_.to_copy_in().size(), 2u);
}

TEST_F(FlowTest, MemoryIsOverwrittenAfterTheSendFromItHasEnded) {
  Start({1,
         0,
         {Transfer::Send(Input(0), 1), Transfer::ReceiveCopy(Output(0), 1)}},
        1, 1, {.in_place = true, .each_peer = kReachInput});
  IssueAll();
  Receive(1);
  EXPECT_TRUE(flow_.to_copy_out().empty());
  Send(1);
  EXPECT_EQ(flow_.to_copy_out().size(), 1u);
}

TEST_F(FlowTest, AMessageThatLandsInMemoryIsNotPostedBeforeTheSendFromIt) {
  Start({1,
         0,
         {Transfer::Send(Input(0), 1), Transfer::ReceiveCopy(Output(0), 1),
          Transfer::Send(Output(0), 2)}},
        1, 1,
        {.in_place = true, .direct_over_sent = true, .each_peer = kReachBoth});
  slots_ = SlotList(0);
  EXPECT_EQ(IssueAll(), Flow::Issued::kNothing);
  EXPECT_TRUE(flow_.HasReceives(1));
  EXPECT_EQ(flow_.NextReceive(1), nullptr);
  Send(1);
  ASSERT_NE(flow_.NextReceive(1), nullptr);
  EXPECT_EQ(flow_.NextSend(2), nullptr);
  Receive(1);
  EXPECT_FALSE(flow_.HasReceives(1));
  // Sent on from where it landed.
  ASSERT_NE(flow_.NextSend(2), nullptr);
  EXPECT_EQ(SourceSlot(*flow_.NextSend(2)), SlotList::kNone);
  Send(2);
  EXPECT_TRUE(flow_.finished());
}

TEST_F(FlowTest, LaterReceivesWaitForOneWhoseMemoryIsNotFree) {
  Start({2,
         0,
         {Transfer::Send(Input(0), 2), Transfer::ReceiveCopy(Output(0), 1),
          Transfer::ReceiveCopy(Output(1), 1)}},
        1, 1,
        {.in_place = true, .direct_over_sent = true, .each_peer = kReachBoth});
  IssueAll();
  EXPECT_TRUE(PostAll(1).empty());
  Send(2);
  EXPECT_EQ(PostAll(1).size(), 2u);
}

TEST_F(FlowTest, ASendThatRegistersItsSourceNeedsNoSlot) {
  slots_ = SlotList(0);
  Start({1, 0, {Transfer::Send(Input(0), 1)}}, 1, 1,
        {.each_peer = {.input = {.sends = Reach::Sends::kAfterRegistering}}});
  EXPECT_EQ(IssueAll(), Flow::Issued::kNothing);
  EXPECT_EQ(flow_.NextSend(1), nullptr);
  flow_.Registered(flow_.to_register().pop());
  Send(1);
  EXPECT_TRUE(flow_.finished());
}

TEST_F(FlowTest, ALocalCopyWaitsForWhatItReadsAndWhatItOverwrites) {
  Start({1,
         1,
         {Transfer::ReceiveCopy(Scratch(0), 1), Transfer::Send(Input(0), 1),
          Transfer::LocalCopy(Scratch(0), Output(0))}},
        1, 1, {.in_place = true, .each_peer = kReachInput});
  IssueAll();
  Receive(1);
  EXPECT_TRUE(flow_.to_copy_out().empty());
  Send(1);
  ASSERT_EQ(flow_.to_copy_out().size(), 1u);
  const Instance copy = flow_.to_copy_out().pop();
  EXPECT_NE(SourceSlot(copy), SlotList::kNone);
  flow_.CopiedOut(copy);
  EXPECT_TRUE(flow_.finished());
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(FlowTest, ACopyFromOnesMemoryToAnothersGoesByASlot) {
  Start({1,
         0,
         {Transfer::LocalCopy(Input(0), Output(0)),
          Transfer::Send(Output(0), 1)}},
        1, 1, {.output_owner = Owner::kDevice, .each_peer = kReachBoth});
  IssueAll();
  EXPECT_TRUE(flow_.to_copy_out().empty());
  ASSERT_EQ(flow_.to_copy_in().size(), 1u);
  EXPECT_EQ(in_use(), 1u);
  flow_.CopiedIn(flow_.to_copy_in().pop());
  ASSERT_EQ(flow_.to_copy_out().size(), 1u);
  EXPECT_EQ(flow_.NextSend(1), nullptr);  // it is not there yet
  flow_.CopiedOut(flow_.to_copy_out().pop());
  EXPECT_EQ(in_use(), 0u);
  EXPECT_NE(flow_.NextSend(1), nullptr);
}

// Of which a part lies in a slot already.
TEST_F(FlowTest, ACopyToScratchLetsGoOfTheSlotsThatItReads) {
  Start({2,
         2,
         {Transfer::ReceiveCopy(Output(0), 1),
          Transfer::LocalCopy(Output(0, 2), Scratch(0, 2))}},
        1, 1);
  IssueAll();
  Receive(1);
  flow_.CopiedIn(flow_.to_copy_in().pop());
  flow_.CopiedOut(flow_.to_copy_out().pop());
  EXPECT_TRUE(flow_.finished());
  EXPECT_EQ(in_use(), 0u);
}

// --- Ranges ------------------------------------------------------------------

TEST_F(FlowTest, ARangeThatLiesInTwoSlotsWaitsForBothAndFreesBoth) {
  Start({2,
         2,
         {Transfer::ReceiveCopy(Scratch(0), 1),
          Transfer::ReceiveCopy(Scratch(1), 2),
          Transfer::Send(Scratch(0, 2), 3)}},
        1, 1, {.each_peer = kTwoPieces});
  IssueAll();
  Receive(1);
  EXPECT_EQ(flow_.NextSend(3), nullptr);
  Receive(2);
  EXPECT_EQ(in_use(), 2u);
  Send(3);
  EXPECT_EQ(in_use(), 0u);
  EXPECT_TRUE(flow_.finished());
}

TEST_F(FlowTest, AWriteOfARangeWaitsForTheReadersOfAllItsChunks) {
  Start({2,
         0,
         {Transfer::Send(Input(0), 1), Transfer::Send(Input(1), 2),
          Transfer::ReceiveCopy(Output(0, 2), 3)}},
        1, 1,
        {.in_place = true, .direct_over_sent = true, .each_peer = kReachBoth});
  IssueAll();
  Send(2);
  EXPECT_EQ(flow_.NextReceive(3), nullptr);
  Send(1);
  EXPECT_NE(flow_.NextReceive(3), nullptr);
}

TEST_F(FlowTest, AReductionOfAPartOfAValueIsNoContinuationOfIt) {
  Start({2,
         2,
         {Transfer::ReceiveReduce(Input(0, 2), Scratch(0, 2), 1),
          Transfer::ReceiveReduce(Scratch(0), Output(0), 2)}},
        1, 1);
  IssueAll();
  Receive(1);
  Receive(2);
  const Instance first = flow_.to_reduce().pop();
  EXPECT_FALSE(flow_.JoinNext(first).has_value());
  flow_.Reduced(first);
  EXPECT_EQ(flow_.to_reduce().size(), 1u);
}

TEST_F(FlowTest, MessagesOfAPeerBelongToReceivesInScheduleOrder) {
  Start({1,
         2,
         {Transfer::ReceiveCopy(Scratch(0), 1),
          Transfer::ReceiveCopy(Scratch(1), 1)}},
        2, 2);
  IssueAll();
  const std::vector<std::pair<std::uint64_t, std::uint32_t>> expected = {
      {0, 0}, {1, 0}, {0, 1}, {1, 1}};
  EXPECT_EQ(PostAll(1), expected);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(flow_.HasReceives(1));
    Receive(1);
  }
  EXPECT_FALSE(flow_.HasReceives(1));
}

TEST_F(FlowTest, AnEmptyPlanIsFinishedAtOnce) {
  Start({1, 0, {}}, 5, 2);
  EXPECT_TRUE(flow_.finished());
  EXPECT_EQ(flow_.Issue(), Flow::Issued::kNothing);
}

TEST_F(FlowTest, AStartForgetsARunThatWasNotFinished) {
  Start(kTwoReceives, 8, 2);
  IssueAll();
  slots_ = SlotList(16);
  Start(kForward, 1, 1);
  EXPECT_EQ(flow_.NextReceive(1), nullptr);
  EXPECT_FALSE(flow_.HasReceives(2));
  EXPECT_EQ(IssueAll(), Flow::Issued::kNothing);
  Receive(1);
  Send(2);
  EXPECT_TRUE(flow_.finished());
}

}  // namespace
}  // namespace ringpipe
