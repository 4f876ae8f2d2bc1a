// A rank of two to eight is killed, or stopped, at a random moment of calls of
// all kinds and lengths, with both kinds of memory: the others end in time,
// each with the rank's number in its error, and their users' memory stays as it
// is, whatever the stopped one still does; or the error says that it does not.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/liveness_bound.h"
#include "engine/call.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "pipeline/collective.h"
#include "tests/holdings.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kStartTime(60);  // generous: sanitizers, a busy machine
constexpr milliseconds kLatestEnd(60);
constexpr seconds kKillBound(2);
// More than any of these calls takes on a busy machine.
constexpr milliseconds kStopTimeout(8000);
// Past the deadline: where are all (0.4 s), and how long a writer is waited
// for.
constexpr milliseconds kMostLateness(2000);

constexpr std::size_t kMostElements = std::size_t{3} << 20;
constexpr float kOverwritten = -9.0F;

// The variable that says with which call a job begins.
constexpr const char* kFirstCall = "TEST_FIRST_CALL";

// --- The role of all ranks

std::span<float> PrivateMemory() {
  void* const data =
      mmap(nullptr, kMostElements * sizeof(float), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return {};
  }
  // Which the kernel copies faster.
  madvise(data, kMostElements * sizeof(float), MADV_HUGEPAGE);
  return {static_cast<float*>(data), kMostElements};
}

std::span<float> AllocatedMemory(Communicator& communicator) {
  const auto data = communicator.Allocate(kMostElements * sizeof(float));
  return data.ok() ? std::span(static_cast<float*>(*data), kMostElements)
                   : std::span<float>();
}

// What a job calls, one after the other: each collective, short and long, also
// in place, with counts of ranks or of pairs, and with lists and scales.
class Calls {
 public:
  Calls(int rank, int size, std::span<float> send, std::span<float> receive)
      : rank_(rank), size_(size), send_(send), receive_(receive) {}

  // The same on every rank. It holds until the next one is made.
  Call Make(std::size_t number) {
    enum Form { kPlain, kInPlace, kWithCounts, kInPiecesAndScaled, kForms };
    constexpr std::array<std::size_t, 5> kElements = {2, 1000, 1 << 14, 1 << 18,
                                                      kMostElements};
    Call call = {.collective = static_cast<Collective>(number % kCollectives),
                 .send = send_.data(),
                 .receive = receive_.data(),
                 .count = kElements[number % kElements.size()],
                 .type = DataType::kFloat32,
                 .op = ReduceOp::kMax,
                 .root = static_cast<int>(number % size_)};
    const CollectiveInfo& info = InfoOf(call.collective);
    if (info.has_parts) {
      call.count /= size_;
    }
    switch (number % kForms) {
      case kInPlace:
        if (info.in_place && !info.has_parts) {
          call.send = call.receive;
        }
        break;
      case kWithCounts:
        SetCounts(info, call);
        break;
      case kInPiecesAndScaled:
        SetLists(info, call);
        if (info.reduces) {
          call.prescale = 1.0 + rank_;
          call.postscale = 0.5;
        }
        break;
      default:
        break;
    }
    return call;
  }

 private:
  // Every other part is of nothing, the others are of `count`.
  void SetCounts(const CollectiveInfo& info, Call& call) {
    if (!info.takes_counts() && !info.takes_counts_of_pairs()) {
      return;
    }
    // As pairs count, a rank's own number is part of it.
    const int own = info.takes_counts_of_pairs() ? rank_ : 0;
    counts_.clear();
    for (int rank = 0; rank < size_; ++rank) {
      counts_.push_back((rank + own) % 2 == 0 ? call.count : 0);
    }
    call.count = 0;
    call.counts = counts_;
    if (info.takes_counts_of_pairs()) {
      call.receive_counts = counts_;
    }
  }

