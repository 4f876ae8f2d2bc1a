// Prints what ranks report, without saying anything twice.
#ifndef RINGPIPE_BENCH_ERROR_LOG_H_
#define RINGPIPE_BENCH_ERROR_LOG_H_

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ringpipe {

// Ranks write records to one pipe, each in one write of less than PIPE_BUF
// bytes, so that records do not mix. One thread.
class ErrorLog {
 public:
  // `print` gets whole lines, without the newline.
  explicit ErrorLog(std::function<void(const std::string&)> print)
      : print_(std::move(print)) {}

  // A record for the pipe, with its newline.
  static std::string Record(int rank, const Status& status);

  // A record that says that all ranks are to be ended by `signal`.
  static std::string StopRecord(int signal);

  // Takes what was read from the pipe, and prints the new errors in it.
  void Take(std::string_view bytes);

  // Prints a line of the launcher's own.
  void Print(const std::string& line);

  bool empty() const { return printed_ == 0; }

  // Of the first stop record; 0: there was none. What comes behind it is not
  // printed.
  int stop_signal() const { return stop_signal_; }

 private:
  void TakeRecord(const std::string& record);

  std::function<void(const std::string&)> print_;
  std::string pending_;  // the beginning of a record
  std::set<std::string> seen_;
  bool consequence_printed_ = false;
  int printed_ = 0;
  int stop_signal_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_ERROR_LOG_H_
