// What is not seen through its users (//verbs/soft's Segment and
// //pipeline/host's Region).
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "base/file_descriptor.h"
#include "base/mapping_registry.h"
#include "base/pages.h"
#include "base/shared_file.h"
#include "base/shared_mapping.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

TEST(SharedFile, IsSharedOnlyAsFarAsItIsLong) {
  const FileDescriptor file = CreateSharedFile("test", kPageBytes);
  EXPECT_TRUE(IsSharedFile(file, kPageBytes));
  EXPECT_FALSE(IsSharedFile(file, kPageBytes + 1));
  EXPECT_FALSE(SetFileBytes(file, kPageBytes - 1));
}

TEST(SharedFile, GrowsWhereItsPagesAreAllocatedAndNeverShrinks) {
  const FileDescriptor file = CreateSharedFile("test", kPageBytes);
  ASSERT_TRUE(AllocatePages(file, kPageBytes, kPageBytes));
  EXPECT_EQ(FileBytes(file), 2 * kPageBytes);
  ASSERT_TRUE(AllocatePages(file, 0, kPageBytes));
  EXPECT_EQ(FileBytes(file), 2 * kPageBytes);
}

// A signal undoes what a call of fallocate has done.
TEST(SharedFile, HasItsPagesAlsoWhereAProfilerSendsSignals) {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  struct sigaction before = {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  const itimerval often = {{0, 200}, {0, 200}};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  constexpr std::uint64_t kBytes = 256 << 20;
  const FileDescriptor file = CreateSharedFile("test", 0);
  const bool allocated = AllocatePages(file, 0, kBytes);
  const itimerval none = {};
  setitimer(ITIMER_REAL, &none, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_TRUE(allocated);
  EXPECT_EQ(FileBytes(file), kBytes);
}

TEST(SharedMapping, OfAHugePageIsAlignedToOne) {
  const FileDescriptor file = CreateSharedFile("test", kHugePageBytes);
  for (const std::uint64_t bytes :
       {kHugePageBytes, kHugePageBytes + 1, 3 * kHugePageBytes}) {
    // Disturbs where the kernel would have put it.
    const SharedMapping page(file, kPageBytes, PROT_READ);
    const SharedMapping mapping(file, bytes, PROT_READ);
    ASSERT_NE(mapping.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping.data()) % kHugePageBytes,
              0u);
  }
}

// Whether the process has mapped a file of this name.
bool HasMapped(pid_t process, const std::string& name) {
  std::ifstream stream("/proc/" + std::to_string(process) + "/maps");
  const std::string maps((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_NE(maps.find("[stack]"), std::string::npos);
  return maps.find(name) != std::string::npos;
}

TEST(SharedMapping, IsInNoChildAlsoWhereAnotherThreadForksMeanwhile) {
  const FileDescriptor file = CreateSharedFile("not-for-children", kPageBytes);
  std::atomic<bool> done = false;
  std::atomic<int> made = 0;
  std::thread maps([&] {
    while (!done) {
      const SharedMapping mapping(file, kPageBytes, PROT_READ);
      const SharedMapping another = mapping.Again(kPageBytes);
      ++made;
    }
  });
  int have_it = 0;
  for (int i = 0; i < 200; ++i) {
    for (const int before = made; made == before;) {
      std::this_thread::yield();
    }
    const pid_t child = fork();
    if (child == 0) {
      pause();
    }
    have_it += HasMapped(child, "not-for-children") ? 1 : 0;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  done = true;
  maps.join();
  EXPECT_EQ(have_it, 0);
}

TEST(MappingRegistry, KeepsTheFirstAndForgetsTheDead) {
  MappingRegistry<int, int> registry;
  EXPECT_EQ(registry.Find(1), nullptr);
  auto first = std::make_shared<int>();
  const auto second = std::make_shared<int>();
  EXPECT_EQ(registry.KeepFirst(1, first), first);
  EXPECT_EQ(registry.KeepFirst(1, second), first);
  registry.Forget(1);
  EXPECT_EQ(registry.Find(1), first);
  first.reset();
  EXPECT_EQ(registry.Find(1), nullptr);
  EXPECT_EQ(registry.KeepFirst(1, second), second);
}

}  // namespace
}  // namespace ringpipe