  // The second half of each buffer comes first.
  void SetLists(const CollectiveInfo& info, Call& call) {
    const auto& [input, output] = info.Of(rank_ == call.root);
    const auto halves = [&](Holds holds, std::span<float> memory,
                            std::vector<Buffer>& pieces) -> BufferList {
      const std::size_t all = holds == Holds::kWhole && info.has_parts
                                  ? call.count * size_
                                  : call.count;
      const std::size_t half = all / 2;
      pieces = {{memory.data() + half, all - half}, {memory.data(), half}};
      return holds == Holds::kNothing ? BufferList() : BufferList(pieces);
    };
    call.send_list = halves(input, send_, send_pieces_);
    call.receive_list = halves(output, receive_, receive_pieces_);
    call.send = nullptr;
    call.receive = nullptr;
  }

  const int rank_;
  const int size_;
  const std::span<float> send_;
  const std::span<float> receive_;
  std::vector<std::size_t> counts_;
  std::vector<Buffer> send_pieces_;
  std::vector<Buffer> receive_pieces_;
};

Status CallUntilError(Communicator& communicator, std::span<float> send,
                      std::span<float> receive) {
  Calls calls(communicator.rank(), communicator.size(), send, receive);
  Status status;
  for (std::size_t number = std::strtoul(std::getenv(kFirstCall), nullptr, 10);
       status.ok(); ++number) {
    status = communicator.Run(calls.Make(number));
  }
  return status;
}

template <bool kAllocated>
int RunUntilError(Way) {
  auto options = CommunicatorOptions::FromProcess();
  if (options.ok() && !kAllocated) {  // by the kernel whenever it can
    options->environment.registration = "always";
  }
  auto created = options.ok()
                     ? Communicator::Create(*options)
                     : Result<std::unique_ptr<Communicator>>(options.status());
  if (!created.ok()) {
    Print(created.status().ToString());
    return 1;
  }
  Communicator& communicator = **created;
  const auto send =
      kAllocated ? AllocatedMemory(communicator) : PrivateMemory();
  const auto receive =
      kAllocated ? AllocatedMemory(communicator) : PrivateMemory();
  if (send.empty() || receive.empty()) {
    Print("no memory");
    return 1;
  }
  Print("running");
  const Status status = CallUntilError(communicator, send, receive);
  for (const auto memory : {send, receive}) {
    std::ranges::fill(memory, kOverwritten);
  }
  Print(status.ToString());
  AwaitGo();
  const auto is_there = [](float value) { return value == kOverwritten; };
  Print(std::ranges::all_of(send, is_there) &&
                std::ranges::all_of(receive, is_there)
            ? "unchanged"
            : "changed");
  return 0;
}

// --- Tests

// "KILLS STOPS"
std::array<int, 2> Runs() {
  std::array<int, 2> runs = {10, 3};
  if (const char* const text = std::getenv("TEST_RUNS")) {
    std::sscanf(text, "%d %d", &runs[0], &runs[1]);
  }
  return runs;
}

class RandomEndTest : public ::testing::TestWithParam<Way> {
 protected:
  RandomEndTest() : random_(seed_) { RecordProperty("seed", int(seed_)); }

