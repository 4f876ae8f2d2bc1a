// A rank that is stopped while it may write other ranks' buffers: their calls
// end in time, and either the memory is theirs again or the error says that it
// is not.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/liveness_bound.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/holdings.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"
#include "verbs/soft/stopped_copy.h"

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kStartTime(60);  // generous: sanitizers, a busy machine

// Whether the error says that a buffer must not be used again.
bool IsPinned(const std::string& error) {
  return error.starts_with("memory held") &&
         error.find("must not be reused") != std::string::npos;
}

// --- Roles

constexpr std::size_t kElements = 4 << 20;
constexpr float kSent = 1.0F;
constexpr float kOverwritten = -9.0F;
// Of the call in which rank 1 stops; long enough for it to get there.
constexpr milliseconds kShortTimeout(8000);
// Until rank 1 has stopped; it does so in the first of these calls.
constexpr seconds kStopTime(30);
// Of an expired call beside a peer that stands in a copy: where are all (0.4
// s), and the device waits for the peer (1 s when it flushes, and 1 s after).
constexpr milliseconds kMostLateness(3000);

enum class Memory {
  kAllocated,   // by the communicator: mapped by peers, which copy into it
  kRegistered,  // the user's own: peers write it by process_vm_writev; over
                // host memory not at all
  kPrivate,     // the user's own, not registered, RINGPIPE_REGISTRATION=never:
                // everything goes through slots
};

// A rank's buffer of kElements in such memory.
class RankBuffer {
 public:
  RankBuffer(Communicator& communicator, Memory memory)
      : communicator_(communicator), memory_(memory) {
    constexpr std::size_t kBytes = kElements * sizeof(float);
    if (memory == Memory::kAllocated) {
      auto allocated = communicator.Allocate(kBytes);
      data_ = allocated.ok() ? static_cast<float*>(*allocated) : nullptr;
    } else {
      void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      data_ = mapped == MAP_FAILED ? nullptr : static_cast<float*>(mapped);
    }
    if (data_ == nullptr || (memory == Memory::kRegistered &&
                             !communicator.Register(data_, kBytes).ok())) {
      Print("no buffer");
    }
  }

  float* data() { return data_; }
  void Fill(float value) { std::fill_n(data_, kElements, value); }
  bool Holds(float value) const {
    return std::all_of(data_, data_ + kElements,
                       [value](float v) { return v == value; });
  }
  // Whether the communicator gives the same memory to somebody else.
  bool IsGivenAgain() {
    auto other = communicator_.Allocate(kElements * sizeof(float));
    return other.ok() && *other == data_;
  }
  // What the communicator says to having it back.
  Status Release() {
    switch (memory_) {
      case Memory::kAllocated:
        return communicator_.Free(data_);
      case Memory::kRegistered:
        return communicator_.Deregister(data_);
      case Memory::kPrivate:
        break;
    }
    return Status::Ok();
  }

 private:
  Communicator& communicator_;
  const Memory memory_;
  float* data_ = nullptr;
};

// What rank 0 does after its call has expired: says so, and whether it gets the
// buffer back where it is told that it does not; overwrites all; and when the
// test says that rank 1 has gone on and ended, looks whether that is still
// there.
void OverwriteAndLook(const Status& expired, RankBuffer& send,
                      RankBuffer& receive) {
  Print(expired.ToString());
  if (IsPinned(expired.ToString())) {
    const Status released = receive.Release();
    Print("release: " + released.ToString() +
          (receive.IsGivenAgain() ? ", and given away" : ""));
  }
  send.Fill(kOverwritten);
  receive.Fill(kOverwritten);
  Print("overwritten");
  AwaitGo();
  Print(send.Holds(kOverwritten) && receive.Holds(kOverwritten) ? "unchanged"
                                                                : "changed");
  if (!IsPinned(expired.ToString())) {
    Print("release: " + receive.Release().ToString());
  }
}

