// RINGPIPE_TRACE: which files are there in the end, and what is in them.
// bench/timeline_test.py checks their format.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kLong = 100'000;

Status Reduce(Communicator& c, std::size_t count) {
  const std::vector<float> send(count, 1);
  std::vector<float> receive(count);
  return c.AllReduce(send.data(), receive.data(), count, DataType::kFloat32,
                     ReduceOp::kSum);
}

// --- Roles ---

// Makes a call, and exits when the test says so, without destroying its
// communicator.
int LeaveItBehind(Way /*way*/) {
  auto communicator = Communicator::Create(*CommunicatorOptions::FromProcess());
  if (!communicator.ok() || !Reduce(**communicator, kLong).ok()) {
    return 1;
  }
  // Still reachable: nothing that a leak checker complains of.
  [[maybe_unused]] static Communicator& left_behind = *communicator->release();
  Print("done");
  AwaitGo();
  return 0;
}

// --- Tests ---

class TraceTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override { StartAfresh(); }
  void TearDown() override { fs::remove_all(directory_); }

  // An empty directory, in place of the one before.
  void StartAfresh() {
    if (!directory_.empty()) {
      fs::remove_all(directory_);
    }
    directory_ = fs::path(::testing::TempDir()) / NewJob();
    fs::create_directory(directory_);
    errors_.clear();
    left_apart_ = false;
  }

  // Runs jobs that trace, afresh, until all of their ranks have left together:
  // where one gets no core for 2 s, the others leave without it, and each rank
  // writes a file of its own.
  void RunTogether(const std::function<void()>& jobs) {
    constexpr int kRuns = 3;
    jobs();
    for (int run = 1; run < kRuns && left_apart_; ++run) {
      StartAfresh();
      jobs();
    }
  }

  std::string path() const { return directory_ / "trace"; }

  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  // How many events each rank has of each category.
  std::map<int, std::map<std::string, int>> Count(
      const std::string& name) const {
    std::ifstream file(directory_ / name);
    const Json document = Json::parse(file, nullptr, /*exceptions=*/false);
    std::map<int, std::map<std::string, int>> counts;
    EXPECT_TRUE(document.is_object()) << name;
    if (document.is_object()) {
      for (const Json& event : document["traceEvents"]) {
        const std::string phase = event["ph"];
        if (phase == "X" || phase == "b") {
          ++counts[event["pid"]][event["cat"]];
        }
      }
    }
    return counts;
  }

  auto TraceTo(const std::string& file) {
    return [this, file](int, CommunicatorOptions& options) {
      options.environment.trace = file;
      options.environment.log_level = LogLevel::kWarning;
      options.log = [this](LogLevel level, std::string_view line) {
        const std::lock_guard<std::mutex> lock(mutex_);
        left_apart_ |= line.find("any longer for") != std::string_view::npos;
        if (level == LogLevel::kError) {
          errors_.emplace_back(line);
        }
      };
    };
  }

  fs::path directory_;
  std::mutex mutex_;  // guards both
  std::vector<std::string> errors_;
  bool left_apart_ = false;
};

INSTANTIATE_TEST_SUITE_P(Ways, TraceTest,
                         ::testing::ValuesIn(WaysOf("trace_test")), NameOfWay);

TEST_P(TraceTest, OneFileHasTheCallsOfAllRanks) {
  for (const int size : {1, 2, 3}) {
    StartAfresh();
    RunTogether([&] {
      ExpectRanks(
          GetParam(), size,
          [](Communicator& c) -> Status {
            RINGPIPE_RETURN_IF_ERROR(Reduce(c, 2));
            RINGPIPE_RETURN_IF_ERROR(Reduce(c, kLong));
            return c.Barrier();
          },
          TraceTo(path()));
    });
    auto counts = Count("trace");
    ASSERT_EQ(counts.size(), static_cast<std::size_t>(size));
    for (auto& [rank, tracks] : counts) {
      EXPECT_EQ(tracks["call"], 3) << rank;
      if (size > 1) {
        EXPECT_GT(tracks["send"], 0) << rank;
        EXPECT_GT(tracks["receive"], 0) << rank;
        EXPECT_GT(tracks["reduce"], 0) << rank;
      }
    }
    EXPECT_EQ(Files().size(), 1u);
  }
}

