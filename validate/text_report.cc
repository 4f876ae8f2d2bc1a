#include "validate/text_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "validate/format.h"
#include "validate/port_findings.h"

namespace ringpipe::validate {
namespace {

constexpr int kCellColumns = 7;
constexpr std::size_t kMostRows = 24;
constexpr std::size_t kMostFindings = 30;
constexpr std::size_t kShownLinks = 8;

// Characters on a terminal: UTF-8's continuation bytes take no place.
int Width(const std::string& text) {
  return static_cast<int>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Pad(const std::string& text, int columns) {
  return text + std::string(std::max(0, columns - Width(text)), ' ');
}

std::string PadLeft(const std::string& text, int columns) {
  return std::string(std::max(0, columns - Width(text)), ' ') + text;
}

// At most `columns` wide; what was cut off is shown by "…".
std::string Cut(const std::string& text, int columns) {
  if (Width(text) <= columns) {
    return text;
  }
  std::string kept;
  int width = 0;
  for (const char c : text) {
    if ((c & 0xC0) != 0x80 && ++width > columns - 1) {
      break;
    }
    kept += c;
  }
  return kept + "…";
}

// Lines of at most `columns`, all but the first indented.
std::string Wrap(const std::string& text, int columns, int indent) {
  std::string wrapped, line;
  const auto flush = [&] {
    wrapped += (wrapped.empty() ? "" : "\n" + std::string(indent, ' ')) + line;
    line.clear();
  };
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find(' ', begin);
    end = end == std::string::npos ? text.size() : end;
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && Width(line) + 1 + Width(word) > columns - indent) {
      flush();
    }
    line += (line.empty() ? "" : " ") + word;
    begin = end + 1;
  }
  flush();
  return wrapped;
}

class Report {
 public:
  Report(const Measurements& measured, const Analysis& analysis,
         const TextOptions& options)
      : measured_(measured), analysis_(analysis), options_(options) {}

  std::string Make() {
    AddHead();
    AddFindings();
    for (std::size_t i = 0; i < measured_.planes.size(); ++i) {
      AddPlane(static_cast<int>(i));
    }
    AddLatencies();
    AddPatterns();
    AddStress();
    AddPorts();
    return std::move(text_);
  }

 private:
  std::string Coloured(const std::string& text, const char* code) const {
    return options_.colour
               ? "\033[" + std::string(code) + "m" + text + "\033[0m"
               : text;
  }

  void Line(const std::string& line) { text_ += line + "\n"; }
  // One of a part, which has a head; what does not fit goes further right.
  void WrappedLine(const std::string& line) {
    constexpr int kIndent = 6;
    Line("  " + Wrap(line, options_.columns, kIndent));
  }

  void AddHead() {
    Line("ringpipe " + measured_.version +
         " interconnect: " + DescribeJob(measured_) + ", " + measured_.date);
    if (const std::string warning = WarnAboutWay(measured_); !warning.empty()) {
      Line(Wrap(warning, options_.columns, 0));
    }
    Line("");
    const char* const names[] = {"HEALTHY", "FAULTY", "NOT MEASURED",
                                 "UNCERTAIN"};
    const char* const colours[] = {"1;34", "1;33", "1;35", "1;35"};
    const auto verdict = static_cast<std::size_t>(analysis_.verdict);
    Line(Coloured(names[verdict], colours[verdict]) + ": " + analysis_.summary);
    if (measured_.ending && !measured_.ending->interrupted_by.empty()) {
      Line("Ended early by " + measured_.ending->interrupted_by + ", while " +
           measured_.ending->phase + " was measured.");
    }
  }

  void AddFindings() {
    if (analysis_.findings.empty()) {
      return;
    }
    Line("");
    std::size_t number = 0;
    for (const Finding& finding : analysis_.findings) {
      if (++number > kMostFindings) {
        Line("  and " +
             Count(analysis_.findings.size() - kMostFindings, "finding") +
             " more, which --html shows");
        break;
      }
      const std::string mark =
          finding.fault ? Coloured("fault", "1;33") : "note ";
      Line("  " + PadLeft(std::to_string(number), 2) + " " + mark + "  " +
           Wrap(finding.text, options_.columns, 12));
      for (const std::string& also : finding.also) {
        Line(std::string(12, ' ') + Wrap(also, options_.columns, 12));
      }
    }
  }

  // --- Bandwidths ---

  const PlaneClasses* ClassesOf(const std::string& plane) const {
    for (const PlaneClasses& classes : analysis_.planes) {
      if (classes.plane == plane) {
        return &classes;
      }
    }
    return nullptr;
  }

