#include "bench/memory_kills.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ringpipe {
namespace {

// A file system of one's own.
class MemoryKillsTest : public ::testing::Test {
 protected:
  ~MemoryKillsTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const std::string root_ =
      ::testing::TempDir() + "memory_kills_" +
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

constexpr char kEvents[] = "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\n";

TEST_F(MemoryKillsTest, AreThoseOfTheOwnGroupOfVersion2) {
  Write("/proc/self/cgroup", "0::/job/step\n");
  Write("/sys/fs/cgroup/job/step/memory.events", kEvents);
  Write("/sys/fs/cgroup/memory.events", "oom_kill 9\n");
  EXPECT_EQ(MemoryKills(root_), 5U);
}

TEST_F(MemoryKillsTest, OfAContainerThatSeesItsGroupAsTheRootAreFound) {
  Write("/proc/self/cgroup", "0::/docker/3f\n");
  Write("/sys/fs/cgroup/memory.events", kEvents);
  EXPECT_EQ(MemoryKills(root_), 5U);
}

// Where both versions are mounted, version 2 has no memory.
TEST_F(MemoryKillsTest, AreThoseOfVersion1BesideAVersion2WithoutMemory) {
  Write("/proc/self/cgroup", "9:cpu:/other\n4:memory:/job\n0::/job\n");
  Write("/sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
  EXPECT_EQ(MemoryKills(root_), 7U);
  Write("/proc/self/cgroup", "0::/job\n4:memory:/job\n");
  EXPECT_EQ(MemoryKills(root_), 7U);
}

TEST_F(MemoryKillsTest, AreNoneWhereTheKernelDoesNotSay) {
  EXPECT_EQ(MemoryKills(root_), 0U);
  Write("/proc/self/cgroup", "0::/job\n4:memory:/job\n");
  Write("/sys/fs/cgroup/job/memory.events", "low 1\noom\n");
  Write("/sys/fs/cgroup/memory/job/memory.oom_control", "under_oom 0\n");
  EXPECT_EQ(MemoryKills(root_), 0U);
}

}  // namespace
}  // namespace ringpipe
