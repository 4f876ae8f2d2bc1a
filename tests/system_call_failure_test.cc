// Each system call and each allocation of a rank fails in turn, from its
// creation to its end, whichever thread makes it: the job goes on without it,
// or ends in time with an error on both ranks; the rank's says which resource
// it was, the peer's which rank; and nothing is left behind.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <iostream>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "base/failing_memory.h"
#include "base/liveness_bound.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/failing_calls.h"
#include "tests/holdings.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace {

constexpr const char* kOperatorNew = "operator_new";
// Of the thread that calls the library: the others have no caller to tell.
thread_local bool allocations_count = false;

bool AllocationFails() {
  return allocations_count && CallFails(kOperatorNew) != 0;
}

}  // namespace

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kRanks = 2;
constexpr std::size_t kCount = 50'000;
constexpr seconds kPatience(60);
constexpr seconds kEndsWithin = LivenessBound(seconds(2));
// A peer that hears of the failure has ended by then, or waits for who joins.
constexpr milliseconds kNews(200);
// Of a rank that waits for a rank 0 which has failed.
constexpr int kStoreJoinMs = 6000;

// How many hosts the ranks are to believe that they are on, or kByStore: one,
// where they find each other by a store of the caller's.
constexpr const char* kHostsVariable = "TEST_HOSTS";
constexpr const char* kByStore = "store";
// Only each so many-eth call of a kind fails, and no more than so many.
constexpr const char* kStrideVariable = "TEST_STRIDE";
constexpr int kMostOfAKind = 400;
// So few would mean that the calls are not those of the library.
constexpr int kLeastFailures = 20;

bool Hosts(std::string_view value) {
  return std::getenv(kHostsVariable) == value;
}

std::string StoreFile(const std::string& job) {
  return ::testing::TempDir() + job;
}

Status FileError(const std::string& what) {
  return {StatusCode::kUnavailable,
          what + " of the store: " + std::strerror(errno)};
}

Status PutInFile(const std::string& path, const std::string& value) {
  const std::string unfinished = path + ".new";
  const int file =
      open(unfinished.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) {
    return FileError("open");
  }
  const ssize_t written = write(file, value.data(), value.size());
  const Status status = written < 0 ? FileError("write") : Status();
  close(file);
  RINGPIPE_RETURN_IF_ERROR(status);
  return rename(unfinished.c_str(), path.c_str()) == 0 ? Status()
                                                       : FileError("rename");
}

Result<std::optional<std::string>> GetFromFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) {
    std::this_thread::sleep_for(milliseconds(1));
    return std::optional<std::string>();
  }
  if (file < 0) {
    return FileError("open");
  }
  std::array<char, Store::kMostBytes> value = {};
  const ssize_t bytes = read(file, value.data(), value.size());
  const Status status = bytes < 0 ? FileError("read") : Status();
  close(file);
  RINGPIPE_RETURN_IF_ERROR(status);
  return std::optional<std::string>(std::in_place, value.data(), bytes);
}

// A file that both processes see.
Store StoreOf(const std::string& job) {
  return {
      [path = StoreFile(job)](const std::string&, const std::string& value) {
        return PutInFile(path, value);
      },
      [path = StoreFile(job)](const std::string&, milliseconds) {
        return GetFromFile(path);
      }};
}

CommunicatorOptions OptionsFor(Way way, int rank, const std::string& job) {
  CommunicatorOptions options = RankOptions(way, rank, kRanks, job);
  if (Hosts(kByStore)) {
    options.root.clear();
    options.environment.root.clear();
    options.store = StoreOf(job);
  }
  if (Hosts("2")) {
    options.environment.host_id = "host " + std::to_string(rank);
    options.environment.secret = "of both hosts";
  }
  options.log = [](LogLevel, std::string_view) {};
  return options;
}

