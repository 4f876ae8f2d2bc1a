#include "pipeline/checker.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "pipeline/plan.h"
#include "pipeline/schedule.h"

namespace ringpipe {
namespace {

using Order = CheckOptions::Order;

// Allreduce of two ranks: each sends its input and reduces the other's.
std::vector<Schedule> Exchange() {
  std::vector<Schedule> schedules;
  for (const int peer : {1, 0}) {
    schedules.push_back(
        {1,
         0,
         {Transfer::Send(Input(0), peer),
          Transfer::ReceiveReduce(Input(0), Output(0), peer, true)}});
  }
  return schedules;
}

CheckOptions Options(Collective collective, int slots = 4) {
  CheckOptions options;
  options.collective = collective;
  options.slots = slots;
  options.subchunks = 1;
  return options;
}

std::string ErrorOf(const std::vector<Schedule>& schedules,
                    const CheckOptions& options,
                    StatusCode code = StatusCode::kInternal) {
  const Status status = Check(schedules, options);
  EXPECT_EQ(status.code(), code) << status.ToString();
  return status.message();
}

// The connections reach the output, or input and output.
constexpr PlanOptions::Peer kReachOutput = {.output = kReached};
constexpr PlanOptions::Peer kReachBoth = {.input = kReached,
                                          .output = kReached};

TEST(CheckerTest, ProvesARightSchedule) {
  const Status status = Check(Exchange(), Options(Collective::kAllReduce, 2));
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(CheckerTest, ADeadlockSaysWhichRankWaitsForWhat) {
  EXPECT_EQ(
      ErrorOf(Exchange(), Options(Collective::kAllReduce, 1),
              StatusCode::kResourceExhausted),
      "deadlock with 1 slots, 1 sub-chunks a round"
      "; rank 0 has no slot for \"receive rank 1 + input[0] -> output[0], "
      "finish\" of sub-chunk 0, has \"send input[0] -> rank 1\" of sub-chunk 0 "
      "ready and no receive posted there"
      "; rank 1 has no slot for \"receive rank 0 + input[0] -> output[0], "
      "finish\" of sub-chunk 0, has \"send input[0] -> rank 0\" of sub-chunk 0 "
      "ready and no receive posted there");
}

TEST(CheckerTest, ASendWithoutReceiveIsFound) {
  std::vector<Schedule> schedules = Exchange();
  schedules[0].transfers.push_back(Transfer::Send(Output(0), 1));
  EXPECT_EQ(ErrorOf(schedules, Options(Collective::kAllReduce)),
            "deadlock with 4 slots, 1 sub-chunks a round; rank 0 has \"send "
            "output[0] -> rank 1\" of sub-chunk 0 ready and no receive posted "
            "there");
}

TEST(CheckerTest, AReceiveWithoutSendIsFound) {
  std::vector<Schedule> schedules = Exchange();
  schedules[0].transfers.erase(schedules[0].transfers.begin());
  EXPECT_EQ(ErrorOf(schedules, Options(Collective::kAllReduce)),
            "deadlock with 4 slots, 1 sub-chunks a round; rank 1 waits for the "
            "message of \"receive rank 0 + input[0] -> output[0], finish\" of "
            "sub-chunk 0");
}

TEST(CheckerTest, AWrongContributionNamesRankPlaceExpectedAndFound) {
  std::vector<Schedule> schedules = Exchange();
  schedules[1].transfers[1] = Transfer::ReceiveCopy(Output(0), 0);
  EXPECT_EQ(ErrorOf(schedules, Options(Collective::kAllReduce)),
            "rank 1, output[0], sub-chunk 0: expected input[0] of ranks 0, 1; "
            "finished; found input[0] of ranks 0; not finished");
}

TEST(CheckerTest, AContributionThatCountsTwiceIsFound) {
  std::vector<Schedule> schedules = Exchange();
  schedules[0].transfers.push_back(Transfer::Send(Input(0), 1));
  schedules[1].transfers[1].finish = false;
  schedules[1].transfers.push_back(
      Transfer::ReceiveReduce(Output(0), Output(0), 0, true));
  EXPECT_EQ(ErrorOf(schedules, Options(Collective::kAllReduce)),
            "rank 1, output[0], sub-chunk 0: expected input[0] of ranks 0, 1; "
            "finished; found input[0] of ranks 0 (2 times), 1; finished");
}

TEST(CheckerTest, AMissingFinishIsFoundAndOneRankAloneNeedsNone) {
  std::vector<Schedule> schedules = Exchange();
  schedules[0].transfers[1].finish = false;
  EXPECT_NE(ErrorOf(schedules, Options(Collective::kAllReduce))
                .find("ranks 0, 1; not finished"),
            std::string::npos);
  const std::vector<Schedule> alone = {
      {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}}};
  EXPECT_TRUE(Check(alone, Options(Collective::kAllReduce)).ok());
}

TEST(CheckerTest, OutputThatWasNeverWrittenIsFound) {
  std::vector<Schedule> schedules = Exchange();
  for (Schedule& schedule : schedules) {
    schedule.transfers[1].source = Output(0);
  }
  EXPECT_NE(ErrorOf(schedules, Options(Collective::kAllReduce))
                .find("memory never written"),
            std::string::npos);
}

TEST(CheckerTest, MemoryThatTheUserDoesNotGiveIsFound) {
  // An all-gather's rank has its own chunk of input only.
  const std::vector<Schedule> schedules = {
      {2, 0, {Transfer::LocalCopy(Input(1), Output(1))}}, {2, 0, {}}};
  EXPECT_EQ(ErrorOf(schedules, Options(Collective::kAllGather)),
            "rank 0: \"copy input[1] -> output[1]\" uses memory that the user "
            "does not give");
  // A reduce-scatter's has its own chunk of output only.
  EXPECT_NE(
      ErrorOf(schedules, Options(Collective::kReduceScatter)).find("memory"),
      std::string::npos);
}

TEST(CheckerTest, RanksThatDivideTheMessageDifferentlyAreFound) {
  std::vector<Schedule> schedules = Exchange();
  schedules[1].chunks = 2;
  EXPECT_EQ(ErrorOf(schedules, Options(Collective::kAllReduce)),
            "rank 1 divides the message into 2 chunks, rank 0 into 1");
}

TEST(CheckerTest, ABarrierNeedsSomethingOfEveryRankAndNoMore) {
  std::vector<Schedule> schedules = Exchange();
  schedules[0].transfers[1].finish = false;
  EXPECT_TRUE(Check(schedules, Options(Collective::kBarrier)).ok());
  schedules[1].transfers[1] = Transfer::ReceiveCopy(Output(0), 0);
  EXPECT_NE(ErrorOf(schedules, Options(Collective::kBarrier)).find("rank 1"),
            std::string::npos);
}

// --- Counts

MessageCounts CountsOf(const std::vector<Schedule>& schedules,
                       const CheckOptions& options) {
  RunResult result;
  const Status status = Check(schedules, options, &result);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return CountMessages(result.messages, static_cast<int>(schedules.size()));
}

// From rank 0 to ranks 1 and 3, and from rank 1 to rank 2.
std::vector<Schedule> SmallTree() {
  std::vector<Schedule> schedules(4, {1, 0, {}});
  schedules[0].transfers = {Transfer::LocalCopy(Input(0), Output(0)),
                            Transfer::Send(Input(0), 1),
                            Transfer::Send(Input(0), 3)};
  schedules[1].transfers = {Transfer::ReceiveCopy(Output(0), 0),
                            Transfer::Send(Output(0), 2)};
  schedules[2].transfers = {Transfer::ReceiveCopy(Output(0), 1)};
  schedules[3].transfers = {Transfer::ReceiveCopy(Output(0), 0)};
  return schedules;
}

TEST(CheckerTest, MessagesThatLeaveTogetherCountOnceInAChain) {
  CheckOptions options = Options(Collective::kBroadcast);
  const MessageCounts counts = CountsOf(SmallTree(), options);
  EXPECT_EQ(counts.longest_chain, 2);
  EXPECT_EQ(counts.sent_by_busiest, 2);
  // Sub-chunks have messages of their own, and chains of their own.
  options.subchunks = 5;
  const MessageCounts more = CountsOf(SmallTree(), options);
  EXPECT_EQ(more.longest_chain, 2);
  EXPECT_EQ(more.sent_by_busiest, 10);
  // Where they wait for slots too.
  options.slots = 1;
  EXPECT_EQ(CountsOf(SmallTree(), options).longest_chain, 2);
}

TEST(CheckerTest, AMessageIsKnownByItsEndsItsPlaceAndItsChain) {
  RunResult result;
  ASSERT_TRUE(
      Check(SmallTree(), Options(Collective::kBroadcast), &result).ok());
  ASSERT_EQ(result.messages.size(), 3U);
  for (const SentMessage& message : result.messages) {
    EXPECT_FALSE(message.reduced);
    EXPECT_EQ(message.chain, message.to == 2 ? 2 : 1);
    EXPECT_EQ(message.from, message.to == 2 ? 1 : 0);
    EXPECT_EQ(message.source, message.to == 2 ? Output(0) : Input(0));
  }
  ASSERT_TRUE(Check(Exchange(), Options(Collective::kAllReduce), &result).ok());
  ASSERT_EQ(result.messages.size(), 2U);
  EXPECT_TRUE(result.messages[0].reduced);
}

// An all-gather in which rank 1 passes on what it gets before it sends its own.
TEST(CheckerTest, AMessageWaitsForTheOneBeforeItOnItsConnection) {
  std::vector<Schedule> schedules(3, {3, 0, {}});
  schedules[0].transfers = {
      Transfer::LocalCopy(Input(0), Output(0)), Transfer::Send(Input(0), 1),
      Transfer::ReceiveCopy(Output(1), 1), Transfer::ReceiveCopy(Output(2), 2)};
  schedules[1].transfers = {Transfer::LocalCopy(Input(1), Output(1)),
                            Transfer::ReceiveCopy(Output(0), 0),
                            Transfer::Send(Output(0), 2),
                            Transfer::Send(Input(1), 2),
                            Transfer::Send(Input(1), 0),
                            Transfer::ReceiveCopy(Output(2), 2)};
  schedules[2].transfers = {
      Transfer::LocalCopy(Input(2), Output(2)),
      Transfer::ReceiveCopy(Output(0), 1), Transfer::ReceiveCopy(Output(1), 1),
      Transfer::Send(Input(2), 0), Transfer::Send(Input(2), 1)};
  RunResult result;
  const Status status =
      Check(schedules, Options(Collective::kAllGather, 8), &result);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_EQ(result.messages.size(), 6U);
  for (const SentMessage& message : result.messages) {
    EXPECT_EQ(message.chain, message.from == 1 && message.to == 2 ? 2 : 1)
        << message.from << " to " << message.to;
  }
}

TEST(CheckerTest, BadOptionsAreAnError) {
  for (const auto& [slots, depth] : {std::pair(-1, 1), std::pair(1, 0)}) {
    CheckOptions options = Options(Collective::kAllReduce, slots);
    options.depth = depth;
    ErrorOf(Exchange(), options, StatusCode::kInvalidArgument);
  }
  ErrorOf({}, Options(Collective::kAllReduce), StatusCode::kInvalidArgument);
}

TEST(CheckerTest, SmallestSlotsIsTheSmallestThatSucceeds) {
  CheckOptions options = Options(Collective::kAllReduce);
  options.depth = 3;
  options.subchunks = 0;
  const Result<int> slots = SmallestSlots(Exchange(), options);
  ASSERT_TRUE(slots.ok());
  EXPECT_EQ(slots.value(), 4);
}

TEST(CheckerTest, SmallestSlotsOfAWrongScheduleIsItsError) {
  std::vector<Schedule> schedules = Exchange();
  schedules[0].transfers.pop_back();
  EXPECT_EQ(
      SmallestSlots(schedules, Options(Collective::kAllReduce)).status().code(),
      StatusCode::kInternal);
}

// Plans without the wait of `step` for memory, as a faulty Compile would give.
Status CheckWithoutWait(const std::vector<Schedule>& schedules, int step,
                        const CheckOptions& options) {
  std::vector<Plan> plans;
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    Plan plan = Compile(schedules[rank], static_cast<int>(rank),
                        static_cast<int>(schedules.size()), options.plan)
                    .value();
    const int waits =
        plan.steps[step].read_waits + plan.steps[step].write_waits;
    EXPECT_EQ(waits, 1);
    plan.steps[step].read_waits = plan.steps[step].write_waits = 0;
    for (Step& before : plan.steps) {
      std::erase_if(before.on_done, [&](const Step::Dependent& dependent) {
        return dependent.step == step;
      });
    }
    plans.push_back(std::move(plan));
  }
  return CheckPlans(plans, options);
}

// Whether some order finds the missing wait.
bool Found(const std::vector<Schedule>& schedules, int step,
           CheckOptions options) {
  for (const Order order : {Order::kEager, Order::kLazy, Order::kRandom}) {
    options.order = order;
    for (options.seed = 0; options.seed < 16; ++options.seed) {
      if (!CheckWithoutWait(schedules, step, options).ok()) {
        return true;
      }
    }
  }
  return false;
}

TEST(CheckerTest, MemoryThatIsOverwrittenBeforeItIsSentIsFound) {
  // In place, each rank's own chunk goes to the other and the other's comes
  // into its place.
  std::vector<Schedule> schedules;
  for (const int rank : {0, 1}) {
    const int peer = 1 - rank;
    schedules.push_back({2,
                         0,
                         {Transfer::Send(Input(peer), peer),
                          Transfer::ReceiveCopy(Output(peer), peer),
                          Transfer::LocalCopy(Input(rank), Output(rank))}});
    schedules.back().equal_chunks = true;
  }
  CheckOptions options = Options(Collective::kAllToAll);
  options.plan = {.in_place = true, .each_peer = kReachBoth};
  EXPECT_TRUE(Check(schedules, options).ok());
  EXPECT_TRUE(Found(schedules, 1, options));
  // Without the slot that the messages are received into, neither rank can
  // receive before it has sent.
  options.plan.direct_over_sent = true;
  EXPECT_EQ(Check(schedules, options).code(), StatusCode::kInternal);
}

TEST(CheckerTest, MemoryThatIsReadBeforeItIsWrittenIsFound) {
  const std::vector<Schedule> schedules = {
      {1,
       0,
       {Transfer::LocalCopy(Input(0), Output(0)),
        Transfer::Send(Output(0), 1)}},
      {1, 0, {Transfer::ReceiveCopy(Output(0), 0)}}};
  CheckOptions options = Options(Collective::kBroadcast);
  EXPECT_TRUE(Check(schedules, options).ok());
  std::vector<Plan> plans;
  for (const int rank : {0, 1}) {
    plans.push_back(Compile(schedules[rank], rank, 2, options.plan).value());
  }
  plans[0].steps[1].read_waits = 0;
  plans[0].steps[0].on_done.clear();
  bool found = false;
  for (const Order order : {Order::kEager, Order::kLazy, Order::kRandom}) {
    options.order = order;
    found = found || !CheckPlans(plans, options).ok();
  }
  EXPECT_TRUE(found);
}

// --- Rules of connections

// All ranks of `schedules` with the same options.
std::vector<Plan> Plans(const std::vector<Schedule>& schedules,
                        const PlanOptions& options) {
  std::vector<Plan> plans;
  const int size = static_cast<int>(schedules.size());
  for (int rank = 0; rank < size; ++rank) {
    plans.push_back(Compile(schedules[rank], rank, size, options).value());
  }
  return plans;
}

// Whether some order finds what is wrong.
bool Finds(const std::vector<Plan>& plans, CheckOptions options) {
  for (const Order order : {Order::kEager, Order::kLazy, Order::kRandom}) {
    options.order = order;
    for (options.seed = 0; options.seed < 16; ++options.seed) {
      if (!CheckPlans(plans, options).ok()) {
        return true;
      }
    }
  }
  return false;
}

// Only with it.
void ExpectFound(const std::vector<Plan>& plans, CheckOptions options,
                 CheckOptions::Fault fault) {
  EXPECT_FALSE(Finds(plans, options));
  options.fault = fault;
  EXPECT_TRUE(Finds(plans, options));
}

constexpr PlanOptions::Peer kEager = {{.eager_bytes = 64}};

constexpr PlanOptions kInPlaceAtThePeer = {
    .in_place = true, .each_peer = {{.reads_peer = true}, kReached, kReached}};

TEST(CheckerTest, ASourceThatIsFreedBeforeThePeerHasReadItIsFound) {
  ExpectFound(Plans(Exchange(), kInPlaceAtThePeer),
              Options(Collective::kAllReduce),
              CheckOptions::Fault::kFreesBeforeRead);
}

TEST(CheckerTest, TwoRanksThatExchangeOnePlaceWithoutASlotBetweenAreFound) {
  PlanOptions options = kInPlaceAtThePeer;
  options.direct_over_sent = true;
  EXPECT_EQ(
      CheckPlans(Plans(Exchange(), options), Options(Collective::kAllReduce))
          .code(),
      StatusCode::kInternal);
}

TEST(CheckerTest, AReductionIntoMemoryThatIsStillSentIsFound) {
  std::vector<Plan> plans =
      Plans(Exchange(), {.in_place = true, .each_peer = kReachBoth});
  EXPECT_TRUE(plans[0].steps[1].in_memory);
  EXPECT_FALSE(Finds(plans, Options(Collective::kAllReduce)));
  plans[0].steps[1].write_waits = 0;
  plans[0].steps[0].on_done.clear();
  EXPECT_TRUE(Finds(plans, Options(Collective::kAllReduce)));
}

// --- Whose memory it is

TEST(CheckerTest, WhoTouchesMemoryThatIsAnothersIsFound) {
  const CheckOptions options = Options(Collective::kAllReduce);
  const auto expect_found = [&](const PlanOptions& memory, const auto& spoil) {
    std::vector<Plan> plans = Plans(Exchange(), memory);
    EXPECT_FALSE(Finds(plans, options));
    spoil(plans[1].steps);
    EXPECT_NE(
        CheckPlans(plans, options).message().find("touch what is the other's"),
        std::string::npos);
  };
  const PlanOptions device = {.input_owner = Owner::kDevice,
                              .output_owner = Owner::kDevice};
  expect_found(device, [](auto& steps) { steps[0].eager = true; });
  expect_found(device, [](auto& steps) { steps[1].reducer = Owner::kHost; });
  expect_found(device,
               [](auto& steps) { steps[1].arrival = Step::Arrival::kAtPeer; });
  expect_found({}, [](auto& steps) { steps[1].reducer = Owner::kDevice; });
  PlanOptions at_peer = device;
  at_peer.each_peer = {{.reads_peer = true}};
  expect_found(at_peer, [](auto& steps) { steps[1].device_reads = false; });
  expect_found(at_peer, [](auto& steps) { steps[1].takes_slot = false; });
  expect_found({}, [](auto& steps) { steps[1].in_both = true; });
  expect_found(at_peer,
               [](auto& steps) { steps[1].arrival = Step::Arrival::kInSlot; });
  const auto in_memory = [](auto& steps) { steps[1].in_memory = true; };
  expect_found({.output_owner = Owner::kDevice}, in_memory);
  expect_found({.input_owner = Owner::kDevice}, in_memory);
  expect_found({.input_owner = Owner::kBoth, .output_owner = Owner::kBoth},
               in_memory);
}

TEST(CheckerTest, ACopyBetweenUnlikeMemoryWithoutASlotIsFound) {
  const std::vector<Schedule> schedules = {
      {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}}};
  for (const Owner input : {Owner::kHost, Owner::kBoth}) {
    for (const Owner output : {Owner::kDevice, Owner::kBoth}) {
      std::vector<Plan> plans =
          Plans(schedules, {.input_owner = input, .output_owner = output});
      const CheckOptions options = Options(Collective::kAllReduce, 1);
      EXPECT_FALSE(Finds(plans, options));
      plans[0].steps[0].in_memory = true;
      plans[0].steps[0].takes_slot = false;
      EXPECT_TRUE(Finds(plans, options));
    }
  }
}

