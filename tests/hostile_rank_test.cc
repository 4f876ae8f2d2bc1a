// A rank of the job that scribbles over all memory of its host that it got from
// the others, and takes its pages away: these end with an error, in time, and
// with their users' memory as it was.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/liveness_bound.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kJobs = 12;
constexpr seconds kStartTime(60);  // generous: sanitizers, a busy machine
constexpr milliseconds kCallTimeout(2000);
constexpr std::size_t kMostElements = 1 << 20;
// Of each length one; before the headers are attacked, which soon ends a job.
constexpr std::size_t kCallsOnBadData = 4;
constexpr std::size_t kEndless = ~std::size_t{0};
// In which whoever still writes to memory would do so.
constexpr milliseconds kAfter(30);

// --- Roles

using SharedRegion = std::span<std::uint64_t>;

// All regions of ranks that this process has, its own too: where they are
// mapped, as far as headers and slots go.
std::vector<SharedRegion> FindRegions() {
  constexpr std::uintptr_t kMostBytes = 48 << 20;
  std::map<std::string, std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::array<char, 32> inode = {};
    if (line.find("ringpipe-host") != std::string::npos &&
        std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %31s",
                    &begin, &end, inode.data()) == 3) {
      // Advice to the kernel splits a mapping into several that follow on.
      const auto [range, is_new] = ranges.try_emplace(inode.data(), begin, end);
      if (!is_new && range->second.second == begin) {
        range->second.second = end;
      }
    }
  }
  std::vector<SharedRegion> regions;
  for (const auto& [inode, range] : ranges) {
    regions.emplace_back(reinterpret_cast<std::uint64_t*>(range.first),
                         std::min(range.second - range.first, kMostBytes) /
                             sizeof(std::uint64_t));
  }
  return regions;
}

// What an attack aims at: mostly where the ranks keep what they tell each
// other, or the data alone.
enum class Aim { kAll, kData };
using Attack = void (*)(const SharedRegion&, Aim, std::mt19937_64&);
// No header is longer.
constexpr std::size_t kHeaderBytes = 32 * 1024;

// A multiple of `unit` bytes from the beginning of the region.
std::size_t AnyPlace(const SharedRegion& region, Aim aim, std::size_t unit,
                     std::mt19937_64& random) {
  const std::size_t header = kHeaderBytes / unit;
  const std::size_t all = region.size_bytes() / unit;
  return aim == Aim::kData   ? header + random() % (all - header)
         : random() % 4 != 0 ? random() % header
                             : random() % all;
}

// Words of all kinds.
void Scribble(const SharedRegion& region, Aim aim, std::mt19937_64& random) {
  const std::array<std::uint64_t, 6> values = {
      0, 1, ~std::uint64_t{0}, random(), random() % 4096, random() % 64};
  std::uint64_t& word =
      region[AnyPlace(region, aim, sizeof(std::uint64_t), random)];
  std::atomic_ref(word).store(values[random() % values.size()],
                              std::memory_order_relaxed);
}

// Takes pages away, under the feet of whoever reads or writes there: a few of
// them, or all to the end.
void PunchHoles(const SharedRegion& region, Aim aim, std::mt19937_64& random) {
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t begin =
      AnyPlace(region, aim, kPageBytes, random) * kPageBytes;
  const std::size_t bytes = random() % 16 != 0 ? (1 + random() % 8) * kPageBytes
                                               : region.size_bytes() - begin;
  madvise(region.data() + begin / sizeof(std::uint64_t), bytes, MADV_REMOVE);
}

enum class Memory { kAllocated, kInSlots };

Result<std::unique_ptr<Communicator>> Join() {
  RINGPIPE_ASSIGN_OR_RETURN(const CommunicatorOptions options,
                            CommunicatorOptions::FromProcess());
  return Communicator::Create(options);
}

// So many calls of all lengths, or fewer, until one fails.
Status Call(Communicator& communicator, std::span<float> memory,
            std::size_t calls) {
  constexpr std::array<std::size_t, 4> kElements = {2, 512, 1 << 14,
                                                    kMostElements};
  Status status;
  for (std::size_t call = 0; status.ok() && call < calls; ++call) {
    status = communicator.AllReduce(
        memory.data(), memory.data(), kElements[call % kElements.size()],
        DataType::kFloat32, ReduceOp::kSum, kCallTimeout);
  }
  return status;
}

// What has returned is the user's: whether it stays as the user leaves it.
bool StaysAsItIs(std::span<float> memory) {
  std::this_thread::sleep_for(kAfter);
  std::ranges::fill(memory, -7.0F);
  std::this_thread::sleep_for(kAfter);
  return std::ranges::all_of(memory, [](float v) { return v == -7.0F; });
}

