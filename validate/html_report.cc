#include "validate/html_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "nlohmann/json.hpp"
#include "validate/format.h"
#include "validate/heat_map.h"
#include "validate/html_elements.h"
#include "validate/html_style.h"
#include "validate/link_map.h"
#include "validate/port_findings.h"
#include "validate/text_report.h"

namespace ringpipe::validate {
namespace {

// Up to here the matrix is also a table with figures.
constexpr int kMostOfATable = 24;

// What a verdict looks like, by its value.
struct Look {
  const char* style;
  const char* words;
};
constexpr Look kLooks[] = {{"healthy", "✓ Healthy"},
                           {"faulty", "✗ Faulty"},
                           {"uncertain", "? Not measured"},
                           {"uncertain", "? Uncertain"}};

std::string Hex(const Colour& colour) {
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", colour[0], colour[1],
                colour[2]);
  return text;
}

class Page {
 public:
  Page(const Measurements& measured, const Analysis& analysis)
      : measured_(measured), analysis_(analysis), ranks_(measured.size()) {
    for (int rank = 0; rank < ranks_; ++rank) {
      names_.push_back(measured.NameOf(rank));
    }
  }

  std::string Make() {
    Begin();
    AddVerdict();
    AddFindings();
    for (std::size_t i = 0; i < measured_.planes.size(); ++i) {
      AddPlane(static_cast<int>(i));
    }
    AddLatencies();
    AddPatterns();
    AddStress();
    AddPorts();
    AddInventory();
    End();
    return std::move(html_);
  }

 private:
  void Begin() {
    html_ =
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width\">"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
        "'none'; img-src data:; style-src 'unsafe-inline'; script-src "
        "'unsafe-inline'\"><link rel=\"icon\" href=\"data:,\"><title>" +
        Escape(Title()) + "</title><style>" + kStyle +
        "</style></head>\n<body>\n";
  }

  std::string Title() const { return "Interconnect: " + analysis_.summary; }

  void Heading(const std::string& text) {
    html_ += Element("h2", Escape(text)) + "\n";
  }
  void Paragraph(const std::string& text, bool dim = false) {
    html_ += std::string(dim ? "<p class=\"dim\">" : "<p>") + Escape(text) +
             "</p>\n";
  }

  void AddVerdict() {
    html_ += Element("h1", "Interconnect of " + Escape(DescribeJob(measured_)));
    Paragraph("ringpipe " + measured_.version + ", " + measured_.date +
                  ", measured in " + FormatTime(measured_.seconds),
              /*dim=*/true);
    const Look& look = kLooks[static_cast<std::size_t>(analysis_.verdict)];
    html_ += "<div class=\"verdict " + std::string(look.style) +
             "\" role=\"status\"><b>" + look.words + "</b><span>" +
             Escape(analysis_.summary) + "</span></div>\n";
    if (const std::string warning = WarnAboutWay(measured_); !warning.empty()) {
      Paragraph(warning);
    }
    if (measured_.ending && !measured_.ending->interrupted_by.empty()) {
      Paragraph("Ended early by " + measured_.ending->interrupted_by +
                ", while " + measured_.ending->phase + " was measured.");
    }
  }

  void AddFindings() {
    Heading("Findings, worst first");
    if (analysis_.findings.empty()) {
      Paragraph("None.");
      return;
    }
    html_ += "<ol class=\"findings\">\n";
    for (std::size_t i = 0; i < analysis_.findings.size(); ++i) {
      const Finding& finding = analysis_.findings[i];
      html_ += "<li class=\"" + std::string(finding.fault ? "fault" : "note") +
               "\"><span class=\"mark\">" +
               (finding.fault ? "✗ fault" : "– note") + "</span>" +
               Escape(finding.text);
      for (const std::string& also : finding.also) {
        html_ += "<br>" + Escape(also);
      }
      if (!LinksOf(finding).empty()) {
        html_ +=
            " <a href=\"#ring-" + std::to_string(i + 1) + "\">on the map</a>";
      }
      html_ += "</li>\n";
    }
    html_ += "</ol>\n";
  }

  // --- Bandwidths ---

  // Those that show it, on the map of its plane.
  static std::vector<Link> LinksOf(const Finding& finding) {
    return finding.kind == Finding::Kind::kWrongBytes
               ? std::vector<Link>{{finding.from, finding.to}}
               : finding.links;
  }

