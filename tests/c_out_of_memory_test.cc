// Each allocation of each function of the C interface fails in turn, on one of
// four ranks: the function's status says so, what the header promises holds,
// and no rank waits for another in vain.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <latch>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "base/failing_memory.h"
#include "base/liveness_bound.h"
#include "engine/ringpipe.h"
#include "gtest/gtest.h"
#include "tests/create_in_c.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr int kVictim = 2;  // whose memory runs out
constexpr int kRoot = 1;
constexpr std::size_t kCount = 100;  // elements of a part
constexpr long kMost = 5'000;        // nothing here has as many allocations

// What a rank does with its communicator.
using Body = std::function<ringpipe_status(ringpipe_communicator*)>;

ringpipe_status Barrier(ringpipe_communicator* communicator) {
  return ringpipe_barrier(communicator, RINGPIPE_DEFAULT_TIMEOUT, nullptr);
}

// Runs a job whose rank kVictim is this thread. Bodies begin when all have been
// created. A rank whose body fails destroys its communicator when all bodies
// have returned: who sees the end of a rank may give it as the reason. Returns
// the statuses of all.
std::vector<ringpipe_status> RunJob(const Body& victim, const Body& other) {
  const std::string job = NewJob();
  std::vector<ringpipe_status> statuses(kRanks);
  std::latch created(kRanks), ended(kRanks);
  const auto run = [&](int rank, const Body& body) {
    ringpipe_communicator* const own = CreateInC(rank, kRanks, job);
    created.arrive_and_wait();
    statuses[rank] = body(own);
    ended.count_down();
    if (statuses[rank] != RINGPIPE_OK) {
      ended.wait();
    }
    ringpipe_destroy(own);
  };
  std::vector<std::thread> others;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != kVictim) {
      others.emplace_back(run, rank, other);
    }
  }
  run(kVictim, victim);
  for (std::thread& thread : others) {
    thread.join();
  }
  return statuses;
}

void ExpectAll(const std::vector<ringpipe_status>& statuses,
               ringpipe_status expected) {
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_STREQ(ringpipe_status_name(statuses[rank]),
                 ringpipe_status_name(expected))
        << "rank " << rank;
  }
}

// Calls f(which), which lets that allocation fail and says whether there was
// one, for each so many-eth until there is none. Returns how many it tried.
template <typename F>
long CountFailures(F f, long stride = 1) {
  long which = 0;
  while (which < kMost && f(which)) {
    which += stride;
  }
  EXPECT_LT(which, kMost);
  return which;
}

class COutOfMemory : public ::testing::TestWithParam<Way> {
 private:
  const WayOfThisProcess way_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Ways, COutOfMemory,
                         ::testing::ValuesIn(WaysOf("c_out_of_memory_test")),
                         NameOfWay);

// --- What concerns this rank alone ---

// A function that fails without memory, and after which the job goes on.
struct Local {
  const char* name;
  std::function<ringpipe_status()> call;
  std::function<void()> before = [] {};
};

std::vector<Local> LocalFunctions(ringpipe_communicator* own, void*& memory,
                                  std::vector<char>& registered) {
  const auto allocate = [=, &memory] {
    return ringpipe_allocate(own, kCount, &memory);
  };
  const auto enter = [=, &registered] {
    return ringpipe_register(own, registered.data(), registered.size());
  };
  const auto leave = [=, &registered] {
    return ringpipe_deregister(own, registered.data());
  };
  return {
      {"allocate", allocate},
      {"free, of what is none", [=] { return ringpipe_free(own, own); }},
      {"register", enter, [leave] { static_cast<void>(leave()); }},
      {"device",
       [=] {
         std::array<char, 200> text = {};
         return ringpipe_device(own, text.data(), text.size(), nullptr);
       }},
      {"read_stage",
       [=] {
         ringpipe_stage_counters stage = {};
         stage.struct_size = sizeof stage;
         return ringpipe_read_stage(own, 0, &stage);
       }},
  };
}

