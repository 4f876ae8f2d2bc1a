// What the interfaces offer beside the collectives: version, log, memory,
// counters.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/communicator.h"
#include "engine/ringpipe.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

const auto kWays = ::testing::ValuesIn(WaysOf("interface_test"));

TEST(VersionTest, IsThatOfTheHeaders) {
  const std::string expected = std::to_string(RINGPIPE_VERSION_MAJOR) + "." +
                               std::to_string(RINGPIPE_VERSION_MINOR) + "." +
                               std::to_string(RINGPIPE_VERSION_PATCH);
  EXPECT_EQ(Version(), expected);
  EXPECT_EQ(ringpipe_version(), expected);
  EXPECT_EQ(ringpipe_version_number(), RINGPIPE_VERSION_MAJOR * 10000 +
                                           RINGPIPE_VERSION_MINOR * 100 +
                                           RINGPIPE_VERSION_PATCH);
}

class LogTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, LogTest, kWays, NameOfWay);

TEST_P(LogTest, TheDeviceAndTheReasonAreLoggedOnceAtInfo) {
  for (const LogLevel level : {LogLevel::kInfo, LogLevel::kWarning}) {
    std::mutex mutex;
    std::vector<std::string> lines;
    CommunicatorOptions options = RankOptions(GetParam(), 0, 1, NewJob());
    options.environment.log_level = level;
    options.log = [&](LogLevel at, std::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex);
      lines.push_back(std::string(LogLevelName(at)) + ": " + std::string(line));
    };
    ASSERT_TRUE(Communicator::Create(options).ok());
    int found = 0;
    for (const std::string& line : lines) {
      found +=
          line.find("devices: soft0 (software device): ") != std::string::npos;
    }
    EXPECT_EQ(found, level == LogLevel::kInfo ? 1 : 0)
        << ::testing::PrintToString(lines);
  }
}

TEST_P(LogTest, HowEachPeerIsReachedAndWhyIsLoggedAtInfo) {
  std::mutex mutex;
  std::string log;
  const auto statuses = RunRanks(
      GetParam(), 2, [](Communicator&) { return Status::Ok(); },
      [&](int, CommunicatorOptions& options) {
        options.environment.log_level = LogLevel::kInfo;
        options.log = [&](LogLevel, std::string_view line) {
          const std::lock_guard<std::mutex> lock(mutex);
          log += std::string(line) + "\n";
        };
      });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  const std::string way = GetParam() == Way::kTestNetwork ? "the test network"
                          : SharesMemory(GetParam())
                              ? "host memory: the same host"
                              : "soft0";
  for (const std::string peer : {"rank 0", "rank 1"}) {
    EXPECT_NE(log.find(peer + " by way of " + way), std::string::npos) << log;
  }
  EXPECT_EQ(log.find("RINGPIPE_DEVICE=soft asks for it") == std::string::npos,
            SharesMemory(GetParam()));
}

// --- Memory that is registered once ---

// Of one stage, by its name.
StageCounters CountersOf(const Communicator& communicator,
                         const std::string& name) {
  for (const StageCounters& stage : communicator.stage_counters()) {
    if (stage.stage == name) {
      return stage;
    }
  }
  ADD_FAILURE() << "no stage " << name;
  return {};
}

class RegisterTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, RegisterTest, kWays, NameOfWay);

constexpr const char* kReachVaries =
    "what the test network can do with a buffer is another each time";

// A device has so many regions; calls do without.
TEST_P(RegisterTest, WhereNothingMoreCanBeRegisteredCallsCopy) {
  if (SharesMemory(GetParam())) {
    GTEST_SKIP() << "ranks that share memory register nothing";
  }
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    constexpr std::size_t kPiece = 64;
    constexpr std::size_t kMostPieces = 1 << 17;
    std::vector<std::byte> area(kMostPieces * kPiece);
    Status status;
    for (std::size_t i = 0; i < kMostPieces && status.ok(); ++i) {
      status = c.Register(&area[i * kPiece], kPiece);
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    constexpr std::size_t kCount =
        500'000;  // enough to be registered in a call
    const std::vector<float> values(kCount, 1);
    std::vector<float> sums(kCount);
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(values.data(), sums.data(), kCount,
                                         DataType::kFloat32, ReduceOp::kSum));
    EXPECT_EQ(sums, std::vector<float>(kCount, 2));
    return Status::Ok();
  });
}

