// What is not seen through its users (//verbs/soft's Segment and
// //pipeline/host's Region).
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/mapping_registry.h"
#include "base/pages.h"
#include "base/shared_file.h"
#include "base/shared_mapping.h"
#include "base/unix_message.h"
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

// A control group with little memory, as a container's; of either version,
// where this process may make one.
class LittleMemory {
 public:
  LittleMemory() {
    const std::string name = "ringpipe-test-" + std::to_string(getpid());
    for (const auto& [top, limit] :
         {std::pair("/sys/fs/cgroup/memory/", "/memory.limit_in_bytes"),
          std::pair("/sys/fs/cgroup/", "/memory.max")}) {
      const std::string group = top + name;
      if (mkdir(group.c_str(), S_IRWXU) != 0) {
        continue;
      }
      group_ = group;
      std::ofstream(group + "/memory.swap.max") << 0;
      if (std::ofstream(group + limit) << kBytes << std::flush) {
        return;
      }
      rmdir(group.c_str());
      group_.clear();
    }
  }
  ~LittleMemory() {
    if (!group_.empty()) {
      rmdir(group_.c_str());
    }
  }
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;

  explicit operator bool() const { return !group_.empty(); }
  bool Enter() const {
    return !!(std::ofstream(group_ + "/cgroup.procs")
              << getpid() << std::flush);
  }

  static constexpr std::uint64_t kBytes = std::uint64_t{160} << 20;

 private:
  std::string group_;
};

TEST(SharedFile, HasNoPagesRatherThanThatTheKernelEndsAProcessForThem) {
  const LittleMemory group;
  if (!group) {
    GTEST_SKIP() << "this process may make no control group";
  }
  int results[2];
  int end[2];
  ASSERT_EQ(pipe2(results, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(end, O_CLOEXEC), 0);
  constexpr int kChildren = 3;
  std::vector<pid_t> children;
  for (int i = 0; i < kChildren; ++i) {
    children.push_back(fork());
    if (children.back() == 0) {
      close(end[1]);
      const FileDescriptor file = CreateSharedFile("test", 0);
      const bool entered = group.Enter();
      const bool had = AllocatePages(file, 0, LittleMemory::kBytes / 2);
      char result = !entered ? 'x' : had ? 'y' : errno == ENOMEM ? 'n' : 'e';
      static_cast<void>(!write(results[1], &result, 1));
      static_cast<void>(!read(end[0], &result, 1));  // until the parent closes
      _exit(0);
    }
  }
  std::string said;
  pollfd readable = {results[0], POLLIN, 0};
  while (said.size() < kChildren && poll(&readable, 1, 10'000) == 1) {
    char one = 0;
    ASSERT_EQ(read(results[0], &one, 1), 1);
    said += one;
  }
  for (const int fd : {results[0], results[1], end[0], end[1]}) {
    close(fd);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(said.size(), kChildren);
  EXPECT_NE(said.find('n'), std::string::npos) << said;
  EXPECT_EQ(said.find_first_of("xe"), std::string::npos) << said;
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

// Whether the process has it mapped, or open: a file of this name.
bool Has(pid_t process, const std::string& name) {
  const std::string folder = "/proc/" + std::to_string(process);
  std::ifstream stream(folder + "/maps");
  const std::string maps((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_NE(maps.find("[stack]"), std::string::npos);
  bool found = maps.find(name) != std::string::npos;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder + "/fd")) {
    const std::string file = std::filesystem::read_symlink(entry.path());
    found = found || file.find(name) != std::string::npos;
  }
  return found;
}

// Of the children of this thread that are born while another runs `make` all
// the time: how many have a file of this name.
int ChildrenThatHave(const std::string& name,
                     const std::function<void()>& make) {
  std::atomic<bool> done = false;
  std::atomic<int> made = 0;
  std::thread maker([&] {
    for (; !done; ++made) {
      make();
    }
  });
  int have_it = 0;
  for (int i = 0; i < 200 && !::testing::Test::HasFailure(); ++i) {
    for (const int before = made; made == before;) {
      std::this_thread::yield();
    }
    // A child says that it is born, or ends without a word.
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    char born = 0;
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(write(ends[1], &born, 1) == 1 ? pause() : 1);
    }
    close(ends[1]);
    EXPECT_EQ(read(ends[0], &born, 1), 1);
    close(ends[0]);
    if (child < 0) {
      ADD_FAILURE() << "no child";
      break;
    }
    have_it += Has(child, name) ? 1 : 0;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  done = true;
  maker.join();
  return have_it;
}

TEST(NoChildHas, WhatAnotherThreadIsMapping) {
  const FileDescriptor file = CreateSharedFile("not-for-children", kPageBytes);
  EXPECT_EQ(ChildrenThatHave(
                "not-for-children",
                [&] {
                  const SharedMapping mapping(file, kPageBytes, PROT_READ);
                  const SharedMapping another = mapping.Again(kPageBytes);
                }),
            0);
}

TEST(NoChildHas, TheFileThatAnotherThreadIsMakingOrClosing) {
  EXPECT_EQ(ChildrenThatHave("not-for-children",
                             [] {
                               const FileDescriptor file = CreateSharedFile(
                                   "not-for-children", kPageBytes);
                             }),
            0);
}

TEST(NoChildHas, TheFileThatAnotherThreadIsReceiving) {
  const FileDescriptor file = CreateSharedFile("not-for-children", kPageBytes);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor from(ends[0]);
  const FileDescriptor to(ends[1]);
  EXPECT_EQ(ChildrenThatHave("not-for-children",
                             [&] {
                               const int sent = file.get();
                               SendMessage(from.get(), "file", {&sent, 1});
                               std::array<char, 4> bytes;
                               std::array<FileDescriptor, 1> files;
                               ReceiveMessage(to.get(), bytes, files);
                             }),
            0);
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
