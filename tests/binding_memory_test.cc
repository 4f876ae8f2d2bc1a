// Each allocation of what bindings use fails in turn: what is lost, what is
// asked in C, a call that its caller ends, a creation by a store. (Those of
// calls are allocation_failure_test's.)
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/failing_memory.h"
#include "engine/communicator.h"
#include "engine/ringpipe.h"
#include "gtest/gtest.h"
#include "tests/create_in_c.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr long kMost = 5'000;  // nothing here has as many allocations

class BindingMemoryTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, BindingMemoryTest,
                         ::testing::ValuesIn(WaysOf("binding_memory_test")),
                         NameOfWay);

StatusCode Code(ringpipe_status status) {
  return static_cast<StatusCode>(status);
}

TEST_P(BindingMemoryTest, OfTheRanksThatAreLostIsAStatus) {
  ExpectRanks(GetParam(), 2, [&](Communicator& c) {
    RINGPIPE_RETURN_IF_ERROR(c.Barrier());
    if (c.rank() == 1) {
      return Status();  // and destroys it
    }
    while (c.lost_ranks()->empty()) {
      std::this_thread::yield();
    }
    FailEach([&c] { return c.lost_ranks().status().code(); });
    EXPECT_EQ(*c.lost_ranks(), std::vector<int>{1});
    return Status();
  });
}

TEST_P(BindingMemoryTest, OfWhatIsAskedInCIsItsStatus) {
  const WayOfThisProcess way(GetParam());
  const std::string job = NewJob();
  auto other = std::async(std::launch::async, [&] {
    ringpipe_communicator* const communicator = CreateInC(1, 2, job);
    static_cast<void>(
        ringpipe_exchange(communicator, "b", 1, nullptr, 0, nullptr));
    ringpipe_destroy(communicator);
  });
  ringpipe_communicator* const own = CreateInC(0, 2, job);
  std::array<char, 1000> text = {};
  FailEach([&] {
    return Code(ringpipe_device(own, text.data(), text.size(), nullptr));
  });
  ringpipe_stage_counters stage = {};
  stage.struct_size = sizeof stage;
  FailEach([&] { return Code(ringpipe_read_stage(own, 0, &stage)); });
  // This one is missing to the other rank.
  const std::string blob(100, 'x');
  ringpipe_status status = RINGPIPE_OK;
  EXPECT_TRUE(FailOne(0, [&] {
    status =
        ringpipe_exchange(own, blob.data(), blob.size(), nullptr, 0, nullptr);
  }));
  EXPECT_EQ(status, RINGPIPE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(ringpipe_failure(own), RINGPIPE_RESOURCE_EXHAUSTED);
  other.get();
  ringpipe_destroy(own);
}

TEST_P(BindingMemoryTest, OfACallThatItsCallerEndsIsAnErrorOfBothRanks) {
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    std::atomic<bool> ends = false;
    const std::vector<Status> statuses = RunRanks(
        GetParam(), 2,
        [&](Communicator& c) {
          if (c.rank() == 0) {
            ends = true;
            Status status;
            failed = FailOne(which, [&] { status = c.Barrier(); });
            return status;
          }
          while (c.failure().ok()) {
            std::this_thread::yield();
          }
          return c.failure();
        },
        [&](int rank, CommunicatorOptions& options) {
          if (rank == 0) {
            options.while_waiting = [&] { return ends.load(); };
            options.while_waiting_interval = std::chrono::microseconds(100);
          }
        });
    for (const Status& status : statuses) {
      EXPECT_TRUE(status.code() == StatusCode::kAborted ||
                  (failed && status.code() == StatusCode::kResourceExhausted))
          << "allocation " << which << ": " << status.ToString();
    }
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

// A place in this process.
Store StoreInMemory(std::string& value, std::mutex& mutex) {
  return {[&](const std::string&, const std::string& given) {
            const std::lock_guard<std::mutex> lock(mutex);
            value = given;
            return Status();
          },
          [&](const std::string&,
              std::chrono::milliseconds) -> Result<std::optional<std::string>> {
            const std::lock_guard<std::mutex> lock(mutex);
            return value.empty() ? std::nullopt : std::optional(value);
          }};
}

// Each so many-eth, on the thread that creates: the other rank's creation fails
// too, at the latest when it is ended, as it would be by its deadline, or what
// it has created does.
TEST_P(BindingMemoryTest, OfACreationByAStoreIsItsStatus) {
  constexpr long kStride = 23;
  for (const int victim : {0, 1}) {
    bool failed = true;
    long which = 0;
    for (; failed && which < kMost; which += kStride) {
      std::string value;
      std::mutex mutex;
      const std::string job = NewJob();
      const auto options_for = [&](int rank) {
        CommunicatorOptions options = RankOptions(GetParam(), rank, 2, job);
        options.root.clear();
        options.store = StoreInMemory(value, mutex);
        options.environment.join_timeout_ms = 60'000;
        return options;
      };
      std::promise<bool> fails;
      std::atomic<Clock::time_point> given_up = Clock::time_point::max();
      auto other = std::async(std::launch::async, [&] {
        CommunicatorOptions options = options_for(1 - victim);
        options.while_waiting = [&] { return Clock::now() > given_up.load(); };
        const auto created = Communicator::Create(options);
        const bool victim_fails = fails.get_future().get();
        while (created.ok() && victim_fails && (*created)->failure().ok()) {
          std::this_thread::yield();
        }
        return created.ok() && victim_fails ? (*created)->failure()
                                            : created.status();
      });
      const CommunicatorOptions options = options_for(victim);
      Status status;
      failed = FailOne(
          which, [&] { status = Communicator::Create(options).status(); });
      fails.set_value(!status.ok());
      if (!status.ok()) {
        given_up = Clock::now() + std::chrono::seconds(2);
      }
      const Status told = other.get();
      EXPECT_EQ(told.ok(), status.ok()) << told.ToString();
      EXPECT_EQ(status.code(),
                status.ok() ? StatusCode::kOk : StatusCode::kResourceExhausted)
          << "allocation " << which << ": " << status.ToString();
      EXPECT_TRUE(failed || status.ok());
    }
    EXPECT_GT(which, 1);
    EXPECT_LT(which, kMost);
  }
}

}  // namespace
}  // namespace ringpipe::testing
