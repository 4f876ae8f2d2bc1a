#include "validate/text_report.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "validate/analysis.h"
#include "validate/simulated_cluster.h"

namespace ringpipe::validate {
namespace {

using testing::ClusterOptions;
using testing::Fault;
using testing::MeasureCluster;

constexpr int kColumns = 80;

Measurements Cluster(int hosts, std::vector<Fault> faults = {}) {
  ClusterOptions options;
  options.hosts = hosts;
  options.noise = 0.01;
  options.disturbed = 0;
  options.faults = std::move(faults);
  return MeasureCluster(options);
}

std::string Report(const Measurements& measured,
                   const TextOptions& options = {kColumns, false}) {
  return FormatTextReport(measured, Analyze(measured, {}), options);
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

// The first line that begins so, from `after` on; npos: there is none.
std::size_t Find(const std::vector<std::string>& lines,
                 const std::string& begin, std::size_t after = 0) {
  for (std::size_t i = after; i < lines.size(); ++i) {
    if (lines[i].starts_with(begin)) {
      return i;
    }
  }
  return std::string::npos;
}

// UTF-8's continuation bytes take no place.
int Width(const std::string& line) {
  return static_cast<int>(std::count_if(
      line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(TextReportTest, TheVerdictComesFirstAndThenWhatIsWrong) {
  const std::vector<std::string> lines =
      Lines(Report(Cluster(8, {{Fault::Kind::kSender, 3, 0, 0.5}})));
  EXPECT_TRUE(
      lines[0].starts_with("ringpipe simulated interconnect: 8 ranks "
                           "on 8 hosts, by simulated, "))
      << lines[0];
  EXPECT_EQ(lines[2], "FAULTY: 1 thing is wrong");
  EXPECT_TRUE(lines[4].starts_with("   1 fault  host c03 sends at "))
      << lines[4];
  EXPECT_GT(Find(lines, "Bandwidth"), 4U);
  EXPECT_EQ(Lines(Report(Cluster(8)))[2],
            "HEALTHY: all 56 links do what they should");
  EXPECT_EQ(Lines(Report(Cluster(1)))[2],
            "NOT MEASURED: one rank has no link: nothing was measured");
}

TEST(TextReportTest, TheSenderWithTheSlowestLinkIsTheFirstRow) {
  const std::vector<std::string> lines =
      Lines(Report(Cluster(6, {{Fault::Kind::kSender, 4, 0, 0.5}})));
  const std::size_t head = Find(lines, "            to 0");
  ASSERT_LT(head, lines.size());
  const std::string& worst = lines[head + 1];
  EXPECT_TRUE(worst.starts_with("  c04 ")) << worst;
  // Five links of six gigabytes a second, marked; and itself.
  EXPECT_EQ(std::count(worst.begin(), worst.end(), '!'), 5) << worst;
  EXPECT_NE(worst.find("·"), std::string::npos) << worst;
  for (std::size_t row = head + 2; row < head + 7; ++row) {
    EXPECT_EQ(lines[row].find('!'), std::string::npos) << lines[row];
  }
}

// Of 512 hosts, too; the terminal may be narrow.
TEST(TextReportTest, TheMatrixFitsTheTerminalAndSaysWhatItLeavesOut) {
  for (const int hosts : {8, 512}) {
    const Measurements measured =
        Cluster(hosts, {{Fault::Kind::kReceiver, 2, 0, 0.5}});
    for (const int columns : {40, kColumns, 200}) {
      const std::vector<std::string> lines =
          Lines(Report(measured, {columns, false}));
      const std::size_t legend = Find(lines, "  GB/s, sender by receiver");
      ASSERT_LT(legend, lines.size());
      std::size_t row = legend + 1;
      for (; row < lines.size() && lines[row].starts_with("   "); ++row) {
        EXPECT_LE(Width(lines[row]), columns) << lines[row];
      }
      std::size_t rows = 0;
      for (; row < lines.size() && lines[row].starts_with("  c"); ++row) {
        EXPECT_LE(Width(lines[row]), columns) << lines[row];
        ++rows;
      }
      EXPECT_EQ(rows, std::min<std::size_t>(hosts, 24));
      const bool whole = hosts == 8 && columns >= kColumns;
      EXPECT_EQ(Find(lines, "  (" + std::to_string(rows) + " of "),
                whole ? std::string::npos : row);
    }
  }
}

TEST(TextReportTest, LinksOfASlowNetworkAreNoZerosBesideThoseOfMemory) {
  testing::ClusterOptions options;
  options.hosts = 2;
  options.ranks_per_host = 2;
  Measurements measured = MeasureCluster(options);
  for (const auto& [from, to] : {std::pair(0, 2), {0, 3}, {1, 2}, {1, 3}}) {
    for (int repeat = 0; repeat < measured.planes[0].bytes_per_s.repeats();
         ++repeat) {
      measured.planes[0].bytes_per_s.at(from, to, repeat) = 5e6F;
      measured.planes[0].bytes_per_s.at(to, from, repeat) = 5e6F;
    }
  }
  const std::string text = Report(measured);
  EXPECT_EQ(text.find(" 0.00"), std::string::npos) << text;
  EXPECT_NE(text.find(" 5.00"), std::string::npos) << text;
}

TEST(TextReportTest, FindingsAreWrappedBelowTheirText) {
  for (const std::string& line : Lines(Report(
           Cluster(8, {{Fault::Kind::kSender, 3, 0, 0.5}}), {60, false}))) {
    if (line.starts_with("   1 fault") ||
        line.starts_with(std::string(12, ' '))) {
      EXPECT_LE(Width(line), 60) << line;
    }
  }
}

TEST(TextReportTest, WithoutColourThereIsNoEscapeAndWithItNothingIsLost) {
  const Measurements measured = Cluster(8, {{Fault::Kind::kPath, 1, 5, 0.6}});
  const std::string plain = Report(measured);
  EXPECT_EQ(plain.find('\033'), std::string::npos);
  std::string coloured = Report(measured, {kColumns, true});
  EXPECT_NE(coloured, plain);
  for (std::size_t at = coloured.find('\033'); at != std::string::npos;
       at = coloured.find('\033')) {
    coloured.erase(at, coloured.find('m', at) + 1 - at);
  }
  EXPECT_EQ(coloured, plain);
}

TEST(TextReportTest, OfManyFindingsTheFirstAreShownAndTheOthersCounted) {
  Measurements measured = Cluster(64);
  measured.stress = Stress{10, 1000, 1000, {}};
  for (int rank = 0; rank < 40; ++rank) {
    measured.stress->wrong.push_back({rank, rank + 1, 1, 1});
  }
  const std::vector<std::string> lines = Lines(Report(measured));
  EXPECT_EQ(lines[2], "FAULTY: 40 things are wrong");
  EXPECT_LT(Find(lines, "  30 fault  "), lines.size());
  EXPECT_EQ(Find(lines, "  31 fault  "), std::string::npos);
  EXPECT_LT(Find(lines, "  and 10 findings more, which --html shows"),
            lines.size());
}

TEST(TextReportTest, AnInterruptionIsSaidWithWhatWasBeingMeasured) {
  Measurements measured = Cluster(4);
  measured.ending = Ending{"latency", "", -1, "SIGINT"};
  const std::vector<std::string> lines = Lines(Report(measured));
  EXPECT_EQ(lines[3], "Ended early by SIGINT, while latency was measured.");
}

// A device alone is not enough: ranks of one host would share memory still.
TEST(TextReportTest, OfOneHostItSaysHowItsDevicesAreMeasured) {
  Measurements measured = Cluster(4);
  measured.way = "host memory";
  EXPECT_NE(WarnAboutWay(measured).find(
                "RINGPIPE_HOST_MEMORY=never, and RINGPIPE_DEVICE"),
            std::string::npos);
}

TEST(TextReportTest, EverySortOfFigureHasItsPart) {
  Measurements measured = Cluster(4);
  measured.way = "software device";
  measured.latencies = Latencies{LinkSamples(4, 1), LinkSamples(4, 1)};
  measured.latencies->median_s.at(0, 1, 0) = 2e-6F;
  measured.latencies->p99_s.at(0, 1, 0) = 5e-6F;
  measured.patterns.push_back({"ring", "natural", 3e10, 4e10});
  measured.stress = Stress{10, 100, 1 << 20, {}};
  Port port;
  port.host = "c01";
  port.device = "mlx5_0";
  port.state = "ACTIVE";
  port.link_layer = "InfiniBand";
  port.rate = "25 Gb/sec (1X EDR)";
  port.lanes = 1;
  measured.ports.push_back(port);
  const std::string text = Report(measured);
  constexpr const char* kParts[] = {
      "No RDMA device is used: this measures TCP",
      "between hosts               median 2.00 µs, slowest pair 2.00 µs, 99th",
      "ring, natural",
      "30.0 GB/s in all, 75 % of its",
      "1,048,576 bytes",
      "width 1X of 4X",
      "1 port in all"};
  for (const char* part : kParts) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  for (const std::string& line : Lines(text)) {
    EXPECT_TRUE(Width(line) <= kColumns || line == Lines(text).front()) << line;
  }
}

}  // namespace
}  // namespace ringpipe::validate
