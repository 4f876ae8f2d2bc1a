// A bar on the terminal that shows how far a long run is.
#ifndef RINGPIPE_BENCH_PROGRESS_BAR_H_
#define RINGPIPE_BENCH_PROGRESS_BAR_H_

#include <optional>
#include <string>

#include "base/deadline.h"

namespace ringpipe {

// "[#######             ]  36 %  0:12 left  64M float32 sum". Drawn on stderr,
// and only where that is a terminal and TERM is not "dumb": nothing in a pipe
// or a file. Appears after a second, changes at most ten times a second, and
// never fills the terminal's last column, so that it stays on one line. One
// thread.
class ProgressBar {
 public:
  // `enabled` false: never drawn, as on ranks other than 0.
  explicit ProgressBar(bool enabled);
  // Removes the bar from the terminal.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `part` of the run, from 0 to 1, is done; `what` is going on. The time left
  // supposes that the rest goes as fast as what is done.
  void Show(double part, const std::string& what);

  // Takes the bar off the line, before something else is printed there.
  void Clear();

 private:
  const bool enabled_;
  bool drawn_ = false;
  const Clock::time_point start_;
  Clock::time_point next_;
};

// The text of a bar, at most `columns` characters. Where there is little room
// the bar becomes shorter first, then `what` is cut off, then the time left is
// left out.
std::string FormatProgress(int columns, double part,
                           std::optional<double> seconds_left,
                           const std::string& what);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_PROGRESS_BAR_H_
