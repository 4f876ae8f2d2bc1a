// How fast an allreduce between the processes of one host could be: its memory
// traffic with no synchronisation. Each rank reads its chunk of all inputs and
// writes the sum to all outputs, and nobody waits for anybody within a call.
// Measured as bench/allreduce measures ringpipe; bench/compare_peers runs it.
//
//   floor RANKS BYTES WARMUPS ITERATIONS mapped|private [WORD]...
//
// "mapped": the buffers lie in memory that all ranks map. "private": each rank
// has buffers of its own, and the bytes go through slots in shared memory, or
// by process_vm_readv and process_vm_writev. The words are those of
// peers/mpi_allreduce.c: touch, pinned, huge, align=BYTES (private buffers).
//
// It measures every such way with ordinary and with non-temporal stores, and
// prints the one with the smallest median, out of place and then in place:
//   # out_of_place: mapped, non-temporal stores
//   out_of_place wrong 0 first 12.3 samples 4.5 4.6 ...     (microseconds)
// A sample is the slowest rank's time. "wrong unchecked": through slots that
// nobody waits for, the sums are not right and cannot be. Exit status: 0; 1
// where an argument, a call or a value is wrong.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/floor_kernels.h"
#include "bench/peers/placing.h"
#include "bench/peers/test_data.h"
#include "bench/peers/touch.h"

namespace ringpipe {
namespace {

constexpr int kMaxRanks = 64;
constexpr int kMaxCalls = 4096;
constexpr std::size_t kLine = 16;                // floats
constexpr std::size_t kSlot = 32 << 10;          // floats: 128 KiB
constexpr std::size_t kCopiedAtOnce = 64 << 10;  // floats: 256 KiB
constexpr std::size_t kSlotsOfAPair = 4;

struct Arguments {
  int ranks = 0;
  std::size_t count = 0;  // floats
  int warmups = 0;
  int iterations = 0;
  bool mapped = false;
  bool touch = false;
  bool pinned = false;
  bool huge = false;
  int align = kMallocAlign;
};

// A rank's memory: in its own address space, or, mapped, in everybody's.
struct RankBuffers {
  float* input = nullptr;
  float* output = nullptr;
  pid_t pid = 0;
};

// In memory that all ranks map.
struct Shared {
  std::atomic<std::uint64_t> arrived;
  std::array<RankBuffers, kMaxRanks> buffers;
  std::array<std::uint64_t, kMaxRanks> wrong;
  std::array<std::array<double, kMaxCalls>, kMaxRanks> times_us;
};

// A way for the bytes, and its stores.
struct Way {
  enum class Path { kMapped, kSlots, kCopies };
  Path path;
  Stores stores;

  bool checked() const { return path != Path::kSlots; }
  std::string Name() const {
    const char* const name = path == Path::kMapped  ? "mapped"
                             : path == Path::kSlots ? "slots"
                                                    : "process_vm_readv";
    return std::string(name) + (stores == Stores::kStreaming
                                    ? ", non-temporal stores"
                                    : ", ordinary stores");
  }
};

std::optional<Arguments> Parse(int argc, char** argv) {
  constexpr int kFirstWord = 6;
  if (argc < kFirstWord) {
    return std::nullopt;
  }
  Arguments arguments;
  arguments.ranks = std::atoi(argv[1]);
  arguments.count = std::strtoull(argv[2], nullptr, 10) / sizeof(float);
  arguments.warmups = std::atoi(argv[3]);
  arguments.iterations = std::atoi(argv[4]);
  arguments.mapped = std::string_view(argv[5]) == "mapped";
  bool good = arguments.mapped || std::string_view(argv[5]) == "private";
  for (int i = kFirstWord; i < argc; ++i) {
    const std::string_view word = argv[i];
    arguments.touch |= word == "touch";
    arguments.pinned |= word == "pinned";
    arguments.huge |= word == "huge";
    if (const int align = ParseAlign(argv[i]); align >= 0) {
      arguments.align = align;
    } else {
      good = good && (word == "touch" || word == "pinned" || word == "huge");
    }
  }
  good = good && arguments.ranks >= 1 && arguments.ranks <= kMaxRanks &&
         arguments.count >= 1 && arguments.warmups >= 0 &&
         arguments.iterations >= 1 &&
         arguments.warmups + arguments.iterations < kMaxCalls;
  return good ? std::optional(arguments) : std::nullopt;
}

// One rank of the job.
class Rank {
 public:
  // `slots` has room for SlotFloats(arguments).
  Rank(const Arguments& arguments, int rank, Shared& shared, float* slots)
      : arguments_(arguments),
        rank_(rank),
        ranks_(arguments.ranks),
        shared_(shared),
        slots_(slots),
        scratch_(ranks_ * kCopiedAtOnce + kLine) {}