TEST(CheckerTest, OperandsInUnlikeMemoryAreReduced) {
  // Each takes the other's into its output, and reduces it there.
  std::vector<Schedule> schedules = Exchange();
  for (const int rank : {0, 1}) {
    schedules[rank].transfers = {
        Transfer::Send(Input(0), 1 - rank),
        Transfer::ReceiveCopy(Output(0), 1 - rank),
        Transfer::LocalCopy(Output(0), Output(0)),
        Transfer::LocalReduce(Input(0), Output(0), Output(0), true)};
  }
  CheckOptions options = Options(Collective::kAllReduce, 6);
  options.same_bits = false;
  for (const Owner input : {Owner::kHost, Owner::kDevice, Owner::kBoth}) {
    for (const Owner output : {Owner::kHost, Owner::kDevice, Owner::kBoth}) {
      EXPECT_FALSE(Finds(Plans(schedules, {.input_owner = input,
                                           .output_owner = output,
                                           .each_peer = kReachOutput}),
                         options));
    }
  }
}

// Rank 0 hands on what it gets: its first message to rank 1 waits for one that
// rank 1 sends when it has it.
TEST(CheckerTest, AFirstMessageThatIsHeldBackForGoodIsFound) {
  const std::vector<Schedule> schedules = {
      {2,
       0,
       {Transfer::ReceiveCopy(Output(0), 1),
        Transfer::ReceiveCopy(Output(1), 1), Transfer::Send(Output(1), 1)}},
      {2,
       2,
       {Transfer::LocalCopy(Input(0), Output(0)),
        Transfer::LocalCopy(Input(1), Output(1)), Transfer::Send(Input(0), 0),
        Transfer::Send(Input(1), 0), Transfer::ReceiveCopy(Scratch(1), 0)}}};
  CheckOptions options = Options(Collective::kBroadcast);
  options.root = 1;
  ExpectFound(Plans(schedules, {.message_bytes = 64, .each_peer = kEager}),
              options, CheckOptions::Fault::kNeverAnnounces);
}

