#include "validate/html_elements.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "validate/format.h"
#include "validate/heat_map.h"

namespace ringpipe::validate {
namespace {

// Of the histogram, in units of its view box.
constexpr int kBars = 50;
constexpr int kLeft = 52;  // of the first bar
constexpr int kWidth = 6;  // of a bar
constexpr int kBottom = 130;
constexpr double kTall = 115;  // the tallest bar
constexpr int kRight = kLeft + kBars * kWidth;

// An element of the histogram without content, between two points.
std::string Line(const char* style, double x1, double y1, double x2,
                 double y2) {
  char line[160];
  std::snprintf(line, sizeof line,
                "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                "y2=\"%.1f\"/>",
                style, x1, y1, x2, y2);
  return line;
}

std::string Label(const char* anchor, double x, double y,
                  const std::string& text) {
  char label[96];
  std::snprintf(label, sizeof label,
                "<text text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">", anchor, x,
                y);
  return label + text + "</text>";
}

double AcrossOf(double ratio) {
  return kLeft + ratio / kMostRatio * kBars * kWidth;
}

// The scale is a logarithm's, and one link is still seen.
double HeightOf(std::size_t count) {
  return count == 0 ? 0 : std::log10(static_cast<double>(count)) + 0.3;
}

}  // namespace

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string Element(const std::string& tag, const std::string& content) {
  return "<" + tag + ">" + content + "</" + tag.substr(0, tag.find(' ')) + ">";
}

Table::Table(const std::string& caption, std::vector<std::string> head,
             std::size_t left)
    : head_(std::move(head)), left_(left) {
  html_ = "<div class=\"scroll\"><table class=\"list\"><caption>" + caption +
          "</caption><thead>" + Row(head_, /*is_head=*/true, "") +
          "</thead><tbody>\n";
}

void Table::Add(const std::vector<std::string>& cells, const std::string& id) {
  html_ += Row(cells, /*is_head=*/false, id) + "\n";
}

std::string Table::Row(const std::vector<std::string>& cells, bool is_head,
                       const std::string& id) const {
  std::string row = id.empty() ? "<tr>" : "<tr id=\"" + id + "\">";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    row += Element((is_head ? "th" : "td data-label=\"" + head_[i] + "\"") +
                       (i < left_ ? " class=\"left\"" : ""),
                   cells[i]);
  }
  return row + "</tr>";
}

std::string Histogram(const std::vector<double>& ratios, double marked) {
  std::vector<std::size_t> counts(kBars);
  for (const double ratio : ratios) {
    const double part = std::clamp(ratio / kMostRatio, 0.0, 1.0);
    ++counts[std::min<std::size_t>(static_cast<std::size_t>(part * kBars),
                                   kBars - 1)];
  }
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  const double unit = kTall / std::max(HeightOf(most), 1e-9);
  std::string svg =
      "<svg class=\"bars\" viewBox=\"0 0 372 168\" role=\"img\" "
      "aria-label=\"histogram of the links\">";
  std::vector<std::size_t> ticks;
  for (std::size_t count = 1; count <= most; count *= 10) {
    ticks.push_back(count);
  }
  if (!ticks.empty() && most > 2 * ticks.back()) {
    ticks.push_back(most);  // else the tallest would be beyond the scale
  }
  for (const std::size_t count : ticks) {
    const double y = kBottom - unit * HeightOf(count);
    svg += Line("grid", kLeft - 4, y, kRight, y) +
           Label("end", kLeft - 7, y + 4, WithCommas(count));
  }
  for (int i = 0; i < kBars; ++i) {
    const double low = kMostRatio * i / kBars;
    const double high = low + kMostRatio / kBars;
    const double tall = unit * HeightOf(counts[i]);
    char bar[256];
    std::snprintf(bar, sizeof bar,
                  "<rect%s x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\">"
                  "<title>%s from %.0f %% to %.0f %%</title></rect>",
                  high <= marked ? " class=\"slow\"" : "", kLeft + i * kWidth,
                  kBottom - tall, kWidth - 1, tall,
                  Count(counts[i], "link").c_str(), low * 100, high * 100);
    svg += counts[i] == 0 ? "" : bar;
  }
  svg += Line("axis", kLeft, kBottom, kRight, kBottom) +
         Line("marked", AcrossOf(marked), kBottom - kTall, AcrossOf(marked),
              kBottom);
  for (const int percent : {0, 25, 50, 75, 100, 125}) {
    const double x = AcrossOf(percent / 100.0);
    svg += Line("axis", x, kBottom, x, kBottom + 4) +
           Label("middle", x, kBottom + 16, std::to_string(percent) + " %");
  }
  svg += Label("middle", (kLeft + kRight) / 2.0, kBottom + 33,
               "of what a healthy link of the class carries");
  return svg +
         "<text text-anchor=\"middle\" transform=\"translate(11 72) "
         "rotate(-90)\">links</text></svg>";
}

}  // namespace ringpipe::validate