  // The findings that are about some links of the plane. Bytes are checked by
  // all rails, which are the first plane.
  std::vector<Mark> MarksOf(int plane) const {
    std::vector<Mark> marks;
    for (std::size_t i = 0; i < analysis_.findings.size(); ++i) {
      const Finding& finding = analysis_.findings[i];
      std::vector<Link> links = LinksOf(finding);
      if (links.empty() || std::max(0, finding.plane) != plane) {
        continue;
      }
      const auto [from, to] = links.front();
      std::string name = finding.subject;
      if (name.empty()) {
        name = names_[from] + " → " + names_[to] +
               (links.size() > 1 ? " and " + Count(links.size() - 1, "other")
                                 : "");
      }
      marks.push_back(
          {i + 1, finding.fault, std::move(name), std::move(links)});
    }
    return marks;
  }

  void AddPlane(int number) {
    const Plane& plane = measured_.planes[number];
    const LinkClasses classes(measured_, number);
    if (classes.classes().empty()) {
      return;
    }
    Heading("Bandwidth" +
            (measured_.planes.size() > 1 ? ", " + plane.name : std::string()));
    Paragraph(
        "Each link by itself and its class: colours and bars are parts "
        "of what a healthy link of that class carries, with messages of " +
            WithCommas(plane.message_bytes) +
            " bytes while other pairs talk too.",
        /*dim=*/true);
    std::vector<double> values, ratios, measured;
    for (int from = 0; from < ranks_; ++from) {
      for (int to = 0; to < ranks_; ++to) {
        values.push_back(classes.Value(from, to));
        ratios.push_back(classes.Ratio(from, to));
        if (!std::isnan(ratios.back())) {
          measured.push_back(ratios.back());
        }
      }
    }
    html_ += "<div class=\"pair\">";
    const std::vector<Mark> marks = MarksOf(number);
    html_ += FormatLinkMap(
        measured_,
        {"bandwidth" + std::to_string(number), values, ratios, "B",
         "Rows send, columns receive, both by rank from the top left.", marks});
    html_ += "<div class=\"beside\">";
    AddCauses(number, classes, marks);
    html_ += "<figure>" + Histogram(measured, 1 - analysis_.tolerance) +
             "<figcaption>Links by their part of the class's bandwidth; the "
             "height is the logarithm of their number; below " +
             Marked() +
             " (dashed) in orange.</figcaption></figure></div></div>\n";
    AddClasses(plane.name);
    if (ranks_ <= kMostOfATable) {
      AddMatrixTable(classes);
    }
    AddBySender(classes);
  }

  // "90 %"
  std::string Marked() const { return FormatPercent(1 - analysis_.tolerance); }

  void AddClasses(const std::string& plane) {
    const auto analysed = std::find_if(
        analysis_.planes.begin(), analysis_.planes.end(),
        [&plane](const PlaneClasses& one) { return one.plane == plane; });
    if (analysed == analysis_.planes.end()) {
      return;
    }
    Table table("Classes of links that should be equal",
                {"class", "links", "slowest", "median", "fastest", "healthy",
                 "spread", "a single link stands out below"},
                1);
    for (std::size_t i = 0; i < analysed->classes.size(); ++i) {
      const LinkClass& members = analysed->classes[i];
      const double seen = analysed->could_tell[i];
      table.Add({Escape(members.name), WithCommas(members.links.size()),
                 FormatRate(members.min), FormatRate(members.median),
                 FormatRate(members.max), FormatRate(members.reference),
                 FormatPercent(members.spread),
                 seen < 1 ? FormatPercent(1 - seen) : "nothing"});
    }
    html_ += table.End();
  }

  void AddMatrixTable(const LinkClasses& classes) {
    html_ +=
        "<details open><summary>The matrix in figures</summary><div "
        "class=\"scroll\"><table class=\"matrix\"><caption>Sender by "
        "receiver; ! below " +
        Marked() + " of the class.</caption><thead><tr><th></th>";
    for (int to = 0; to < ranks_; ++to) {
      html_ += Element("th", Escape(names_[to]));
    }
    html_ += "</tr></thead><tbody>\n";
    for (int from = 0; from < ranks_; ++from) {
      html_ += "<tr><th class=\"left\">" + Escape(names_[from]) + "</th>";
      for (int to = 0; to < ranks_; ++to) {
        if (!classes.Measured(from, to)) {
          html_ += "<td class=\"none\">–</td>";
          continue;
        }
        const double ratio = classes.Ratio(from, to);
        html_ += "<td style=\"background:" + Hex(ColourOf(ratio)) +
                 (ratio < 0.55 ? ";color:#fff" : "") + "\">" +
                 FormatRate(classes.Value(from, to)) +
                 (ratio < 1 - analysis_.tolerance ? " !" : "") + "</td>";
      }
      html_ += "</tr>\n";
    }
    html_ += "</tbody></table></div></details>\n";
  }

