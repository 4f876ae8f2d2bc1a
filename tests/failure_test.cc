// A rank that dies, stops or leaves: the others end in time with an error that
// names it, their memory is safe, and nothing is left behind.
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <set>
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
constexpr seconds kLiveness = LivenessBound(seconds(2));

// Whether the error says that a buffer must not be used again.
bool IsPinned(const std::string& error) {
  return error.starts_with("memory held") &&
         error.find("must not be reused") != std::string::npos;
}

// --- Roles
// -----------------------------------------------------------------------

// Whether the process holds what it held before, and nothing else.
void PrintLeft(const Holdings& before) {
  const Holdings after;
  Print(before == after
            ? "clean"
            : "left: " + after.ToString() + "; before: " + before.ToString());
}

// Allreduces until the first error, which it prints, with what the process
// holds before and after. A call may take kTimeoutMs; 0: as long as by default.
template <int kTimeoutMs>
int LoopForever() {
  const Holdings before;
  Status status;
  {
    auto options = CommunicatorOptions::FromProcess();
    auto communicator = Communicator::Create(*options);
    if (!communicator.ok()) {
      Print("create: " + communicator.status().ToString());
      return 1;
    }
    std::vector<float> send(1 << 20, 1.0F);
    std::vector<float> receive(1 << 20);
    for (int call = 0; status.ok(); ++call) {
      status =
          (*communicator)
              ->AllReduce(send.data(), receive.data(), send.size(),
                          DataType::kFloat32, ReduceOp::kSum,
                          kTimeoutMs > 0 ? Timeout(milliseconds(kTimeoutMs))
                                         : Timeout());
      if (call == 3) {
        Print("running");
      }
    }
    Print(status.ToString());
  }
  PrintLeft(before);
  return 3;
}

// Allreduces a few times and, when the test has looked, leaves in order.
int RunAndLeave() {
  const Holdings before;
  {
    auto options = CommunicatorOptions::FromProcess();
    auto communicator = Communicator::Create(*options);
    if (!communicator.ok()) {
      Print("create: " + communicator.status().ToString());
      return 1;
    }
    std::vector<float> values(100'000, 1.0F);
    for (int call = 0; call < 5; ++call) {
      auto request =
          (*communicator)
              ->AllReduceAsync(values.data(), values.data(), values.size(),
                               DataType::kFloat32, ReduceOp::kMax);
      const Status status = request.ok() ? request->Wait() : request.status();
      if (!status.ok()) {
        Print(status.ToString());
        return 2;
      }
    }
    Print("running");
    AwaitGo();
  }
  PrintLeft(before);
  return 0;
}

// Rank 1 destroys its communicator, which waits for the others; they call.
int DestroyEarly() {
  auto options = CommunicatorOptions::FromProcess();
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  Print("running");
  if ((*communicator)->rank() != 1) {
    AwaitGo();
    Print((*communicator)->Barrier(milliseconds(1000)).ToString());
  }
  return 0;
}

// --- Overwriting
// -----------------------------------------------------------------

constexpr std::size_t kElements = 4 << 20;
constexpr float kSent = 1.0F;
constexpr float kOverwritten = -9.0F;
// Of the call in which rank 1 stops; long enough for it to get there.
constexpr milliseconds kShortTimeout(2500);
// Of an expired call beside a peer that stands in a copy: where are all (0.4
// s), and the device waits for the peer (1 s when it flushes, and 1 s after).
constexpr milliseconds kMostLateness(3000);

enum class Memory {
  kAllocated,   // by the communicator: mapped by peers, which copy into it
  kRegistered,  // the user's own: peers write it by process_vm_writev
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
      data_ = mapped != MAP_FAILED ? static_cast<float*>(mapped) : nullptr;
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
    verbs::soft::StopInNextCopyFrom(send.data() + kElements / 2);
  }
  if (kStop == Stop::kBetweenCalls && !first) {
    raise(SIGSTOP);
  }
  while (status.ok()) {
    status = WriteRankZero(communicator, send, receive, !kInCopy,
                           first ? kShortTimeout : kStartTime);
  }
  return status;
}

// What rank 1 copies from must be the user's own memory, not a slot.
template <Memory kMemory, Stop kStop>
Memory MemoryOf(const Communicator& communicator) {
  return kStop == Stop::kInCopy && communicator.rank() != 0
             ? Memory::kRegistered
             : kMemory;
}