  void AddPlane(int number) {
    const Plane& plane = measured_.planes[number];
    const PlaneClasses* const classes = ClassesOf(plane.name);
    if (classes == nullptr) {
      return;
    }
    Line("");
    Line("Bandwidth" +
         (measured_.planes.size() > 1 ? ", " + plane.name : std::string()) +
         ", messages of " + WithCommas(plane.message_bytes) + " bytes");
    Line("  " + Pad("class", 28) + PadLeft("links", 8) +
         PadLeft("slowest", 11) + PadLeft("median", 11) +
         PadLeft("fastest", 11) + PadLeft("spread", 9));
    for (const LinkClass& members : classes->classes) {
      Line("  " + Pad(Cut(members.name, 28), 28) +
           PadLeft(WithCommas(members.links.size()), 8) +
           PadLeft(FormatRate(members.min), 11) +
           PadLeft(FormatRate(members.median), 11) +
           PadLeft(FormatRate(members.max), 11) +
           PadLeft(FormatPercent(members.spread), 9));
    }
    AddResolution(*classes);
    AddMatrix(number);
    AddSlowest(number);
  }

  // What could not have been seen.
  void AddResolution(const PlaneClasses& of_plane) {
    for (std::size_t i = 0; i < of_plane.classes.size(); ++i) {
      Line(Wrap("  A single link " + of_plane.classes[i].name + " that loses " +
                    FormatPercent(of_plane.could_tell[i]) +
                    " can be told from the others.",
                options_.columns, 2));
    }
  }

  void AddMatrix(int plane) {
    const LinkClasses classes(measured_, plane);
    const int ranks = measured_.size();
    std::vector<std::pair<double, int>> rows;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<double> ratios;
      for (int to = 0; to < ranks; ++to) {
        if (classes.Measured(rank, to)) {
          ratios.push_back(classes.Ratio(rank, to));
        }
      }
      if (!ratios.empty()) {
        rows.emplace_back(*std::min_element(ratios.begin(), ratios.end()),
                          rank);
      }
    }
    std::stable_sort(
        rows.begin(), rows.end(), [](const auto& a, const auto& b) {
          // By the percent: what differs less is in order.
          return std::lround(a.first * 100) < std::lround(b.first * 100);
        });
    if (!rows.empty()) {
      DrawMatrix(classes, rows);
    }
  }

  void DrawMatrix(const LinkClasses& classes,
                  const std::vector<std::pair<double, int>>& rows) {
    int label = 6;
    for (int rank = 0; rank < measured_.size(); ++rank) {
      label = std::max(label, Width(measured_.NameOf(rank)));
    }
    label = std::min(label, 20);
    const std::size_t fit = static_cast<std::size_t>(
        std::max(1, (options_.columns - label - 4) / kCellColumns));
    // In the order of the ranks where all fit, else those of the worst rows.
    std::vector<int> columns;
    for (std::size_t i = 0; i < rows.size() && i < fit; ++i) {
      columns.push_back(rows[i].second);
    }
    if (static_cast<std::size_t>(measured_.size()) <= fit) {
      columns.clear();
      for (int rank = 0; rank < measured_.size(); ++rank) {
        columns.push_back(rank);
      }
    }
    // Of the slowest class, whose cells would all be 0.00 otherwise.
    double usual = INFINITY;
    for (const LinkClass& members : classes.classes()) {
      usual = std::min(usual, members.reference);
    }
    const double unit = usual >= 1e9 ? 1e9 : usual >= 1e6 ? 1e6 : 1e3;
    Line("");
    WrappedLine(std::string(unit == 1e9   ? "GB/s"
                            : unit == 1e6 ? "MB/s"
                                          : "kB/s") +
                ", sender by receiver, the sender with the slowest link first; "
                "! below " +
                FormatPercent(1 - analysis_.tolerance) + " of the class");
    std::string head = "  " + Pad("", label + 2);
    for (const int rank : columns) {
      head += PadLeft("to " + std::to_string(rank), kCellColumns - 1) + " ";
    }
    Line(head);
    std::size_t shown = 0;
    for (const auto& [ratio, rank] : rows) {
      if (shown++ == kMostRows) {
        break;
      }
      std::string line =
          "  " + Pad(Cut(measured_.NameOf(rank), label), label) + "  ";
      for (const int to : columns) {
        line += Cell(classes, rank, to, unit);
      }
      Line(line);
    }
    if (rows.size() > kMostRows ||
        columns.size() < static_cast<std::size_t>(measured_.size())) {
      Line("  (" + std::to_string(std::min(rows.size(), kMostRows)) + " of " +
           Count(rows.size(), "row") + ", " + std::to_string(columns.size()) +
           " columns; --html has all)");
    }
  }

  std::string Cell(const LinkClasses& classes, int from, int to,
                   double unit) const {
    if (!classes.Measured(from, to)) {
      return PadLeft(from == to ? "·" : "-", kCellColumns - 1) + " ";
    }
    const double value = classes.Value(from, to) / unit;
    const double ratio = classes.Ratio(from, to);
    char number[32];
    std::snprintf(number, sizeof number, "%.*f",
                  value >= 100  ? 0
                  : value >= 10 ? 1
                                : 2,
                  value);
    const bool slow = ratio < 1 - analysis_.tolerance;
    const std::string text =
        PadLeft(number, kCellColumns - 1) + (slow ? "!" : " ");
    return slow ? Coloured(text, ratio < 0.6 ? "1;37;41" : "30;43") : text;
  }

