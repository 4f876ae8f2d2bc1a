// What a user may get wrong gets a clear error, at every rank that it concerns,
// and nothing hangs.
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/liveness_bound.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

const auto kWays = ::testing::ValuesIn(WaysOf("misuse_test"));

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// --- One rank's arguments ---

class ArgumentsTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    auto communicator =
        Communicator::Create(RankOptions(GetParam(), 0, 1, NewJob()));
    ASSERT_TRUE(communicator.ok()) << communicator.status().ToString();
    communicator_ = std::move(communicator).value();
  }

  std::unique_ptr<Communicator> communicator_;
  float a_[16] = {};
  float b_[16] = {};
};

INSTANTIATE_TEST_SUITE_P(Ways, ArgumentsTest, kWays, NameOfWay);

TEST_P(ArgumentsTest, ANullBufferIsRefusedUnlessCountIsZero) {
  Communicator& c = *communicator_;
  ExpectError(c.AllReduce(nullptr, b_, 4, DataType::kFloat32, ReduceOp::kSum),
              StatusCode::kInvalidArgument,
              {"allreduce", "send buffer is null"});
  ExpectError(c.AllReduce(a_, nullptr, 4, DataType::kFloat32, ReduceOp::kSum),
              StatusCode::kInvalidArgument, {"receive buffer is null"});
  EXPECT_TRUE(
      c.AllReduce(nullptr, nullptr, 0, DataType::kFloat32, ReduceOp::kSum)
          .ok());
}

TEST_P(ArgumentsTest, AnUnknownTypeOperationOrRootIsRefused) {
  Communicator& c = *communicator_;
  ExpectError(c.AllReduce(a_, b_, 4, static_cast<DataType>(99), ReduceOp::kSum),
              StatusCode::kInvalidArgument, {"data type 99"});
  ExpectError(
      c.AllReduce(a_, b_, 4, DataType::kFloat32, static_cast<ReduceOp>(-1)),
      StatusCode::kInvalidArgument, {"operation -1"});
  ExpectError(c.Broadcast(a_, b_, 4, DataType::kFloat32, 1),
              StatusCode::kInvalidArgument, {"root 1", "there are 1"});
}

TEST_P(ArgumentsTest, ACallThatNobodyHasFilledInIsRefused) {
  ExpectError(communicator_->Run({.collective = static_cast<Collective>(77)}),
              StatusCode::kInvalidArgument, {"collective 77"});
  ExpectError(communicator_->Run({.collective = Collective::kReduce}),
              StatusCode::kInvalidArgument, {"data type 0 does not exist"});
  EXPECT_TRUE(communicator_->Run({}).ok());  // a barrier
}

TEST_P(ArgumentsTest, AnAllToAllInPlaceIsRefused) {
  ExpectError(communicator_->AllToAll(a_, a_, 4, DataType::kFloat32),
              StatusCode::kInvalidArgument, {"all-to-all", "separate"});
}

TEST_P(ArgumentsTest, BuffersThatOverlapInPartAreRefused) {
  ExpectError(communicator_->AllReduce(a_, a_ + 1, 4, DataType::kFloat32,
                                       ReduceOp::kSum),
              StatusCode::kInvalidArgument, {"overlap"});
}

TEST_P(ArgumentsTest, AMisalignedBufferIsRefused) {
  ExpectError(communicator_->AllReduce(reinterpret_cast<char*>(a_) + 2, b_, 4,
                                       DataType::kFloat32, ReduceOp::kSum),
              StatusCode::kInvalidArgument, {"aligned", "float32"});
}

TEST_P(ArgumentsTest, ACountBeyondMemoryIsRefused) {
  ExpectError(communicator_->AllReduce(a_, b_, SIZE_MAX / 2, DataType::kFloat32,
                                       ReduceOp::kSum),
              StatusCode::kInvalidArgument, {"count"});
}

