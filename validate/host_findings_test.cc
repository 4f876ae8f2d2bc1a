// What is said of one host: that it is late, busy, loses messages, is lost.
#include <cmath>

#include "gtest/gtest.h"
#include "validate/analysis.h"
#include "validate/simulated_cluster.h"
#include "validate/test_analysis.h"

namespace ringpipe::validate {
namespace {

using testing::ClusterOptions;
using testing::Fault;
using testing::Faults;
using testing::HostName;
using testing::MeasureCluster;
using testing::Quiet;
using testing::Says;
using testing::Texts;

TEST(HostTest, OneWhoseMessagesTakeLongOnceInAHundredIsNamed) {
  Measurements measured = MeasureCluster(Quiet(8));
  for (int other = 0; other < 8; ++other) {
    measured.latencies->p99_s.at(5, other, 0) =
        measured.latencies->p99_s.at(other, 5, 0) = other == 5 ? NAN : 0.5F;
  }
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].host, "c05");
  EXPECT_TRUE(Says(analysis, "takes 500 ms where ")) << Texts(analysis);
}

// A host whose ranks wait for cores seems to be slow in each pass alike: the
// passes do not vary by themselves, as noise does.
TEST(HostTest, ABusyOneIsSaidToBeAndNotBlamed) {
  Measurements measured = MeasureCluster(
      Quiet(8, {{.kind = Fault::Kind::kSender, .a = 3, .loss = 0.4},
                {.kind = Fault::Kind::kReceiver, .a = 6, .loss = 0.4}}));
  for (Isolated& link : measured.isolated) {
    const bool is_busy = link.from == 3 || link.to == 3;
    link.queued.assign(link.bytes_per_s.size() / 3,
                       {is_busy ? 0.9 : 0.01, 0.02});
  }
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_EQ(Faults(analysis).front().host, "c06");
  EXPECT_TRUE(Says(analysis, "host c03 is busy with other work"))
      << Texts(analysis);
  // Without the one that is certain, it is not.
  Measurements alone = MeasureCluster(
      Quiet(8, {{.kind = Fault::Kind::kSender, .a = 3, .loss = 0.4}}));
  for (Isolated& link : alone.isolated) {
    link.queued.assign(link.bytes_per_s.size() / 3,
                       {link.from == 3 ? 0.9 : 0.01, link.to == 3 ? 0.9 : 0.0});
  }
  const Analysis uncertain = Analyze(alone, {});
  EXPECT_TRUE(Faults(uncertain).empty()) << Texts(uncertain);
  EXPECT_EQ(uncertain.verdict, Verdict::kUncertain) << Texts(uncertain);
}

TEST(HostTest, ALinkThatComesAndGoesIsFoundThoughMostSamplesAreFast) {
  Measurements measured = MeasureCluster(Quiet(8));
  LinkSamples& samples = measured.planes[0].bytes_per_s;
  for (int other = 0; other < 8; ++other) {
    samples.at(2, other, other % 3) *= 0.05F;
    samples.at(other, 2, (other + 1) % 3) *= 0.05F;
  }
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].kind, Finding::Kind::kDisturbed);
  EXPECT_EQ(analysis.findings[0].host, "c02") << Texts(analysis);
}

// Half of its passes, but one after another: it was busy once.
TEST(HostTest, OneThatWasBusyForAWhileIsNoFault) {
  Measurements measured = MeasureCluster(Quiet(8));
  for (int from = 0; from < 8; ++from) {
    for (int to = 0; to < 8; ++to) {
      const int distance = (to + 8 - from) % 8;
      if ((from == 2 || to == 2) && distance >= 2 && distance <= 5) {
        measured.planes[0].bytes_per_s.at(from, to, 1) *= 0.3F;
      }
    }
  }
  const Analysis analysis = Analyze(measured, {});
  EXPECT_EQ(Faults(analysis).size(), 0U) << Texts(analysis);
}