TEST(CheckerTest, DataWithoutAReceiveOrBeforeTheFirstMessageAreFound) {
  for (const auto fault : {CheckOptions::Fault::kSendsWithoutReceive,
                           CheckOptions::Fault::kSendsBeforeAgreed}) {
    ExpectFound(Plans(Exchange(), {}), Options(Collective::kAllReduce), fault);
  }
}

TEST(CheckerTest, EndsThatDoNotAgreeOnWhatIsEagerAreFound) {
  std::vector<Plan> plans = Plans(Exchange(), {});
  plans[1] = Plans(Exchange(), {.message_bytes = 64, .each_peer = kEager})[1];
  EXPECT_TRUE(Finds(plans, Options(Collective::kAllReduce)));
}

TEST(CheckerTest, AnEagerPlanOfSeveralSubchunksIsFound) {
  const std::vector<Plan> plans =
      Plans(Exchange(), {.message_bytes = 64, .each_peer = kEager});
  CheckOptions options = Options(Collective::kAllReduce);
  EXPECT_FALSE(Finds(plans, options));
  options.subchunks = 2;
  EXPECT_TRUE(Finds(plans, options));
}

TEST(CheckerTest, AnEagerMessageThatNobodyReceivesIsFound) {
  const std::vector<Schedule> schedules = {
      {1,
       0,
       {Transfer::LocalCopy(Input(0), Output(0)), Transfer::Send(Input(0), 1)}},
      {1,
       0,
       {Transfer::LocalCopy(Input(0), Output(0)),
        Transfer::Send(Output(0), 0)}}};
  CheckOptions options = Options(Collective::kBarrier);
  const std::vector<Plan> plans =
      Plans(schedules, {.message_bytes = 64, .each_peer = kEager});
  EXPECT_NE(
      CheckPlans(plans, options).message().find("a message without a receive"),
      std::string::npos);
}