TEST_P(TraceTest, AsynchronousCallsAreInIt) {
  RunTogether([&] {
    ExpectRanks(
        GetParam(), 2,
        [](Communicator& c) -> Status {
          const std::vector<float> send(kLong, 1);
          std::vector<float> receive(kLong);
          RINGPIPE_ASSIGN_OR_RETURN(
              Request request,
              c.AllReduceAsync(send.data(), receive.data(), kLong,
                               DataType::kFloat32, ReduceOp::kSum));
          return request.Wait();
        },
        TraceTo(path()));
  });
  auto counts = Count("trace");
  for (const int rank : {0, 1}) {
    EXPECT_EQ(counts[rank]["call"], 1);
    EXPECT_GT(counts[rank]["reduce"], 0);
  }
}

TEST_P(TraceTest, TheNextCommunicatorOfAProcessWritesAnotherFile) {
  RunTogether([&] {
    for (int i = 0; i < 3; ++i) {
      ExpectRanks(
          GetParam(), 2, [](Communicator& c) { return c.Barrier(); },
          TraceTo(path()));
    }
  });
  EXPECT_EQ(Files(), (std::set<std::string>{"trace", "trace.2", "trace.3"}));
}

TEST_P(TraceTest, AFileThatCannotBeWrittenIsAnErrorInTheLogAndOfNoCall) {
  std::string nowhere;
  RunTogether([&] {
    nowhere = directory_ / "none" / "trace";
    ExpectRanks(
        GetParam(), 2, [](Communicator& c) { return Reduce(c, kLong); },
        TraceTo(nowhere));
  });
  ASSERT_EQ(errors_.size(), 1u) << ::testing::PrintToString(errors_);
  EXPECT_NE(errors_[0].find(nowhere), std::string::npos) << errors_[0];
  EXPECT_NE(errors_[0].find("ENOENT"), std::string::npos) << errors_[0];
  EXPECT_TRUE(Files().empty());
}

TEST_P(TraceTest, AFullDiskIsAnErrorInTheLogAndLeavesNothingBehind) {
  struct rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  RunTogether([&] {
    ExpectRanks(
        GetParam(), 2,
        [&](Communicator& c) -> Status {
          RINGPIPE_RETURN_IF_ERROR(Reduce(c, kLong));
          const std::lock_guard<std::mutex> lock(mutex_);
          const struct rlimit small = {1000, before.rlim_max};
          setrlimit(RLIMIT_FSIZE, &small);
          return Status::Ok();
        },
        TraceTo(path()));
    setrlimit(RLIMIT_FSIZE, &before);
  });
  // Rank 0's: of the file of all, and of its own.
  ASSERT_EQ(errors_.size(), 2u);
  for (const std::string& line : errors_) {
    EXPECT_NE(line.find("[rank 0] no trace of "), std::string::npos) << line;
    EXPECT_NE(line.find("EFBIG"), std::string::npos) << line;
  }
  EXPECT_TRUE(Files().empty());
}

TEST_P(TraceTest, RanksThatDoNotAllTraceAreAMismatch) {
  for (const Status& status : RunRanks(
           GetParam(), 2, [](Communicator&c) { return c.Barrier(); },
           [&](int rank, CommunicatorOptions&options) {
             options.environment.trace = rank == 1 ? path() : "";
           })) {
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.ToString();
    EXPECT_NE(status.message().find("RINGPIPE_TRACE"), std::string::npos)
        << status.ToString();
  }
}