// One collective, or two, that write rank 0's memory.
Status WriteRankZero(Communicator& communicator, RankBuffer& send,
                     RankBuffer& receive, bool both, Timeout timeout) {
  // Copies from rank 1's memory into rank 0's, and nothing else: in place.
  RINGPIPE_RETURN_IF_ERROR(communicator.Broadcast(
      send.data(), communicator.rank() == 0 ? receive.data() : send.data(),
      kElements, DataType::kFloat32, /*root=*/1, timeout));
  return both ? communicator.AllReduce(send.data(), receive.data(), kElements,
                                       DataType::kFloat32, ReduceOp::kSum,
                                       timeout)
              : Status::Ok();
}

// When rank 1 is stopped.
enum class Stop {
  kAnywhere,      // by the test
  kBetweenCalls,  // by itself
  kInCopy,        // by itself, in the middle of a copy into rank 0's memory
};

template <Memory kMemory>
Result<std::unique_ptr<Communicator>> CreateFor() {
  RINGPIPE_ASSIGN_OR_RETURN(CommunicatorOptions options,
                            CommunicatorOptions::FromProcess());
  if (kMemory == Memory::kPrivate) {
    options.environment.registration = "never";
  }
  return Communicator::Create(options);
}

// Runs collectives that write rank 0's memory until rank 1 is stopped, and then
// until one fails: its status.
template <Stop kStop>
Status RunUntilStopped(Communicator& communicator, RankBuffer& send,
                       RankBuffer& receive) {
  constexpr bool kInCopy = kStop == Stop::kInCopy;
  const bool first = communicator.rank() == 0;
  send.Fill(kSent);
  Status status;
  for (int call = 0; call < 4 && status.ok(); ++call) {
    status = WriteRankZero(communicator, send, receive, !kInCopy, kStartTime);
  }
  if (status.ok()) {
    status = communicator.Barrier(kStartTime);
  }
  Print(status.ok() ? "running" : status.ToString());
  if (kInCopy && !first) {
    verbs::soft::StopInNextCopyFrom(send.data() + kElements / 4);
  }
  if (kStop == Stop::kBetweenCalls && !first) {
    // A call may end before its last short message is out.
    AwaitGo();
    raise(SIGSTOP);
  }
  const auto end = steady_clock::now() + kStopTime;
  int calls = 0;
  for (; status.ok() && steady_clock::now() < end; ++calls) {
    status = WriteRankZero(communicator, send, receive, !kInCopy,
                           first ? kShortTimeout : kStartTime);
  }
  return status.ok() ? Status(StatusCode::kInternal,
                              std::to_string(calls) +
                                  " calls, and rank 1 was never stopped")
                     : status;
}

// What rank 1 copies from must be the user's own memory, not a slot; over host
// memory that which it shares, or it would first be copied to a slot.
template <Memory kMemory, Stop kStop>
Memory MemoryOf(Way way, const Communicator& communicator) {
  const bool shared = SharesMemory(way) && kMemory == Memory::kAllocated;
  return kStop == Stop::kInCopy && communicator.rank() != 0 && !shared
             ? Memory::kRegistered
             : kMemory;
}

template <Memory kMemory, Stop kStop>
int OverwriteAfterTimeout(Way way) {
  auto created = CreateFor<kMemory>();
  if (!created.ok()) {
    Print("create: " + created.status().ToString());
    return 1;
  }
  Communicator& communicator = **created;
  const Memory memory = MemoryOf<kMemory, kStop>(way, communicator);
  RankBuffer send(communicator, memory);
  RankBuffer receive(communicator, memory);
  const Status status = RunUntilStopped<kStop>(communicator, send, receive);
  if (communicator.rank() == 0) {
    OverwriteAndLook(status, send, receive);
  } else {
    Print(status.ToString());
  }
  return 0;
}

