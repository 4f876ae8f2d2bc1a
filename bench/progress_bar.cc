#include "bench/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/terminal.h"

namespace ringpipe {
namespace {

constexpr std::chrono::milliseconds kBefore(1000);
constexpr std::chrono::milliseconds kBetween(100);
constexpr int kWidest = 40;
constexpr int kNarrowest = 8;

// "0:07", "12:34", "3:05:00".
std::string FormatSeconds(double seconds) {
  const auto whole =
      static_cast<long long>(std::ceil(std::clamp(seconds, 0.0, 3.6e9)));
  char text[40];
  if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600,
                  whole / 60 % 60, whole % 60);
  }
  return text;
}

}  // namespace

std::string FormatProgress(int columns, double part,
                           std::optional<double> seconds_left,
                           const std::string& what) {
  const double done = std::clamp(part, 0.0, 1.0);
  char percent[16];
  std::snprintf(percent, sizeof percent, "%3.0f %%", done * 100);
  std::string text = percent;
  if (seconds_left) {
    text += "  " + FormatSeconds(*seconds_left) + " left";
  }
  const int room = std::max(columns, 0);
  if (static_cast<int>(text.size()) > room) {
    text = percent;
  }
  if (!what.empty()) {
    text += "  " + what;
  }
  // "[", "] " and the bar between them go before the text where they fit.
  const int for_bar = room - static_cast<int>(text.size()) - 3;
  if (for_bar >= kNarrowest) {
    const int width = std::min(for_bar, kWidest);
    std::string bar(static_cast<std::size_t>(done * width), '#');
    bar.resize(width, ' ');
    return "[" + bar + "] " + text;
  }
  return text.substr(0, room);
}

ProgressBar::ProgressBar(bool enabled)
    : enabled_(enabled && TakesEscapes(STDERR_FILENO)),
      start_(Clock::now()),
      next_(start_ + kBefore) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Show(double part, const std::string& what) {
  if (!enabled_) {
    return;
  }
  const Clock::time_point now = Clock::now();
  if (now < next_) {
    return;
  }
  std::optional<double> left;
  if (part > 0) {
    left = std::chrono::duration<double>(now - start_).count() *
           (1 - std::min(part, 1.0)) / part;
  }
  // A character in the last column would make some terminals begin a new line.
  std::fprintf(
      stderr, "%s%s", kClearLine,
      FormatProgress(TerminalColumns(STDERR_FILENO) - 1, part, left, what)
          .c_str());
  std::fflush(stderr);
  drawn_ = true;
  next_ = now + kBetween;
}

void ProgressBar::Clear() {
  if (drawn_) {
    std::fputs(kClearLine, stderr);
    std::fflush(stderr);
    drawn_ = false;
  }
}

}  // namespace ringpipe