TEST_P(RegisterTest, WhatIsRegisteredIsNeitherCopiedNorRegisteredInACall) {
  if (SharesMemory(GetParam())) {
    GTEST_SKIP() << "ranks that share memory register nothing";
  }
  if (GetParam() == Way::kTestNetwork) {
    GTEST_SKIP() << kReachVaries;
  }
  ExpectRanks(GetParam(), 3, [](Communicator& c) -> Status {
    constexpr std::size_t kCount = 300'000;
    std::vector<float> values(kCount, 1);
    RINGPIPE_RETURN_IF_ERROR(
        c.Register(values.data(), values.size() * sizeof(float)));
    float expected = 1;
    for (int call = 0; call < 3; ++call) {
      RINGPIPE_RETURN_IF_ERROR(c.AllReduce(values.data(), values.data(), kCount,
                                           DataType::kFloat32, ReduceOp::kSum));
      expected *= 3;
      EXPECT_EQ(values, std::vector<float>(kCount, expected));
    }
    EXPECT_EQ(CountersOf(c, "copy in").operations, 0U);
    EXPECT_EQ(CountersOf(c, "register").operations, 0U);
    // The third of the result that is reduced here is written where it belongs;
    // the rest lands there.
    EXPECT_EQ(CountersOf(c, "copy out").operations, 0U);
    return c.Deregister(values.data());
  });
}

TEST_P(RegisterTest, WhatIsAllocatedIsReadAndWrittenWhereItLies) {
  if (GetParam() == Way::kTestNetwork) {
    GTEST_SKIP() << kReachVaries;
  }
  ExpectRanks(GetParam(), 3, [](Communicator& c) -> Status {
    constexpr std::size_t kCount = 300'000;
    RINGPIPE_ASSIGN_OR_RETURN(void* const memory,
                              c.Allocate(2 * kCount * sizeof(float)));
    auto* const send = static_cast<float*>(memory);
    std::fill_n(send, kCount, 1.0F);
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send, send + kCount, kCount,
                                         DataType::kFloat32, ReduceOp::kSum));
    EXPECT_EQ(std::count(send + kCount, send + 2 * kCount, 3.0F), kCount);
    EXPECT_EQ(CountersOf(c, "copy in").operations, 0U);
    EXPECT_EQ(CountersOf(c, "copy out").operations, 0U);
    return c.Free(memory);
  });
}

TEST_P(RegisterTest, ChangesNothingBetweenRanksThatShareMemory) {
  if (!SharesMemory(GetParam())) {
    GTEST_SKIP() << "a device sends from what is registered";
  }
  ExpectRanks(GetParam(), 3, [](Communicator& c) -> Status {
    constexpr std::size_t kCount = 300'000;
    const std::vector<float> send(kCount, 1);
    std::vector<float> receive(kCount);
    std::uint64_t copied[2];
    for (std::uint64_t& bytes : copied) {
      RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive.data(), kCount,
                                           DataType::kFloat32, ReduceOp::kSum));
      EXPECT_EQ(receive, std::vector<float>(kCount, 3));
      bytes = CountersOf(c, "copy in").bytes + CountersOf(c, "copy out").bytes;
      if (&bytes == copied) {
        RINGPIPE_RETURN_IF_ERROR(
            c.Register(receive.data(), kCount * sizeof(float)));
      }
    }
    EXPECT_GT(copied[0], 0U);
    EXPECT_EQ(copied[1], 2 * copied[0]);
    return c.Deregister(receive.data());
  });
}

TEST_P(RegisterTest, ALongSendIsRegisteredForItsCallOnTheSoftwareDevice) {
  if (GetParam() != Way::kRails) {
    GTEST_SKIP() << "the software device is looked at";
  }
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    constexpr std::size_t kLong = 256 * 1024 / sizeof(float);
    const std::vector<float> send(kLong, 1);
    std::vector<float> receive(kLong);
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive.data(), kLong,
                                         DataType::kFloat32, ReduceOp::kSum));
    EXPECT_EQ(CountersOf(c, "copy in").bytes, 0U);
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive.data(), kLong - 2,
                                         DataType::kFloat32, ReduceOp::kSum));
    EXPECT_GT(CountersOf(c, "copy in").bytes, 0U);
    return Status::Ok();
  });
}

TEST_P(RegisterTest, MemoryThatMayOnlyBeReadIsSentFrom) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    constexpr std::size_t kBytes = 64 * 1024;
    void* const constant =
        mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(constant, MAP_FAILED);
    RINGPIPE_RETURN_IF_ERROR(c.Register(constant, kBytes));
    std::vector<std::int32_t> receive(kBytes / 4, -1);
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(constant, receive.data(), kBytes / 4,
                                         DataType::kInt32, ReduceOp::kSum));
    EXPECT_EQ(receive, std::vector<std::int32_t>(kBytes / 4, 0));
    RINGPIPE_RETURN_IF_ERROR(c.Deregister(constant));
    munmap(constant, kBytes);
    return Status::Ok();
  });
}