TEST_P(TraceTest, AFailedJobLeavesAFileOfEachRank) {
  RunRanks(
      GetParam(), 2,
      [](Communicator& c) -> Status {
        RINGPIPE_RETURN_IF_ERROR(Reduce(c, kLong));
        // Rank 1 does not make this call.
        return c.rank() == 0 ? c.Barrier(std::chrono::milliseconds(50))
                             : Status(StatusCode::kInternal, "broken");
      },
      TraceTo(path()));
  EXPECT_EQ(Files(), (std::set<std::string>{"trace.rank0", "trace.rank1"}));
  for (const int rank : {0, 1}) {
    auto counts = Count("trace.rank" + std::to_string(rank));
    EXPECT_EQ(counts.size(), 1u);
    EXPECT_GE(counts[rank]["call"], 1);
    EXPECT_GT(counts[rank]["reduce"], 0);
  }
}

TEST_P(TraceTest, ProcessesThatExitWithoutDestroyingLeaveAFileEach) {
  const std::string job = NewJob();
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back(GetParam(), "leave it behind", rank, 2, job,
                       std::vector{"RINGPIPE_TRACE=" + path()});
  }
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(std::chrono::seconds(60)), "done");
  }
  for (RankProcess& rank : ranks) {
    rank.Go();
    const int status = rank.Wait(std::chrono::seconds(60));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(Files(), (std::set<std::string>{"trace.rank0", "trace.rank1"}));
  for (const int rank : {0, 1}) {
    auto counts = Count("trace.rank" + std::to_string(rank));
    EXPECT_EQ(counts[rank]["call"], 1);
    EXPECT_GT(counts[rank]["reduce"], 0);
  }
}

TEST_P(TraceTest, AChildOfForkWritesNothing) {
  RunTogether([&] {
    ExpectRanks(
        GetParam(), 2,
        [&](Communicator& c) -> Status {
          RINGPIPE_RETURN_IF_ERROR(Reduce(c, kLong));
          if (c.rank() == 1) {
            return c.Barrier();
          }
          const pid_t child = fork();
          if (child == 0) {
            c.~Communicator();
            _exit(0);
          }
          int status = -1;
          waitpid(child, &status, 0);
          EXPECT_EQ(status, 0);
          EXPECT_TRUE(Files().empty());
          return c.Barrier();
        },
        TraceTo(path()));
  });
  EXPECT_EQ(Files(), std::set<std::string>{"trace"});
}

// A ring of 65536 events; each of these calls has four at least.
// Whichever way the calls go.
class FullTraceTest : public TraceTest {};

INSTANTIATE_TEST_SUITE_P(Ways, FullTraceTest,
                         ::testing::Values(Way::kHostMemory), NameOfWay);

TEST_P(FullTraceTest, KeepsTheLastCallsAndCountsTheOthers) {
  constexpr int kCalls = 17'000;
  RunTogether([&] {
    ExpectRanks(
        GetParam(), 2,
        [](Communicator& c) -> Status {
          for (int call = 0; call < kCalls; ++call) {
            RINGPIPE_RETURN_IF_ERROR(Reduce(c, 1));
          }
          return Status::Ok();
        },
        TraceTo(path()));
  });
  // A line an event: to parse so many takes a sanitizer a minute.
  const std::string of_call = "\"call\":";
  int last = 0;
  int events = 0;
  int say_dropped = 0;
  std::ifstream file(path());
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("{\"ph\":\"X\"") ||
        line.starts_with("{\"ph\":\"b\"")) {
      ++events;
      const std::size_t at = line.find(of_call);
      ASSERT_NE(at, std::string::npos) << line;
      last = std::max(last, std::atoi(&line[at + of_call.size()]));
    }
    say_dropped += line.find("older events were dropped") != std::string::npos;
  }
  EXPECT_EQ(say_dropped, 2);
  EXPECT_EQ(last, kCalls - 1);
  EXPECT_EQ(events, 2 << 16);
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  return ringpipe::testing::RunRoleOrTests(
      argc, argv, {{"leave it behind", &ringpipe::testing::LeaveItBehind}});
}