Status Sum(Communicator& communicator, float* data) {
  std::fill_n(data, kCount, 1.0F);
  RINGPIPE_RETURN_IF_ERROR(communicator.AllReduce(
      data, data, kCount, DataType::kFloat32, ReduceOp::kSum));
  return std::all_of(data, data + kCount, [](float v) { return v == kRanks; })
             ? Status()
             : Status(StatusCode::kInternal, "the result is wrong");
}

// Calls with memory of its own, of the communicator, and registered.
Status UseAll(Communicator& communicator) {
  std::vector<float> own(kCount);
  RINGPIPE_RETURN_IF_ERROR(Sum(communicator, own.data()));
  RINGPIPE_ASSIGN_OR_RETURN(void* const allocated,
                            communicator.Allocate(kCount * sizeof(float)));
  RINGPIPE_RETURN_IF_ERROR(Sum(communicator, static_cast<float*>(allocated)));
  RINGPIPE_RETURN_IF_ERROR(
      communicator.Register(own.data(), kCount * sizeof(float)));
  RINGPIPE_RETURN_IF_ERROR(Sum(communicator, own.data()));
  RINGPIPE_RETURN_IF_ERROR(communicator.Deregister(own.data()));
  RINGPIPE_RETURN_IF_ERROR(communicator.Free(allocated));
  return communicator.Barrier();
}

// A rank's whole life.
Status RunRank(const CommunicatorOptions& options) {
  auto communicator = Communicator::Create(options);
  if (!communicator.ok()) {
    return communicator.status();
  }
  Status status = OutOfMemory();
  try {
    status = UseAll(**communicator);
  } catch (const std::bad_alloc&) {
    // The test's own memory.
  }
  if (!status.ok()) {
    // The other one must not wait for a rank that gives up.
    (*communicator)
        ->Abort("rank " + std::to_string(options.rank.value()) + ": " +
                status.ToString());
  }
  return status;
}

// Runs a job in which one call fails, and tells the test: its name, and when it
// has ended whether there was such a call, the errno, the status, and what is
// left. Returns how many calls of the kind there were.
int RunOneJob(Way way, int rank, const FailingCall& call, int which) {
  const std::string job =
      NewJob() + "-" + call.name + "-" + std::to_string(which);
  Print(job);
  const CommunicatorOptions options = OptionsFor(way, rank, job);
  const Holdings before;
  Status status = OutOfMemory();
  FailCall(call.name, which);
  allocations_count = true;
  try {
    status = RunRank(options);
  } catch (const std::bad_alloc&) {
    // As it is.
  }
  allocations_count = false;
  const int made = StopFailing();
  Print(made > which ? "failed" : "whole");
  Print(call.name == kOperatorNew ? OutOfMemory().message()
                                  : std::strerror(call.error));
  Print(status.ToString());
  Print(WhatIsLeft(before));
  return made;
}

void RunJobs(Way way, int rank, const FailingCall& call, int most, int stride) {
  constexpr int kNone = std::numeric_limits<int>::max();
  const int made = std::min(RunOneJob(way, rank, call, kNone), most);
  for (int which = 0; which < made; which += stride) {
    RunOneJob(way, rank, call, which);
  }
}

int BeVictim(Way way) {
  const int rank = std::atoi(std::getenv("RINGPIPE_RANK"));
  const int stride = std::atoi(std::getenv(kStrideVariable));
  // What lasts as long as the process is made by the first job.
  RunOneJob(way, rank, {"no call", 0}, 0);
  for (const FailingCall* call = kFailingCalls; call->name != nullptr; ++call) {
    RunJobs(way, rank, *call, kMostOfAKind, stride);
  }
  RunJobs(way, rank, {kOperatorNew, ENOMEM}, std::numeric_limits<int>::max(),
          stride);
  Print("end");
  return 0;
}

// What asynchronous calls need at the first of them: a thread. Here the process
// may have no more address space, or no more threads.
enum class Lacking { kAddressSpace, kThreads };