TEST_P(RegisterTest, SubchunksAreRegisteredOnTheFlyWhereThatIsAskedFor) {
  if (GetParam() == Way::kTestNetwork) {
    GTEST_SKIP() << kReachVaries;
  }
  if (SharesMemory(GetParam())) {
    GTEST_SKIP() << "ranks that share memory register nothing";
  }
  for (const Status& status : RunRanks(
           GetParam(), 2,
           [](Communicator& c) -> Status {
             // Too short to be registered as a whole.
             constexpr std::size_t kCount = 10'000;
             const std::vector<float> send(kCount, 1);
             std::vector<float> receive(kCount);
             RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive.data(),
                                                  kCount, DataType::kFloat32,
                                                  ReduceOp::kSum));
             EXPECT_EQ(receive, std::vector<float>(kCount, 2));
             EXPECT_EQ(CountersOf(c, "copy in").operations, 0U);
             EXPECT_EQ(CountersOf(c, "register").bytes,
                       kCount / 2 * sizeof(float));
             return Status::Ok();
           },
           [](int, CommunicatorOptions& options) {
             options.environment.registration = "always";
           })) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST_P(RegisterTest, NothingIsRegisteredInACallWhereThatIsForbidden) {
  if (GetParam() == Way::kTestNetwork) {
    GTEST_SKIP() << kReachVaries;
  }
  ExpectRanks(
      GetParam(), 2,
      [](Communicator& c) -> Status {
        // So long that the software device would register it as a whole.
        constexpr std::size_t kCount = 300'000;
        const std::vector<float> send(kCount, 1);
        std::vector<float> receive(kCount);
        RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive.data(),
                                             kCount, DataType::kFloat32,
                                             ReduceOp::kSum));
        EXPECT_EQ(CountersOf(c, "copy in").bytes, kCount / 2 * sizeof(float));
        EXPECT_EQ(CountersOf(c, "register").bytes, 0U);
        return Status::Ok();
      },
      [](int, CommunicatorOptions& options) {
        options.environment.registration = "never";
      });
}

// --- Slots ---

// Bytes of all that ranks of this process share with those of their host.
std::uint64_t SharedBytes() {
  std::map<ino_t, std::uint64_t> files;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    const auto target =
        std::filesystem::read_symlink(entry.path(), closed_meanwhile);
    struct stat file;
    if (target.native().find("ringpipe-host") != std::string::npos &&
        stat(entry.path().c_str(), &file) == 0) {
      files[file.st_ino] = static_cast<std::uint64_t>(file.st_blocks) * 512;
    }
  }
  std::uint64_t bytes = 0;
  for (const auto& [file, own] : files) {
    bytes += own;
  }
  return bytes;
}

// All of them, of one element for each rank.
Status MakeShortCalls(Communicator& c) {
  std::vector<double> one(c.size(), 1);
  std::vector<double> other(c.size());
  RINGPIPE_RETURN_IF_ERROR(c.AllReduce(one.data(), other.data(), 1,
                                       DataType::kFloat64, ReduceOp::kSum));
  EXPECT_EQ(other[0], c.size());
  RINGPIPE_RETURN_IF_ERROR(
      c.AllGather(one.data(), other.data(), 1, DataType::kFloat64));
  EXPECT_EQ(other, one);
  RINGPIPE_RETURN_IF_ERROR(c.ReduceScatter(one.data(), other.data(), 1,
                                           DataType::kFloat64, ReduceOp::kSum));
  EXPECT_EQ(other[0], c.size());
  RINGPIPE_RETURN_IF_ERROR(
      c.Broadcast(one.data(), other.data(), 1, DataType::kFloat64, 0));
  EXPECT_EQ(other[0], 1);
  return c.Barrier();
}

Status MakeLongCall(Communicator& c) {
  constexpr std::size_t kCount = 100'003;
  const std::vector<float> send(kCount, 1);
  std::vector<float> receive(kCount);
  RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive.data(), kCount,
                                       DataType::kFloat32, ReduceOp::kSum));
  EXPECT_EQ(receive, std::vector<float>(kCount, static_cast<float>(c.size())));
  return Status::Ok();
}

class SlotsTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, SlotsTest, kWays, NameOfWay);