  // A row for each finding, and one for the slowest of the links that are
  // left.
  void AddCauses(int plane, const LinkClasses& classes,
                 const std::vector<Mark>& marks) {
    Table table(
        "Links by finding (medians), and the slowest of the others",
        {"ring", "where", "links", "in company", "of its class", "alone"}, 2);
    const IsolatedRatios isolated(measured_, plane, classes,
                                  analysis_.tolerance);
    std::set<Link> explained;
    for (const Mark& mark : marks) {
      const std::string number = std::to_string(mark.number);
      AddCause(Element("a href=\"#ring-" + number + "\"", number), mark,
               classes, isolated, table);
      explained.insert(mark.links.begin(), mark.links.end());
    }
    Link slowest = {-1, -1};
    for (const LinkClass& members : classes.classes()) {
      for (const Link& link : members.links) {
        const bool is_first = slowest.first < 0;
        if (!explained.contains(link) &&
            (is_first || classes.Ratio(link.first, link.second) <
                             classes.Ratio(slowest.first, slowest.second))) {
          slowest = link;
        }
      }
    }
    if (const auto [from, to] = slowest; from >= 0) {
      AddCause("",
               {0,
                false,
                names_[from] + " → " + names_[to] + ": the slowest " +
                    (marks.empty() ? "link" : "other link"),
                {slowest}},
               classes, isolated, table);
    }
    html_ += table.End();
  }

  static void AddCause(const std::string& first, const Mark& mark,
                       const LinkClasses& classes,
                       const IsolatedRatios& isolated, Table& table) {
    std::vector<double> values, ratios, alone;
    for (const auto& [from, to] : mark.links) {
      values.push_back(classes.Value(from, to));
      ratios.push_back(classes.Ratio(from, to));
      if (const double value = isolated.Value({from, to}); !std::isnan(value)) {
        alone.push_back(value);
      }
    }
    table.Add({first, Escape(mark.name), WithCommas(mark.links.size()),
               FormatRate(Median(values)), FormatPercent(Median(ratios)),
               alone.empty() ? "–" : FormatRate(Median(alone))},
              mark.number == 0 ? "" : "cause-" + std::to_string(mark.number));
  }

  // A rank's own figures: medians over its links.
  void AddBySender(const LinkClasses& classes) {
    struct Row {
      int rank;
      double sends, receives, slowest;
    };
    std::vector<Row> rows;
    for (int rank = 0; rank < ranks_; ++rank) {
      std::vector<double> sends, receives;
      for (int other = 0; other < ranks_; ++other) {
        if (classes.Measured(rank, other)) {
          sends.push_back(classes.Ratio(rank, other));
        }
        if (classes.Measured(other, rank)) {
          receives.push_back(classes.Ratio(other, rank));
        }
      }
      if (!sends.empty() && !receives.empty()) {
        rows.push_back(
            {rank, Median(sends), Median(receives),
             std::min(*std::min_element(sends.begin(), sends.end()),
                      *std::min_element(receives.begin(), receives.end()))});
      }
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return std::min(a.sends, a.receives) < std::min(b.sends, b.receives);
    });
    Table table(
        "Medians over a rank's links, as parts of their classes, worst "
        "first",
        {"rank", "sends", "receives", "its slowest link"}, 1);
    for (const Row& row : rows) {
      table.Add({Escape(names_[row.rank]), FormatPercent(row.sends),
                 FormatPercent(row.receives), FormatPercent(row.slowest)});
    }
    html_ +=
        "<details><summary>By rank</summary>" + table.End() + "</details>\n";
  }

  // --- The rest ---

