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

// Memory that the host cannot use lies so far from where it really is.
constexpr std::uintptr_t kFar = std::uintptr_t{1} << 62;

void* Far(void* memory) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(memory) +
                                 kFar);
}
// Where it really is, also of memory that is not far.
void* Near(const void* memory) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(memory) %
                                 kFar);
}

Status CopyFar(void* target, const void* source, std::size_t bytes) {
  std::memcpy(Near(target), Near(source), bytes);
  return {};
}

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
  // Whether the buffers are.
  bool far = false;
};

class ThreadJob : public Job {
 public:
  ThreadJob(Room& room, int rank) : room_(room), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return room_.size; }

  Status Run(const Call& call) override {
    const int number = calls_++;
    if (number == room_.failing_call) {
      return {StatusCode::kPeerLost, "planted"};
    }
    room_.sends[rank_] = Near(call.send);
    room_.barrier.arrive_and_wait();
    const std::string result = ResultOf(call);
    room_.barrier.arrive_and_wait();
    if (call.receive != nullptr) {
      std::memcpy(Near(call.receive), result.data(), result.size());
      if (room_.spoil) {
        room_.spoil(rank_, number, call.receive, result.size());
      }
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
  // What this rank gets, by what the collective says.
  std::string ResultOf(const Call& call) const {
    const std::size_t bytes = call.count * SizeOf(call.type);
    const auto sent_by = [&](int rank) {
      return static_cast<const char*>(room_.sends[rank]);
    };
    const auto parts_of_all = [&](std::size_t from) {
      std::string all;
      for (int rank = 0; rank < room_.size; ++rank) {
        all.append(sent_by(rank) + from, bytes);
      }
      return all;
    };
    switch (call.collective) {
      case Collective::kAllReduce:
        return Reduced(call, 0);
      case Collective::kReduce:
        return rank_ == call.root ? Reduced(call, 0) : "";
      case Collective::kReduceScatter:
        return Reduced(call, rank_ * bytes);
      case Collective::kAllGather:
        return parts_of_all(0);
      case Collective::kGather:
        return rank_ == call.root ? parts_of_all(0) : "";
      case Collective::kBroadcast:
        return std::string(sent_by(call.root), bytes);
      case Collective::kScatter:
        return std::string(sent_by(call.root) + rank_ * bytes, bytes);
      case Collective::kAllToAll:
        return parts_of_all(rank_ * bytes);
      default:
        return "";
    }
  }

  // Of the inputs from that byte on.
  std::string Reduced(const Call& call, std::size_t from) const {
    const auto at = [&](int rank) -> const void* {
      return static_cast<const char*>(room_.sends[rank]) + from;
    };
    std::string result(static_cast<const char*>(at(0)),
                       call.count * SizeOf(call.type));
    for (int rank = 1; rank < room_.size; ++rank) {
      const void* const received[] = {at(rank)};
      FindReduction(call.type, call.op)(result.data(), result.data(), received,
                                        1, call.count);
    }
    if (const FinishFunction finish = FindFinish(call.type, call.op)) {
      finish(result.data(), call.count, room_.size);
    }
    return result;
  }

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
      const std::size_t doubles = options.max_bytes / 8 + 1;
      std::vector<double> send(doubles * options.rotate);
      std::vector<double> receive(doubles * options.rotate);
      ThreadJob job(room, rank);
      BenchmarkResult result;
      Buffers buffers = {send.data(), receive.data(), doubles * 8};
      if (room.far) {
        buffers = {Far(send.data()), Far(receive.data()), doubles * 8, CopyFar};
      }
      const Status status = RunBenchmark(
          job, options, buffers,
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

// Out of place and in place, and one wrong byte of each is seen.
TEST(Benchmark, EveryCollectiveIsMeasuredAndVerified) {
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::kBarrier) {
      continue;
    }
    for (const bool spoils : {false, true}) {
      Room room(3);
      if (spoils) {
        room.spoil = [](int rank, int, void* receive, std::size_t bytes) {
          if (rank == 1 && bytes > 0) {
            static_cast<char*>(receive)[bytes / 2] ^= 0x40;
          }
        };
      }
      Options options = SmallOptions();
      options.collectives = {collective};
      options.root = 1;
      options.types = {DataType::kInt32};
      const Outcome outcome = RunJob(room, options);
      for (const auto& result : outcome.by_rank) {
        ASSERT_TRUE(result.ok()) << result.status().ToString();
        EXPECT_EQ(result->wrong > 0, spoils) << CollectiveName(collective);
        for (const MeasuredSize& size : result->sizes) {
          EXPECT_EQ(size.out_of_place.samples_us.size(), 3U);
          EXPECT_EQ(size.in_place.samples_us.empty(),
                    collective == Collective::kAllToAll);
        }
      }
    }
  }
}

// A GPU's. One wrong byte is seen there too.
TEST(Benchmark, BuffersThatTheHostCannotUseAreFilledAndCheckedByCopies) {
  for (const bool spoils : {false, true}) {
    Room room(3);
    room.far = true;
    if (spoils) {
      room.spoil = [](int rank, int, void* receive, std::size_t bytes) {
        if (rank == 2 && bytes > 0) {
          static_cast<char*>(Near(receive))[bytes - 1] ^= 0x40;
        }
      };
    }
    Options options = SmallOptions();
    options.types = {DataType::kInt32};
    options.rotate = 2;
    options.collectives = {Collective::kAllReduce, Collective::kGather,
                           Collective::kScatter, Collective::kBroadcast};
    const Outcome outcome = RunJob(room, options);
    for (const auto& result : outcome.by_rank) {
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      EXPECT_EQ(result->wrong > 0, spoils);
    }
  }
}

TEST(Benchmark, EachCallTakesTheNextBuffersAndAllAreRight) {
  Room room(2);
  Options options = SmallOptions();
  options.min_bytes = options.max_bytes;
  options.rotate = 3;
  options.checks = 4;
  // What each call of rank 0 wrote to.
  std::vector<const void*> receives;
  room.spoil = [&](int rank, int, const void* receive, std::size_t) {
    if (rank == 0) {
      receives.push_back(receive);
    }
  };
  const Outcome outcome = RunJob(room, options);
  ASSERT_TRUE(outcome.by_rank[0].ok());
  EXPECT_EQ(outcome.by_rank[0].value().wrong, 0U);
  // Twice: first call, warm-up, timed and checked ones.
  ASSERT_EQ(receives.size(), 2 * (1 + 1 + 3 + 4));
  for (std::size_t i = 0; i < receives.size() / 2; ++i) {
    const auto* const first = static_cast<const std::byte*>(receives[0]);
    EXPECT_EQ(receives[i], first + (i % 3) * (options.max_bytes + 8)) << i;
  }
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
    EXPECT_EQ(result.value().sizes.size(),
              5 * kDataTypes.size() * kReduceOps.size());
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
    Status Run(const Call& call) override {
      calls_inside += inside ? 1 : 0;
      return ThreadJob::Run(call);
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
  Status Run(const Call& call) override {
    inputs_written +=
        (call.send == send.data() ? send : receive).IsUsed() ? 1 : 0;
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
