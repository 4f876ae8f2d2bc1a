#include "validate/link_map.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "validate/heat_map.h"
#include "validate/html_elements.h"
#include "validate/indexed_png.h"
#include "validate/link_classes.h"

namespace ringpipe::validate {
namespace {

// The enlargements; each is four times the one before.
constexpr int kZooms = 3;
// So many ticks fit beside the map where it is smallest.
constexpr int kMostTicks = 16;
constexpr std::size_t kLongestLabel = 16;
// Of a cause: rings, and those of them with its number.
constexpr std::size_t kMostRings = 64;
constexpr std::size_t kMostNumbers = 4;

// Links of neighbouring ranks: all from `top` to `bottom` send to all from
// `left` to `right`.
struct Rectangle {
  int top, bottom, left, right;
};

// Whether no rank is strictly between `a` and `b`, or only ones of `host`.
bool AreNeighbours(const std::vector<int>& hosts, int a, int b, int host) {
  return std::all_of(hosts.begin() + a + 1, hosts.begin() + std::max(b, a + 1),
                     [host](int other) { return other == host; });
}

// What covers the links, at most kMostRings. Rows first, then rows that are
// alike and follow each other. The gaps that links inside a host leave are
// covered too.
std::vector<Rectangle> Cover(const std::vector<int>& hosts,
                             std::vector<std::pair<int, int>> links) {
  std::sort(links.begin(), links.end());
  std::vector<Rectangle> rows, rectangles;
  for (const auto& [from, to] : links) {
    if (!rows.empty() && rows.back().top == from &&
        AreNeighbours(hosts, rows.back().right, to, hosts[from])) {
      rows.back().right = to;
    } else {
      rows.push_back({from, from, to, to});
    }
  }
  for (const Rectangle& row : rows) {
    const auto above = std::find_if(
        rectangles.begin(), rectangles.end(), [&](const Rectangle& other) {
          return other.left == row.left && other.right == row.right &&
                 other.bottom < row.top &&
                 AreNeighbours(hosts, other.bottom, row.top, hosts[row.left]);
        });
    if (above != rectangles.end()) {
      above->bottom = row.top;
    } else if (rectangles.size() < kMostRings) {
      rectangles.push_back(row);
    }
  }
  return rectangles;
}

// "12.5%"
std::string Percent(double part) {
  char text[16];
  std::snprintf(text, sizeof text, "%.4g%%", part * 100);
  return text;
}

// The number stands on the side where there is more room.
std::string Ring(const Mark& mark, const Rectangle& at, int ranks,
                 std::size_t count) {
  const double across = (at.left + at.right + 1) / 2.0 / ranks;
  const double down = (at.top + at.bottom + 1) / 2.0 / ranks;
  const double width = (at.right - at.left + 1.0) / ranks;
  const double height = (at.bottom - at.top + 1.0) / ranks;
  const char* const side = width >= height ? (down < 0.5 ? "below" : "above")
                                           : (across < 0.5 ? "right" : "left");
  const std::string number = std::to_string(mark.number);
  return "<a class=\"ring " + std::string(side) +
         (mark.fault ? "\"" : " note\"") +
         (count == 0 ? " id=\"ring-" + number + "\"" : "") + " href=\"#cause-" +
         number + "\" title=\"" + number + ": " + Escape(mark.name) +
         "\" style=\"left:" + Percent(across) + ";top:" + Percent(down) +
         ";--w:" + Percent(width) + ";--h:" + Percent(height) + "\">" +
         (count < kMostNumbers ? Element("b", number) : "") + "</a>";
}

std::string Rings(const std::vector<int>& hosts, const Mark& mark) {
  const std::vector<Rectangle> rectangles = Cover(hosts, mark.links);
  std::string rings;
  for (std::size_t i = 0; i < rectangles.size(); ++i) {
    rings += Ring(mark, rectangles[i], static_cast<int>(hosts.size()), i);
  }
  return rings;
}

// A name where a host begins, or of a rank where all are on one host: those for
// the whole map, and more for each enlargement.
std::string Ticks(const Measurements& measured, std::size_t& longest) {
  const int ranks = measured.size();
  const bool by_host = !measured.OnOneHost();
  std::vector<int> begins;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == 0 || !by_host ||
        measured.ranks[rank].host != measured.ranks[rank - 1].host) {
      begins.push_back(rank);
    }
  }
  int step = 1;
  while (static_cast<int>(begins.size()) > kMostTicks * step) {
    step *= 2;
  }
  std::string ticks;
  for (int i = 0; i < static_cast<int>(begins.size()); ++i) {
    int zoom = 0;
    while (zoom < kZooms && i % std::max(1, step >> (2 * zoom)) != 0) {
      ++zoom;
    }
    if (zoom < kZooms) {
      const std::string name = by_host ? measured.ranks[begins[i]].host
                                       : "rank " + std::to_string(begins[i]);
      longest = std::max(longest, name.size());
      ticks += "<i class=\"z" + std::to_string(zoom) +
               "\" style=\"--at:" + Percent((begins[i] + 0.5) / ranks) + "\">" +
               Escape(name) + "</i>";
    }
  }
  return ticks;
}