  void AddLatencies() {
    if (!measured_.latencies) {
      return;
    }
    Heading("Latency, half a round trip of 8 bytes");
    const std::vector<int> hosts = HostNumbers(measured_);
    std::map<bool, std::vector<double>> medians, tails;
    std::vector<double> values, slowness;
    const LinkSamples& median = measured_.latencies->median_s;
    for (int a = 0; a < ranks_; ++a) {
      for (int b = 0; b < ranks_; ++b) {
        values.push_back(median.at(a, b, 0));
        if (a < b && !std::isnan(values.back())) {
          medians[hosts[a] != hosts[b]].push_back(values.back());
          tails[hosts[a] != hosts[b]].push_back(
              measured_.latencies->p99_s.at(a, b, 0));
        }
      }
    }
    Table table(
        "Pairs of ranks",
        {"class", "pairs", "fastest", "median", "slowest",
         "99th percentile (median pair)", "99th percentile (slowest pair)"},
        1);
    for (const auto& [between, times] : medians) {
      table.Add({between ? "between hosts" : "inside a host",
                 WithCommas(times.size()),
                 FormatTime(*std::min_element(times.begin(), times.end())),
                 FormatTime(Median(times)),
                 FormatTime(*std::max_element(times.begin(), times.end())),
                 FormatTime(Median(tails[between])),
                 FormatTime(*std::max_element(tails[between].begin(),
                                              tails[between].end()))});
    }
    html_ += table.End();
    std::map<bool, double> usual;
    for (const auto& [between, times] : medians) {
      usual[between] = Median(times);
    }
    for (int a = 0; a < ranks_; ++a) {
      for (int b = 0; b < ranks_; ++b) {
        const double time = median.at(a, b, 0);
        slowness.push_back(
            std::isnan(time) ? NAN : usual[hosts[a] != hosts[b]] / time);
      }
    }
    html_ += FormatLinkMap(measured_, {"latency",
                                       values,
                                       slowness,
                                       "s",
                                       "Rows and columns by rank; dark is "
                                       "slow, twice the usual time is 50 %.",
                                       {}});
  }

  void AddPatterns() {
    if (measured_.patterns.empty()) {
      return;
    }
    Heading("Bisection and rings");
    Table table("All ranks at once, sending and receiving",
                {"pattern", "", "in all", "of its slowest link's pace"}, 2);
    for (const Pattern& pattern : measured_.patterns) {
      table.Add(
          {Escape(pattern.kind), Escape(pattern.name),
           FormatRate(pattern.bytes_per_s),
           FormatPercent(pattern.bytes_per_s / pattern.of_links_bytes_per_s)});
    }
    html_ += table.End();
  }

  void AddStress() {
    if (!measured_.stress) {
      return;
    }
    const Stress& stress = *measured_.stress;
    Heading("Stress");
    Paragraph(FormatTime(stress.seconds) + " of rings and permutations, " +
              Count(stress.messages, "message") + ", " +
              WithCommas(stress.bytes) + " bytes checked: " +
              (stress.wrong.empty()
                   ? "none wrong."
                   : "wrong on " + Count(stress.wrong.size(), "link") + "."));
  }

  void AddPorts() {
    if (measured_.ports.empty()) {
      return;
    }
    Heading("RDMA ports");
    Table table("What they say of themselves, and what has grown",
                {"host", "port", "state", "rate", "MTU", "addresses", "PCI",
                 "counters that grew", "what is wrong"},
                9);
    for (const Port& port : measured_.ports) {
      std::string types, grown;
      for (const std::string& type : port.gid_types) {
        types += (types.empty() ? "" : ", ") + type;
      }
      for (const Growth& growth : GrownCounters(port)) {
        grown += (grown.empty() ? "" : ", ") + growth.name + " +" +
                 WithCommas(growth.by);
      }
      table.Add(
          {Escape(port.host), Escape(port.Name()), Escape(port.state),
           Escape(port.rate),
           port.interface_mtu > 0 ? std::to_string(port.interface_mtu) : "–",
           Escape(types),
           port.pci_lanes > 0 ? "x" + std::to_string(port.pci_lanes) : "–",
           Escape(grown), Escape(BriefPortFault(measured_.ports, port))});
    }
    html_ += table.End();
  }

  void AddInventory() {
    Heading("Ranks");
    Table table("Where they ran", {"rank", "host", "process", "device"}, 4);
    for (int rank = 0; rank < ranks_; ++rank) {
      table.Add({std::to_string(rank), Escape(measured_.ranks[rank].host),
                 std::to_string(measured_.ranks[rank].pid),
                 Escape(measured_.ranks[rank].device)});
    }
    html_ += "<details><summary>" + Count(ranks_, "rank") + "</summary>" +
             table.End() + "</details>\n";
  }

  // JSON in a script element must not end it.
  void End() {
    std::string names = nlohmann::json(names_).dump(
        -1, ' ', false, nlohmann::json::error_handler_t::replace);
    for (std::size_t at = names.find('<'); at != std::string::npos;
         at = names.find('<', at)) {
      names.replace(at, 1, "\\u003c");
    }
    html_ += "<script type=\"application/json\" id=\"names\">" + names +
             "</script>\n<script>" + kScript + "</script>\n</body></html>\n";
  }

  const Measurements& measured_;
  const Analysis& analysis_;
  const int ranks_;
  std::vector<std::string> names_;
  std::string html_;
};

}  // namespace

std::string FormatHtmlReport(const Measurements& measurements,
                             const Analysis& analysis) {
  return Page(measurements, analysis).Make();
}

}  // namespace ringpipe::validate