template <Memory kMemory, Stop kStop>
int OverwriteAfterTimeout() {
  auto created = CreateFor<kMemory>();
  if (!created.ok()) {
    Print("create: " + created.status().ToString());
    return 1;
  }
  Communicator& communicator = **created;
  const Memory memory = MemoryOf<kMemory, kStop>(communicator);
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
int LeaveAStoppedPeer() {
  const Holdings before;
  {
    auto created = CreateFor<kMemory>();
    if (!created.ok()) {
      Print("create: " + created.status().ToString());
      return 1;
    }
    const Memory memory = MemoryOf<kMemory, Stop::kInCopy>(**created);
    RankBuffer send(**created, memory);
    RankBuffer receive(**created, memory);
    const int rank = (*created)->rank();
    Print(RunUntilStopped<Stop::kInCopy>(**created, send, receive).ToString());
    if (rank != 0) {
      return 0;
    }
  }
  Print("destroyed");
  PrintLeft(before);
  AwaitGo();
  Print("alive");
  return 0;
}

// Creates a communicator, calls a barrier, and exits without destroying it.
int ExitWithoutDestroying() {
  auto options = CommunicatorOptions::FromProcess();
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok() || !(*communicator)->Barrier().ok()) {
    return 1;
  }
  Print("running");
  if ((*communicator)->rank() == 1) {
    AwaitGo();
    (void)communicator->release();  // exits with it as it is
    return 0;
  }
  Print((*communicator)->Barrier().ToString());
  return 3;
}

// --- Tests
// -----------------------------------------------------------------------

std::vector<RankProcess> Start(const std::string& role, int size,
                               const std::string& job) {
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back(role, rank, size, job);
  }
  return ranks;
}

// Of 127.0.0.1, and free a moment ago.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  close(fd);
  return ntohs(address.sin_port);
}

// The same on two hosts, which meet over TCP.
std::vector<RankProcess> StartOnTwoHosts(const std::string& role, int size,
                                         const std::string& job) {
  const std::string root =
      "RINGPIPE_ROOT=127.0.0.1:" + std::to_string(FreePort());
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back(role, rank, size, job,
                       std::vector{root, "RINGPIPE_SECRET=of " + job,
                                   "RINGPIPE_HOST_ID=host " +
                                       std::to_string(2 * rank / size)});
  }
  return ranks;
}

// What the running ranks have. Also that it is what the checks below look for:
// each rank has a memory file of the device and a socket that is bound to one
// of the device's names.
Footprint FootprintOf(const std::vector<RankProcess>& ranks) {
  std::vector<pid_t> processes;
  for (const RankProcess& rank : ranks) {
    processes.push_back(rank.pid());
    const Footprint own({rank.pid()});
    EXPECT_GE(own.memory_files.size(), 1U);
    const std::set<std::string> names = UnixNames(own);
    EXPECT_TRUE(std::any_of(names.begin(), names.end(),
                            [](const std::string& name) {
                              return name.starts_with("@ringpipe-soft/");
                            }))
        << ::testing::PrintToString(names);
  }
  return Footprint(processes);
}

// Nothing is there any more, at the latest in a moment: the kernel closes what
// was on its way between two sockets when it gets to it.
void ExpectNothingLeft(const std::string& job, const Footprint& footprint) {
  const auto end = steady_clock::now() + kLiveness;
  std::vector<std::string> left = LeftOnTheMachine(job, footprint);
  while (!left.empty() && steady_clock::now() < end) {
    left = LeftOnTheMachine(job, footprint);
  }
  EXPECT_EQ(left, std::vector<std::string>());
}

class KilledRankTest : public ::testing::TestWithParam<int> {};