void MayHaveNoMoreAddressSpace() {
  // Far below what it has, so that what another thread gives back meanwhile, a
  // stack or the mapping of a device, does not make room for one.
  constexpr rlim_t kBytes = 1 << 20;
  const rlimit limit = {kBytes, kBytes};
  setrlimit(RLIMIT_AS, &limit);
}

template <Lacking kLacking>
int BeWithoutAThread(Way way) {
  const int rank = std::atoi(std::getenv("RINGPIPE_RANK"));
  auto communicator = Communicator::Create(
      OptionsFor(way, rank, std::getenv("RINGPIPE_JOB_ID")));
  if (!communicator.ok()) {
    Print(communicator.status().ToString());
    return 1;
  }
  std::vector<float> data(kCount, 1);
  if (kLacking == Lacking::kAddressSpace) {
    MayHaveNoMoreAddressSpace();
  } else {
    FailCall("pthread_create", 0);
  }
  const auto request = (*communicator)
                           ->AllReduceAsync(data.data(), data.data(), kCount,
                                            DataType::kFloat32, ReduceOp::kSum);
  Print(request.status().ToString());
  Print((*communicator)->failure().ToString());
  AwaitGo();  // the peer is to hear of it from a rank that lives on
  return 0;
}

// What the other process said of a job.
struct Account {
  bool failed;
  std::string error;
  std::string status;
  std::string left;
};

// (the way, the rank, on how many hosts)
class SystemCallFailure
    : public ::testing::TestWithParam<std::tuple<Way, int, const char*>> {
 protected:
  // The healthy rank of `job`, while the victim is in it. Where the victim
  // could not join, somebody else takes its place, so that this need not wait.
  Status RunBeside(RankProcess& victim, const std::string& job,
                   Account& account) {
    const Way way = std::get<0>(GetParam());
    const int victim_rank = std::get<1>(GetParam());
    auto own = std::async(std::launch::async, [&] {
      CommunicatorOptions options = OptionsFor(way, 1 - victim_rank, job);
      if (Hosts(kByStore) && victim_rank == 0) {
        // Where the victim has listened, nobody comes.
        options.environment.join_timeout_ms = kStoreJoinMs;
      }
      return RunRank(options);
    });
    const std::string failed = victim.ReadLine(kPatience);
    if (failed.empty()) {
      victim.Signal(SIGKILL);  // else what it says later is of another job
    }
    account.failed = failed == "failed";
    account.error = victim.ReadLine(kPatience);
    account.status = victim.ReadLine(kPatience);
    account.left = victim.ReadLine(kPatience);
    if (own.wait_for(kNews) != std::future_status::ready) {
      CommunicatorOptions options = OptionsFor(way, victim_rank, job);
      options.environment.join_timeout_ms = 1000;
      static_cast<void>(RunRank(options));
    }
    Status status = own.get();
    unlink(StoreFile(job).c_str());
    return status;
  }

  // Whether the status of the rank says what failed.
  static bool NamesTheError(const Account& account) {
    const auto says = [&account](const std::string& words) {
      return account.status.find(words) != std::string::npos;
    };
    return says(account.error) ||
           // A verbs call says it by an errno.
           (says(std::strerror(ENOMEM)) &&
            account.error == OutOfMemory().message()) ||
           // Without an address of an interface the device says just that.
           says("no network interface") ||
           // Where its connection to another host breaks, that is the link.
           (std::get<2>(GetParam()) == std::string("2") &&
            says("IBV_WC_RETRY_EXC_ERR"));
  }

  void Check(const Account& account, const Status& own) {
    EXPECT_EQ(account.left, "");
    if (!account.failed) {
      EXPECT_EQ(account.status, "ok");
      EXPECT_TRUE(own.ok());
      return;
    }
    ++failed_;
    if (account.status == "ok") {
      // Unless it could not say that it leaves.
      EXPECT_TRUE(own.ok() || own.code() == StatusCode::kPeerLost);
      ++survived_;
      return;
    }
    EXPECT_TRUE(NamesTheError(account));
    if (!own.ok()) {
      const std::string name =
          "rank " + std::to_string(std::get<1>(GetParam()));
      EXPECT_NE(own.ToString().find(name), std::string::npos);
    }
  }

  int failed_ = 0;
  int survived_ = 0;
};

