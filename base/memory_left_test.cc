#include "base/memory_left.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ringpipe {
namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

// A file system of one's own, with 8 GiB available and 1 GiB of swap.
class MemoryLeftTest : public ::testing::Test {
 protected:
  MemoryLeftTest() {
    Write("/proc/meminfo",
          "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"
          "SwapFree: 1048576 kB\n");
  }
  ~MemoryLeftTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  // A group of version 2.
  void Group(const std::string& path, const std::string& most_mib,
             int used_mib) {
    const std::string group = "/sys/fs/cgroup" + path;
    Write(group + "/memory.max",
          most_mib == "max" ? most_mib
                            : std::to_string(std::stoi(most_mib) * kMib));
    Write(group + "/memory.current", std::to_string(used_mib * kMib));
    Write(group + "/memory.swap.max", "0\n");
    Write(group + "/memory.swap.current", "0\n");
  }

  void BeInGroup(const std::string& path) {
    Write("/proc/self/cgroup", "0::" + path + "\n");
    Write("/proc/self/mountinfo",
          "25 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
          "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 "
          "cgroup2 rw\n");
  }

  std::uint64_t Left() { return LookUpMemoryLeft(root_)->bytes; }

  const std::string root_ =
      ::testing::TempDir() + "memory_left_" +
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST(MemoryLeft, IsKnownHere) {
  const auto left = LookUpMemoryLeft();
  ASSERT_TRUE(left.has_value());
  EXPECT_GT(left->bytes, kMib);
  EXPECT_GE(left->with_swap, left->bytes);
}

TEST_F(MemoryLeftTest, IsTheHostsWhereNoGroupLimitsIt) {
  const auto left = LookUpMemoryLeft(root_);
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(left->bytes, 8192 * kMib);
  EXPECT_EQ(left->with_swap, 9216 * kMib);
  EXPECT_FALSE(left->by_group);
  BeInGroup("/user");
  Group("/user", "max", 100);
  EXPECT_EQ(Left(), 8192 * kMib);
}

TEST_F(MemoryLeftTest, IsWhatTheProcesssGroupLeaves) {
  BeInGroup("/user/job");
  Group("/user/job", "512", 100);
  const auto left = LookUpMemoryLeft(root_);
  EXPECT_EQ(left->bytes, 412 * kMib);
  EXPECT_EQ(left->with_swap, 412 * kMib);
  EXPECT_TRUE(left->by_group);
}

TEST_F(MemoryLeftTest, IsTheLeastOfAllGroupsAboveToo) {
  BeInGroup("/slurm/job/step");
  Group("/slurm/job/step", "max", 100);
  Group("/slurm/job", "2048", 200);
  Group("/slurm", "1024", 900);
  EXPECT_EQ(Left(), 124 * kMib);
}

// Docker's: the container sees its own group as the root of all.
TEST_F(MemoryLeftTest, OfAContainerIsThatOfTheGroupAtItsRoot) {
  BeInGroup("/");
  Group("", "256", 56);
  EXPECT_EQ(Left(), 200 * kMib);
}

TEST_F(MemoryLeftTest, CountsFilesThatTheKernelGivesBack) {
  BeInGroup("/job");
  Group("/job", "512", 500);
  Write("/sys/fs/cgroup/job/memory.stat",
        "anon 1\ninactive_file 104857600\nactive_file 209715200\n");
  EXPECT_EQ(Left(), 312 * kMib);
}

TEST_F(MemoryLeftTest, CountsTheSwapThatTheGroupMayHave) {
  BeInGroup("/job");
  Group("/job", "512", 112);
  Write("/sys/fs/cgroup/job/memory.swap.max", "max\n");
  EXPECT_EQ(LookUpMemoryLeft(root_)->with_swap, (400 + 1024) * kMib);
}

TEST_F(MemoryLeftTest, OfTheFirstVersionIsFoundByItsController) {
  // A container without a name space of groups sees the host's names.
  Write("/proc/self/cgroup",
        "5:devices:/docker/1\n4:cpu,memory:/docker/1\n0::/docker/1\n");
  Write("/proc/self/mountinfo",
        "34 31 0:29 /docker/1 /sys/fs/cgroup/devices rw - cgroup cgroup "
        "rw,devices\n"
        "35 31 0:32 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup "
        "rw,cpu,memory\n");
  const std::string group = "/sys/fs/cgroup/memory";
  Write(group + "/memory.limit_in_bytes", std::to_string(300 * kMib));
  Write(group + "/memory.usage_in_bytes", std::to_string(200 * kMib));
  Write(group + "/memory.memsw.limit_in_bytes", std::to_string(300 * kMib));
  Write(group + "/memory.memsw.usage_in_bytes", std::to_string(200 * kMib));
  Write(group + "/memory.stat", "total_inactive_file 52428800\n");
  const auto left = LookUpMemoryLeft(root_);
  EXPECT_EQ(left->bytes, 150 * kMib);
  EXPECT_EQ(left->with_swap, 150 * kMib);
}

}  // namespace
}  // namespace ringpipe