TEST_P(KilledRankTest, EndsTheOthersInTwoSecondsNamedAndLeavesNothing) {
  constexpr int kSize = 4;
  const int victim = GetParam();
  const std::string job = NewJob();
  std::vector<RankProcess> ranks = Start("loop", kSize, job);
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const Footprint footprint = FootprintOf(ranks);
  const steady_clock::time_point killed = steady_clock::now();
  ranks[victim].Signal(SIGKILL);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == victim) {
      continue;
    }
    const std::string error = ranks[rank].ReadLine(kStartTime);
    EXPECT_LT(steady_clock::now() - killed, kLiveness) << "rank " << rank;
    EXPECT_NE(error.find("peer lost"), std::string::npos) << error;
    EXPECT_NE(error.find("rank " + std::to_string(victim)), std::string::npos)
        << error;
    EXPECT_EQ(ranks[rank].ReadLine(kStartTime), "clean");
    EXPECT_TRUE(WIFEXITED(ranks[rank].Wait(kStartTime)));
  }
  EXPECT_TRUE(WIFSIGNALED(ranks[victim].Wait(kStartTime)));
  ExpectNothingLeft(job, footprint);
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRankTest, ::testing::Values(0, 2));

// (ranks, the one that is stopped, the one that is killed, hosts)
class KilledBesideAStoppedRankTest
    : public ::testing::TestWithParam<std::tuple<int, int, int, int>> {};

// The news must not depend on any one rank, not on rank 0 either.
TEST_P(KilledBesideAStoppedRankTest, EndsTheOthersInThreeSecondsNamed) {
  const auto [size, stopped, victim, hosts] = GetParam();
  std::vector<RankProcess> ranks =
      hosts == 1 ? Start("loop", size, NewJob())
                 : StartOnTwoHosts("loop", size, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[stopped].Signal(SIGSTOP);
  const steady_clock::time_point killed = steady_clock::now();
  ranks[victim].Signal(SIGKILL);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == stopped || rank == victim) {
      continue;
    }
    const std::string error = ranks[rank].ReadLine(kStartTime);
    EXPECT_LT(steady_clock::now() - killed, LivenessBound(seconds(3)))
        << "rank " << rank;
    // Perhaps after "memory held": who is stopped may stand in a copy.
    EXPECT_NE(error.find("peer lost: rank " + std::to_string(victim)),
              std::string::npos)
        << error;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, KilledBesideAStoppedRankTest,
    ::testing::Values(std::tuple(3, 0, 1, 1), std::tuple(4, 0, 3, 1),
                      std::tuple(4, 1, 0, 1), std::tuple(6, 0, 2, 1),
                      std::tuple(6, 3, 2, 1), std::tuple(8, 0, 5, 1),
                      std::tuple(4, 0, 3, 2), std::tuple(6, 0, 2, 2),
                      std::tuple(8, 5, 4, 2)));

TEST(LeavingTest, InOrderLeavesNoThreadDescriptorSocketOrSegment) {
  const std::string job = NewJob();
  std::vector<RankProcess> ranks = Start("leave", 3, job);
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const Footprint footprint = FootprintOf(ranks);
  for (RankProcess& rank : ranks) {
    rank.Go();
  }
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.ReadLine(kStartTime), "clean");
    EXPECT_EQ(rank.Wait(kStartTime), 0);
  }
  ExpectNothingLeft(job, footprint);
}

