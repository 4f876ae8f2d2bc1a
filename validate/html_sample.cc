// For tests: the reports of a simulated cluster. html_sample HOSTS HTML [JSON]
// README.md's picture is of its page for 32 hosts:
//   chromium --headless --hide-scrollbars --window-size=1000,1170
//     --screenshot=docs/interconnect.png file://HTML
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "validate/analysis.h"
#include "validate/html_report.h"
#include "validate/simulated_cluster.h"
#include "validate/text_report.h"

namespace ringpipe::validate {
namespace {

Port PortOf(int host, bool degraded) {
  Port port;
  port.host = testing::HostName(host);
  port.device = "mlx5_0";
  port.state = "ACTIVE";
  port.link_layer = "InfiniBand";
  port.lanes = degraded ? 1 : 4;
  port.rate = degraded ? "25 Gb/sec (1X EDR)" : "100 Gb/sec (4X EDR)";
  port.gigabits_per_s = degraded ? 25 : 100;
  port.before = {{"symbol_error", 2}};
  port.after = {{"symbol_error", degraded ? 17U : 2U}};
  return port;
}

Measurements Sample(int hosts) {
  testing::ClusterOptions options;
  options.hosts = hosts;
  options.faults = {{testing::Fault::Kind::kSender, hosts / 3, 0, 0.6},
                    {testing::Fault::Kind::kPath, 1, hosts - 1, 0.5}};
  Measurements measured = MeasureCluster(options);
  measured.way = "simulation";
  measured.seconds = 42;
  measured.latencies = Latencies{LinkSamples(hosts, 1), LinkSamples(hosts, 1)};
  for (int a = 0; a < hosts; ++a) {
    measured.ports.push_back(PortOf(a, a == hosts / 3));
    for (int b = 0; b < hosts; ++b) {
      if (a != b) {
        const float time = 2e-6F + (a / 32 != b / 32 ? 1e-6F : 0) +
                           static_cast<float>((a * 7 + b * 7) % 11) * 1e-8F;
        measured.latencies->median_s.at(a, b, 0) = time;
        measured.latencies->p99_s.at(a, b, 0) = 3 * time;
      }
    }
  }
  measured.patterns.push_back(
      {"bisection", "lower and upper half", hosts * 8e9, hosts * 12e9});
  measured.stress = Stress{600, 123'456, 1'234'567'890, {{0, 2, 1, 3}}};
  // Names must not become markup.
  measured.ranks[0].device = "<script>alert(1)</script> & \"more\"";
  return measured;
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "html_sample HOSTS HTML [JSON]\n";
    return 2;
  }
  const Measurements measured = Sample(std::atoi(argv[1]));
  const Analysis analysis = Analyze(measured, {});
  std::ofstream(argv[2]) << FormatHtmlReport(measured, analysis);
  if (argc > 3) {
    std::ofstream(argv[3]) << ToJson(measured);
  }
  std::cout << FormatTextReport(measured, analysis, {100, false});
  return 0;
}

}  // namespace
}  // namespace ringpipe::validate

int main(int argc, char** argv) { return ringpipe::validate::Main(argc, argv); }