  static std::size_t SlotFloats(const Arguments& arguments) {
    const std::size_t ranks = arguments.ranks;
    return (ranks * ranks + ranks) * kSlotsOfAPair * kSlot;
  }

  // Measures one way; rank 0 then finds the times in shared memory. False: the
  // system refuses it, or a rank of another way failed.
  bool Measure(const Way& way, bool in_place) {
    RankBuffers& mine = shared_.buffers[rank_];
    float* const input = in_place ? mine.output : mine.input;
    FillInput(input, arguments_.count, rank_);
    const int calls = 1 + arguments_.warmups + arguments_.iterations;
    for (int i = 0; i < calls; ++i) {
      if (in_place && i % CallsUntilRefill(ranks_) == 0) {
        Barrier();
        FillInput(input, arguments_.count, rank_);
      }
      if (!Call(way, in_place, arguments_.touch, &shared_.times_us[rank_][i])) {
        return false;
      }
    }
    Barrier();
    FillInput(input, arguments_.count, rank_);
    double ignored = 0;
    // In place, a rank that writes its input late would undo what another has
    // written there: nobody waits.
    const bool good = Call(way, in_place, /*touch=*/false, &ignored);
    Barrier();
    shared_.wrong[rank_] =
        way.checked() ? CountWrongSums(mine.output, 0, arguments_.count, ranks_)
                      : 0;
    Barrier();
    return good;
  }

  // Spins, so that the ranks start together; yields, as there may be more of
  // them than cores.
  void Barrier() {
    const std::uint64_t last =
        (shared_.arrived.fetch_add(1) / ranks_ + 1) * ranks_;
    constexpr int kSpins = 100;
    for (int i = 0; shared_.arrived.load() < last; ++i) {
      if (i >= kSpins) sched_yield();
    }
  }

 private:
  bool Call(const Way& way, bool in_place, bool touch, double* us) {
    const RankBuffers& mine = shared_.buffers[rank_];
    float* const input = in_place ? mine.output : mine.input;
    const std::size_t bytes = arguments_.count * sizeof(float);
    Barrier();
    const auto start = std::chrono::steady_clock::now();
    if (touch) RewriteInput(input, bytes);
    bool good = true;
    switch (way.path) {
      case Way::Path::kMapped:
        Mapped(way.stores, in_place);
        break;
      case Way::Path::kSlots:
        Slots(way.stores, input, mine.output);
        break;
      case Way::Path::kCopies:
        good = Copies(way.stores, in_place);
        break;
    }
    if (way.stores == Stores::kStreaming) FinishStores();
    if (touch) ReadOutput(mine.output, bytes);
    *us = std::chrono::duration<double, std::micro>(
              std::chrono::steady_clock::now() - start)
              .count();
    return good;
  }

  // Where chunk `c` begins; chunks are whole cache lines, but for the last.
  std::size_t Begin(int c) const {
    const std::size_t lines = (arguments_.count + kLine - 1) / kLine;
    return std::min(arguments_.count, lines * c / ranks_ * kLine);
  }
  // Floats of chunk `c` from `offset` on, at most `most`.
  std::size_t Left(int c, std::size_t offset, std::size_t most) const {
    const std::size_t size = Begin(c + 1) - Begin(c);
    return std::min(most, size - std::min(size, offset));
  }
  // Of any chunk.
  std::size_t LongestChunk() const {
    std::size_t longest = 0;
    for (int c = 0; c < ranks_; ++c) {
      longest = std::max(longest, Begin(c + 1) - Begin(c));
    }
    return longest;
  }

  const float* InputOf(int rank, bool in_place) const {
    const RankBuffers& buffers = shared_.buffers[rank];
    return in_place ? buffers.output : buffers.input;
  }

  void Mapped(Stores stores, bool in_place) {
    const std::size_t begin = Begin(rank_);
    std::vector<const float*> from;
    std::vector<float*> to;
    for (int i = 0; i < ranks_; ++i) {
      // Each rank begins with another, so that they do not all meet in one.
      const int rank = (rank_ + i) % ranks_;
      from.push_back(InputOf(rank, in_place) + begin);
      to.push_back(shared_.buffers[rank].output + begin);
    }
    SumFloats(stores, to, from, Begin(rank_ + 1) - begin);
  }

