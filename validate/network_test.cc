#include "validate/network.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace ringpipe::validate {
namespace {

namespace fs = std::filesystem;

// Folders that look like /sys and /proc.
class NetworkTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  ~NetworkTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  HostNetwork Read() {
    return ReadNetwork(root_ / "sys", root_ / "proc", "c01");
  }

  const fs::path root_ = fs::path(::testing::TempDir()) / "network_test";
};

TEST_F(NetworkTest, TcpIsReadByTheNamesOfItsCounters) {
  Write("proc/net/snmp",
        "Ip: Forwarding OutRequests\nIp: 1 17\n"
        "Tcp: RtoMin MaxConn InSegs OutSegs RetransSegs InErrs\n"
        "Tcp: 200 -1 11 5000000000 42 3\n"
        "Udp: InDatagrams OutDatagrams\nUdp: 7 9\n");
  const HostNetwork network = Read();
  EXPECT_EQ(network.host, "c01");
  EXPECT_EQ(network.segments, 5'000'000'000U);
  EXPECT_EQ(network.retransmitted, 42U);
}

TEST_F(NetworkTest, TheRateIsThatOfTheFastestCardAndOfNothingElse) {
  Write("sys/class/net/eth0/device/vendor", "0x15b3");
  Write("sys/class/net/eth0/speed", "10000\n");
  Write("sys/class/net/eth1/device/vendor", "0x15b3");
  Write("sys/class/net/eth1/speed", "25000\n");
  Write("sys/class/net/eth2/device/vendor", "0x15b3");
  Write("sys/class/net/eth2/speed", "-1\n");  // down
  Write("sys/class/net/bridge/speed", "400000\n");
  EXPECT_EQ(Read().megabits_per_s, 25000);
}

TEST_F(NetworkTest, WhatIsNotThereIsNotKnown) {
  const HostNetwork network = Read();
  EXPECT_EQ(network.megabits_per_s, 0);
  EXPECT_EQ(network.segments, 0U);
  EXPECT_EQ(network.retransmitted, 0U);
}

}  // namespace
}  // namespace ringpipe::validate