// Rank 0 destroys its communicator while rank 1 stands in a copy into its
// memory, says what it still holds, and lives on.
template <Memory kMemory>
int LeaveAStoppedPeer(Way way) {
  const Holdings before;
  {
    auto created = CreateFor<kMemory>();
    if (!created.ok()) {
      Print("create: " + created.status().ToString());
      return 1;
    }
    const Memory memory = MemoryOf<kMemory, Stop::kInCopy>(way, **created);
    RankBuffer send(**created, memory);
    RankBuffer receive(**created, memory);
    const int rank = (*created)->rank();
    Print(RunUntilStopped<Stop::kInCopy>(**created, send, receive).ToString());
    if (rank != 0) {
      return 0;
    }
  }
  Print("destroyed");
  Print(CompareHoldings(before));
  AwaitGo();
  Print("alive");
  return 0;
}

// --- Tests

// (the way, rank 0's memory)
class StoppedRankTest
    : public ::testing::TestWithParam<std::tuple<Way, const char*>> {
 protected:
  static Way way() { return std::get<0>(GetParam()); }
  static std::string memory() { return std::get<1>(GetParam()); }

  // Reads the errors of rank 0's expired call and, after rank 1 has gone on, of
  // rank 1's, and whether rank 0's memory has changed. Returns rank 0's error.
  std::string Expire(std::vector<RankProcess>& ranks) {
    std::string error = ranks[0].ReadLine(kStartTime);
    EXPECT_NE(error.find("timeout"), std::string::npos) << error;
    EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
    if (IsPinned(error)) {
      // As the error says, and again: rank 1 stands in the middle of a copy.
      const std::string release = ranks[0].ReadLine(kStartTime);
      EXPECT_NE(release.find("did not let go"), std::string::npos) << release;
      EXPECT_EQ(release.find("given away"), std::string::npos) << release;
    }
    EXPECT_EQ(ranks[0].ReadLine(kStartTime), "overwritten");
    return error;
  }
  // "changed" or "unchanged".
  std::string GoOn(std::vector<RankProcess>& ranks) {
    ranks[1].Signal(SIGCONT);
    // Its own call ends with rank 0's reason.
    const std::string reason = ranks[1].ReadLine(kStartTime);
    EXPECT_NE(reason.find("timeout"), std::string::npos) << reason;
    EXPECT_TRUE(WIFEXITED(ranks[1].Wait(kStartTime)));
    ranks[0].Go();
    return ranks[0].ReadLine(kStartTime);
  }
};

const auto kWays =
    ::testing::Combine(::testing::ValuesIn(WaysOf("stopped_rank_test")),
                       ::testing::Values("allocated", "registered", "private"));

std::string NameOf(
    const ::testing::TestParamInfo<std::tuple<Way, const char*>>& info) {
  return std::string(Name(std::get<0>(info.param))) + "_" +
         std::get<1>(info.param);
}