  // The slots from a rank to the owner of a chunk, and those of its results.
  float* InputSlot(int from, int owner, std::size_t step) {
    return slots_ +
           ((from * ranks_ + owner) * kSlotsOfAPair + step % kSlotsOfAPair) *
               kSlot;
  }
  float* ResultSlot(int owner, std::size_t step) {
    return InputSlot(ranks_, owner, step);
  }

  void Slots(Stores stores, const float* input, float* output) {
    const std::size_t longest = LongestChunk();
    std::vector<const float*> from(ranks_);
    for (std::size_t step = 0; step * kSlot < longest; ++step) {
      const std::size_t offset = step * kSlot;
      for (int c = 0; c < ranks_; ++c) {
        if (c != rank_) {
          CopyFloats(stores, InputSlot(rank_, c, step),
                     input + Begin(c) + offset, Left(c, offset, kSlot));
        }
      }
      const std::size_t begin = Begin(rank_) + offset;
      for (int rank = 0; rank < ranks_; ++rank) {
        from[rank] =
            rank == rank_ ? input + begin : InputSlot(rank, rank_, step);
      }
      const std::array<float*, 2> to = {output + begin,
                                        ResultSlot(rank_, step)};
      SumFloats(stores, to, from, Left(rank_, offset, kSlot));
      for (int c = 0; c < ranks_; ++c) {
        if (c != rank_) {
          CopyFloats(stores, output + Begin(c) + offset, ResultSlot(c, step),
                     Left(c, offset, kSlot));
        }
      }
    }
  }

  bool Copies(Stores stores, bool in_place) {
    const std::size_t chunk = Begin(rank_ + 1) - Begin(rank_);
    for (std::size_t offset = 0; offset < chunk; offset += kCopiedAtOnce) {
      const std::size_t begin = Begin(rank_) + offset;
      const std::size_t count = Left(rank_, offset, kCopiedAtOnce);
      if (!CopyAndSum(stores, in_place, begin, count)) {
        return false;
      }
    }
    return true;
  }

  // One piece of this rank's chunk.
  bool CopyAndSum(Stores stores, bool in_place, std::size_t begin,
                  std::size_t count) {
    const auto address =
        reinterpret_cast<std::uintptr_t>(scratch_.data()) / sizeof(float);
    float* const scratch = scratch_.data() + (kLine - address % kLine) % kLine;
    std::vector<const float*> from = {InputOf(rank_, in_place) + begin};
    const std::size_t bytes = count * sizeof(float);
    for (int i = 1; i < ranks_; ++i) {
      const int rank = (rank_ + i) % ranks_;
      float* const copy = scratch + (i - 1) * kCopiedAtOnce;
      from.push_back(copy);
      const iovec local = {copy, bytes};
      const iovec remote = {const_cast<float*>(InputOf(rank, in_place)) + begin,
                            bytes};
      if (process_vm_readv(shared_.buffers[rank].pid, &local, 1, &remote, 1,
                           0) != static_cast<ssize_t>(bytes)) {
        return false;
      }
    }
    float* const sum = scratch + (ranks_ - 1) * kCopiedAtOnce;
    const std::array<float*, 1> to = {sum};
    SumFloats(Stores::kOrdinary, to, from, count);
    CopyFloats(stores, shared_.buffers[rank_].output + begin, sum, count);
    for (int i = 1; i < ranks_; ++i) {
      const int rank = (rank_ + i) % ranks_;
      const iovec local = {sum, bytes};
      const iovec remote = {shared_.buffers[rank].output + begin, bytes};
      if (process_vm_writev(shared_.buffers[rank].pid, &local, 1, &remote, 1,
                            0) != static_cast<ssize_t>(bytes)) {
        return false;
      }
    }
    return true;
  }