// All at the same time, beside calls.
int AttackBy(const std::vector<Attack>& attacks) {
  auto communicator = Join();
  if (!communicator.ok()) {
    Print(communicator.status().ToString());
    return 1;
  }
  const auto regions = FindRegions();
  Print("regions: " + std::to_string(regions.size()));
  AwaitGo();
  std::atomic<Aim> aim = Aim::kData;
  std::atomic<bool> stop = false;
  std::vector<std::thread> attackers;
  for (const Attack attack : attacks) {
    attackers.emplace_back([&, attack] {
      std::mt19937_64 random{std::random_device()()};
      while (!stop) {
        attack(regions[random() % regions.size()], aim, random);
      }
    });
  }
  std::vector<float> memory(kMostElements);
  Status status = Call(**communicator, memory, kCallsOnBadData);
  Print(status.ToString());
  aim = Aim::kAll;
  if (status.ok()) {
    status = Call(**communicator, memory, kEndless);
  }
  stop = true;
  for (std::thread& attacker : attackers) {
    attacker.join();
  }
  // Nobody else waits for it.
  _exit(0);
}

int Scribbles(Way) { return AttackBy({&Scribble}); }
int PunchesHoles(Way) {
  return AttackBy({&Scribble, &Scribble, &PunchHoles, &PunchHoles});
}

template <Memory kMemory>
int BeAVictim(Way) {
  constexpr bool kAllocated = kMemory == Memory::kAllocated;
  auto communicator = Join();
  if (!communicator.ok()) {
    Print(communicator.status().ToString());
    return 1;
  }
  constexpr std::size_t kGuard = 1024;
  constexpr std::size_t kAll = kMostElements + 2 * kGuard;
  std::vector<float> own(kAll);
  std::span<float> memory(own);
  if (kAllocated) {
    auto allocated = (*communicator)->Allocate(kAll * sizeof(float));
    if (!allocated.ok()) {
      Print(allocated.status().ToString());
      return 1;
    }
    memory = {static_cast<float*>(*allocated), kAll};
  }
  std::ranges::fill(own, 7.0F);
  Print("running");
  AwaitGo();
  const std::span<float> used = memory.subspan(kGuard, kMostElements);
  const Status status = Call(**communicator, used, kEndless);
  Print(status.ToString());
  const auto is_guard = [](float value) { return value == 7.0F; };
  // What the hostile rank can write itself is no proof.
  const std::span<const float> all(own);
  const bool clean =
      kAllocated ? std::ranges::all_of(all, is_guard)
                 : std::ranges::all_of(all.first(kGuard), is_guard) &&
                       std::ranges::all_of(all.last(kGuard), is_guard) &&
                       StaysAsItIs(used);
  Print(clean ? "clean" : "changed");
  return 0;
}

// --- Tests

// (the way, the victims, the hostile rank)
class HostileRankTest : public ::testing::TestWithParam<
                            std::tuple<Way, const char*, const char*>> {};

TEST_P(HostileRankTest, EndsTheOthersWithAnErrorAndNothingWorse) {
  const auto& [way, victims, hostile] = GetParam();
  int bad_data_alone = 0;
  for (int job = 0; job < kJobs; ++job) {
    const std::string name = NewJob();
    std::vector<RankProcess> ranks;
    for (const char* role : {victims, hostile, victims}) {
      ranks.emplace_back(way, role, static_cast<int>(ranks.size()), 3, name);
    }
    ASSERT_EQ(ranks[0].ReadLine(kStartTime), "running");
    ASSERT_EQ(ranks[1].ReadLine(kStartTime), "regions: 3");
    ASSERT_EQ(ranks[2].ReadLine(kStartTime), "running");
    for (RankProcess& rank : ranks) {
      rank.Go();
    }
    const auto start = std::chrono::steady_clock::now();
    for (RankProcess* victim : {&ranks[0], &ranks[2]}) {
      EXPECT_NE(victim->ReadLine(kStartTime), "");
      EXPECT_EQ(victim->ReadLine(kStartTime), "clean");
      const int ended = victim->Wait(kStartTime);
      EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << ended;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              LivenessBound(2 * kCallTimeout));
    bad_data_alone += ranks[1].ReadLine(kStartTime) == "ok" ? 1 : 0;
  }
  // Bad data are a wrong result, and no error.
  EXPECT_GT(bad_data_alone, kJobs / 2);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, HostileRankTest,
    ::testing::Combine(::testing::ValuesIn(WaysOf("hostile_rank_test")),
                       ::testing::Values("allocated", "in_slots"),
                       ::testing::Values("scribbles", "punches_holes")),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_" +
             std::get<1>(info.param) + "_" + std::get<2>(info.param);
    });

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(argc, argv,
                        {{"scribbles", &Scribbles},
                         {"punches_holes", &PunchesHoles},
                         {"allocated", &BeAVictim<Memory::kAllocated>},
                         {"in_slots", &BeAVictim<Memory::kInSlots>}});
}
