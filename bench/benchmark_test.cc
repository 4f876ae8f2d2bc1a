// The measurement over ranks that are threads and reduce in the plainest way,
// or wrongly where a test says so.
#include "bench/benchmark.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <thread>

#include "bench/input_data.h"
#include "reduction/host_reduction.h"

namespace ringpipe {
namespace {

// What the ranks of one job share.
struct Room {
  explicit Room(int size)
      : size(size), barrier(size), blobs(size), sends(size) {}

  const int size;
  std::barrier<> barrier;
  std::vector<std::string> blobs;
  std::vector<const void*> sends;
  // What to do to a result: (rank, call number, receive, bytes).
  std::function<void(int, int, void*, std::size_t)> spoil;
  // Fails the call of this number on every rank.
  int failing_call = -1;
};

class ThreadJob : public Job {
 public:
  ThreadJob(Room& room, int rank) : room_(room), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return room_.size; }

  Status AllReduce(const void* send, void* receive, std::size_t count,
                   DataType type, ReduceOp op) override {
    const int call = calls_++;
    if (call == room_.failing_call) {
      return {StatusCode::kPeerLost, "planted"};
    }
    const std::size_t bytes = count * SizeOf(type);
    room_.sends[rank_] = send;
    room_.barrier.arrive_and_wait();
    std::string result(static_cast<const char*>(room_.sends[0]), bytes);
    for (int rank = 1; rank < room_.size; ++rank) {
      FindReduction(type, op)(result.data(), result.data(), &room_.sends[rank],
                              1, count);
    }
    if (const FinishFunction finish = FindFinish(type, op)) {
      finish(result.data(), count, room_.size);
    }
    room_.barrier.arrive_and_wait();
    std::memcpy(receive, result.data(), bytes);
    if (room_.spoil) {
      room_.spoil(rank_, call, receive, bytes);
    }
    return {};
  }

  Status Barrier() override {
    room_.barrier.arrive_and_wait();
    return {};
  }

  Result<std::vector<std::string>> Exchange(const std::string& blob) override {
    room_.blobs[rank_] = blob;
    room_.barrier.arrive_and_wait();
    std::vector<std::string> blobs = room_.blobs;
    room_.barrier.arrive_and_wait();
    return blobs;
  }

