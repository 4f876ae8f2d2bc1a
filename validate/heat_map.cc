#include "validate/heat_map.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace ringpipe::validate {
namespace {

constexpr Colour kGrey = {0x80, 0x80, 0x80};
constexpr int kShades = 255;  // the rest of the palette is for grey

struct Stop {
  double ratio;
  Colour colour;
};
constexpr Stop kStops[] = {
    {0.00, {0x20, 0x08, 0x00}}, {0.30, {0x7A, 0x2A, 0x00}},
    {0.60, {0xDD, 0x6A, 0x00}}, {0.85, {0xF9, 0xC4, 0x6B}},
    {0.94, {0xE6, 0xEE, 0xF6}}, {1.00, {0xA9, 0xCD, 0xEC}},
    {1.25, {0x1F, 0x5F, 0xA3}},
};

// From 1 on; 0 is grey.
std::uint8_t ShadeOf(double ratio) {
  if (std::isnan(ratio)) {
    return 0;
  }
  const double part = std::clamp(ratio / kMostRatio, 0.0, 1.0);
  return static_cast<std::uint8_t>(1 + std::lround(part * (kShades - 1)));
}

std::vector<Colour> Palette() {
  std::vector<Colour> palette = {kGrey};
  for (int shade = 0; shade < kShades; ++shade) {
    palette.push_back(ColourOf(kMostRatio * shade / (kShades - 1)));
  }
  return palette;
}

std::string DataAddress(const std::string& png) {
  return "data:image/png;base64," + Base64(png);
}

}  // namespace

Colour ColourOf(double ratio) {
  if (std::isnan(ratio)) {
    return kGrey;
  }
  const Stop* above = std::begin(kStops);
  while (above != std::end(kStops) && above->ratio < ratio) {
    ++above;
  }
  if (above == std::begin(kStops)) {
    return above->colour;
  }
  if (above == std::end(kStops)) {
    return std::prev(above)->colour;
  }
  const Stop& below = *std::prev(above);
  const double part = (ratio - below.ratio) / (above->ratio - below.ratio);
  Colour colour;
  for (std::size_t i = 0; i < colour.size(); ++i) {
    colour[i] = static_cast<std::uint8_t>(std::lround(
        below.colour[i] + part * (above->colour[i] - below.colour[i])));
  }
  return colour;
}

std::string HeatMap(int size, const std::vector<double>& ratios) {
  std::vector<std::uint8_t> pixels;
  pixels.reserve(ratios.size());
  for (const double ratio : ratios) {
    pixels.push_back(ShadeOf(ratio));
  }
  return DataAddress(IndexedPng(size, size, pixels, Palette()));
}

std::string HeatLegend() {
  std::vector<std::uint8_t> pixels;
  for (int shade = 1; shade <= kShades; ++shade) {
    pixels.push_back(static_cast<std::uint8_t>(shade));
  }
  return DataAddress(IndexedPng(kShades, 1, pixels, Palette()));
}

}  // namespace ringpipe::validate
