#include "verbs/memory_region.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cerrno>

#include "verbs/fake_library.h"

namespace ringpipe::verbs {
namespace {

class MemoryRegionTest : public testing::Test {
 protected:
  void SetUp() override {
    machine_.Add({.name = "mlx5_0"});
    auto device = Device::Open(
        {}, Result<std::shared_ptr<const Library>>(machine_.library()),
        machine_.soft(), machine_.sysfs_class());
    ASSERT_TRUE(device.ok()) << device.status().ToString();
    auto pd = ProtectionDomain::Create(std::move(device).value());
    ASSERT_TRUE(pd.ok());
    pd_ = std::move(pd).value();
  }

  Result<MemoryRegion> Register(std::size_t bytes) {
    return MemoryRegion::Register(pd_, memory_.data(), bytes,
                                  IBV_ACCESS_LOCAL_WRITE);
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

// For root with CAP_IPC_LOCK there is no limit, so that the claim depends on
// who runs the test: both halves are stated.
TEST_F(MemoryRegionTest, TheMemlockLimitHoldsBeforeTheDeviceIsAsked) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
  const bool allowed = CheckProcessMemlock(1).ok();
  const int live = machine_.live;
  const auto region = Register(100);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
  EXPECT_EQ(region.ok(), allowed);
  if (!allowed) {
    EXPECT_EQ(region.status().code(), StatusCode::kResourceExhausted);
    EXPECT_NE(region.status().message().find("mlx5_0"), std::string::npos);
    EXPECT_EQ(machine_.live, live);
  }
}

}  // namespace
}  // namespace ringpipe::verbs