 private:
  Room& room_;
  const int rank_;
  int calls_ = 0;
};

struct Outcome {
  std::vector<Result<BenchmarkResult>> by_rank;
  // What each had when it ended, well or not.
  std::vector<BenchmarkResult> left;
  std::string printed;
};

Outcome RunJob(Room& room, const Options& options) {
  Outcome outcome;
  outcome.by_rank.assign(room.size, Status(StatusCode::kInternal, "not run"));
  outcome.left.resize(room.size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < room.size; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<double> send(options.max_bytes / 8 + 1);
      std::vector<double> receive(options.max_bytes / 8 + 1);
      ThreadJob job(room, rank);
      BenchmarkResult result;
      const Status status = RunBenchmark(
          job, options, {send.data(), receive.data()},
          [&](const std::string& text) {
            EXPECT_EQ(rank, 0);
            outcome.printed += text;
            return Status();
          },
          &result);
      outcome.left[rank] = result;
      if (status.ok()) {
        outcome.by_rank[rank] = std::move(result);
      } else {
        outcome.by_rank[rank] = status;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return outcome;
}

Options SmallOptions() {
  Options options;
  options.min_bytes = 0;
  options.max_bytes = 4096;
  options.step_bytes = 1000;
  options.iterations = 3;
  options.json_path = "kept";
  return options;
}

TEST(Benchmark, EveryTypeAndOpIsRightInAndOutOfPlace) {
  Room room(3);
  Options options = SmallOptions();
  options.types.assign(kDataTypes.begin(), kDataTypes.end());
  options.ops.assign(kReduceOps.begin(), kReduceOps.end());
  const Outcome outcome = RunJob(room, options);
  for (const auto& result : outcome.by_rank) {
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result.value().wrong, 0u);
    EXPECT_EQ(result.value().sizes.size(), 5 * 6 * 5u);
  }
  EXPECT_NE(outcome.printed.find("# Out of bounds values : 0 OK"),
            std::string::npos);
}

TEST(Benchmark, KeepsEverySampleOfEveryRankAndTheFirstCallApart) {
  Room room(3);
  const Outcome outcome = RunJob(room, SmallOptions());
  ASSERT_TRUE(outcome.by_rank[0].ok());
  for (const MeasuredSize& size : outcome.by_rank[0].value().sizes) {
    for (const Series* series : {&size.out_of_place, &size.in_place}) {
      EXPECT_EQ(series->samples_us.size(), 3u);
      EXPECT_EQ(series->samples_us[2].size(), 3u);
      EXPECT_EQ(series->first_us.size(), 3u);
    }
    EXPECT_EQ(size.row.in_place.summary.samples, 3u);
    EXPECT_GE(size.row.in_place.summary.median, size.row.in_place.summary.min);
  }
}

TEST(Benchmark, OneWrongElementOnOneRankIsCountedAndPrinted) {
  Room room(3);
  room.spoil = [](int rank, int, void* receive, std::size_t bytes) {
    if (rank == 2 && bytes == 4000) {
      static_cast<float*>(receive)[999] += 1e-3f;
    }
  };
  const Outcome outcome = RunJob(room, SmallOptions());
  for (const auto& result : outcome.by_rank) {
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result.value().wrong, 2u);  // out of place and in place
  }
  EXPECT_NE(outcome.printed.find("# Out of bounds values : 2 FAILED"),
            std::string::npos);
}

TEST(Benchmark, AnOutputThatIsLeftAsItWasIsWrong) {
  Room room(2);
  std::vector<std::string> before(2);
  Options options = SmallOptions();
  options.min_bytes = options.max_bytes = 4000;
  // Each call leaves what the call before it left: right, but for old input.
  room.spoil = [&](int rank, int, void* receive, std::size_t bytes) {
    std::string now(static_cast<char*>(receive), bytes);
    if (!before[rank].empty()) {
      std::memcpy(receive, before[rank].data(), bytes);
    }
    before[rank] = now;
  };
  const Outcome outcome = RunJob(room, options);
  ASSERT_TRUE(outcome.by_rank[0].ok());
  EXPECT_GT(outcome.by_rank[0].value().wrong, 3900u);
}

TEST(Benchmark, WithoutChecksNothingIsCalledRight) {
  Room room(2);
  Options options = SmallOptions();
  options.checks = 0;
  const Outcome outcome = RunJob(room, options);
  ASSERT_TRUE(outcome.by_rank[0].ok());
  EXPECT_FALSE(
      outcome.by_rank[0].value().sizes[0].row.in_place.wrong.has_value());
  EXPECT_NE(outcome.printed.find("N/A"), std::string::npos);
}

TEST(Benchmark, NumbersOfCallsAreThoseAskedFor) {
  Room room(2);
  std::atomic<int> calls = 0;
  room.spoil = [&](int, int, void*, std::size_t) { ++calls; };
  Options options = SmallOptions();
  options.min_bytes = options.max_bytes;
  options.iterations = 4;
  options.warmups = 2;
  options.checks = 3;
  ASSERT_TRUE(RunJob(room, options).by_rank[0].ok());
  EXPECT_EQ(calls, 2 * 2 * (1 + 2 + 4 + 3));
  calls = 0;
  options.iterations.reset();
  ASSERT_TRUE(RunJob(room, options).by_rank[0].ok());
  EXPECT_EQ(calls, 2 * 2 * (1 + 2 + kDefaultIterations + 3));
}

TEST(Benchmark, AFailedCallEndsTheRunWithItsReason) {
  Room room(3);
  room.failing_call = 5;
  const Outcome outcome = RunJob(room, SmallOptions());
  for (const auto& result : outcome.by_rank) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().message(), "planted");
  }
}

TEST(Benchmark, WhatWasMeasuredBeforeAFailureIsKept) {
  // A series is a first call, a warm-up, three timed calls and a check.
  struct Case {
    int failing_call;
    std::size_t sizes;
    bool out_of_place;
    std::size_t timed;
  };
  for (const Case& of : {Case{1, 0, false, 0}, Case{4, 0, false, 2},
                         Case{10, 0, true, 2}, Case{15, 1, false, 1}}) {
    Room room(2);
    room.failing_call = of.failing_call;
    const Outcome outcome = RunJob(room, SmallOptions());
    const BenchmarkResult& left = outcome.left[0];
    EXPECT_EQ(left.sizes.size(), of.sizes);
    ASSERT_TRUE(left.unfinished.has_value());
    EXPECT_EQ(left.unfinished->out_of_place.has_value(), of.out_of_place);
    EXPECT_EQ(left.unfinished->timed_us.size(), of.timed);
  }
}

