#include "verbs/memory_region.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "verbs/fake_library.h"

namespace ringpipe::verbs {
namespace {

class MemoryRegionTest : public testing::Test {
 protected:
  void SetUp() override {
    machine_.Add({.name = "mlx5_0"});
    Open(machine_.library());
  }

  void Open(const std::shared_ptr<const Library>& library) {
    auto devices =
        Device::Open({}, {}, Result<std::shared_ptr<const Library>>(library),
                     machine_.soft(), machine_.sysfs_class());
    ASSERT_TRUE(devices.ok()) << devices.status().ToString();
    auto pd = ProtectionDomain::Create(devices->front());
    ASSERT_TRUE(pd.ok());
    pd_ = std::move(pd).value();
  }

  Result<MemoryRegion> Register(std::size_t bytes) {
    return MemoryRegion::Register(pd_, memory_.data(), bytes,
                                  IBV_ACCESS_LOCAL_WRITE);
  }

  Result<MemoryRegion> RegisterRelaxed() {
    return MemoryRegion::Register(pd_, memory_.data(), memory_.size(),
                                  IBV_ACCESS_LOCAL_WRITE, /*relaxed=*/true);
  }

  FakeMachine machine_;
  std::shared_ptr<ProtectionDomain> pd_;
  std::array<std::byte, 4096> memory_ = {};
};

TEST_F(MemoryRegionTest, ARegionHasTheKeysOfTheDevice) {
  const auto region = Register(100);
  ASSERT_TRUE(region.ok()) << region.status().ToString();
  EXPECT_EQ(region->lkey(), 7u);
  EXPECT_EQ(region->rkey(), 8u);
}

TEST_F(MemoryRegionTest, AMovedRegionIsDeregisteredOnce) {
  const int before = machine_.live;
  {
    auto region = Register(100);
    ASSERT_TRUE(region.ok());
    MemoryRegion moved = std::move(region).value();
    EXPECT_TRUE(static_cast<bool>(moved));
    MemoryRegion assigned;
    assigned = std::move(moved);
    EXPECT_EQ(machine_.live, before + 1);
    EXPECT_TRUE(assigned.Deregister().ok());
    EXPECT_FALSE(static_cast<bool>(assigned));
    EXPECT_EQ(machine_.live, before);
    EXPECT_TRUE(assigned.Deregister().ok());
  }
  EXPECT_EQ(machine_.live, before);
}

TEST_F(MemoryRegionTest, NoMemoryIsInvalidArgument) {
  EXPECT_EQ(Register(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MemoryRegion::Register(pd_, nullptr, 8, 0).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(MemoryRegionTest, ARefusalForWantOfMemoryNamesDeviceErrnoAndLimit) {
  machine_.register_errno = ENOMEM;
  const auto region = Register(100);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.status().code(), StatusCode::kResourceExhausted);
  for (const char* part : {"mlx5_0", "ENOMEM", "100 bytes", "ulimit -l"}) {
    EXPECT_NE(region.status().message().find(part), std::string::npos)
        << region.status().message();
  }
}

TEST_F(MemoryRegionTest, AnotherRefusalIsADeviceErrorByItsErrno) {
  machine_.register_errno = EINVAL;
  const auto region = Register(100);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.status().code(), StatusCode::kDeviceError);
  EXPECT_NE(region.status().message().find("EINVAL"), std::string::npos);
}

TEST_F(MemoryRegionTest, DataAreRegisteredWithRelaxedOrdering) {
  ASSERT_TRUE(RegisterRelaxed().ok());
  EXPECT_EQ(machine_.registered_access,
            std::vector<unsigned>{IBV_ACCESS_LOCAL_WRITE |
                                  IBV_ACCESS_RELAXED_ORDERING});
}

TEST_F(MemoryRegionTest, WhoDoesNotAskForRelaxedOrderingDoesNotGetIt) {
  ASSERT_TRUE(Register(100).ok());
  EXPECT_EQ(machine_.registered_access,
            std::vector<unsigned>{IBV_ACCESS_LOCAL_WRITE});
}

TEST_F(MemoryRegionTest, ADeviceThatRefusesRelaxedOrderingGetsMemoryWithout) {
  machine_.relaxed_errno = EOPNOTSUPP;
  ASSERT_TRUE(RegisterRelaxed().ok());
  EXPECT_EQ(machine_.registered_access,
            std::vector<unsigned>{IBV_ACCESS_LOCAL_WRITE});
}

TEST_F(MemoryRegionTest, ARefusalOfBothWaysIsThatOfTheSecond) {
  machine_.relaxed_errno = EOPNOTSUPP;
  machine_.register_errno = EFAULT;
  const auto region = RegisterRelaxed();
  ASSERT_FALSE(region.ok());
  EXPECT_NE(region.status().message().find("EFAULT"), std::string::npos);
}

TEST_F(MemoryRegionTest, AnOlderLibraryRegistersWithoutRelaxedOrdering) {
  pd_.reset();
  Open(machine_.old_library());
  ASSERT_TRUE(RegisterRelaxed().ok());
  EXPECT_EQ(machine_.registered_access,
            std::vector<unsigned>{IBV_ACCESS_LOCAL_WRITE});
}

TEST_F(MemoryRegionTest, PastTheDevicesLimitTheMessageNamesIt) {
  machine_.register_errno = ENOMEM;
  const auto region = Register(100);
  ASSERT_FALSE(region.ok());
  for (const char* part :
       {"16777216 memory regions", "max_mr", "fewer buffers"}) {
    EXPECT_NE(region.status().message().find(part), std::string::npos)
        << region.status().message();
  }
}

// The thread's CAP_IPC_LOCK, with which there is no limit, taken away until the
// end of the scope. /proc/self/status is the main thread's, as this is.
class WithoutIpcLock {
 public:
  WithoutIpcLock() {
    EXPECT_EQ(syscall(SYS_capget, &header_, before_.data()), 0);
    auto without = before_;
    without[0].effective &= ~(1U << CAP_IPC_LOCK);
    EXPECT_EQ(syscall(SYS_capset, &header_, without.data()), 0);
  }
  ~WithoutIpcLock() { syscall(SYS_capset, &header_, before_.data()); }
  WithoutIpcLock(const WithoutIpcLock&) = delete;
  WithoutIpcLock& operator=(const WithoutIpcLock&) = delete;

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> before_ = {};
};

TEST_F(MemoryRegionTest, With64KiBOfLockedMemoryTheDeviceIsNotAsked) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  constexpr rlim_t kLimit = 64 * 1024;
  const rlimit little = {std::min(kLimit, before.rlim_max), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &little), 0);
  const WithoutIpcLock without_ipc_lock;
  std::vector<std::byte> memory(1 << 20);
  const auto region =
      MemoryRegion::Register(pd_, memory.data(), memory.size(), 0, true);
  const auto small = Register(100);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.status().code(), StatusCode::kResourceExhausted);
  for (const char* part : {"mlx5_0", "65536 bytes", "ulimit -l unlimited"}) {
    EXPECT_NE(region.status().message().find(part), std::string::npos)
        << region.status().message();
  }
  EXPECT_TRUE(small.ok()) << small.status().ToString();
  EXPECT_EQ(machine_.registered_access.size(), 1u) << "of the small one only";
}

}  // namespace
}  // namespace ringpipe::verbs
