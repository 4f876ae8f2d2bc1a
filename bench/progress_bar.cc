#include "bench/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace ringpipe {
namespace {

constexpr std::chrono::milliseconds kBefore(1000);
constexpr std::chrono::milliseconds kBetween(100);
constexpr int kWidth = 40;

}  // namespace

ProgressBar::ProgressBar(bool enabled)
    : enabled_(enabled && isatty(STDERR_FILENO) == 1),
      next_(Clock::now() + kBefore) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Show(double part, const std::string& what) {
  if (!enabled_ || Clock::now() < next_) {
    return;
  }
  const double done = std::clamp(part, 0.0, 1.0);
  std::string bar(static_cast<std::size_t>(done * kWidth), '#');
  bar.resize(kWidth, ' ');
  std::fprintf(stderr, "\r\033[K[%s] %3.0f %%  %s", bar.c_str(), done * 100,
               what.c_str());
  std::fflush(stderr);
  drawn_ = true;
  next_ = Clock::now() + kBetween;
}

void ProgressBar::Clear() {
  if (drawn_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
    drawn_ = false;
  }
}

}  // namespace ringpipe