const auto kWays = ::testing::ValuesIn(WaysOf("system_call_failure_test"));

INSTANTIATE_TEST_SUITE_P(
    Ways, SystemCallFailure,
    ::testing::Combine(kWays, ::testing::Values(0, 1),
                       ::testing::Values("1", "2", kByStore)),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_rank" +
             std::to_string(std::get<1>(info.param)) +
             (std::get<2>(info.param) == kByStore
                  ? std::string("_by_a_store")
                  : std::string("_of_") + std::get<2>(info.param) + "hosts");
    });

TEST_P(SystemCallFailure, EndsTheJobWithTheReasonOrNotAtAll) {
  const auto& [way, rank, hosts] = GetParam();
  setenv(kHostsVariable, hosts, 1);
  RankProcess victim(way, "victim", rank, kRanks, NewJob());
  std::string job = victim.ReadLine(kPatience);
  std::string last;
  while (job != "end") {
    ASSERT_NE(job, "") << "after " << last << ", ended with "
                       << victim.Wait(kPatience);
    last = job;
    Account account;
    const auto start = steady_clock::now();
    const Status own = RunBeside(victim, job, account);
    const auto elapsed = steady_clock::now() - start;
    SCOPED_TRACE(job + ": the rank itself: " + account.status +
                 "; its peer: " + own.ToString());
    EXPECT_LT(elapsed, kEndsWithin);
    Check(account, own);
    job = victim.ReadLine(kPatience);
  }
  EXPECT_EQ(victim.Wait(kPatience), 0);
  EXPECT_GT(failed_, kLeastFailures);
  std::cout << failed_ << " calls failed, " << survived_
            << " of them without consequence\n";
}

class LeavingWithoutMemory : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, LeavingWithoutMemory, kWays, NameOfWay);

// The chain's first rank talks to the second alone, and has long ended its last
// call when the third one makes it.
TEST_P(LeavingWithoutMemory, EndsNoCallOfOthersForThat) {
  constexpr int kChain = 3;
  constexpr milliseconds kLate(200);
  int which = 0;
  for (int made = 1; which < made; ++which) {
    const std::string job = NewJob();
    const auto run = [&](int rank) -> Status {
      CommunicatorOptions options = RankOptions(GetParam(), rank, kChain, job);
      options.environment.algorithm = "broadcast:chain";
      RINGPIPE_ASSIGN_OR_RETURN(auto communicator,
                                Communicator::Create(options));
      if (rank == kChain - 1) {
        std::this_thread::sleep_for(kLate);
      }
      float value = rank == 0 ? 7 : 0;
      RINGPIPE_RETURN_IF_ERROR(
          communicator->Broadcast(&value, &value, 1, DataType::kFloat32, 0));
      EXPECT_EQ(value, 7);
      if (rank == 0) {
        FailCall(kOperatorNew, which);
        allocations_count = true;
        communicator.reset();
        allocations_count = false;
        made = StopFailing();
      }
      return Status::Ok();
    };
    std::vector<std::future<Status>> ranks;
    for (int rank = 0; rank < kChain; ++rank) {
      ranks.push_back(std::async(std::launch::async, run, rank));
    }
    for (std::future<Status>& rank : ranks) {
      const Status status = rank.get();
      EXPECT_TRUE(status.ok()) << which << ": " << status.ToString();
    }
  }
  EXPECT_GT(which, 0);
}

// (the way, the system call)
class ForbiddenCall
    : public ::testing::TestWithParam<std::tuple<Way, const char*>> {};