// Those that need no memory where they succeed.
std::vector<Local> FrugalFunctions(ringpipe_communicator* own, void*& memory,
                                   std::vector<char>& registered) {
  return {
      {"free", [=, &memory] { return ringpipe_free(own, memory); },
       [=, &memory] {
         EXPECT_EQ(ringpipe_allocate(own, kCount, &memory), RINGPIPE_OK);
       }},
      {"deregister",
       [=, &registered] { return ringpipe_deregister(own, registered.data()); },
       [=, &registered] {
         EXPECT_EQ(ringpipe_register(own, registered.data(), registered.size()),
                   RINGPIPE_OK);
       }},
      {"failure", [=] { return ringpipe_failure(own); }},
      {"lost_ranks",
       [=] {
         std::array<std::int32_t, kRanks> ranks = {};
         std::size_t count = 0;
         return ringpipe_lost_ranks(own, ranks.data(), ranks.size(), &count);
       }},
      {"read_slots",
       [=] {
         ringpipe_slot_counters slots = {};
         slots.struct_size = sizeof slots;
         return ringpipe_read_slots(own, &slots);
       }},
      {"rank, size, version, status_name, error_message",
       [=] {
         const bool right =
             ringpipe_rank(own) == kVictim && ringpipe_size(own) == kRanks &&
             ringpipe_version_number() >= 0 && *ringpipe_version() != '\0' &&
             *ringpipe_status_name(RINGPIPE_TIMEOUT) != '\0' &&
             ringpipe_error_message() != nullptr;
         return right ? RINGPIPE_OK : RINGPIPE_INTERNAL;
       }},
  };
}

// The allocations of `local` that fail, each of which is its status, but those
// for the message of another error, `end`.
long Try(const Local& local, ringpipe_status end) {
  return CountFailures([&](long which) {
    local.before();
    ringpipe_status status = RINGPIPE_OK;
    const bool failed = FailOne(which, [&] { status = local.call(); });
    EXPECT_TRUE(status == (failed ? RINGPIPE_RESOURCE_EXHAUSTED : end) ||
                (failed && end != RINGPIPE_OK && status == end))
        << local.name << ", allocation " << which << ": "
        << ringpipe_status_name(status);
    return failed;
  });
}

TEST_P(COutOfMemory, WhatConcernsOneRankFailsThereAloneAndTheJobGoesOn) {
  const auto statuses = RunJob(
      [](ringpipe_communicator* own) {
        void* memory = nullptr;
        std::vector<char> registered(kCount);
        for (const Local& local : LocalFunctions(own, memory, registered)) {
          const bool is_wrong =
              std::string(local.name).find("none") != std::string::npos;
          EXPECT_GT(
              Try(local, is_wrong ? RINGPIPE_INVALID_ARGUMENT : RINGPIPE_OK), 0)
              << local.name;
        }
        EXPECT_EQ(ringpipe_deregister(own, registered.data()), RINGPIPE_OK);
        for (const Local& local : FrugalFunctions(own, memory, registered)) {
          EXPECT_EQ(Try(local, RINGPIPE_OK), 0) << local.name;
        }
        EXPECT_EQ(ringpipe_failure(own), RINGPIPE_OK);
        return Barrier(own);
      },
      &Barrier);
  ExpectAll(statuses, RINGPIPE_OK);
}

// --- Calls ---

// Makes a call: it blocks if `request` is NULL.
struct NamedCall {
  const char* name;
  std::function<ringpipe_status(ringpipe_communicator*, float* send,
                                float* receive, ringpipe_request** request)>
      make;
};

ringpipe_call AllReduce(const float* send, float* receive) {
  ringpipe_call call = {};
  call.struct_size = sizeof call;
  call.collective = RINGPIPE_ALL_REDUCE;
  call.send = send;
  call.receive = receive;
  call.count = kCount;
  call.data_type = RINGPIPE_FLOAT32;
  return call;
}

constexpr ringpipe_data_type kType = RINGPIPE_FLOAT32;
constexpr std::int64_t kTimeout = RINGPIPE_DEFAULT_TIMEOUT;

