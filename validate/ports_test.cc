// Fake sysfs trees, each with one thing wrong.
#include "validate/ports.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "validate/port_findings.h"

namespace ringpipe::validate {
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;

Files HealthyPort(const std::string& device = "mlx5_0") {
  const std::string port = "class/infiniband/" + device + "/ports/1/";
  const std::string card = "class/infiniband/" + device + "/device/";
  return {{port + "state", "4: ACTIVE"},
          {port + "phys_state", "5: LinkUp"},
          {port + "link_layer", "InfiniBand"},
          {port + "rate", "100 Gb/sec (4X EDR)"},
          {port + "gid_attrs/types/0", "IB/RoCE v1"},
          {port + "counters/symbol_error", "3"},
          {port + "counters/link_downed", "0"},
          {port + "counters/port_xmit_wait", "10"},
          {port + "counters/port_xmit_data", "1000"},
          {port + "hw_counters/out_of_sequence", "0"},
          {port + "hw_counters/lifespan", "10"},
          {card + "current_link_speed", "16.0 GT/s PCIe"},
          {card + "max_link_speed", "16.0 GT/s PCIe"},
          {card + "current_link_width", "16"},
          {card + "max_link_width", "16"}};
}

Files RocePort() {
  Files files = HealthyPort();
  const std::string port = "class/infiniband/mlx5_0/ports/1/";
  files[port + "link_layer"] = "Ethernet";
  files[port + "gid_attrs/types/1"] = "RoCE v2";
  files[port + "gid_attrs/ndevs/0"] = "eth2";
  files["class/net/eth2/mtu"] = "9000";
  files["class/net/eth2/speed"] = "100000";
  return files;
}

// A host's sysfs in a folder of its own.
class Host {
 public:
  Host(const std::string& name, const Files& files)
      : name_(name),
        folder_(fs::path(::testing::TempDir()) / "ports_test" / name) {
    fs::remove_all(folder_);
    for (const auto& [path, text] : files) {
      Write(path, text);
    }
  }

  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text << "\n";
  }

  // Each of its interfaces supports 100 Gbit/s.
  std::vector<Port> Read() const {
    return ReadPorts(folder_, name_, [](const std::string& interface) {
      return interface == "eth2" ? 100'000 : 0;
    });
  }
  std::string folder() const { return folder_; }

 private:
  const std::string name_;
  const fs::path folder_;
};

class PortsTest : public ::testing::Test {
 protected:
  // Three healthy hosts, and one where `path` says something else.
  std::vector<Finding> FindWith(const std::string& path,
                                const std::string& text,
                                const Files& healthy = HealthyPort()) {
    ports_.clear();
    for (const std::string name : {"c00", "c01", "c02", "c03"}) {
      Host host(name, healthy);
      if (name == "c02" && !path.empty()) {
        host.Write(path, text);
      }
      for (Port& port : host.Read()) {
        ports_.push_back(std::move(port));
      }
    }
    return FindPortFaults(ports_);
  }

  // One finding, on c02, that says it.
  void ExpectFault(const std::vector<Finding>& findings,
                   const std::string& words) {
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_TRUE(findings[0].fault);
    EXPECT_EQ(findings[0].host, "c02");
    EXPECT_TRUE(findings[0].text.starts_with("host c02: port mlx5_0:1 "))
        << findings[0].text;
    EXPECT_NE(findings[0].text.find(words), std::string::npos)
        << findings[0].text;
  }

  static std::string Of(const std::string& file) {
    return "class/infiniband/mlx5_0/ports/1/" + file;
  }

  std::vector<Port> ports_;
};

