// What is not seen through its users (//verbs/soft's Segment and
// //pipeline/host's Region).
#include <sys/mman.h>
#include <sys/time.h>

#include <csignal>
#include <cstdint>
#include <memory>

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