std::vector<NamedCall> Calls() {
  return {
      {"run or start",
       [](auto* own, float* send, float* receive, auto** request) {
         const ringpipe_call call = AllReduce(send, receive);
         return request == nullptr ? ringpipe_run(own, &call)
                                   : ringpipe_start(own, &call, request);
       }},
      {"all_reduce",
       [](auto* own, float* send, float* receive, auto** request) {
         return ringpipe_all_reduce(own, send, receive, kCount, kType,
                                    RINGPIPE_SUM, kTimeout, request);
       }},
      {"reduce_scatter",
       [](auto* own, float* send, float* receive, auto** request) {
         return ringpipe_reduce_scatter(own, send, receive, kCount, kType,
                                        RINGPIPE_SUM, kTimeout, request);
       }},
      {"all_gather",
       [](auto* own, float* send, float* receive, auto** request) {
         return ringpipe_all_gather(own, send, receive, kCount, kType, kTimeout,
                                    request);
       }},
      {"broadcast",
       [](auto* own, float* send, float* receive, auto** request) {
         return ringpipe_broadcast(own, send, receive, kCount, kType, kRoot,
                                   kTimeout, request);
       }},
      {"barrier",
       [](auto* own, float*, float*, auto** request) {
         return ringpipe_barrier(own, kTimeout, request);
       }},
      {"reduce",
       [](auto* own, float* send, float* receive, auto** request) {
         return ringpipe_reduce(own, send, receive, kCount, kType, RINGPIPE_SUM,
                                kRoot, kTimeout, request);
       }},
      {"gather",
       [](auto* own, float* send, float* receive, auto** request) {
         return ringpipe_gather(own, send, receive, kCount, kType, kRoot,
                                kTimeout, request);
       }},
      {"scatter",
       [](auto* own, float* send, float* receive, auto** request) {
         return ringpipe_scatter(own, send, receive, kCount, kType, kRoot,
                                 kTimeout, request);
       }},
      {"all_to_all",
       [](auto* own, float* send, float* receive, auto** request) {
         return ringpipe_all_to_all(own, send, receive, kCount, kType, kTimeout,
                                    request);
       }},
      {"exchange",
       [](auto* own, float*, float*, auto**) {
         // Too long to lie in a string itself.
         constexpr std::array<char, 100> kBlob = {};
         std::array<char, kRanks * kBlob.size()> blobs = {};
         return ringpipe_exchange(own, kBlob.data(), kBlob.size(), blobs.data(),
                                  kBlob.size(), nullptr);
       }},
  };
}

// To its end, whatever it is. Allocates nothing itself.
ringpipe_status Finish(const NamedCall& call, ringpipe_communicator* own,
                       bool blocks) {
  std::array<float, kRanks*kCount> send = {}, receive = {};
  ringpipe_request* request = nullptr;
  ringpipe_status status =
      call.make(own, send.data(), receive.data(), blocks ? nullptr : &request);
  if (request != nullptr) {
    status = ringpipe_wait(request, RINGPIPE_DEFAULT_TIMEOUT);
    ringpipe_request_free(request);
  }
  return status;
}

// A rank that has all of this call may learn of it in the next.
ringpipe_status ThenBarrier(ringpipe_status status,
                            ringpipe_communicator* own) {
  return status == RINGPIPE_OK ? Barrier(own) : status;
}

TEST_P(COutOfMemory, ACallFailsTheCommunicatorOnAllRanks) {
  const std::vector<NamedCall> calls = Calls();
  for (const NamedCall& call : calls) {
    for (const bool blocks : {true, false}) {
      SCOPED_TRACE(std::string(call.name) + (blocks ? "" : ", a request"));
      // By another name it is the same call.
      const long stride = &call == &calls.front() ? 1 : 7;
      const long failures = CountFailures(
          [&](long which) {
            SCOPED_TRACE("allocation " + std::to_string(which));
            bool failed = false;
            const auto statuses = RunJob(
                [&](ringpipe_communicator* own) {
                  ringpipe_status status = RINGPIPE_OK;
                  failed = FailOne(which,
                                   [&] { status = Finish(call, own, blocks); });
                  EXPECT_EQ(status == RINGPIPE_OK, !failed);
                  return ThenBarrier(status, own);
                },
                [&](ringpipe_communicator* own) {
                  return ThenBarrier(Finish(call, own, true), own);
                });
            ExpectAll(statuses,
                      failed ? RINGPIPE_RESOURCE_EXHAUSTED : RINGPIPE_OK);
            return failed;
          },
          stride);
      EXPECT_GT(failures, 0);
    }
  }
}

// --- Waits ---

// That ends without the call's end, as the call runs on.
struct NamedWait {
  const char* name;
  std::function<ringpipe_status(ringpipe_request*)> wait;
  ringpipe_status end;
};

