// Log lines, for the user's callback or stderr. Nothing on the data path logs.
#ifndef RINGPIPE_BASE_LOG_H_
#define RINGPIPE_BASE_LOG_H_

#include <functional>
#include <string>
#include <string_view>

namespace ringpipe {

// The numbers are part of the C interface: append only.
enum class LogLevel : int { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// "error", "warning", "info", "debug".
const char* LogLevelName(LogLevel level);

// Receives one line without its newline. May be called from any thread of
// ringpipe's, one call at a time for one Logger; must not call back into
// ringpipe.
using LogCallback = std::function<void(LogLevel, std::string_view)>;

// Where one communicator's log lines go. Copyable; copies share nothing that
// changes. Thread-safe.
class Logger {
 public:
  // Lines of `level` and more severe to stderr, each as
  // "ringpipe[PREFIX] warning: ...", cut where it is longer than a pipe takes
  // at once (PIPE_BUF). Never waits for a reader: lines for which there is no
  // room are counted, and the next one says how many were lost.
  explicit Logger(LogLevel level = LogLevel::kWarning, std::string prefix = "");

  // The same to `callback` instead.
  Logger(LogLevel level, LogCallback callback, std::string prefix = "");

  bool enabled(LogLevel level) const { return level <= level_; }
  void Log(LogLevel level, std::string_view line) const;
  void Error(std::string_view line) const { Log(LogLevel::kError, line); }
  void Warning(std::string_view line) const { Log(LogLevel::kWarning, line); }
  void Info(std::string_view line) const { Log(LogLevel::kInfo, line); }
  void Debug(std::string_view line) const { Log(LogLevel::kDebug, line); }

 private:
  LogLevel level_;
  std::string prefix_;
  LogCallback callback_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_LOG_H_