TEST(HostTest, OneWhoseSegmentsAreLostIsNamed) {
  Measurements measured = MeasureCluster(Quiet(6));
  for (int host = 0; host < 6; ++host) {
    measured.networks.push_back({.host = HostName(host),
                                 .segments = 100'000,
                                 .retransmitted = host == 3 ? 600U : 5U,
                                 .steps = 40,
                                 .lossy_steps = host == 3 ? 38U : 3U});
  }
  const Analysis analysis = Analyze(measured, {});
  ASSERT_EQ(Faults(analysis).size(), 1U) << Texts(analysis);
  EXPECT_EQ(analysis.findings[0].host, "c03") << Texts(analysis);
  // Of a host that is slow, queues are full; and some are elsewhere, too.
  Measurements slow =
      MeasureCluster(Quiet(6, {{Fault::Kind::kSender, 3, 0, 0.5}}));
  slow.networks = measured.networks;
  EXPECT_EQ(Faults(Analyze(slow, {})).size(), 1U) << Texts(Analyze(slow, {}));
  // So few; or now and then, as where other traffic comes and goes.
  measured.networks[3].retransmitted = 300;
  EXPECT_EQ(Faults(Analyze(measured, {})).size(), 0U);
  // By RDMA, what TCP carries is the hosts' own.
  slow.planes = MeasureCluster(Quiet(6)).planes;
  slow.isolated.clear();
  EXPECT_EQ(Faults(Analyze(slow, {})).size(), 1U);
  slow.way = "RDMA";
  EXPECT_EQ(Faults(Analyze(slow, {})).size(), 0U) << Texts(Analyze(slow, {}));
  measured.networks[3].retransmitted = 1'500;
  measured.networks[3].lossy_steps = 20;
  EXPECT_EQ(Faults(Analyze(measured, {})).size(), 0U);
  // All the time, and others now and then as many.
  measured.networks[3].lossy_steps = 40;
  for (HostNetwork& network : measured.networks) {
    network.retransmitted = 1'500;
  }
  EXPECT_EQ(Faults(Analyze(measured, {})).size(), 1U);
}

TEST(HostTest, AllLinksFarBelowTheRateOfTheirPortsAreAFault) {
  Measurements measured = MeasureCluster(Quiet(6));
  measured.way = "software device";
  for (int host = 0; host < 6; ++host) {
    measured.networks.push_back({HostName(host), 10'000});
  }
  ClusterOptions slow = Quiet(6);
  slow.bytes_per_s = 0.3e9;
  measured.planes = MeasureCluster(slow).planes;
  measured.isolated.clear();
  EXPECT_TRUE(Says(Analyze(measured, {}), "24 % of what the ports"))
      << Texts(Analyze(measured, {}));
  slow.bytes_per_s = 1.1e9;
  measured.planes = MeasureCluster(slow).planes;
  EXPECT_EQ(Analyze(measured, {}).verdict, Verdict::kHealthy)
      << Texts(Analyze(measured, {}));
}

// Soft-RoCE and its like, which are not on PCI.
TEST(HostTest, TheRateThatASoftwarePortNamesIsNone) {
  ClusterOptions slow = Quiet(6);
  slow.bytes_per_s = 0.1e9;
  Measurements measured = MeasureCluster(slow);
  measured.isolated.clear();
  for (Rank& rank : measured.ranks) {
    Port port;
    port.host = rank.host;
    port.device = "rxe0";
    port.number = 1;
    port.gigabits_per_s = 10;
    measured.ports.push_back(port);
    rank.rails = {port.Name()};
  }
  EXPECT_FALSE(Says(Analyze(measured, {}), "of what the ports"))
      << Texts(Analyze(measured, {}));
  for (Port& port : measured.ports) {
    port.pci_lanes = 16;
  }
  EXPECT_TRUE(Says(Analyze(measured, {}), "8.0 % of what the ports"))
      << Texts(Analyze(measured, {}));
}

TEST(HostTest, OneThatWasLostIsAFindingThoughTheOthersAreMeasured) {
  Measurements measured = MeasureCluster(Quiet(4));
  measured.lost = {{"c09", "latencies", "rank 2 has died"}};
  const Analysis analysis = Analyze(measured, {});
  EXPECT_EQ(analysis.verdict, Verdict::kFaulty);
  EXPECT_TRUE(Says(analysis,
                   "host c09 was lost while latencies was measured, "
                   "which went on without it"))
      << Texts(analysis);
  const auto read = FromJson(ToJson(measured));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->lost.size(), 1U);
}

}  // namespace
}  // namespace ringpipe::validate