  // Returns how many errors said that memory is held.
  int EndOne(bool stop) {
    const int size = 2 + static_cast<int>(random_() % 7);
    const bool allocated = random_() % 2 == 0;
    const std::string job = NewJob();
    const std::string first_call = std::to_string(random_() % 1000);
    std::vector<std::string> variables = {std::string(kFirstCall) + "=" +
                                          first_call};
    if (stop) {
      variables.push_back("RINGPIPE_TIMEOUT_MS=" +
                          std::to_string(kStopTimeout.count()));
    }
    std::vector<RankProcess> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back(GetParam(), allocated ? "allocated" : "private", rank,
                         size, job, variables);
    }
    std::vector<pid_t> processes;
    for (RankProcess& rank : ranks) {
      EXPECT_EQ(rank.ReadLine(kStartTime), "running");
      processes.push_back(rank.pid());
    }
    const Footprint footprint(processes);
    const int victim = static_cast<int>(random_() % size);
    std::this_thread::sleep_for(milliseconds(random_() % kLatestEnd.count()));
    SCOPED_TRACE("seed " + std::to_string(seed_) + ", " + std::to_string(size) +
                 " ranks, from call " + first_call + ", " +
                 (allocated ? "allocated" : "private") + " memory, rank " +
                 std::to_string(victim) + (stop ? " stopped" : " killed"));
    ranks[victim].Signal(stop ? SIGSTOP : SIGKILL);
    const int held = ExpectErrors(ranks, victim, stop);
    for (int rank = 0; rank < size; ++rank) {
      const int ended = ranks[rank].Wait(kStartTime);
      EXPECT_TRUE((rank == victim && !stop) ||
                  (WIFEXITED(ended) && WEXITSTATUS(ended) == 0))
          << rank << ": " << ended;
    }
    EXPECT_EQ(LeftOnTheMachine(job, footprint, LivenessBound(seconds(1))),
              std::vector<std::string>());
    return held;
  }

  // Returns whether each of the others' errors names the victim. Beside a
  // stopped rank one that gets no core for a while is silent as well, and may
  // be named instead.
  static bool ExpectNames(const std::vector<std::string>& errors, int victim,
                          bool stop) {
    bool all = true;
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      const std::string& error = errors[rank];
      const auto says = [&error](const std::string& words) {
        return error.find(words) != std::string::npos;
      };
      if (static_cast<int>(rank) != victim &&
          !says("rank " + std::to_string(victim))) {
        all = false;
        EXPECT_TRUE(stop && says("does not answer"))
            << "rank " << rank << ": " << error;
      }
    }
    return all;
  }

  int ExpectErrors(std::vector<RankProcess>& ranks, int victim, bool stop) {
    const auto start = steady_clock::now();
    std::vector<std::string> errors(ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (static_cast<int>(rank) != victim) {
        errors[rank] = ranks[rank].ReadLine(kStartTime);
      }
    }
    EXPECT_LT(steady_clock::now() - start,
              stop ? kStopTimeout + LivenessBound(kMostLateness)
                   : LivenessBound(kKillBound));
    named_ += ExpectNames(errors, victim, stop) ? 1 : 0;
    if (stop) {
      // It finds out as well, and may write until then.
      ranks[victim].Signal(SIGCONT);
      EXPECT_NE(ranks[victim].ReadLine(kStartTime), "");
      ranks[victim].Go();
    }
    int held = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (static_cast<int>(rank) == victim) {
        continue;
      }
      ranks[rank].Go();
      const std::string after = ranks[rank].ReadLine(kStartTime);
      const bool is_held = errors[rank].starts_with("memory held");
      EXPECT_TRUE(is_held || after == "unchanged") << errors[rank] << after;
      EXPECT_TRUE(stop || !is_held) << "the dead write nothing";
      held += is_held ? 1 : 0;
    }
    return held;
  }

  int named_ = 0;  // runs in which all named the victim
  const unsigned seed_ = std::random_device()();
  std::mt19937 random_;
};

INSTANTIATE_TEST_SUITE_P(Ways, RandomEndTest,
                         ::testing::ValuesIn(WaysOf("random_end_test")),
                         NameOfWay);

TEST_P(RandomEndTest, OfAKilledRankIsSeenByAll) {
  for (int run = 0; run < Runs()[0] && !HasFailure(); ++run) {
    EndOne(/*stop=*/false);
  }
}

TEST_P(RandomEndTest, OfAStoppedRankLeavesTheOthersTheirMemory) {
  int held = 0;
  for (int run = 0; run < Runs()[1] && !HasFailure(); ++run) {
    held += EndOne(/*stop=*/true);
  }
  std::printf("%d errors said that memory is held\n", held);
  EXPECT_GE(2 * named_, Runs()[1]);
}

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(argc, argv,
                        {{"private", &RunUntilError<false>},
                         {"allocated", &RunUntilError<true>}});
}