TEST_P(SlotsTest, OfManyRanksTakeLittleMemoryBeforeTheFirstLongCall) {
  if (!SharesMemory(GetParam())) {
    GTEST_SKIP() << "memory that ranks of a host share is looked at";
  }
  constexpr int kRanks = 64;
  constexpr std::uint64_t kLittle = 2 << 20;
  constexpr std::uint64_t kMuch = 32 << 20;
  ExpectRanks(GetParam(), kRanks, [=](Communicator& c) -> Status {
    RINGPIPE_RETURN_IF_ERROR(MakeShortCalls(c));
    if (c.rank() == 0) {
      const std::uint64_t shared = SharedBytes();
      EXPECT_GT(shared, 0U);
      EXPECT_LE(shared / kRanks, kLittle);
    }
    RINGPIPE_RETURN_IF_ERROR(c.Barrier());
    RINGPIPE_RETURN_IF_ERROR(MakeLongCall(c));
    if (c.rank() == 0) {
      EXPECT_LE(SharedBytes() / kRanks, kMuch + kLittle);
    }
    RINGPIPE_RETURN_IF_ERROR(MakeShortCalls(c));
    return MakeLongCall(c);
  });
}

// Allows files of so many bytes while it exists.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_;
};

TEST_P(RegisterTest, MoreMemoryThanThereIsIsNotAllocated) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    for (const std::size_t bytes : {kMost, kMost - 4096, kMost / 2 + 1}) {
      const Status status = c.Allocate(bytes).status();
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted)
          << status.ToString();
    }
    return c.Barrier();
  });
}

TEST_P(RegisterTest, MoreMemoryThanThereCanBeIsRefused) {
  ExpectRanks(GetParam(), 1, [](Communicator& c) -> Status {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    std::vector<float> data(1024);
    for (const std::size_t bytes : {kMost, kMost / 2, kMost / 2 + 2}) {
      EXPECT_EQ(c.Register(data.data(), bytes).code(),
                StatusCode::kInvalidArgument)
          << bytes;
    }
    // Nothing of it stays, to block what is right.
    RINGPIPE_RETURN_IF_ERROR(c.Register(data.data(), 4096));
    return c.Deregister(data.data());
  });
}

TEST_P(SlotsTest, ThatOneRankHasNoMemoryForEndTheLongCallOnAllRanks) {
  if (!SharesMemory(GetParam())) {
    GTEST_SKIP() << "memory that ranks of a host share is limited";
  }
  const FileSizeLimit limit(16 << 20);
  const auto statuses = RunRanks(GetParam(), 3, [](Communicator& c) -> Status {
    if (c.rank() == 1) {
      RINGPIPE_RETURN_IF_ERROR(c.Allocate(14 << 20).status());
    }
    RINGPIPE_RETURN_IF_ERROR(MakeShortCalls(c));
    Status failed = MakeLongCall(c);
    EXPECT_EQ(c.Barrier().ToString(), failed.ToString());
    return failed;
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted)
        << status.ToString();
  }
  for (const std::string part : {"slots of 131072 bytes", "ulimit -f"}) {
    EXPECT_NE(statuses[1].message().find(part), std::string::npos)
        << statuses[1].message();
  }
  EXPECT_EQ(statuses[0].message(), "rank 1: " + statuses[1].message());
  EXPECT_EQ(statuses[2].message(), "rank 1: " + statuses[1].message());
}

class CountersTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, CountersTest, kWays, NameOfWay);

TEST_P(CountersTest, SayWhatEachStageDid) {
  if (GetParam() == Way::kTestNetwork) {
    GTEST_SKIP() << kReachVaries;
  }
  ExpectRanks(GetParam(), 3, [](Communicator& c) -> Status {
    constexpr std::size_t kCount = 300'000;
    std::vector<float> send(kCount, 1);
    std::vector<float> receive(kCount);
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive.data(), kCount,
                                         DataType::kFloat32, ReduceOp::kSum));
    const std::uint64_t third = kCount / 3 * sizeof(float);
    for (const StageCounters& stage : c.stage_counters()) {
      if (stage.stage == "send" || stage.stage == "receive") {
        EXPECT_EQ(stage.bytes, 4 * third) << stage.stage;
      } else if (stage.stage == "reduce") {
        EXPECT_EQ(stage.bytes, 2 * third);
        EXPECT_GT(stage.busy_ns, 0U);
      } else if (stage.stage == "copy out") {
        EXPECT_EQ(stage.bytes, 3 * third);
      }
    }
    const SlotCounters slots = c.slot_counters();
    EXPECT_GT(slots.high_water, 0U);
    EXPECT_LE(slots.high_water, slots.slots);
    return Status::Ok();
  });
}

}  // namespace
}  // namespace ringpipe::testing
