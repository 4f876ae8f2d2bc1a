// A bar on the terminal that shows how far a long run is.
#ifndef RINGPIPE_BENCH_PROGRESS_BAR_H_
#define RINGPIPE_BENCH_PROGRESS_BAR_H_

#include <string>

#include "base/deadline.h"

namespace ringpipe {

// "[#######             ]  36 %  64M float32 sum". Drawn on stderr, and only
// where that is a terminal: nothing in a pipe or a file. Appears after a
// second, changes at most ten times a second. One thread.
class ProgressBar {
 public:
  // `enabled` false: never drawn, as on ranks other than 0.
  explicit ProgressBar(bool enabled);
  // Removes the bar from the terminal.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `part` of the run, from 0 to 1, is done; `what` is going on.
  void Show(double part, const std::string& what);

  // Takes the bar off the line, before something else is printed there.
  void Clear();

 private:
  const bool enabled_;
  bool drawn_ = false;
  Clock::time_point next_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_PROGRESS_BAR_H_