TEST(LeavingTest, WithoutDestroyingIsTheLossOfTheRankToWhoWaits) {
  std::vector<RankProcess> ranks = Start("exit", 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[1].Go();
  const std::string error = ranks[0].ReadLine(kLiveness);
  EXPECT_NE(error.find("peer lost"), std::string::npos) << error;
  EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
}

class StoppedRankTest : public ::testing::TestWithParam<const char*> {
 protected:
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

// At whatever moment it is stopped: either the memory is back, and stays as it
// is, or the error says that it is not.
TEST_P(StoppedRankTest, CannotWriteIntoBuffersAfterTheCallHasExpired) {
  const std::string memory = GetParam();
  std::vector<RankProcess> ranks = Start("overwrite " + memory, 2, NewJob());
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
  if (memory == "private") {
    EXPECT_FALSE(pinned) << "no peer can reach that memory";
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, StoppedRankTest,
                         ::testing::Values("allocated", "registered",
                                           "private"));

class StoppedBetweenCallsTest : public StoppedRankTest {};

// No copy is on its way, so that there is nothing that could not be taken back.
TEST_P(StoppedBetweenCallsTest, LeavesTheBuffersToTheCaller) {
  std::vector<RankProcess> ranks =
      Start("stop between " + std::string(GetParam()), 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const std::string error = Expire(ranks);
  EXPECT_FALSE(IsPinned(error)) << error;
  EXPECT_EQ(GoOn(ranks), "unchanged");
  EXPECT_EQ(ranks[0].ReadLine(kStartTime), "release: ok");
}

INSTANTIATE_TEST_SUITE_P(Memory, StoppedBetweenCallsTest,
                         ::testing::Values("allocated", "registered",
                                           "private"));

class StoppedInACopyTest : public StoppedRankTest {};

// The copy cannot be taken back, so the error has to say that the memory is not
// the caller's yet. And it stays allocated: the rest of the copy arrives there.
// Where the copy was into a slot, the caller has nothing to fear.
TEST_P(StoppedInACopyTest, HasTheErrorSayThatTheBufferMustNotBeReused) {
  std::vector<RankProcess> ranks =
      Start("stop in copy " + std::string(GetParam()), 2, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  const auto start = steady_clock::now();
  const std::string error = Expire(ranks);
  EXPECT_LT(steady_clock::now() - start,
            LivenessBound(kShortTimeout + kMostLateness));
  const bool reachable = std::string(GetParam()) != "private";
  EXPECT_EQ(IsPinned(error), reachable) << error;
  EXPECT_EQ(GoOn(ranks), reachable ? "changed" : "unchanged");
}

INSTANTIATE_TEST_SUITE_P(Memory, StoppedInACopyTest,
                         ::testing::Values("allocated", "registered",
                                           "private"));

class StoppedInACopyDestructionTest : public StoppedRankTest {};

// The peer is waited for once, whatever it holds up; and what it may still
// write is not what the communicator has.
TEST_P(StoppedInACopyDestructionTest, IsQuickAndLeavesNothing) {
  std::vector<RankProcess> ranks =
      Start("leave stopped in copy " + std::string(GetParam()), 2, NewJob());
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

INSTANTIATE_TEST_SUITE_P(Memory, StoppedInACopyDestructionTest,
                         ::testing::Values("allocated", "registered",
                                           "private"));

// Not the neighbour, which waits as well.
TEST(ExpiredCallTest, NamesTheRankForWhichAllWait) {
  constexpr int kSize = 8;
  constexpr int kStopped = 5;
  std::vector<RankProcess> ranks = Start("loop in 2 s", kSize, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[kStopped].Signal(SIGSTOP);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank != kStopped) {
      const std::string error = ranks[rank].ReadLine(kStartTime);
      EXPECT_NE(error.find("timeout"), std::string::npos) << error;
      EXPECT_NE(error.find("; rank 5 does not answer"), std::string::npos)
          << error;
    }
  }
}

TEST(ExpiredCallTest, NamesTheRankThatDestroysItsCommunicator) {
  std::vector<RankProcess> ranks = Start("destroy early", 3, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[0].Go();
  ranks[2].Go();
  const std::string error = ranks[0].ReadLine(kStartTime);
  EXPECT_NE(error.find("; rank 1 destroys its communicator"), std::string::npos)
      << error;
}

TEST(StoppedPeerTest, IsWaitedForLongerThanTheDeviceRepeatsARequest) {
  // 3 times 1.07 s (verbs/queue_pair.h): an HCA answers for a stopped process.
  constexpr milliseconds kStopped(4500);
  std::vector<RankProcess> ranks = Start("loop", 3, NewJob());
  for (RankProcess& rank : ranks) {
    ASSERT_EQ(rank.ReadLine(kStartTime), "running");
  }
  ranks[1].Signal(SIGSTOP);
  // Meanwhile the others want for credit and data, and sleep.
  EXPECT_EQ(ranks[0].ReadLine(kStopped), "") << "ended while rank 1 stood";
  ranks[1].Signal(SIGCONT);
  EXPECT_EQ(ranks[2].ReadLine(milliseconds(500)), "")
      << "ended when it went on";
  ranks[1].Signal(SIGKILL);
  EXPECT_NE(ranks[0].ReadLine(kStartTime).find("peer lost"), std::string::npos);
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(
      argc, argv,
      {{"loop", &LoopForever<0>},
       {"loop in 2 s", &LoopForever<2000>},
       {"destroy early", &DestroyEarly},
       {"leave", &RunAndLeave},
       {"overwrite allocated",
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
       {"leave stopped in copy private", &LeaveAStoppedPeer<Memory::kPrivate>},
       {"exit", &ExitWithoutDestroying}});
}
