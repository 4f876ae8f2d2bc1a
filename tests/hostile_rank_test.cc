// A rank of the job that scribbles over all memory of its host that it got from
// the others: these end with an error, in time, and with their users' memory as
// it was.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
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

constexpr int kJobs = 30;
constexpr seconds kStartTime(60);  // generous: sanitizers, a busy machine
constexpr milliseconds kCallTimeout(2000);
// Of private memory, what the kernel may copy.
constexpr std::size_t kMostElements = 1 << 20;
// In which whoever still writes to memory would do so.
constexpr milliseconds kAfter(30);

// --- Roles

// Of one length: all regions of ranks that this process has, its own too.
std::vector<std::span<std::uint64_t>> MapRegions() {
  std::vector<std::span<std::uint64_t>> regions;
  DIR* const directory = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(directory)) {
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    std::array<char, 256> name = {};
    struct stat info = {};
    if (readlink(link.c_str(), name.data(), name.size() - 1) < 0 ||
        std::strstr(name.data(), "ringpipe-host") == nullptr ||
        stat(link.c_str(), &info) != 0) {
      continue;
    }
    const auto bytes = static_cast<std::size_t>(info.st_size);
    void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                            std::atoi(entry->d_name), 0);
    if (data != MAP_FAILED) {
      regions.emplace_back(static_cast<std::uint64_t*>(data),
                           bytes / sizeof(std::uint64_t));
    }
  }
  closedir(directory);
  return regions;
}

// Words of all kinds, most of them where the ranks keep what they tell each
// other.
void Scribble(std::vector<std::span<std::uint64_t>>& regions,
              std::mt19937_64& random) {
  constexpr std::size_t kHeaderWords = 4096;
  const auto region = regions[random() % regions.size()];
  const std::size_t words =
      random() % 4 != 0 ? std::min(kHeaderWords, region.size()) : region.size();
  const std::array<std::uint64_t, 6> values = {
      0, 1, ~std::uint64_t{0}, random(), random() % 4096, random() % 64};
  std::atomic_ref(region[random() % words])
      .store(values[random() % values.size()], std::memory_order_relaxed);
}

enum class Memory { kAllocated, kInSlots, kByKernel };

Result<std::unique_ptr<Communicator>> Join(Memory memory) {
  RINGPIPE_ASSIGN_OR_RETURN(CommunicatorOptions options,
                            CommunicatorOptions::FromProcess());
  options.environment.registration =
      memory == Memory::kByKernel ? "always" : "never";
  return Communicator::Create(options);
}

// Calls of all lengths, with both kinds of memory, until one fails.
Status CallUntilError(Communicator& communicator, std::span<float> memory) {
  constexpr std::array<std::size_t, 4> kElements = {2, 512, 1 << 14,
                                                    kMostElements};
  Status status;
  for (std::size_t call = 0; status.ok(); ++call) {
    status = communicator.AllReduce(
        memory.data(), memory.data(), kElements[call % kElements.size()],
        DataType::kFloat32, ReduceOp::kSum, kCallTimeout);
  }
  return status;
}

// What has returned is the user's: whether it stays as the user leaves it, but
// for a copy that was under way, since that was scribbled over too.
bool StaysAsItIs(std::span<float> memory) {
  std::this_thread::sleep_for(kAfter);
  std::ranges::fill(memory, -7.0F);
  std::this_thread::sleep_for(kAfter);
  return std::ranges::all_of(memory, [](float v) { return v == -7.0F; });
}

int BeHostile() {
  auto communicator = Join(Memory::kByKernel);
  if (!communicator.ok()) {
    Print(communicator.status().ToString());
    return 1;
  }
  auto regions = MapRegions();
  Print("regions: " + std::to_string(regions.size()));
  AwaitGo();
  std::atomic<bool> stop = false;
  std::thread scribbler([&] {
    std::mt19937_64 random{std::random_device()()};
    while (!stop) {
      Scribble(regions, random);
    }
  });
  std::vector<float> memory(kMostElements);
  const Status status = CallUntilError(**communicator, memory);
  stop = true;
  scribbler.join();
  Print(status.ToString());
  // Nobody else waits for it.
  _exit(0);
}

template <Memory kMemory>
int BeAVictim() {
  constexpr bool kAllocated = kMemory == Memory::kAllocated;
  auto communicator = Join(kMemory);
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
  const Status status = CallUntilError(**communicator, used);
  Print(status.ToString());
  const auto is_guard = [](float value) { return value == 7.0F; };
  // What the hostile rank can write itself is no proof.
  const std::span<const float> all(own);
  const bool clean =
      kAllocated
          ? std::ranges::all_of(all, is_guard)
          : std::ranges::all_of(all.first(kGuard), is_guard) &&
                std::ranges::all_of(all.last(kGuard), is_guard) &&
                (status.code() == StatusCode::kMemoryHeld || StaysAsItIs(used));
  Print(clean ? "clean" : "changed");
  return 0;
}

// --- Tests

class HostileRankTest : public ::testing::TestWithParam<const char*> {};

TEST_P(HostileRankTest, EndsTheOthersWithAnErrorAndNothingWorse) {
  for (int job = 0; job < kJobs; ++job) {
    const std::string name = NewJob();
    std::vector<RankProcess> ranks;
    for (const char* role : {GetParam(), "hostile", GetParam()}) {
      ranks.emplace_back(role, static_cast<int>(ranks.size()), 3, name);
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
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, HostileRankTest,
                         ::testing::Values("allocated", "in_slots",
                                           "by_kernel"));

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(argc, argv,
                        {{"hostile", &BeHostile},
                         {"allocated", &BeAVictim<Memory::kAllocated>},
                         {"in_slots", &BeAVictim<Memory::kInSlots>},
                         {"by_kernel", &BeAVictim<Memory::kByKernel>}});
}