TEST(Benchmark, OnlyTimedCallsAreCounted) {
  class CountingJob : public ThreadJob {
   public:
    using ThreadJob::ThreadJob;
    void BeforeTimedCalls() override { inside = true; }
    void AfterTimedCalls() override {
      inside = false;
      ++series;
    }
    Status AllReduce(const void* send, void* receive, std::size_t count,
                     DataType type, ReduceOp op) override {
      calls_inside += inside ? 1 : 0;
      return ThreadJob::AllReduce(send, receive, count, type, op);
    }
    bool inside = false;
    int series = 0, calls_inside = 0;
  };
  Room room(1);
  CountingJob job(room, 0);
  std::vector<double> send(1000), receive(1000);
  BenchmarkResult result;
  const auto print = [](const std::string&) { return Status(); };
  ASSERT_TRUE(RunBenchmark(job, SmallOptions(), {send.data(), receive.data()},
                           print, &result)
                  .ok());
  EXPECT_EQ(job.series, 5 * 2);
  EXPECT_EQ(job.calls_inside, 5 * 2 * 3);
}

// Memory whose pages a job takes away, so that a page is there only if somebody
// has used it since.
class PagedMemory {
 public:
  static constexpr std::size_t kBytes = 4096;

  PagedMemory()
      : data_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~PagedMemory() { munmap(data_, kBytes); }
  PagedMemory(const PagedMemory&) = delete;
  PagedMemory& operator=(const PagedMemory&) = delete;

  void* data() const { return data_; }
  void TakeAway() { ASSERT_EQ(madvise(data_, kBytes, MADV_DONTNEED), 0); }
  bool IsUsed() const {
    unsigned char there = 0;
    EXPECT_EQ(mincore(data_, kBytes, &there), 0);
    return (there & 1) != 0;
  }

 private:
  void* const data_;
};

// One rank, whose allreduce uses no memory.
class IdleJob : public Job {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status Barrier() override {
    SeeWhetherOutputIsRead();
    send.TakeAway();
    receive.TakeAway();
    return {};
  }
  Status AllReduce(const void* input, void*, std::size_t, DataType,
                   ReduceOp) override {
    inputs_written += (input == send.data() ? send : receive).IsUsed() ? 1 : 0;
    receive.TakeAway();
    called_ = true;
    return {};
  }
  Result<std::vector<std::string>> Exchange(const std::string& blob) override {
    SeeWhetherOutputIsRead();
    return std::vector<std::string>{blob};
  }

  PagedMemory send, receive;
  int inputs_written = 0, outputs_read = 0;

 private:
  void SeeWhetherOutputIsRead() {
    outputs_read += called_ && receive.IsUsed() ? 1 : 0;
    called_ = false;
  }

  bool called_ = false;
};

TEST(Benchmark, TouchWritesTheInputBeforeACallAndReadsTheOutputAfterIt) {
  for (const bool touch : {false, true}) {
    IdleJob job;
    Options options = SmallOptions();
    options.min_bytes = PagedMemory::kBytes;
    options.warmups = 2;
    options.checks = 0;
    options.touch = touch;
    BenchmarkResult result;
    ASSERT_TRUE(RunBenchmark(
                    job, options, {job.send.data(), job.receive.data()},
                    [](const std::string&) { return Status(); }, &result)
                    .ok());
    // Out of place and in place: the first call, warm-ups, timed calls.
    EXPECT_EQ(job.inputs_written, touch ? 2 * (1 + 2 + 3) : 0);
    EXPECT_EQ(job.outputs_read, touch ? 2 * (1 + 2 + 3) : 0);
  }
}

TEST(Benchmark, TextThatCannotBePrintedEndsTheRun) {
  Room room(1);
  ThreadJob job(room, 0);
  std::vector<double> send(1000), receive(1000);
  BenchmarkResult result;
  const auto print = [](const std::string&) {
    return Status(StatusCode::kUnavailable, "no space");
  };
  EXPECT_EQ(RunBenchmark(job, SmallOptions(), {send.data(), receive.data()},
                         print, &result)
                .message(),
            "no space");
}

TEST(Agree, TheLowestRankThatFailedIsNamedOnEveryRank) {
  Room room(3);
  std::vector<Status> agreed(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadJob job(room, rank);
      EXPECT_TRUE(Agree(job, {}).ok());
      agreed[rank] = Agree(
          job, rank == 0 ? Status() : Status(StatusCode::kUnavailable, "why"));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Status& status : agreed) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(status.message(), "rank 1: why");
  }
}

}  // namespace
}  // namespace ringpipe
