// The pipeline on real memory: ranks are threads, connected over the software
// device, over the test network, or to some peers by one and to some by the
// other.
#include "pipeline/executor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/thread_accelerator.h"
#include "engine/algorithms.h"
#include "gtest/gtest.h"
#include "pipeline/host_accelerator.h"
#include "pipeline/test_job.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;

// `count` floats: of `memory`, where the transports are to reach them.
class Floats {
 public:
  Floats(RegisteredMemory* memory, std::size_t count)
      : memory_(memory), own_(memory == nullptr ? count : 0), values_(own_) {
    if (memory != nullptr) {
      values_ = {
          static_cast<float*>(memory->Allocate(count * sizeof(float)).value()),
          count};
    }
  }
  ~Floats() {
    if (memory_ != nullptr) {
      static_cast<void>(memory_->Free(values_.data()));
    }
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  std::span<float> get() const { return values_; }

 private:
  RegisteredMemory* const memory_;
  std::vector<float> own_;
  std::span<float> values_;
};

// What one rank gives to an allreduce.
struct Setting {
  bool reaches_input = false;
  bool reaches_output = false;
  bool registers_sends = false;  // of other memory, where there are rails
  bool in_place = false;
  std::uint32_t message_bytes = 0;
};
using SettingOfRank = std::function<Setting(int rank)>;

// One rank's call, whose plan becomes `plan`: as the transports reach the
// buffers.
Result<Operation> Prepare(TestJob& job, int rank, const AlgorithmInfo& info,
                          const Setting& setting, std::span<float> input,
                          std::span<float> output, int depth, Accelerator* host,
                          milliseconds timeout, Plan& plan) {
  const Transports& transports = job.executor(rank).transports();
  const std::uint64_t message_bytes = setting.registers_sends ? 1 : 0;
  RINGPIPE_ASSIGN_OR_RETURN(
      const UserBuffer from,
      transports.ReachOf(
          {input.data(), input.size_bytes(), false, message_bytes}));
  RINGPIPE_ASSIGN_OR_RETURN(
      const UserBuffer to,
      transports.ReachOf(
          {output.data(), output.size_bytes(), true, message_bytes}));
  const auto peers = transports.Peers(from, to);
  PlanOptions options;
  options.in_place = setting.in_place;
  options.direct_over_sent = info.direct_over_sent;
  options.same_to_all = SameToAll(info, {0, job.size()});
  options.message_bytes = setting.message_bytes;
  options.peers = peers;
  RINGPIPE_ASSIGN_OR_RETURN(plan, Compile(info.algorithm({rank, job.size()}),
                                          rank, job.size(), options));
  Operation operation =
      MakeOperation(plan, input.data(), output.data(), output.size(), depth,
                    host, timeout, ShapeOf(info, {0, job.size()}).widest);
  operation.input.reached = from.reached;
  operation.output.reached = to.reached;
  return operation;
}

// `calls` allreduces of count floats, in call c rank r's all r + 1 + c, by
// `info`. Whether they are eager is for `message_bytes` to say.
std::vector<Status> AllReduce(
    TestJob& job, const AlgorithmInfo& info, std::size_t count, int depth,
    milliseconds timeout,
    const SettingOfRank& setting_of = [](int) { return Setting(); },
    int calls = 1) {
  const std::uint64_t sequence = job.TakeSequence(calls);
  return job.OnAll([&](int rank) -> Status {
    const auto host = CreateHostAccelerator();
    const Setting setting = setting_of(rank);
    RegisteredMemory* const memory = &job.memory(rank);
    const Floats input(setting.reaches_input ? memory : nullptr, count);
    const Floats output(setting.reaches_output ? memory : nullptr, count);
    const std::span<float> from = setting.in_place ? output.get() : input.get();
    Plan plan;
    RINGPIPE_ASSIGN_OR_RETURN(
        Operation operation,
        Prepare(job, rank, info, setting, from, output.get(), depth, host.get(),
                timeout, plan));
    for (int call = 0; call < calls; ++call) {
      const auto value = static_cast<float>(rank + 1 + call);
      std::ranges::fill(output.get(), -1);
      std::ranges::fill(from, value);
      operation.digest.sequence = sequence + call;
      operation.deadline = Deadline::After(timeout);
      RINGPIPE_RETURN_IF_ERROR(job.executor(rank).Run(operation));
      const int sum = job.size() * (job.size() + 1) / 2 + job.size() * call;
      if (std::ranges::count(output.get(), static_cast<float>(sum)) !=
          static_cast<std::ptrdiff_t>(count)) {
        return {StatusCode::kInternal, "wrong result"};
      }
    }
    return Status::Ok();
  });
}

void ExpectOk(const std::vector<Status>& statuses, const std::string& what) {
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << what << ": " << status.ToString();
  }
}

