// Each allocation of what bindings use fails in turn: what is lost, what is
// asked in C, a call that its caller ends, a creation by a store. (Those of
// calls are allocation_failure_test's.)
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/communicator.h"
#include "engine/ringpipe.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace {

// Of this thread: how many allocations succeed before one fails; -1: all do.
thread_local long allocations_left = -1;

}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocations_left >= 0 && allocations_left-- == 0
             ? nullptr
             : std::malloc(bytes > 0 ? bytes : 1);
}

void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) {
    return memory;
  }
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ringpipe::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr long kMost = 5'000;  // nothing here has as many allocations

class BindingMemoryTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, BindingMemoryTest,
                         ::testing::ValuesIn(WaysOf("binding_memory_test")),
                         NameOfWay);

// Runs `f`, whose allocation number `which` fails; whether there was one.
template <typename F>
bool FailOne(long which, F f) {
  allocations_left = which;
  f();
  const bool failed = allocations_left < 0;
  allocations_left = -1;
  return failed;
}

// Until none of its allocations fails.
template <typename F>
void FailEach(F f) {
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    StatusCode code = StatusCode::kOk;
    failed = FailOne(which, [&] { code = f(); });
    EXPECT_EQ(code, failed ? StatusCode::kResourceExhausted : StatusCode::kOk)
        << "allocation " << which;
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

StatusCode Code(ringpipe_status status) {
  return static_cast<StatusCode>(status);
}

// The C interface's, by the environment of this process.
ringpipe_communicator* CreateInC(int rank, const std::string& job) {
  const std::string root = "unix:@" + job;
  ringpipe_options options = {};
  options.struct_size = sizeof options;
  options.explicit_rank = 1;
  options.rank = rank;
  options.size = 2;
  options.root = root.c_str();
  options.job_id = job.c_str();
  options.log = [](ringpipe_log_level, const char*, void*) {};
  ringpipe_communicator* communicator = nullptr;
  EXPECT_EQ(ringpipe_create(&options, &communicator), RINGPIPE_OK)
      << ringpipe_error_message();
  return communicator;
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
  if (!SharesMemory(GetParam())) {
    setenv("RINGPIPE_DEVICE", "soft", 1);
  }
  const std::string job = NewJob();
  auto other = std::async(std::launch::async, [&] {
    ringpipe_communicator* const communicator = CreateInC(1, job);
    static_cast<void>(
        ringpipe_exchange(communicator, "b", 1, nullptr, 0, nullptr));
    ringpipe_destroy(communicator);
  });
  ringpipe_communicator* const own = CreateInC(0, job);
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
  unsetenv("RINGPIPE_DEVICE");
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