// At whatever moment it is stopped: either the memory is back, and stays as it
// is, or the error says that it is not.
TEST_P(StoppedRankTest, CannotWriteIntoBuffersAfterTheCallHasExpired) {
  std::vector<RankProcess> ranks =
      StartRanks(way(), "overwrite " + memory(), 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[1].Signal(SIGSTOP);
  const bool pinned = IsPinned(Expire(ranks));
  RecordProperty("pinned", pinned ? "yes" : "no");
  const std::string after = GoOn(ranks);
  if (!pinned) {
    EXPECT_EQ(after, "unchanged");
    EXPECT_EQ(ranks[0].ReadLine(kStartTime), "release: ok");
  }
  if (memory() == "private") {
    EXPECT_FALSE(pinned) << "no peer can reach that memory";
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, StoppedRankTest, kWays, NameOf);

class StoppedBetweenCallsTest : public StoppedRankTest {};

// No copy is on its way, so that there is nothing that could not be taken back.
TEST_P(StoppedBetweenCallsTest, LeavesTheBuffersToTheCaller) {
  std::vector<RankProcess> ranks =
      StartRanks(way(), "stop between " + memory(), 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[1].Go();
  const std::string error = Expire(ranks);
  EXPECT_FALSE(IsPinned(error)) << error;
  EXPECT_EQ(GoOn(ranks), "unchanged");
  EXPECT_EQ(ranks[0].ReadLine(kStartTime), "release: ok");
}

INSTANTIATE_TEST_SUITE_P(Ways, StoppedBetweenCallsTest, kWays, NameOf);

class StoppedInACopyTest : public StoppedRankTest {};

// The copy cannot be taken back, so the error has to say that the memory is not
// the caller's yet. And it stays allocated: the rest of the copy arrives there.
// Where the copy was into a slot, the caller has nothing to fear. Over host
// memory it is not the copy that is taken back, but the memory from the peer.
TEST_P(StoppedInACopyTest, HasTheErrorSayThatTheBufferMustNotBeReused) {
  std::vector<RankProcess> ranks =
      StartRanks(way(), "stop in copy " + memory(), 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const auto start = steady_clock::now();
  const std::string error = Expire(ranks);
  EXPECT_LT(steady_clock::now() - start,
            kShortTimeout + LivenessBound(kMostLateness));
  const bool reachable = !SharesMemory(way()) && memory() != "private";
  EXPECT_EQ(IsPinned(error), reachable) << error;
  EXPECT_EQ(GoOn(ranks), reachable ? "changed" : "unchanged");
}

INSTANTIATE_TEST_SUITE_P(Ways, StoppedInACopyTest, kWays, NameOf);

class StoppedInACopyDestructionTest : public StoppedRankTest {};

// The peer is waited for once, whatever it holds up; and what it may still
// write is not what the communicator has.
TEST_P(StoppedInACopyDestructionTest, IsQuickAndLeavesNothing) {
  std::vector<RankProcess> ranks =
      StartRanks(way(), "leave stopped in copy " + memory(), 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const std::string error = ranks[0].ReadLine(kStartTime);
  EXPECT_NE(error.find("timeout"), std::string::npos) << error;
  const auto start = steady_clock::now();
  EXPECT_EQ(ranks[0].ReadLine(kStartTime), "destroyed");
  EXPECT_LT(steady_clock::now() - start, LivenessBound(seconds(1)));
  EXPECT_EQ(ranks[0].ReadLine(kStartTime), "clean");
  ranks[1].Signal(SIGCONT);
  EXPECT_NE(ranks[1].ReadLine(kStartTime), "");
  EXPECT_TRUE(WIFEXITED(ranks[1].Wait(kStartTime)));
  ranks[0].Go();
  EXPECT_EQ(ranks[0].ReadLine(kStartTime), "alive");
}

INSTANTIATE_TEST_SUITE_P(Ways, StoppedInACopyDestructionTest, kWays, NameOf);

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(
      argc, argv,
      {{"overwrite allocated",
        &OverwriteAfterTimeout<Memory::kAllocated, Stop::kAnywhere>},
       {"overwrite registered",
        &OverwriteAfterTimeout<Memory::kRegistered, Stop::kAnywhere>},
       {"overwrite private",
        &OverwriteAfterTimeout<Memory::kPrivate, Stop::kAnywhere>},
       {"stop between allocated",
        &OverwriteAfterTimeout<Memory::kAllocated, Stop::kBetweenCalls>},
       {"stop between registered",
        &OverwriteAfterTimeout<Memory::kRegistered, Stop::kBetweenCalls>},
       {"stop between private",
        &OverwriteAfterTimeout<Memory::kPrivate, Stop::kBetweenCalls>},
       {"stop in copy allocated",
        &OverwriteAfterTimeout<Memory::kAllocated, Stop::kInCopy>},
       {"stop in copy registered",
        &OverwriteAfterTimeout<Memory::kRegistered, Stop::kInCopy>},
       {"stop in copy private",
        &OverwriteAfterTimeout<Memory::kPrivate, Stop::kInCopy>},
       {"leave stopped in copy allocated",
        &LeaveAStoppedPeer<Memory::kAllocated>},
       {"leave stopped in copy registered",
        &LeaveAStoppedPeer<Memory::kRegistered>},
       {"leave stopped in copy private",
        &LeaveAStoppedPeer<Memory::kPrivate>}});
}