struct Case {
  int size;
  int depth;
  int seed;
  Way way = Way::kRails;
};

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  constexpr const char* kWays[] = {"rails", "test_network", "both",
                                   "host_memory", "host_and_test_network"};
  return std::string(kWays[static_cast<int>(info.param.way)]) + "_" +
         std::to_string(info.param.size) + "ranks_" +
         std::to_string(info.param.depth) + "deep_seed" +
         std::to_string(info.param.seed);
}

// Those that the engine chooses by itself; tests/schedules/runs_test runs all.
std::vector<AlgorithmInfo> AllReduces() {
  const AlgorithmChoice choice;
  std::vector<AlgorithmInfo> chosen;
  for (const auto& [bytes, host] :
       {std::pair(8, CommonHost()), std::pair(1 << 20, CommonHost()),
        std::pair(8, CommonHost{2, 2}), std::pair(1 << 20, CommonHost{2, 2}),
        std::pair(1 << 16, CommonHost{8, 2})}) {
    chosen.push_back(choice.For(Collective::kAllReduce, bytes, host));
  }
  return chosen;
}

class SlotsTest : public ::testing::TestWithParam<Case> {};

TEST_P(SlotsTest, TheSmallestNumberOfSlotsSuffices) {
  const auto [size, depth, seed, way] = GetParam();
  for (const AlgorithmInfo& info : AllReduces()) {
    TestJob job({size, info.slots({0, size}, depth), seed, 1, way});
    ExpectOk(AllReduce(job, info, 20'000, depth, std::chrono::minutes(1)),
             std::string(info.name));
  }
}

// Over rails: other connections need fewer slots.
TEST_P(SlotsTest, OneFewerEndsByTheDeadline) {
  const auto [size, depth, seed, way] = GetParam();
  if (way != Way::kRails) {
    return;
  }
  const AlgorithmInfo ring =
      AlgorithmChoice().For(Collective::kAllReduce, 1 << 20);
  TestJob job({size, ring.slots({0, size}, depth) - 1, seed});
  const auto start = Clock::now();
  for (const Status& status :
       AllReduce(job, ring, 20'000, depth, milliseconds(300))) {
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
    EXPECT_NE(status.message().find("rank"), std::string::npos);
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
}

const auto kSizes = ::testing::Values(
    Case{2, 1, 0}, Case{2, 4, 5}, Case{3, 2, 0}, Case{4, 4, 0}, Case{5, 1, 5},
    Case{8, 4, 0}, Case{2, 1, 1, Way::kTestNetwork},
    Case{2, 4, 2, Way::kTestNetwork}, Case{3, 2, 3, Way::kTestNetwork},
    Case{5, 1, 4, Way::kTestNetwork}, Case{8, 4, 5, Way::kTestNetwork},
    Case{3, 2, 6, Way::kBoth}, Case{4, 1, 7, Way::kBoth},
    Case{8, 4, 8, Way::kBoth}, Case{2, 1, 1, Way::kHostMemory},
    Case{2, 4, 2, Way::kHostMemory}, Case{3, 2, 3, Way::kHostMemory},
    Case{5, 1, 4, Way::kHostMemory}, Case{8, 4, 5, Way::kHostMemory},
    Case{4, 2, 6, Way::kHostAndTestNetwork},
    Case{5, 3, 7, Way::kHostAndTestNetwork});

INSTANTIATE_TEST_SUITE_P(Sizes, SlotsTest, kSizes, NameOf);

// --- Memory, several rails, eager messages ----------------------------------

// A number that leaves a rest everywhere.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kElements = 4'007;
constexpr int kMostSettingsTo = 1;  // ranks
#else
constexpr std::size_t kElements = 20'007;
constexpr int kMostSettingsTo = 4;
#endif

class MemoryTest : public ::testing::TestWithParam<Case> {};

Setting SettingFromBits(int bits) {
  Setting setting;
  setting.reaches_input = (bits & 1) != 0;
  setting.reaches_output = (bits & 2) != 0;
  setting.registers_sends = (bits & 4) != 0;
  setting.in_place = (bits & 8) != 0;
  return setting;
}

// What is reached changes how values travel, not what they are: each of them
// by one rail and by three.
TEST_P(MemoryTest, RegisteredMemoryIsSentFromAndReceivedInto) {
  const auto [size, depth, seed, way] = GetParam();
  // Else each bit is set in some and not in others.
  const int step = size <= kMostSettingsTo ? 1 : 3;
  for (const AlgorithmInfo& info : AllReduces()) {
    for (const int rails : {1, 3}) {
      if (rails > 1 && way != Way::kRails && way != Way::kBoth) {
        continue;
      }
      TestJob job({size, info.slots({0, size}, depth), seed, rails, way});
      for (int bits = 0; bits < 16; bits += step) {
        ExpectOk(AllReduce(job, info, kElements, depth, std::chrono::minutes(1),
                           [&](int) { return SettingFromBits(bits); }),
                 std::string(info.name) + " " + std::to_string(rails) +
                     " rails, setting " + std::to_string(bits));
      }
    }
  }
}

// It is each rank's own business.
TEST_P(MemoryTest, RanksMayHaveDifferentBuffers) {
  const auto [size, depth, seed, way] = GetParam();
  for (const AlgorithmInfo& info : AllReduces()) {
    TestJob job({size, info.slots({0, size}, depth), seed, 1, way});
    for (int shift = 0; shift < 16; shift += 3) {
      ExpectOk(AllReduce(job, info, kElements, depth, std::chrono::minutes(1),
                         [&](int rank) {
                           return SettingFromBits((5 * rank + shift) % 16);
                         }),
               std::string(info.name) + ", shift " + std::to_string(shift));
    }
  }
}

// Many short calls: an end is a call ahead of the other, eager messages come
// before they are expected, first messages before the call has begun.
TEST_P(MemoryTest, ShortCallsFollowEachOther) {
  const auto [size, depth, seed, way] = GetParam();
  for (const AlgorithmInfo& info : AllReduces()) {
    TestJob job({size, info.slots({0, size}, depth), seed, 1, way});
    for (const std::size_t count : {1, 16, 256}) {
      ExpectOk(AllReduce(
                   job, info, count, depth, std::chrono::minutes(1),
                   [count = count](int rank) {
                     Setting setting = SettingFromBits(5 * rank % 16);
                     setting.message_bytes = count <= 16 ? 64 : 1024;
                     return setting;
                   },
                   /*calls=*/50),
               std::string(info.name) + ", " + std::to_string(count));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, MemoryTest, kSizes, NameOf);

TEST(ExecutorTest, WhatIsReceivedOrReducedIntoUserMemoryIsNotCopied) {
  TestJob job({2, 8});
  const AlgorithmInfo ring =
      AlgorithmChoice().For(Collective::kAllReduce, 1 << 20);
  ExpectOk(AllReduce(job, ring, 1000, 2, std::chrono::minutes(1),
                     [](int) { return SettingFromBits(3); }),
           "ring");
  for (const StageCounters& stage : job.executor(0).stage_counters()) {
    const std::string name(stage.stage);
    if (name == "copy in" || name == "register" || name == "copy out") {
      EXPECT_EQ(stage.bytes, 0U) << name;
    }
  }
}

TEST(ExecutorTest, EveryRailCarriesItsShare) {
  TestJob job({.size = 2, .slots = 8, .rails = 2});
  const AlgorithmInfo ring =
      AlgorithmChoice().For(Collective::kAllReduce, 1 << 20);
  const auto& rails =
      static_cast<RailConnection*>(job.executor(0).transports().connection(1))
          ->rails();
  ASSERT_EQ(rails.size(), 2U);
  ExpectOk(AllReduce(job, ring, 20'000, 4, std::chrono::minutes(1)), "ring");
  EXPECT_GT(rails[0].channel->messages_sent(), 10U);
  EXPECT_EQ(rails[0].channel->messages_sent(),
            rails[1].channel->messages_sent());
}

// Two ranks that read each other's memory, and write what the other reads.
TEST(ExecutorTest, RanksThatReadEachOtherExchangeOnePlace) {
  const AlgorithmInfo doubling =
      AlgorithmChoice().For(Collective::kAllReduce, 8);
  for (int seed = 1; seed <= 20; ++seed) {
    TestJob job(
        {.size = 2,
         .slots = doubling.slots({0, 2}, 2),
         .seed = seed,
         .way = Way::kTestNetwork,
         .abilities = [](int, int) { return Abilities{.reads_peer = true}; },
         .reach =
             [](const UserMemory&) {
               return Reach{.sends = Reach::Sends::kAtOnce};
             }});
    ExpectOk(AllReduce(job, doubling, 5'000, 2, std::chrono::minutes(1),
                       [](int) { return SettingFromBits(8 + 2); }),
             "seed " + std::to_string(seed));
  }
}

TEST(ExecutorTest, DigestsThatDifferAreAMismatchAtBothEnds) {
  for (const Way way : {Way::kRails, Way::kTestNetwork, Way::kHostMemory}) {
    for (const std::uint32_t message_bytes : {0, 64}) {
      TestJob job({.way = way});
      const AlgorithmInfo ring =
          AlgorithmChoice().For(Collective::kAllReduce, 1 << 20);
      const auto statuses = job.OnAll([&](int rank) -> Status {
        const auto host = CreateHostAccelerator();
        const auto peers = job.executor(rank).transports().Peers({}, {});
        RINGPIPE_ASSIGN_OR_RETURN(
            const Plan plan, Compile(ring.algorithm({rank, 2}), rank, 2,
                                     PlanOptions{.message_bytes = message_bytes,
                                                 .peers = peers}));
        const std::size_t count = 10 + rank;
        const std::vector<float> input(count, 1);
        std::vector<float> output(count);
        return job.executor(rank).Run(
            MakeOperation(plan, input.data(), output.data(), count, 2,
                          host.get(), std::chrono::minutes(1)));
      });
      for (const Status& status : statuses) {
        EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.ToString();
        EXPECT_NE(status.message().find("count 10"), std::string::npos);
        EXPECT_NE(status.message().find("count 11"), std::string::npos);
      }
    }
  }
}

// --- The trace ---------------------------------------------------------------

std::size_t CountOf(const Trace& trace, TraceTrack track) {
  const Trace::Contents contents = trace.Read();
  return std::ranges::count(contents.events, track, &TraceEvent::track);
}

// What a rank does on a track comes one after the other, within its call.
void ExpectOrder(const Trace& trace) {
  std::array<std::int64_t, kTraceTracks> ends = {};
  const Trace::Contents contents = trace.Read();
  for (const TraceEvent& event : contents.events) {
    EXPECT_LE(event.begin_ns, event.end_ns) << Name(event.track);
    if (event.track == TraceTrack::kSend ||
        event.track == TraceTrack::kReceive) {
      continue;
    }
    std::int64_t& end = ends[static_cast<std::size_t>(event.track)];
    EXPECT_GE(event.begin_ns, end) << Name(event.track);
    end = event.end_ns;
  }
}

TEST(ExecutorTest, TheTraceHasEachSubchunkOfEachStage) {
  constexpr std::size_t kCount = 20'000;  // 2 chunks of 40 sub-chunks
  constexpr std::size_t kSubchunks = 40;
  const AlgorithmInfo ring =
      AlgorithmChoice().For(Collective::kAllReduce, 1 << 20);
  for (const bool registers : {false, true}) {
    TestJob job({.traces = true});
    ExpectOk(AllReduce(job, ring, kCount, 2, std::chrono::minutes(1),
                       [registers](int) {
                         return Setting{.registers_sends = registers};
                       }),
             "");
    for (int rank = 0; rank < 2; ++rank) {
      const Trace& trace = job.trace(rank);
      ExpectOrder(trace);
      // Its own part of one chunk goes out, and the result of the other.
      EXPECT_EQ(CountOf(trace, TraceTrack::kSend), 2 * kSubchunks);
      EXPECT_EQ(CountOf(trace, TraceTrack::kReceive), 2 * kSubchunks);
      EXPECT_EQ(CountOf(trace, TraceTrack::kReduce), kSubchunks);
      EXPECT_EQ(CountOf(trace, TraceTrack::kCopyOut), 2 * kSubchunks);
      EXPECT_EQ(CountOf(trace, registers ? TraceTrack::kRegister
                                         : TraceTrack::kCopyIn),
                kSubchunks);
      EXPECT_EQ(CountOf(trace, TraceTrack::kCall), 1u);
    }
  }
}

// Buffers in "device" memory: copies and reductions end later, on threads of
// their own, so a slot that is reused or read too early shows. The device fails
// where it is given host memory.
class AcceleratorTest : public ::testing::TestWithParam<Case> {};

// Of the device or of the host.
class OwnedFloats {
 public:
  OwnedFloats(ThreadAccelerator& device, Owner owner, std::size_t count)
      : host_(owner == Owner::kHost ? count : 0),
        data_(owner == Owner::kHost ? host_.data()
                                    : static_cast<float*>(device.Allocate(
                                          count * sizeof(float)))) {}
  float* data() { return data_; }

 private:
  std::vector<float> host_;
  float* const data_;
};

// An allreduce of buffers that the connections do not reach.
struct DeviceCall {
  AlgorithmInfo info;
  Owner input = Owner::kDevice;
  Owner output = Owner::kDevice;
  std::size_t count = 0;
  int depth = 1;
  int sequence = 0;
};

// Of a rank: element i is i % 100, the rank and the sequence number.
Status RunOnDevice(TestJob& job, int rank, ThreadAccelerator& device,
                   const DeviceCall& call) {
  const auto host = CreateHostAccelerator();
  const int size = job.size();
  const auto peers = job.executor(rank).transports().Peers({}, {});
  RINGPIPE_ASSIGN_OR_RETURN(
      const Plan plan, Compile(call.info.algorithm({rank, size}), rank, size,
                               {.input_owner = call.input,
                                .output_owner = call.output,
                                .peers = peers}));
  OwnedFloats input(device, call.input, call.count);
  OwnedFloats output(device, call.output, call.count);
  for (std::size_t i = 0; i < call.count; ++i) {
    input.data()[i] = static_cast<float>(i % 100 + rank + call.sequence);
  }
  std::fill_n(output.data(), call.count, -1.0F);
  Operation operation =
      MakeOperation(plan, input.data(), output.data(), call.count, call.depth,
                    host.get(), std::chrono::minutes(1));
  operation.digest.sequence = call.sequence;
  operation.device = &device;
  operation.input.on_device = call.input == Owner::kDevice;
  operation.output.on_device = call.output == Owner::kDevice;
  RINGPIPE_RETURN_IF_ERROR(job.executor(rank).Run(operation));
  for (std::size_t i = 0; i < call.count; ++i) {
    const std::size_t ranks = size * (size - 1) / 2;
    const auto expected =
        static_cast<float>(size * (i % 100 + call.sequence) + ranks);
    if (output.data()[i] != expected) {
      return {StatusCode::kInternal,
              "element " + std::to_string(i) + " of call " +
                  std::to_string(call.sequence) + " is " +
                  std::to_string(output.data()[i])};
    }
  }
  return Status::Ok();
}

// Of each other rank, where `rank` is odd; all are of this process.
std::vector<std::pair<std::byte*, std::size_t>> OtherSlots(TestJob& job,
                                                           int rank) {
  std::vector<std::pair<std::byte*, std::size_t>> slots;
  for (int peer = 0; peer < job.size(); ++peer) {
    if (peer != rank && rank % 2 == 1) {
      const SlotPool& pool = job.executor(peer).pool();
      slots.emplace_back(pool.memory(), pool.memory_bytes());
    }
  }
  return slots;
}

TEST_P(AcceleratorTest, EveryStageWaitsForTheAccelerator) {
  const auto [size, depth, seed, chosen_way] = GetParam();
  const Way way = chosen_way;
  const AlgorithmInfo ring =
      AlgorithmChoice().For(Collective::kAllReduce, 1 << 20);
  TestJob job({.size = size,
               .slots = ring.slots({0, size}, depth) + 3,
               .seed = seed,
               .way = way,
               .traces = true});
  const auto statuses = job.OnAll([&, depth = depth](int rank) -> Status {
    ThreadAccelerator device({.seed = 17ULL + rank});
    const SlotPool& pool = job.executor(rank).pool();
    RINGPIPE_RETURN_IF_ERROR(
        device.PrepareSlots(pool.memory(), pool.memory_bytes()));
    // Some read the slots of all on their host, others of nobody.
    const auto readable = OtherSlots(job, rank);
    for (const auto& [slots, bytes] : readable) {
      RINGPIPE_RETURN_IF_ERROR(device.PrepareSlots(slots, bytes));
    }
    // Both buffers are the device's, or one of them, on each rank another.
    for (int call = 0; call < 6; ++call) {
      const int kind = call < 3 ? 0 : (call + rank) % 3;
      RINGPIPE_RETURN_IF_ERROR(
          RunOnDevice(job, rank, device,
                      {.info = ring,
                       .input = kind == 1 ? Owner::kHost : Owner::kDevice,
                       .output = kind == 2 ? Owner::kHost : Owner::kDevice,
                       .count = 10'007,
                       .depth = depth,
                       .sequence = call}));
    }
    std::size_t reads = 0;
    for (const auto& [slots, bytes] : readable) {
      reads += device.reads_of(slots);
    }
    if (way == Way::kHostMemory) {
      EXPECT_EQ(reads > 0, !readable.empty());
    }
    device.ReleaseSlots(pool.memory());
    return Status::Ok();
  });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  for (int rank = 0; rank < size; ++rank) {
    ExpectOrder(job.trace(rank));
    EXPECT_GT(CountOf(job.trace(rank), TraceTrack::kReduce), 0u);
  }
}

TEST_P(AcceleratorTest, AFailureOfTheAcceleratorEndsTheCallWithItsReason) {
  const auto [size, depth, seed, way] = GetParam();
  const AlgorithmInfo ring =
      AlgorithmChoice().For(Collective::kAllReduce, 1 << 20);
  TestJob job({size, ring.slots({0, size}, depth), seed, 1, way});
  const auto statuses = job.OnAll([&, depth = depth](int rank) -> Status {
    ThreadAccelerator device;
    const SlotPool& pool = job.executor(rank).pool();
    RINGPIPE_RETURN_IF_ERROR(
        device.PrepareSlots(pool.memory(), pool.memory_bytes()));
    device.FailAfter(5);
    Status status = RunOnDevice(
        job, rank, device, {.info = ring, .count = 10'000, .depth = depth});
    device.ReleaseSlots(pool.memory());
    return status;
  });
  for (const Status& status : statuses) {
    EXPECT_FALSE(status.ok());
  }
  EXPECT_EQ(std::count_if(statuses.begin(), statuses.end(),
                          [](const Status& status) {
                            return status.code() == StatusCode::kDeviceError;
                          }) > 0,
            true);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AcceleratorTest,
                         ::testing::Values(Case{2, 2, 0}, Case{3, 4, 9},
                                           Case{4, 1, 0},
                                           Case{3, 4, 2, Way::kTestNetwork},
                                           Case{4, 2, 3, Way::kBoth},
                                           Case{4, 2, 4, Way::kHostMemory}),
                         NameOf);

}  // namespace
}  // namespace ringpipe