// 16 bits each, in steps, for the script.
std::string Packed(const std::vector<double>& values, double step) {
  std::string bytes;
  for (const double value : values) {
    const auto part = static_cast<std::uint16_t>(
        std::isnan(value) ? 0 : std::max(1L, std::lround(value / step)));
    bytes += static_cast<char>(part & 0xFF);
    bytes += static_cast<char>(part >> 8);
  }
  return Base64(bytes);
}

std::string Zooms(const std::string& id) {
  std::string zooms = "Enlarge ";
  for (int zoom = 0; zoom < kZooms; ++zoom) {
    const std::string number = std::to_string(zoom);
    const std::string name = id + "-zoom";
    zooms += "<input type=\"radio\" name=\"" + name + "\" id=\"" + name +
             number + "\" class=\"zoom" + number + "\"" +
             (zoom == 0 ? " checked" : "") + "><label for=\"" + name + number +
             "\">" + std::to_string(1 << (2 * zoom)) + " ×</label>";
  }
  return zooms;
}

std::string Legend() {
  std::string legend = "<img class=\"legend\" alt=\"\" src=\"" + HeatLegend() +
                       "\"><div class=\"scale\">";
  for (const int percent : {0, 25, 50, 75, 100, 125}) {
    legend += Element("span", std::to_string(percent) + " %");
  }
  return legend + "</div>";
}

}  // namespace

std::string FormatLinkMap(const Measurements& measured, const LinkMap& map) {
  double most = 0;
  for (const double value : map.values) {
    most = std::isnan(value) ? most : std::max(most, value);
  }
  const double step = std::max(most, 1e-30) / 65'535;
  char step_text[32];
  std::snprintf(step_text, sizeof step_text, "%.9g", step);
  std::size_t longest = 0;
  const std::string ticks = Ticks(measured, longest);
  std::string rings;
  const std::vector<int> hosts = HostNumbers(measured);
  for (const Mark& mark : map.marks) {
    rings += Rings(hosts, mark);
  }
  return "<figure>" + Zooms(map.id) +
         "<div class=\"view\" tabindex=\"0\" role=\"region\" aria-label=\"Map "
         "of the links\"><div class=\"field\" style=\"--label:" +
         std::to_string(std::min(longest, kLongestLabel) + 2) +
         "ch\"><div class=\"corner\"></div>"
         "<div class=\"across\" aria-hidden=\"true\">" +
         ticks + "</div><div class=\"down\" aria-hidden=\"true\">" + ticks +
         "</div><div class=\"map\"><img class=\"map\" alt=\"" +
         Escape(map.caption) + "\" src=\"" +
         HeatMap(measured.size(), map.ratios) + "\" data-values=\"" + map.id +
         "-values\" data-out=\"" + map.id + "-out\" data-step=\"" + step_text +
         "\" data-unit=\"" + map.unit + "\">" + rings + "</div></div></div>" +
         Legend() + "<div class=\"read\" id=\"" + map.id +
         "-out\">Point at a link for its value.</div><figcaption>" +
         Escape(map.caption) +
         " Grey: not measured.</figcaption><script type=\"text/plain\" id=\"" +
         map.id + "-values\">" + Packed(map.values, step) +
         "</script></figure>\n";
}

}  // namespace ringpipe::validate