std::vector<NamedWait> Waits() {
  return {
      {"wait",
       [](ringpipe_request* request) { return ringpipe_wait(request, 1); },
       RINGPIPE_WAIT_OVER},
      {"wait_all",
       [](ringpipe_request* request) {
         return ringpipe_wait_all(&request, 1, 1);
       },
       RINGPIPE_WAIT_OVER},
      {"wait_any",
       [](ringpipe_request* request) {
         std::size_t index = 0;
         const ringpipe_status status =
             ringpipe_wait_any(&request, 1, 1, &index);
         EXPECT_EQ(index, 1U);
         return status;
       },
       RINGPIPE_WAIT_OVER},
      {"test",
       [](ringpipe_request* request) {
         int ended = 1;
         const ringpipe_status status = ringpipe_test(request, &ended);
         EXPECT_EQ(ended, 0);
         return status;
       },
       RINGPIPE_OK},
  };
}

TEST_P(COutOfMemory, AWaitEndsAloneAndTheCallRunsOn) {
  std::atomic<bool> waits_are_over = false;
  const auto statuses = RunJob(
      [&](ringpipe_communicator* own) {
        ringpipe_request* request = nullptr;
        EXPECT_EQ(ringpipe_barrier(own, RINGPIPE_DEFAULT_TIMEOUT, &request),
                  RINGPIPE_OK);
        for (const NamedWait& one : Waits()) {
          CountFailures([&](long which) {
            ringpipe_status status = RINGPIPE_OK;
            const bool failed =
                FailAllFrom(which, [&] { status = one.wait(request); });
            // Without memory for a message it may say what has happened.
            EXPECT_TRUE(status == one.end ||
                        (failed && status == RINGPIPE_RESOURCE_EXHAUSTED))
                << one.name << ": " << ringpipe_status_name(status);
            return failed;
          });
        }
        waits_are_over = true;
        const ringpipe_status status =
            ringpipe_wait(request, RINGPIPE_DEFAULT_TIMEOUT);
        EXPECT_FALSE(FailAllFrom(0, [&] { ringpipe_request_free(request); }));
        return status;
      },
      [&](ringpipe_communicator* own) {
        while (!waits_are_over) {
          std::this_thread::yield();
        }
        return Barrier(own);
      });
  ExpectAll(statuses, RINGPIPE_OK);
}

TEST_P(COutOfMemory, AWaitForACallThatHasFailedSaysHow) {
  std::atomic<bool> started = false;
  const auto statuses = RunJob(
      [&](ringpipe_communicator* own) {
        ringpipe_request* request = nullptr;
        EXPECT_EQ(ringpipe_barrier(own, RINGPIPE_DEFAULT_TIMEOUT, &request),
                  RINGPIPE_OK);
        started = true;
        ringpipe_wait(request, RINGPIPE_DEFAULT_TIMEOUT);
        ringpipe_status status = RINGPIPE_OK, failure = RINGPIPE_OK;
        EXPECT_TRUE(FailAllFrom(0, [&] {
          status = ringpipe_wait(request, RINGPIPE_DEFAULT_TIMEOUT);
          failure = ringpipe_failure(own);
        }));
        EXPECT_EQ(failure, status);
        ringpipe_request_free(request);
        return status;
      },
      [&](ringpipe_communicator* own) {
        while (!started) {
          std::this_thread::yield();
        }
        ringpipe_abort(own, "the test ends here, for a reason of some length");
        return ringpipe_failure(own);
      });
  ExpectAll(statuses, RINGPIPE_ABORTED);
}

// --- The beginning and the end ---

TEST_P(COutOfMemory, AnAbortReachesAllRanks) {
  const long failures = CountFailures([](long which) {
    bool failed = false;
    const auto statuses = RunJob(
        [&](ringpipe_communicator* own) {
          failed = FailAllFrom(which, [&] {
            ringpipe_abort(own, "a reason too long to lie in a string itself");
          });
          return ringpipe_failure(own);
        },
        &Barrier);
    ExpectAll(statuses, RINGPIPE_ABORTED);
    return failed;
  });
  EXPECT_GT(failures, 0);
}