TEST(CheckerTest, AMessageOfOtherChunksThanItsReceiveIsFound) {
  // Which need not be equally long.
  const std::vector<Schedule> schedules = {
      {2,
       2,
       {Transfer::LocalCopy(Input(0, 2), Output(0, 2)),
        Transfer::Send(Input(1), 1), Transfer::Send(Input(0), 1)}},
      {2,
       2,
       {Transfer::ReceiveCopy(Scratch(0), 0),
        Transfer::ReceiveCopy(Output(0), 0),
        Transfer::LocalCopy(Scratch(0), Scratch(0))}}};
  EXPECT_NE(CheckPlans(Plans(schedules, {}), Options(Collective::kBroadcast))
                .message()
                .find("other chunks"),
            std::string::npos);
}

// What comes by another rail may overtake.
TEST(CheckerTest, TwoMessagesIntoOnePlaceThatMayOvertakeAreFound) {
  std::vector<Schedule> schedules = {
      {2,
       0,
       {Transfer::LocalCopy(Input(0), Output(0)), Transfer::Send(Input(1), 1),
        Transfer::ReceiveCopy(Output(1), 1),
        Transfer::ReceiveCopy(Output(1), 1)}},
      {2,
       0,
       {Transfer::LocalCopy(Input(1), Output(1)), Transfer::Send(Input(1), 0),
        Transfer::Send(Input(0), 0), Transfer::ReceiveCopy(Output(0), 0)}}};
  schedules[0].equal_chunks = schedules[1].equal_chunks = true;
  const CheckOptions options = Options(Collective::kAllToAll);
  std::vector<Plan> plans = Plans(schedules, {.each_peer = kReachOutput});
  EXPECT_FALSE(Finds(plans, options));
  plans[0].steps[3].write_waits = 0;
  plans[0].steps[2].on_done.clear();
  EXPECT_TRUE(Finds(plans, options));
}