  void AddSlowest(int plane) {
    std::size_t shown = 0;
    for (const RankedLink& link : analysis_.slowest) {
      if (link.plane != plane || shown == kShownLinks) {
        continue;
      }
      if (shown++ == 0) {
        Line("");
        Line("  Slowest links, beside others of their class");
      }
      Line("  " +
           Pad(Cut(measured_.NameOf(link.from) + " → " +
                       measured_.NameOf(link.to),
                   36),
               36) +
           PadLeft(FormatRate(link.bytes_per_s), 12) +
           PadLeft(FormatPercent(link.ratio), 8) +
           (std::isnan(link.isolated_bytes_per_s)
                ? ""
                : "   alone " + FormatRate(link.isolated_bytes_per_s)));
    }
  }

  // --- The rest ---

  void AddLatencies() {
    if (!measured_.latencies) {
      return;
    }
    const std::vector<int> hosts = HostNumbers(measured_);
    bool first = true;
    for (const bool between : {true, false}) {
      std::vector<double> medians, tails;
      for (int a = 0; a < measured_.size(); ++a) {
        for (int b = a + 1; b < measured_.size(); ++b) {
          const double median = measured_.latencies->median_s.at(a, b, 0);
          if (!std::isnan(median) && (hosts[a] != hosts[b]) == between) {
            medians.push_back(median);
            tails.push_back(measured_.latencies->p99_s.at(a, b, 0));
          }
        }
      }
      if (medians.empty()) {
        continue;
      }
      if (std::exchange(first, false)) {
        Line("");
        Line("Latency, half a round trip of 8 bytes");
      }
      WrappedLine(
          Pad(between ? "between hosts" : "inside a host", 28) + "median " +
          FormatTime(Median(medians)) + ", slowest pair " +
          FormatTime(*std::max_element(medians.begin(), medians.end())) +
          ", 99th percentile " + FormatTime(Median(tails)));
    }
  }

  void AddPatterns() {
    if (measured_.patterns.empty()) {
      return;
    }
    Line("");
    Line("All ranks at once, sending and receiving");
    for (const Pattern& pattern : measured_.patterns) {
      WrappedLine(
          Pad(pattern.kind + ", " + pattern.name, 36) +
          PadLeft(FormatRate(pattern.bytes_per_s), 12) + " in all, " +
          FormatPercent(pattern.bytes_per_s / pattern.of_links_bytes_per_s) +
          " of its slowest link's pace");
    }
  }

  void AddStress() {
    if (!measured_.stress) {
      return;
    }
    const Stress& stress = *measured_.stress;
    Line("");
    Line("Stress: " + FormatTime(stress.seconds) + ", " +
         Count(stress.messages, "message") + ", " + WithCommas(stress.bytes) +
         " bytes checked, " +
         (stress.wrong.empty()
              ? "none wrong"
              : "wrong on " + Count(stress.wrong.size(), "link")));
  }

  void AddPorts() {
    if (measured_.ports.empty()) {
      return;
    }
    Line("");
    Line("RDMA ports");
    std::size_t shown = 0;
    for (const Port& port : measured_.ports) {
      const std::string brief = BriefPortFault(measured_.ports, port);
      // Of a large cluster those that have something to say.
      if (measured_.ports.size() > kMostRows && brief.empty()) {
        continue;
      }
      if (shown++ == kMostRows) {
        break;
      }
      WrappedLine(Pad(Cut(port.host, 20), 20) + " " + Pad(port.Name(), 12) +
                  Pad(port.state, 8) + " " + Pad(port.rate, 24) +
                  (brief.empty() ? "" : " " + brief));
    }
    Line("  " + Count(measured_.ports.size(), "port") + " in all");
  }

  const Measurements& measured_;
  const Analysis& analysis_;
  const TextOptions options_;
  std::string text_;
};

}  // namespace

std::string DescribeJob(const Measurements& measurements) {
  std::set<std::string> hosts;
  for (const Rank& rank : measurements.ranks) {
    hosts.insert(rank.host);
  }
  return Count(measurements.ranks.size(), "rank") + " on " +
         Count(hosts.size(), "host") +
         (measurements.way.empty() ? "" : ", by " + measurements.way);
}

std::string WarnAboutWay(const Measurements& measurements) {
  if (measurements.way == "host memory") {
    return "All ranks are on this host: this measures its memory, not a "
           "network. Start one rank a host for that, or set "
           "RINGPIPE_HOST_MEMORY=never, and RINGPIPE_DEVICE to an RDMA device.";
  }
  if (measurements.way == "software device") {
    return "No RDMA device is used: this measures TCP between hosts (and host "
           "memory inside one), as jobs would use it here.";
  }
  return "";
}

std::string FormatTextReport(const Measurements& measurements,
                             const Analysis& analysis,
                             const TextOptions& options) {
  return Report(measurements, analysis, options).Make();
}

}  // namespace ringpipe::validate
