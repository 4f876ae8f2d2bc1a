#include "engine/rails.h"

#include "gtest/gtest.h"
#include "verbs/fake_library.h"

namespace ringpipe {
namespace {

using Indices = std::vector<std::vector<int>>;

// A machine with two RoCE ports, rank 0 of three: rank 1 is on the same host.
class RailsTest : public testing::Test {
 protected:
  RailsTest() {
    for (const char* name : {"mlx5_0", "mlx5_1"}) {
      verbs::FakeDevice device;
      device.name = name;
      machine_.Add(device);
    }
  }

  Result<RankRails> Open(const std::string& device) {
    Environment environment;
    environment.device = device;
    return OpenRails(
        environment, 0, hosts_, std::vector<bool>(hosts_.size()),
        Result<std::shared_ptr<const verbs::Library>>(machine_.library()),
        machine_.soft(), /*met_at=*/"", machine_.sysfs_class());
  }

  RankRails OpenOrFail(const std::string& device) {
    auto rails = Open(device);
    EXPECT_TRUE(rails.ok()) << rails.status().ToString();
    return rails.ok() ? std::move(rails).value() : RankRails{};
  }

  verbs::FakeMachine machine_;
  std::vector<std::string> hosts_ = {"a", "a", "b"};
};

TEST_F(RailsTest, RanksOnTheHostAreReachedWithoutTheNetworkOthersByEveryPort) {
  const RankRails rails = OpenOrFail("");
  ASSERT_EQ(rails.devices.size(), 3U);
  EXPECT_TRUE(rails.devices[2]->info().software);
  EXPECT_EQ(rails.of_peer, (Indices{{2}, {2}, {0, 1}}));
  EXPECT_EQ(rails.reason[1], "the same host");
  EXPECT_NE(rails.reason[2].find("mlx5_0"), std::string::npos);
  EXPECT_EQ(rails.kind(),
            verbs::TransportName(rails.devices[0]->info().transport));
  EXPECT_EQ(rails.allocator(), rails.devices[2]);
}

TEST_F(RailsTest, AJobOnOneHostOpensNoRealDevice) {
  hosts_ = {"a", "a", "a"};
  const RankRails rails = OpenOrFail("");
  ASSERT_EQ(rails.devices.size(), 1U);
  EXPECT_EQ(rails.kind(), "software device");
  EXPECT_EQ(rails.of_peer, (Indices{{0}, {0}, {0}}));
}

TEST_F(RailsTest, ADeviceThatIsNamedIsUsedForAllRanks) {
  hosts_ = {"a", "a", "a"};
  for (const char* device : {"mlx5_0", "^soft"}) {
    const RankRails rails = OpenOrFail(device);
    for (const auto& opened : rails.devices) {
      EXPECT_FALSE(opened->info().software) << device;
    }
  }
  EXPECT_EQ(OpenOrFail("=mlx5_1").of_peer, (Indices{{0}, {0}, {0}}));
}

TEST_F(RailsTest, AnExcludedDeviceIsNotNamed) {
  const RankRails rails = OpenOrFail("^mlx5_1");
  ASSERT_EQ(rails.devices.size(), 2U);
  EXPECT_EQ(rails.devices[0]->info().name, "mlx5_0");
  EXPECT_EQ(rails.of_peer, (Indices{{1}, {1}, {0}}));
}

TEST_F(RailsTest, TheSoftwareDeviceIsForAllWhereItIsAskedFor) {
  const RankRails rails = OpenOrFail("soft");
  ASSERT_EQ(rails.devices.size(), 1U);
  EXPECT_EQ(rails.of_peer, (Indices{{0}, {0}, {0}}));
  EXPECT_NE(rails.reason[2].find("RINGPIPE_DEVICE=soft"), std::string::npos);
}

TEST_F(RailsTest, PortsThatBothHostsHaveAreJoinedByNameTheFastestPairFirst) {
  RankRails rails = OpenOrFail("");
  // The port that is slow there comes second, and is joined with its like.
  rails.PairWith({"", "", "mlx5_1:1=50000 mlx5_0:1=1000"});
  EXPECT_EQ(rails.of_peer, (Indices{{2}, {2}, {1, 0}}));
  EXPECT_EQ(rails.Ports().substr(0, 9), "mlx5_0:1=");
}

TEST_F(RailsTest, APortThatOneHostAloneHasIsNotUsed) {
  RankRails rails = OpenOrFail("");
  rails.PairWith({"", "", "mlx5_1:1=1000 mlx5_7:1=1000"});
  EXPECT_EQ(rails.of_peer[2], (std::vector<int>{1}));
}

TEST_F(RailsTest, PortsWithoutACommonNameAreJoinedInTheirOrder) {
  RankRails rails = OpenOrFail("");
  rails.PairWith({"", "", "ib0:1=1000 ib1:1=1000 nonsense"});
  EXPECT_EQ(rails.of_peer[2], (std::vector<int>{0, 1}));
}

TEST_F(RailsTest, ADeviceThatIsNotThereIsAnErrorAlsoOnOneHost) {
  hosts_ = {"a", "a", "a"};
  EXPECT_EQ(Open("mlx5_7").status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ringpipe
