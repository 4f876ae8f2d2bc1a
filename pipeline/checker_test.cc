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
          Transfer::ReceiveReduceLast(Input(0), Output(0), peer)}});
  }
  return schedules;
}

CheckOptions Options(Promise promise, int slots = 4) {
  CheckOptions options;
  options.promise = promise;
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

TEST(CheckerTest, ProvesARightSchedule) {
  const Status status = Check(Exchange(), Options(Promise::kAllReduce, 2));
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(CheckerTest, ADeadlockSaysWhichRankWaitsForWhat) {
  EXPECT_EQ(
      ErrorOf(Exchange(), Options(Promise::kAllReduce, 1),
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
  EXPECT_EQ(ErrorOf(schedules, Options(Promise::kAllReduce)),
            "deadlock with 4 slots, 1 sub-chunks a round; rank 0 has \"send "
            "output[0] -> rank 1\" of sub-chunk 0 ready and no receive posted "
            "there");
}

TEST(CheckerTest, AReceiveWithoutSendIsFound) {
  std::vector<Schedule> schedules = Exchange();
  schedules[0].transfers.erase(schedules[0].transfers.begin());
  EXPECT_EQ(ErrorOf(schedules, Options(Promise::kAllReduce)),
            "deadlock with 4 slots, 1 sub-chunks a round; rank 1 waits for the "
            "message of \"receive rank 0 + input[0] -> output[0], finish\" of "
            "sub-chunk 0");
}

TEST(CheckerTest, AWrongContributionNamesRankPlaceExpectedAndFound) {
  std::vector<Schedule> schedules = Exchange();
  schedules[1].transfers[1] = Transfer::ReceiveCopy(Output(0), 0);
  EXPECT_EQ(ErrorOf(schedules, Options(Promise::kAllReduce)),
            "rank 1, output[0], sub-chunk 0: expected input[0] of ranks 0, 1; "
            "finished; found input[0] of ranks 0; not finished");
}

TEST(CheckerTest, AContributionThatCountsTwiceIsFound) {
  std::vector<Schedule> schedules = Exchange();
  schedules[0].transfers.push_back(Transfer::Send(Input(0), 1));
  schedules[1].transfers[1].finish = false;
  schedules[1].transfers.push_back(
      Transfer::ReceiveReduceLast(Output(0), Output(0), 0));
  EXPECT_EQ(ErrorOf(schedules, Options(Promise::kAllReduce)),
            "rank 1, output[0], sub-chunk 0: expected input[0] of ranks 0, 1; "
            "finished; found input[0] of ranks 0 (2 times), 1; finished");
}

TEST(CheckerTest, AMissingFinishIsFoundAndOneRankAloneNeedsNone) {
  std::vector<Schedule> schedules = Exchange();
  schedules[0].transfers[1].finish = false;
  EXPECT_NE(ErrorOf(schedules, Options(Promise::kAllReduce))
                .find("ranks 0, 1; not finished"),
            std::string::npos);
  const std::vector<Schedule> alone = {
      {1, 0, {Transfer::LocalCopy(Input(0), Output(0))}}};
  EXPECT_TRUE(Check(alone, Options(Promise::kAllReduce)).ok());
}

TEST(CheckerTest, OutputThatWasNeverWrittenIsFound) {
  std::vector<Schedule> schedules = Exchange();
  for (Schedule& schedule : schedules) {
    schedule.transfers[1].source = Output(0);
  }
  EXPECT_NE(ErrorOf(schedules, Options(Promise::kAllReduce))
                .find("memory never written"),
            std::string::npos);
}

TEST(CheckerTest, MemoryThatTheUserDoesNotGiveIsFound) {
  // An all-gather's rank has its own chunk of input only.
  const std::vector<Schedule> schedules = {
      {2, 0, {Transfer::LocalCopy(Input(1), Output(1))}}, {2, 0, {}}};
  EXPECT_EQ(ErrorOf(schedules, Options(Promise::kAllGather)),
            "rank 0: \"copy input[1] -> output[1]\" uses memory that the user "
            "does not give");
  // A reduce-scatter's has its own chunk of output only.
  EXPECT_NE(ErrorOf(schedules, Options(Promise::kReduceScatter)).find("memory"),
            std::string::npos);
}

TEST(CheckerTest, RanksThatDivideTheMessageDifferentlyAreFound) {
  std::vector<Schedule> schedules = Exchange();
  schedules[1].chunks = 2;
  EXPECT_EQ(ErrorOf(schedules, Options(Promise::kAllReduce)),
            "rank 1 divides the message into 2 chunks, rank 0 into 1");
}

TEST(CheckerTest, ABarrierNeedsSomethingOfEveryRankAndNoMore) {
  std::vector<Schedule> schedules = Exchange();
  schedules[0].transfers[1].finish = false;
  EXPECT_TRUE(Check(schedules, Options(Promise::kBarrier)).ok());
  schedules[1].transfers[1] = Transfer::ReceiveCopy(Output(0), 0);
  EXPECT_NE(ErrorOf(schedules, Options(Promise::kBarrier)).find("rank 1"),
            std::string::npos);
}

TEST(CheckerTest, BadOptionsAreAnError) {
  for (const auto& [slots, depth] : {std::pair(-1, 1), std::pair(1, 0)}) {
    CheckOptions options = Options(Promise::kAllReduce, slots);
    options.depth = depth;
    ErrorOf(Exchange(), options, StatusCode::kInvalidArgument);
  }
  ErrorOf({}, Options(Promise::kAllReduce), StatusCode::kInvalidArgument);
}

TEST(CheckerTest, SmallestSlotsIsTheSmallestThatSucceeds) {
  CheckOptions options = Options(Promise::kAllReduce);
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
      SmallestSlots(schedules, Options(Promise::kAllReduce)).status().code(),
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
  }
  CheckOptions options = Options(Promise::kAllToAll);
  options.plan = {true, true, true};
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
  CheckOptions options = Options(Promise::kBroadcast);
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

constexpr Abilities kReads[] = {{.reads_peer = true}, {.reads_peer = true}};
constexpr Abilities kEager[] = {{.eager_bytes = 64}, {.eager_bytes = 64}};

constexpr PlanOptions kInPlaceAtThePeer = {.in_place = true,
                                           .input_registered = true,
                                           .output_registered = true,
                                           .abilities = kReads};

TEST(CheckerTest, ASourceThatIsFreedBeforeThePeerHasReadItIsFound) {
  ExpectFound(Plans(Exchange(), kInPlaceAtThePeer),
              Options(Promise::kAllReduce),
              CheckOptions::Fault::kFreesBeforeRead);
}

TEST(CheckerTest, TwoRanksThatExchangeOnePlaceWithoutASlotBetweenAreFound) {
  PlanOptions options = kInPlaceAtThePeer;
  options.direct_over_sent = true;
  EXPECT_EQ(CheckPlans(Plans(Exchange(), options), Options(Promise::kAllReduce))
                .code(),
            StatusCode::kInternal);
}

TEST(CheckerTest, AReductionIntoMemoryThatIsStillSentIsFound) {
  std::vector<Plan> plans = Plans(
      Exchange(),
      {.in_place = true, .input_registered = true, .output_registered = true});
  EXPECT_TRUE(plans[0].steps[1].in_memory);
  EXPECT_FALSE(Finds(plans, Options(Promise::kAllReduce)));
  plans[0].steps[1].write_waits = 0;
  plans[0].steps[0].on_done.clear();
  EXPECT_TRUE(Finds(plans, Options(Promise::kAllReduce)));
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
       1,
       {Transfer::LocalCopy(Input(0), Output(0)),
        Transfer::LocalCopy(Input(1), Output(1)), Transfer::Send(Input(0), 0),
        Transfer::Send(Input(1), 0), Transfer::ReceiveCopy(Scratch(0), 0)}}};
  CheckOptions options = Options(Promise::kBroadcast);
  options.root = 1;
  ExpectFound(Plans(schedules, {.message_bytes = 64, .abilities = kEager}),
              options, CheckOptions::Fault::kNeverAnnounces);
}

TEST(CheckerTest, DataWithoutAReceiveOrBeforeTheFirstMessageAreFound) {
  for (const auto fault : {CheckOptions::Fault::kSendsWithoutReceive,
                           CheckOptions::Fault::kSendsBeforeAgreed}) {
    ExpectFound(Plans(Exchange(), {}), Options(Promise::kAllReduce), fault);
  }
}

TEST(CheckerTest, EndsThatDoNotAgreeOnWhatIsEagerAreFound) {
  std::vector<Plan> plans = Plans(Exchange(), {});
  plans[1] = Plans(Exchange(), {.message_bytes = 64, .abilities = kEager})[1];
  EXPECT_TRUE(Finds(plans, Options(Promise::kAllReduce)));
}

TEST(CheckerTest, AnEagerPlanOfSeveralSubchunksIsFound) {
  const std::vector<Plan> plans =
      Plans(Exchange(), {.message_bytes = 64, .abilities = kEager});
  CheckOptions options = Options(Promise::kAllReduce);
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
  CheckOptions options = Options(Promise::kBarrier);
  const std::vector<Plan> plans =
      Plans(schedules, {.message_bytes = 64, .abilities = kEager});
  EXPECT_NE(
      CheckPlans(plans, options).message().find("a message without a receive"),
      std::string::npos);
}

// What comes by another rail may overtake.
TEST(CheckerTest, TwoMessagesIntoOnePlaceThatMayOvertakeAreFound) {
  const std::vector<Schedule> schedules = {
      {2,
       0,
       {Transfer::ReceiveCopy(Output(0), 1),
        Transfer::ReceiveCopy(Output(0), 1),
        Transfer::ReceiveCopy(Output(1), 1)}},
      {2,
       0,
       {Transfer::LocalCopy(Input(0), Output(0)),
        Transfer::LocalCopy(Input(1), Output(1)), Transfer::Send(Input(1), 0),
        Transfer::Send(Input(0), 0), Transfer::Send(Input(1), 0)}}};
  CheckOptions options = Options(Promise::kBroadcast);
  options.root = 1;
  std::vector<Plan> plans = Plans(schedules, {.output_registered = true});
  EXPECT_FALSE(Finds(plans, options));
  plans[0].steps[1].write_waits = 0;
  plans[0].steps[0].on_done.clear();
  EXPECT_TRUE(Finds(plans, options));
}

// A receive that waits for a local copy, which waits for a send.
TEST(CheckerTest, ASlotBreaksTheCircleAlsoWhereItIsLonger) {
  const auto rank = [](int peer) -> Schedule {
    return {2,
            0,
            {Transfer::Send(Input(1), peer),
             Transfer::LocalCopy(Input(0), Output(1)),
             Transfer::ReceiveCopy(Output(0), peer)}};
  };
  CheckOptions options = Options(Promise::kBarrier);
  const Status status =
      CheckPlans(Plans({rank(1), rank(0)}, {.in_place = true,
                                            .input_registered = true,
                                            .output_registered = true}),
                 options);
  EXPECT_EQ(status.message().find("deadlock"), std::string::npos)
      << status.ToString();
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
  ExpectFound(Plans(schedules, {.message_bytes = 64, .abilities = kEager}),
              Options(Promise::kBroadcast), CheckOptions::Fault::kAlwaysEager);
}

}  // namespace
}  // namespace ringpipe