// A receive that waits for a local copy, which waits for a send.
TEST(CheckerTest, ASlotBreaksTheCircleAlsoWhereItIsLonger) {
  const auto rank = [](int peer) -> Schedule {
    return {2,
            0,
            {Transfer::Send(Input(1), peer),
             Transfer::LocalCopy(Input(0), Output(1)),
             Transfer::ReceiveCopy(Output(0), peer)},
            /*equal_chunks=*/true};
  };
  CheckOptions options = Options(Collective::kBarrier);
  const Status status = CheckPlans(
      Plans({rank(1), rank(0)}, {.in_place = true, .each_peer = kReachBoth}),
      options);
  EXPECT_EQ(status.message().find("deadlock"), std::string::npos)
      << status.ToString();
}

// As of a plan that takes the schedule for one that says the same to all.
TEST(CheckerTest, AnEagerMessageThatIsNotWhatAllPeersGetIsFound) {
  constexpr PlanOptions::Peer kToAll = {
      {.eager_bytes = 64, .eager_to_all = true}};
  for (const Collective collective :
       {Collective::kBroadcast, Collective::kScatter}) {
    const bool same = collective == Collective::kBroadcast;
    const Schedule empty = {same ? 1 : 3, 0, {}};
    std::vector<Schedule> schedules(3, empty);
    schedules[0].transfers = {Transfer::LocalCopy(Input(0), Output(0))};
    for (const int rank : {1, 2}) {
      const int chunk = same ? 0 : rank;
      schedules[0].transfers.push_back(Transfer::Send(Input(chunk), rank));
      schedules[rank].transfers = {Transfer::ReceiveCopy(Output(chunk), 0)};
    }
    EXPECT_EQ(SaysTheSameToAll(schedules[0]), same);
    const std::vector<Plan> plans =
        Plans(schedules,
              {.same_to_all = true, .message_bytes = 64, .each_peer = kToAll});
    EXPECT_EQ(Finds(plans, Options(collective)), !same);
  }
}

TEST(CheckerTest, ASecondEagerMessageIsFound) {
  const std::vector<Schedule> schedules = {
      {2,
       0,
       {Transfer::LocalCopy(Input(0), Output(0)),
        Transfer::LocalCopy(Input(1), Output(1)), Transfer::Send(Input(0), 1),
        Transfer::Send(Input(1), 1)}},
      {2,
       0,
       {Transfer::ReceiveCopy(Output(0), 0),
        Transfer::ReceiveCopy(Output(1), 0)}}};
  ExpectFound(Plans(schedules, {.message_bytes = 64, .each_peer = kEager}),
              Options(Collective::kBroadcast),
              CheckOptions::Fault::kAlwaysEager);
}

}  // namespace
}  // namespace ringpipe