TEST_F(PortsTest, APortIsReadAsSysfsHasIt) {
  const std::vector<Port> ports = Host("c00", RocePort()).Read();
  ASSERT_EQ(ports.size(), 1U);
  EXPECT_EQ(ports[0].Name(), "mlx5_0:1");
  EXPECT_EQ(ports[0].state, "ACTIVE");
  EXPECT_EQ(ports[0].gigabits_per_s, 100);
  EXPECT_EQ(ports[0].lanes, 4);
  EXPECT_EQ(ports[0].speed, "EDR");
  EXPECT_EQ(ports[0].interface, "eth2");
  EXPECT_EQ(ports[0].interface_mtu, 9000);
  EXPECT_EQ(ports[0].interface_megabits_per_s, 100'000);
  EXPECT_EQ(ports[0].interface_most_megabits_per_s, 100'000);
  EXPECT_EQ(ports[0].gid_types,
            (std::vector<std::string>{"IB/RoCE v1", "RoCE v2"}));
  EXPECT_EQ(ports[0].pci_lanes, 16);
  EXPECT_EQ(ports[0].pci_most_gigatransfers_per_s, 16);
  EXPECT_EQ(ports[0].before.at("symbol_error"), 3U);
  EXPECT_FALSE(ports[0].before.contains("lifespan"));
}

TEST_F(PortsTest, AHostWithoutRdmaHasNone) {
  EXPECT_TRUE(ReadPorts("/nowhere/at/all", "c00").empty());
}

TEST_F(PortsTest, HealthyPortsAreNoFinding) {
  EXPECT_TRUE(FindWith("", "").empty());
  EXPECT_TRUE(FindWith("", "", RocePort()).empty());
}

TEST_F(PortsTest, ADegradedWidthIsNamed) {
  ExpectFault(FindWith(Of("rate"), "25 Gb/sec (1X EDR)"), "width 1X of 4X");
}

TEST_F(PortsTest, ADegradedWidthIsNamedWithoutPeers) {
  Host host("c02", HealthyPort());
  host.Write(Of("rate"), "50 Gb/sec (2X EDR)");
  ExpectFault(FindPortFaults(host.Read()), "width 2X of 4X");
}

// HDR100: two lanes of a cable that is split.
TEST_F(PortsTest, TwoLanesOfASplitCableAreNoFault) {
  Host one("c02", HealthyPort()), other("c03", HealthyPort());
  one.Write(Of("rate"), "100 Gb/sec (2X HDR)");
  other.Write(Of("rate"), "100 Gb/sec (2X HDR)");
  const std::vector<Finding> alone = FindPortFaults(one.Read());
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_FALSE(alone[0].fault);
  EXPECT_NE(alone[0].text.find("split in two, or damaged"), std::string::npos)
      << alone[0].text;
  std::vector<Port> both = one.Read();
  for (const Port& port : other.Read()) {
    both.push_back(port);
  }
  EXPECT_TRUE(FindPortFaults(both).empty());
}

TEST_F(PortsTest, AWrongSpeedIsNamed) {
  ExpectFault(FindWith(Of("rate"), "56 Gb/sec (4X FDR)"),
              "runs at 56 Gb/sec (4X FDR) where its peers run at 100 Gb/sec");
}

TEST_F(PortsTest, AnInterfaceThatTrainedAtHalfIsNamed) {
  ExpectFault(FindWith("class/net/eth2/speed", "50000", RocePort()),
              "runs at 50 of 100 Gbit/s that eth2 supports: check its cable");
}

// By the rate of its RDMA port, where its peers do not say how fast their
// interfaces are.
TEST_F(PortsTest, ASlowPortIsAFaultBesidePeersOfUnknownSpeed) {
  FindWith("", "", RocePort());
  for (Port& port : ports_) {
    port.interface_megabits_per_s = 0;
  }
  ports_[2].interface_megabits_per_s = 50'000;
  ports_[2].gigabits_per_s = 50;
  ports_[2].rate = "50 Gb/sec (4X QDR)";
  int faults = 0;
  for (const Finding& finding : FindPortFaults(ports_)) {
    faults += finding.fault ? 1 : 0;
  }
  EXPECT_EQ(faults, 1);
}

// Its peers' switch ports may do no more: named, and no fault.
TEST_F(PortsTest, InterfacesThatAllRunAtHalfAreNoFault) {
  Files files = RocePort();
  files["class/net/eth2/speed"] = "50000";
  const std::vector<Finding> findings = FindWith("", "", files);
  ASSERT_EQ(findings.size(), 4U);
  for (const Finding& finding : findings) {
    EXPECT_FALSE(finding.fault);
    EXPECT_NE(finding.text.find("runs at 50 of 100 Gbit/s that eth2 supports"),
              std::string::npos)
        << finding.text;
  }
}

// As a virtual interface says: it has no speed of its own.
TEST_F(PortsTest, AnUnknownSpeedIsNoFinding) {
  Files files = RocePort();
  files["class/net/eth2/speed"] = "-1";
  EXPECT_TRUE(FindWith("", "", files).empty());
}

TEST(EthernetTest, TheFastestOfTheSupportedModesCounts) {
  std::vector<std::string> names(40);
  names[1] = "10baseT/Full";
  names[6] = "Autoneg";
  names[31] = "25000baseCR/Full";
  names[33] = "25000baseSR/Full";
  names[36] = "100000baseKR4/Full";
  names[39] = "56000 lanes";
  EXPECT_EQ(FastestMode(names, {}), 0);
  const auto fastest = [&](const std::vector<int>& modes) {
    std::vector<std::uint32_t> supported(2);
    for (const int mode : modes) {
      supported[mode / 32] |= 1U << mode % 32;
    }
    return FastestMode(names, supported);
  };
  EXPECT_EQ(fastest({6, 39}), 0);
  EXPECT_EQ(fastest({1, 6}), 10);
  EXPECT_EQ(fastest({1, 31, 39}), 25'000);
  EXPECT_EQ(fastest({1, 33, 36}), 100'000);
}

TEST(EthernetTest, WhatHasNoModesSupportsNone) {
  EXPECT_EQ(MostMegabitsPerS("lo"), 0);
  EXPECT_EQ(MostMegabitsPerS("no such interface at all"), 0);
}

TEST_F(PortsTest, AWrongMtuIsNamed) {
  ExpectFault(FindWith("class/net/eth2/mtu", "1500", RocePort()),
              "has MTU 1500 on eth2 where its peers have 9000");
}

TEST_F(PortsTest, AMissingKindOfAddressIsNamed) {
  Files without = RocePort();
  ExpectFault(FindWith(Of("gid_attrs/types/1"), "", without),
              "has addresses of IB/RoCE v1 where its peers have IB/RoCE v1, "
              "RoCE v2");
}

TEST_F(PortsTest, APortThatIsDownIsNamed) {
  std::vector<Finding> findings = FindWith(Of("state"), "1: DOWN");
  ExpectFault(findings, "is DOWN");
  EXPECT_NE(findings[0].text.find("check its cable"), std::string::npos);
}

// The second port of a card that has one cable.
TEST_F(PortsTest, APortThatIsDownOnAllHostsIsNoFault) {
  Files files = HealthyPort();
  files["class/infiniband/mlx5_0/ports/2/state"] = "1: DOWN";
  files["class/infiniband/mlx5_0/ports/2/link_layer"] = "InfiniBand";
  const std::vector<Finding> findings = FindWith("", "", files);
  ASSERT_EQ(findings.size(), 4U);
  for (const Finding& finding : findings) {
    EXPECT_FALSE(finding.fault) << finding.text;
  }
}

TEST_F(PortsTest, APciLinkThatTrainedAtHalfIsNamed) {
  ExpectFault(
      FindWith("class/infiniband/mlx5_0/device/current_link_width", "8"),
      "sits on a PCI link of width x8 of x16");
}

// All in slots of eight lanes: as it was bought.
TEST_F(PortsTest, CardsThatAllSitInSmallSlotsAreNoFault) {
  Files files = HealthyPort();
  files["class/infiniband/mlx5_0/device/current_link_width"] = "8";
  for (const Finding& finding : FindWith("", "", files)) {
    EXPECT_FALSE(finding.fault) << finding.text;
  }
}

TEST_F(PortsTest, GrowingErrorsAreNamedAndTrafficIsNot) {
  Host host("c02", HealthyPort());
  std::vector<Port> ports = host.Read();
  host.Write(Of("counters/symbol_error"), "20");
  host.Write(Of("counters/port_xmit_data"), "999999");
  ReadCountersAfter(host.folder(), ports);
  const std::vector<Finding> findings = FindPortFaults(ports);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_TRUE(findings[0].fault);
  EXPECT_EQ(findings[0].text,
            "host c02: symbol_error of port mlx5_0:1 grew by 17 during the "
            "test");
  EXPECT_EQ(BriefPortFault(ports, ports[0]), "symbol_error +17");
}

// Of a port on which this counter has grown, and no other.
std::vector<Finding> FindGrowth(const std::string& counter) {
  const std::string file = "class/infiniband/mlx5_0/ports/1/" + counter;
  Host host("c02", HealthyPort());
  host.Write(file, "10");
  std::vector<Port> ports = host.Read();
  host.Write(file, "1010");
  ReadCountersAfter(host.folder(), ports);
  return FindPortFaults(ports);
}

TEST_F(PortsTest, EachCounterOfErrorsIsAFault) {
  for (const std::string counter :
       {"counters/symbol_error", "counters/link_error_recovery",
        "counters/link_downed", "counters/port_rcv_errors",
        "counters/local_link_integrity_errors", "counters/VL15_dropped",
        "hw_counters/out_of_sequence", "hw_counters/packet_seq_err",
        "hw_counters/local_ack_timeout_err", "hw_counters/rnr_nak_retry_err",
        "hw_counters/req_transport_retries_exceeded"}) {
    const std::vector<Finding> findings = FindGrowth(counter);
    ASSERT_EQ(findings.size(), 1U) << counter;
    EXPECT_TRUE(findings[0].fault) << counter;
    EXPECT_NE(findings[0].text.find(counter.substr(counter.find('/') + 1) +
                                    " of port mlx5_0:1 grew by 1,000"),
              std::string::npos)
        << findings[0].text;
  }
}

TEST_F(PortsTest, FullLinksAreNotedAndNoFault) {
  for (const std::string counter :
       {"counters/port_xmit_wait", "counters/port_xmit_discards",
        "hw_counters/np_cnp_sent", "hw_counters/rp_cnp_handled",
        "hw_counters/np_ecn_marked_roce_packets"}) {
    const std::vector<Finding> findings = FindGrowth(counter);
    ASSERT_EQ(findings.size(), 1U) << counter;
    EXPECT_FALSE(findings[0].fault) << counter;
  }
}

}  // namespace
}  // namespace ringpipe::validate