TEST_P(ArgumentsTest, ARefusedCallLeavesTheCommunicatorUsable) {
  EXPECT_FALSE(
      communicator_
          ->AllReduce(nullptr, b_, 4, DataType::kFloat32, ReduceOp::kSum)
          .ok());
  a_[0] = 3;
  EXPECT_TRUE(
      communicator_->AllReduce(a_, b_, 4, DataType::kFloat32, ReduceOp::kSum)
          .ok());
  EXPECT_EQ(b_[0], 3);
}

// --- How a communicator is created ---

class CreateTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, CreateTest, kWays, NameOfWay);

TEST_P(CreateTest, TooFewSlotsAreRefusedAndTheNumberNeededIsNamed) {
  for (const Status& status : RunRanks(
           GetParam(), 2, [](Communicator&) { return Status::Ok(); },
           [](int, CommunicatorOptions& options) {
             options.environment.slots = 4;
           })) {
    ExpectError(status, StatusCode::kInvalidArgument,
                {"RINGPIPE_SLOTS=4", "at least 5 slots"});
  }
}

// Which is 4 more where operands may have to be copied: at RINGPIPE_DEPTH=4,
// one for each sub-chunk in flight.
TEST_P(CreateTest, WhoReducesIsNamedWhereItNeedsMoreSlots) {
  for (const std::string reducer : {"host", "gpu"}) {
    const auto run = [&](std::int64_t slots) {
      return RunRanks(
          GetParam(), 2, [](Communicator&) { return Status::Ok(); },
          [&](int, CommunicatorOptions& options) {
            options.environment.slots = slots;
            options.environment.gpu_reduce = reducer;
          });
    };
    for (const Status& status : run(8)) {
      ExpectError(status, StatusCode::kInvalidArgument,
                  {"RINGPIPE_SLOTS=8", "RINGPIPE_GPU_REDUCE=" + reducer,
                   "at least 9 slots"});
    }
    for (const Status& status : run(9)) {
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }
}

TEST_P(CreateTest, MoreThanTheVariablesAdmitIsRefusedFromAProgramToo) {
  CommunicatorOptions options = RankOptions(GetParam(), 0, 1, NewJob());
  options.environment.slots = (std::int64_t{1} << 32) + 100;  // as int: 100
  ExpectError(Communicator::Create(options).status(),
              StatusCode::kInvalidArgument, {"4294967396", "at most 65536"});
  options = RankOptions(GetParam(), 0, 65'537, NewJob());
  options.environment.join_timeout_ms = 1;
  ExpectError(Communicator::Create(options).status(),
              StatusCode::kInvalidArgument, {"65537", "at most 65536"});
}

TEST_P(CreateTest, AnAlgorithmOfNoCollectiveListsThoseThatThereAre) {
  CommunicatorOptions options = RankOptions(GetParam(), 0, 1, NewJob());
  options.environment.algorithm = "send-receive:direct";
  ExpectError(Communicator::Create(options).status(),
              StatusCode::kInvalidArgument,
              {"RINGPIPE_ALGORITHM", "no collective \"send-receive\"",
               "gather, scatter or all-to-all"});
}

TEST_P(CreateTest, RanksWithDifferentChunkingAreRefusedWithBothValues) {
  for (const Status& status : RunRanks(
           GetParam(), 2, [](Communicator&) { return Status::Ok(); },
           [](int rank, CommunicatorOptions&options) {
             options.environment.depth = 2 + rank;
           })) {
    ExpectError(status, StatusCode::kMismatch,
                {"RINGPIPE_DEPTH=2", "RINGPIPE_DEPTH=3", "rank 1"});
  }
}

TEST_P(CreateTest, RanksWithDifferentAlgorithmsAreRefusedWithBoth) {
  for (const Status& status : RunRanks(
           GetParam(), 2, [](Communicator&) { return Status::Ok(); },
           [](int rank, CommunicatorOptions&options) {
             options.environment.algorithm =
                 rank == 0 ? "allreduce:ring" : "allreduce:rabenseifner";
           })) {
    ExpectError(status, StatusCode::kMismatch,
                {"allreduce:ring", "allreduce:rabenseifner", "rank 1"});
  }
}

TEST_P(CreateTest, AnAlgorithmThatDoesNotExistListsThoseThatDo) {
  for (const Status& status : RunRanks(
           GetParam(), 3, [](Communicator&) { return Status::Ok(); },
           [](int, CommunicatorOptions& options) {
             options.environment.algorithm = "allreduce:rabenseifer";
           })) {
    ExpectError(status, StatusCode::kInvalidArgument,
                {"RINGPIPE_ALGORITHM", "rabenseifer", "ring", "rabenseifner",
                 "recursive_doubling"});
  }
}

// Ranks of one machine that say that they are on different hosts.
TEST_P(CreateTest, TheSoftwareDeviceConnectsHosts) {
  const auto sum = [](Communicator& communicator) {
    std::vector<float> values(10'000, 1.0F);
    Status status =
        communicator.AllReduce(values.data(), values.data(), values.size(),
                               DataType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(values, std::vector<float>(values.size(), 3.0F));
    return status;
  };
  for (const Status& status :
       RunRanks(GetParam(), 3, sum, [](int rank, CommunicatorOptions&options) {
         options.environment.host_id = "host" + std::to_string(rank / 2);
         options.environment.secret = "shared";
       })) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST_P(CreateTest, ADeviceThatDoesNotExistIsNamed) {
  for (const Status& status : RunRanks(
           GetParam(), 2, [](Communicator&) { return Status::Ok(); },
           [](int, CommunicatorOptions& options) {
             options.environment.device = "mlx5_77";
             // Of what the name asks for, ranks of one host need nothing.
             options.environment.host_memory = "never";
           })) {
    ExpectError(status, StatusCode::kUnavailable, {"mlx5_77"});
  }
}

TEST_P(CreateTest, AMissingRankEndsTheOthersByTheTimeoutAndIsNamed) {
  const steady_clock::time_point start = steady_clock::now();
  CommunicatorOptions options = RankOptions(GetParam(), 0, 2, NewJob());
  options.environment.join_timeout_ms = 300;
  const auto communicator = Communicator::Create(options);
  ASSERT_FALSE(communicator.ok());
  ExpectError(communicator.status(), StatusCode::kTimeout, {"1"});
  EXPECT_LT(steady_clock::now() - start,
            LivenessBound(std::chrono::seconds(2)));
}

// --- Ranks that disagree ---

class MismatchTest : public ::testing::TestWithParam<Way> {
 protected:
  // Both ranks make a call; their calls differ.
  void ExpectMismatch(const RankBody& body,
                      const std::vector<std::string>& words) {
    const steady_clock::time_point start = steady_clock::now();
    for (const Status& status : RunRanks(GetParam(), 2, body)) {
      ExpectError(status, StatusCode::kMismatch, words);
      ExpectError(status, StatusCode::kMismatch, {"rank 0", "rank 1"});
    }
    // Before a byte of the other rank's is reduced; a root has perhaps copied
    // its own.
    for (int rank = 0; rank < 2; ++rank) {
      for (const float value : out_[rank]) {
        ASSERT_TRUE(value == 0 || value == in_[rank][0]) << value;
      }
    }
    EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(20));
  }

  static constexpr std::size_t kCount = 1000;
  std::vector<float> in_[2] = {std::vector<float>(2 * kCount, 1),
                               std::vector<float>(2 * kCount, 2)};
  std::vector<float> out_[2] = {std::vector<float>(2 * kCount),
                                std::vector<float>(2 * kCount)};
  const float* in(Communicator& c) const { return in_[c.rank()].data(); }
  float* out(Communicator& c) { return out_[c.rank()].data(); }
};

INSTANTIATE_TEST_SUITE_P(Ways, MismatchTest, kWays, NameOfWay);

TEST_P(MismatchTest, OfCountsIsAnErrorAtBothWithBothValues) {
  ExpectMismatch(
      [&](Communicator& c) {
        return c.AllReduce(in(c), out(c), kCount + c.rank(), DataType::kFloat32,
                           ReduceOp::kSum);
      },
      {"in count:", "count 1000", "count 1001"});
}

TEST_P(MismatchTest, OfCountsByRankIsAnErrorAtBoth) {
  ExpectMismatch(
      [&](Communicator& c) {
        const std::size_t more = c.rank() * 10;
        const std::vector<std::size_t> counts = {500 - more, 500 + more};
        return c.ReduceScatterV(in(c), out(c), counts, DataType::kFloat32,
                                ReduceOp::kSum);
      },
      {"in counts by rank", "counts by rank, in all 1000"});
  ExpectMismatch(
      [&](Communicator& c) -> Status {
        if (c.rank() == 0) {
          return c.ReduceScatter(in(c), out(c), 500, DataType::kFloat32,
                                 ReduceOp::kSum);
        }
        const std::vector<std::size_t> counts = {500, 500};
        return c.ReduceScatterV(in(c), out(c), counts, DataType::kFloat32,
                                ReduceOp::kSum);
      },
      {"count 500", "counts by rank, in all 1000"});
}

// All but one rank give nothing, and too much for a first message.
TEST_P(MismatchTest, OfLongCountsByRankIsAnErrorAtBoth) {
  constexpr std::size_t kLong = 1 << 20;
  ExpectMismatch(
      [&](Communicator& c) {
        const std::vector<float> send(kLong, 1);
        std::vector<float> receive(kLong);
        const std::vector<std::size_t> counts = {kLong - c.rank(), 0};
        return c.AllGatherV(send.data(), receive.data(), counts,
                            DataType::kFloat32);
      },
      {"in count, counts by rank", "in all 1048576", "in all 1048575"});
}

TEST_P(MismatchTest, OfZeroAndSomeIsAnErrorAtBoth) {
  ExpectMismatch(
      [&](Communicator& c) {
        return c.AllReduce(in(c), out(c), kCount * c.rank(), DataType::kFloat32,
                           ReduceOp::kSum);
      },
      {"count 0", "count 1000"});
}

TEST_P(MismatchTest, OfPostscalesIsAnErrorAtBoth) {
  ExpectMismatch(
      [&](Communicator& c) {
        return c.Run({.collective = Collective::kAllReduce,
                      .send = in(c),
                      .receive = out(c),
                      .count = kCount,
                      .type = DataType::kFloat32,
                      .postscale = c.rank() == 0 ? 0 : 0.25});
      },
      {"in postscale:", "postscale 0.25"});
}

TEST_P(MismatchTest, OfTypesIsAnErrorAtBoth) {
  ExpectMismatch(
      [&](Communicator& c) {
        return c.AllReduce(
            in(c), out(c), kCount,
            c.rank() == 0 ? DataType::kFloat32 : DataType::kInt32,
            ReduceOp::kSum);
      },
      {"in type:", "float32", "int32"});
}

TEST_P(MismatchTest, OfCallsOfNoElementsIsAnErrorAtBoth) {
  ExpectMismatch(
      [&](Communicator& c) {
        return c.AllReduce(
            in(c), out(c), 0,
            c.rank() == 0 ? DataType::kFloat32 : DataType::kInt32,
            ReduceOp::kSum);
      },
      {"count 0, float32", "count 0, int32"});
}

TEST_P(MismatchTest, OfOperationsIsAnErrorAtBoth) {
  ExpectMismatch(
      [&](Communicator& c) {
        return c.AllReduce(in(c), out(c), kCount, DataType::kFloat32,
                           c.rank() == 0 ? ReduceOp::kMin : ReduceOp::kMax);
      },
      {"in operation:", "min", "max"});
}

TEST_P(MismatchTest, OfRootsIsAnErrorAtBoth) {
  ExpectMismatch(
      [&](Communicator& c) {
        return c.Broadcast(in(c), out(c), kCount, DataType::kFloat32, c.rank());
      },
      {"in root:", "root 0", "root 1"});
}

TEST_P(MismatchTest, OfTheOrderOfCallsIsAnErrorAtBoth) {
  ExpectMismatch(
      [&](Communicator& c) -> Status {
        if (c.rank() == 0) {
          RINGPIPE_RETURN_IF_ERROR(c.Barrier());
        }
        RINGPIPE_RETURN_IF_ERROR(c.AllReduce(
            in(c), out(c), kCount, DataType::kFloat32, ReduceOp::kSum));
        return c.rank() == 1 ? c.Barrier() : Status::Ok();
      },
      {"allreduce", "barrier"});
}

TEST_P(MismatchTest, AfterOneEveryCallGivesTheFirstReason) {
  RunRanks(GetParam(), 2, [&](Communicator& c) -> Status {
    Status first = c.AllReduce(in(c), out(c), kCount + c.rank(),
                               DataType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(c.Barrier().ToString(), first.ToString());
    EXPECT_EQ(c.failure().ToString(), first.ToString());
    return first;
  });
}

// --- Time ---

class DeadlineTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, DeadlineTest, kWays, NameOfWay);

TEST_P(DeadlineTest, ACallThatAnotherDoesNotMakeEndsByItsDeadlineAndNamesIt) {
  const auto statuses = RunRanks(GetParam(), 2, [](Communicator& c) -> Status {
    if (c.rank() == 1) {
      // Here until the job fails.
      while (c.failure().ok()) {
        std::this_thread::yield();
      }
      return c.failure();
    }
    return c.Barrier(milliseconds(300));
  });
  for (const Status& status : statuses) {
    ExpectError(status, StatusCode::kTimeout,
                {"barrier", "waits for rank 1 to make the same call"});
  }
}

TEST_P(DeadlineTest, AnExpiredWaitLeavesTheCallRunning) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    if (c.rank() == 1) {
      // Enters when rank 0's wait has expired: see the exchange.
      RINGPIPE_RETURN_IF_ERROR(c.Exchange("").status());
      return c.Barrier();
    }
    RINGPIPE_ASSIGN_OR_RETURN(Request request, c.BarrierAsync());
    EXPECT_EQ(request.Wait(milliseconds(50)).code(), StatusCode::kWaitOver);
    EXPECT_FALSE(request.Done());
    RINGPIPE_RETURN_IF_ERROR(c.Exchange("").status());
    return request.Wait();
  });
}

TEST_P(DeadlineTest, OfAnAsynchronousCallEndsItWhoeverWaits) {
  const steady_clock::time_point start = steady_clock::now();
  const auto statuses = RunRanks(GetParam(), 2, [](Communicator& c) -> Status {
    if (c.rank() == 1) {
      while (c.failure().ok()) {
        std::this_thread::yield();
      }
      return c.failure();
    }
    RINGPIPE_ASSIGN_OR_RETURN(Request request,
                              c.BarrierAsync(milliseconds(300)));
    while (!request.Done()) {
      std::this_thread::yield();
    }
    return request.Wait();
  });
  for (const Status& status : statuses) {
    ExpectError(status, StatusCode::kTimeout,
                {"barrier", "waits for rank 1 to make the same call"});
  }
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_P(DeadlineTest, BoundsTheWaitForACallBeforeThatHasNone) {
  const steady_clock::time_point start = steady_clock::now();
  const auto statuses = RunRanks(GetParam(), 2, [](Communicator& c) -> Status {
    if (c.rank() == 1) {
      while (c.failure().ok()) {
        std::this_thread::yield();
      }
      return c.failure();
    }
    RINGPIPE_RETURN_IF_ERROR(c.BarrierAsync(milliseconds(-1)).status());
    return c.Barrier(milliseconds(100));
  });
  for (const Status& status : statuses) {
    ExpectError(status, StatusCode::kTimeout, {"a call that waits behind it"});
  }
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_P(DeadlineTest, EndsACallThatIsBusyAllTheTime) {
  ExpectRanks(GetParam(), 1, [](Communicator& c) -> Status {
    std::vector<float> values(1 << 20);
    ExpectError(
        c.AllReduce(values.data(), values.data() + (1 << 19), 1 << 19,
                    DataType::kFloat32, ReduceOp::kSum, milliseconds(0)),
        StatusCode::kTimeout, {"allreduce", "its deadline"});
    return Status::Ok();
  });
}

TEST_P(DeadlineTest, OfTheLongestTimeoutIsNever) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    RINGPIPE_RETURN_IF_ERROR(c.Barrier(milliseconds::max()));
    RINGPIPE_ASSIGN_OR_RETURN(Request request,
                              c.BarrierAsync(milliseconds::max()));
    return request.Wait(milliseconds::max());
  });
}

class AbortTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, AbortTest, kWays, NameOfWay);

TEST_P(AbortTest, EndsPendingCallsOfEveryRankWithItsReason) {
  for (const Status& status :
       RunRanks(GetParam(), 3, [](Communicator& c) -> Status {
         if (c.rank() == 1) {
           c.Abort("the test says so");
         }
         return c.Barrier();
       })) {
    ExpectError(status, StatusCode::kAborted, {"rank 1", "the test says so"});
  }
}

// Of ranks that sleep in a call it is the aborting rank's shared memory that
// tells them.
TEST_P(AbortTest, ALongReasonInAnyLanguageReachesAllRanksWhole) {
  std::string reason = "\xC3\xBC\xE4\xB8\xAD";
  while (reason.size() < 3000) {
    reason += " and so on";
  }
  for (const Status& status :
       RunRanks(GetParam(), 3, [&](Communicator& c) -> Status {
         if (c.rank() == 1) {
           std::this_thread::sleep_for(milliseconds(50));  // the others sleep
           c.Abort(reason);
         }
         return c.Barrier();
       })) {
    EXPECT_EQ(status.message(), "rank 1 aborted the communicator: " + reason);
  }
}

TEST_P(AbortTest, DestroyingACommunicatorEndsItsPendingCalls) {
  RunRanks(GetParam(), 2, [](Communicator& c) -> Status {
    if (c.rank() == 0) {
      return c.BarrierAsync().status();  // and leaves
    }
    while (c.failure().ok()) {
      std::this_thread::yield();
    }
    ExpectError(c.failure(), StatusCode::kAborted, {"rank 0", "pending"});
    return Status::Ok();
  });
}

class LeavingTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, LeavingTest, kWays, NameOfWay);

// The others have long ended the call and are about to leave; they wait.
TEST_P(LeavingTest, ARankThatIsLateInItsLastCallStillEndsIt) {
  ExpectRanks(GetParam(), 3, [](Communicator& c) -> Status {
    if (c.rank() == 2) {
      // Not a wait for a state: the lateness is the case. The others, which are
      // leaving, must not have a limit of their own for it, such as 5 s.
      std::this_thread::sleep_for(std::chrono::seconds(6));
    }
    float value = 7.0F - static_cast<float>(c.rank());
    RINGPIPE_RETURN_IF_ERROR(
        c.Broadcast(&value, &value, 1, DataType::kFloat32, 0));
    return value == 7.0F ? Status::Ok()
                         : Status(StatusCode::kInternal, "wrong value");
  });
}

// --- Exchange ---

class ExchangeTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, ExchangeTest, kWays, NameOfWay);

TEST_P(ExchangeTest, OfSeveralThreadsTakesTurns) {
  constexpr int kThreads = 4;
  constexpr int kTimes = 25;
  ExpectRanks(GetParam(), 3, [](Communicator& c) -> Status {
    const auto exchange = [&c]() -> Status {
      for (int i = 0; i < kTimes; ++i) {
        RINGPIPE_ASSIGN_OR_RETURN(const auto all, c.Exchange("x"));
        EXPECT_EQ(all, std::vector<std::string>(3, "x"));
      }
      return Status::Ok();
    };
    std::vector<std::future<Status>> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.push_back(std::async(std::launch::async, exchange));
    }
    // Collectives go on beside it.
    for (int i = 0; i < kTimes; ++i) {
      RINGPIPE_RETURN_IF_ERROR(c.Barrier());
    }
    for (std::future<Status>& thread : threads) {
      RINGPIPE_RETURN_IF_ERROR(thread.get());
    }
    return Status::Ok();
  });
}

}  // namespace
}  // namespace ringpipe::testing