INSTANTIATE_TEST_SUITE_P(
    Ways, ForbiddenCall,
    ::testing::Combine(kWays,
                       ::testing::Values("memfd_create", "fallocate", "fcntl",
                                         "getifaddrs", "epoll_create1",
                                         "eventfd", "pthread_create",
                                         "socketpair")),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_" +
             std::get<1>(info.param);
    });

// More of a resource would not help.
TEST_P(ForbiddenCall, IsNamedAndNoLimitIsToBeRaised) {
  const auto& [way, call] = GetParam();
  if (!SharesMemory(way) && call == std::string("fallocate")) {
    GTEST_SKIP() << "the software device only gives memory back by it";
  }
  if (SharesMemory(way) && call == std::string("eventfd")) {
    GTEST_SKIP() << "Asio alone asks for one, and takes a pipe instead";
  }
  setenv(kHostsVariable, "1", 1);
  const std::string job = NewJob();
  std::mutex mutex;
  std::string log;
  const auto run = [&, way = way](int rank) {
    CommunicatorOptions options = OptionsFor(way, rank, job);
    options.log = [&](LogLevel, std::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex);
      log += line;
    };
    return RunRank(options);
  };
  // The test's own threads are there before.
  std::promise<void> start;
  auto other = std::async(std::launch::async, [&] {
    start.get_future().wait();
    return run(1);
  });
  ForbidCall(call);
  start.set_value();
  const Status statuses[] = {run(0), other.get()};
  if (StopFailing() == 0) {
    GTEST_SKIP() << "ranks that are connected in this way do without it";
  }
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied)
        << status.ToString();
    const std::string said = status.ToString() + log;
    for (const char* part : {call, "EPERM", "the system forbids this call"}) {
      EXPECT_NE(said.find(part), std::string::npos) << part << ": " << said;
    }
    for (const char* part :
         {"ulimit", "more memory", "fewer ranks", "set lo up"}) {
      EXPECT_EQ(said.find(part), std::string::npos) << said;
    }
  }
}

struct Lack {
  const char* role;
  const char* advice;  // what is to be raised then
};

// (the way, the rank, what it lacks)
class WithoutAThread
    : public ::testing::TestWithParam<std::tuple<Way, int, Lack>> {};

INSTANTIATE_TEST_SUITE_P(
    Ways, WithoutAThread,
    ::testing::Combine(
        kWays, ::testing::Values(0, 1),
        ::testing::Values(Lack{"without_address_space", "'ulimit -v'"},
                          Lack{"without_threads", "'ulimit -u'"})),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_rank" +
             std::to_string(std::get<1>(info.param)) + "_" +
             std::get<2>(info.param).role;
    });

TEST_P(WithoutAThread, AnAsynchronousCallEndsTheJobWithTheReasonAtOnce) {
  const auto& [way, rank, lack] = GetParam();
  setenv(kHostsVariable, "1", 1);
  const std::string job = NewJob();
  RankProcess victim(way, lack.role, rank, kRanks, job);
  auto own = std::async(std::launch::async, [&, way = way, rank = rank] {
    return RunRank(OptionsFor(way, 1 - rank, job));
  });
  const std::string returned = victim.ReadLine(kPatience);
  for (const char* part :
       {"resource exhausted", "the progress thread", lack.advice}) {
    EXPECT_NE(returned.find(part), std::string::npos) << returned;
  }
  EXPECT_EQ(victim.ReadLine(kPatience), returned);
  EXPECT_EQ(own.wait_for(kEndsWithin), std::future_status::ready);
  const std::string advice = returned.substr(returned.find("starting"));
  victim.Go();
  const Status told = own.get();
  EXPECT_EQ(told.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(told.message(), "rank " + std::to_string(rank) + ": " + advice);
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  ringpipe::SetAllocationFailure(&AllocationFails);
  return RunRoleOrTests(
      argc, argv,
      {{"victim", &BeVictim},
       {"without_address_space", &BeWithoutAThread<Lacking::kAddressSpace>},
       {"without_threads", &BeWithoutAThread<Lacking::kThreads>}});
}