TEST_P(COutOfMemory, ADestructionEndsNoCallOfOthers) {
  const long failures = CountFailures([](long which) {
    bool failed = false;
    const std::string job = NewJob();
    std::vector<std::future<ringpipe_status>> others;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank != kVictim) {
        others.push_back(std::async(std::launch::async, [rank, &job] {
          ringpipe_communicator* const own = CreateInC(rank, kRanks, job);
          const ringpipe_status status = Barrier(own);
          // After the victim: who leaves last need not allocate anything.
          const Clock::time_point latest =
              Clock::now() + std::chrono::seconds(10);
          for (std::size_t gone = 0; gone == 0 && Clock::now() < latest;
               std::this_thread::yield()) {
            EXPECT_EQ(ringpipe_lost_ranks(own, nullptr, 0, &gone), RINGPIPE_OK);
          }
          ringpipe_destroy(own);
          return status;
        }));
      }
    }
    ringpipe_communicator* const own = CreateInC(kVictim, kRanks, job);
    EXPECT_EQ(Barrier(own), RINGPIPE_OK);
    ringpipe_status left = RINGPIPE_OK;
    failed = FailOne(which, [&] {
      left = ringpipe_leave(own);
      ringpipe_destroy(own);
    });
    EXPECT_EQ(left, RINGPIPE_OK);
    for (std::future<ringpipe_status>& other : others) {
      EXPECT_EQ(other.get(), RINGPIPE_OK);
    }
    return failed;
  });
  EXPECT_GT(failures, 0);
}

// Creates and destroys; when that has failed on another rank, ends it soon.
struct Creation {
  std::atomic<Clock::time_point> given_up = Clock::time_point::max();

  ringpipe_status Run(int rank, const std::string& job) {
    const std::string root = "unix:@" + job;
    ringpipe_options options = OptionsInC(rank, kRanks, root, job);
    options.while_waiting = [](void* context) {
      return Clock::now() > static_cast<Creation*>(context)->given_up.load()
                 ? 1
                 : 0;
    };
    options.while_waiting_context = this;
    options.interval_us = 1000;
    ringpipe_communicator* own = nullptr;
    const ringpipe_status status = ringpipe_create(&options, &own);
    EXPECT_EQ(own != nullptr, status == RINGPIPE_OK);
    const ringpipe_status after = own != nullptr ? Barrier(own) : status;
    ringpipe_destroy(own);
    return after;
  }
};

// One in so many: there are hundreds.
TEST_P(COutOfMemory, ACreationFailsOnAllRanks) {
  constexpr long kStride = 17;
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; which += kStride) {
    Creation creation;
    const std::string job = NewJob();
    std::vector<std::future<ringpipe_status>> others;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank != kVictim) {
        others.push_back(std::async(
            std::launch::async, [&, rank] { return creation.Run(rank, job); }));
      }
    }
    const std::string root = "unix:@" + job;
    const ringpipe_options options = OptionsInC(kVictim, kRanks, root, job);
    ringpipe_communicator* own = nullptr;
    ringpipe_status status = RINGPIPE_OK;
    failed = FailOne(which, [&] { status = ringpipe_create(&options, &own); });
    EXPECT_EQ(status == RINGPIPE_OK, own != nullptr);
    // Some allocations it can do without.
    EXPECT_TRUE(status == RINGPIPE_OK ||
                (failed && status == RINGPIPE_RESOURCE_EXHAUSTED))
        << "allocation " << which << ": " << ringpipe_error_message();
    if (status == RINGPIPE_OK) {
      EXPECT_EQ(Barrier(own), RINGPIPE_OK);
    } else {
      creation.given_up = Clock::now() + std::chrono::seconds(2);
    }
    // Together with the others.
    ringpipe_destroy(own);
    const auto start = Clock::now();
    for (std::future<ringpipe_status>& other : others) {
      EXPECT_EQ(other.get() == RINGPIPE_OK, status == RINGPIPE_OK)
          << "allocation " << which;
    }
    EXPECT_LT(Clock::now() - start, LivenessBound(std::chrono::seconds(3)));
  }
  EXPECT_GT(which, kStride);
  EXPECT_LT(which, kMost);
}

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(COutOfMemoryTest, TriesEveryFunctionOfTheHeader) {
  const std::string header = ReadFile("engine/ringpipe.h");
  const std::string tried = ReadFile("tests/c_out_of_memory_test.cc");
  const std::regex function("RINGPIPE_API[^;]*?(ringpipe_\\w+\\()");
  int functions = 0;
  for (std::sregex_iterator found(header.begin(), header.end(), function), end;
       found != end; ++found) {
    ++functions;
    EXPECT_NE(tried.find((*found)[1].str()), std::string::npos)
        << (*found)[1].str() << " is not tried";
  }
  EXPECT_GT(functions, 25);
}

}  // namespace
}  // namespace ringpipe::testing