  const Arguments& arguments_;
  const int rank_;
  const int ranks_;
  Shared& shared_;
  float* const slots_;
  std::vector<float> scratch_;
};

// What the ranks measured, rank by rank and call by call, as one: the slowest.
std::vector<double> Slowest(const Arguments& arguments, const Shared& shared) {
  const int calls = 1 + arguments.warmups + arguments.iterations;
  std::vector<double> slowest(calls);
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    for (int i = 0; i < calls; ++i) {
      slowest[i] = std::max(slowest[i], shared.times_us[rank][i]);
    }
  }
  return slowest;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

struct Best {
  double median_us = 0;
  Way way;
  std::vector<double> slowest_us;  // first call, warm-ups, timed calls
};

void Print(const Arguments& arguments, const char* place, const Best& best) {
  std::printf("# %s: %s\n", place, best.way.Name().c_str());
  std::printf("%s wrong %s first %.3f samples", place,
              best.way.checked() ? "0" : "unchecked", best.slowest_us.front());
  for (auto us = best.slowest_us.begin() + 1 + arguments.warmups;
       us != best.slowest_us.end(); ++us) {
    std::printf(" %.3f", *us);
  }
  std::printf("\n");
}

std::vector<Way> WaysOf(const Arguments& arguments) {
  std::vector<Way> ways;
  for (const Stores stores : {Stores::kOrdinary, Stores::kStreaming}) {
    if (arguments.mapped) {
      ways.push_back({Way::Path::kMapped, stores});
    } else {
      ways.push_back({Way::Path::kSlots, stores});
      ways.push_back({Way::Path::kCopies, stores});
    }
  }
  return ways;
}

// Of one rank. Returns whether all went well; rank 0 prints.
bool RunRank(const Arguments& arguments, int rank, Shared& shared,
             float* slots) {
  RankBuffers& mine = shared.buffers[rank];
  mine.pid = getpid();
  if (!arguments.mapped) {
    const std::size_t bytes = arguments.count * sizeof(float);
    mine.input = MapBuffer(bytes, arguments.huge, arguments.align);
    mine.output = MapBuffer(bytes, arguments.huge, arguments.align);
  }
  if (mine.input == nullptr || mine.output == nullptr ||
      (arguments.pinned && PinToCore(rank) != 0)) {
    std::perror("floor: a buffer, or a rank's core");
    return false;
  }
  Rank self(arguments, rank, shared, slots);
  self.Barrier();
  for (const bool in_place : {false, true}) {
    std::optional<Best> best;
    for (const Way& way : WaysOf(arguments)) {
      if (!self.Measure(way, in_place)) {
        std::perror(("floor: " + way.Name()).c_str());
        return false;
      }
      const std::vector<double> slowest = Slowest(arguments, shared);
      const std::vector<double> timed(slowest.begin() + 1 + arguments.warmups,
                                      slowest.end());
      if (!best || Median(timed) < best->median_us) {
        best = Best{Median(timed), way, slowest};
      }
      for (int other = 0; other < arguments.ranks; ++other) {
        if (shared.wrong[other] != 0) {
          std::fprintf(stderr, "floor: %s: wrong sums\n", way.Name().c_str());
          return false;
        }
      }
      // The next way overwrites the times.
      self.Barrier();
    }
    if (rank == 0) {
      Print(arguments, in_place ? "in_place" : "out_of_place", *best);
    }
  }
  return std::fflush(stdout) == 0;
}

// Maps what the ranks share; false where there is no memory.
bool MapAll(const Arguments& arguments, Shared** shared, float** slots) {
  *shared =
      reinterpret_cast<Shared*>(MapMemory(sizeof(Shared), 0, 0, MAP_SHARED));
  *slots =
      MapMemory(Rank::SlotFloats(arguments) * sizeof(float), 1, 0, MAP_SHARED);
  if (*shared == nullptr || *slots == nullptr) {
    return false;
  }
  for (int rank = 0; arguments.mapped && rank < arguments.ranks; ++rank) {
    RankBuffers& buffers = (*shared)->buffers[rank];
    const std::size_t bytes = arguments.count * sizeof(float);
    buffers.input = MapMemory(bytes, arguments.huge, 0, MAP_SHARED);
    buffers.output = MapMemory(bytes, arguments.huge, 0, MAP_SHARED);
    if (buffers.input == nullptr || buffers.output == nullptr) {
      return false;
    }
  }
  return true;
}

// The first rank that fails ends the others, which would wait for it for ever.
bool RunRanks(const Arguments& arguments, Shared& shared, float* slots) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(RunRank(arguments, rank, shared, slots) ? 0 : 1);
    }
    children.push_back(child);
  }
  bool good = true;
  for (std::size_t ended = 0; ended < children.size(); ++ended) {
    int status = 0;
    if ((wait(&status) < 0 || status != 0) && good) {
      good = false;
      for (const pid_t child : children) {
        if (child > 0) kill(child, SIGKILL);
      }
    }
  }
  return good;
}

int Main(int argc, char** argv) {
  const auto arguments = Parse(argc, argv);
  if (!arguments) {
    std::fprintf(stderr,
                 "usage: floor RANKS BYTES WARMUPS ITERATIONS mapped|private "
                 "[touch|pinned|huge|align=BYTES]...\n");
    return 1;
  }
  Shared* shared = nullptr;
  float* slots = nullptr;
  if (!MapAll(*arguments, &shared, &slots)) {
    std::perror("floor: memory");
    return 1;
  }
  return RunRanks(*arguments, *shared, slots) ? 0 : 1;
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) { return ringpipe::Main(argc, argv); }
