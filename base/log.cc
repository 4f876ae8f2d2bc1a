#include "base/log.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

namespace ringpipe {
namespace {

// One write a line, so that the lines of several processes do not mix.
void WriteToStderr(std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

}  // namespace

const char* LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "unknown";
}

Logger::Logger(LogLevel level, std::string prefix)
    : level_(level), prefix_(std::move(prefix)) {}

Logger::Logger(LogLevel level, LogCallback callback, std::string prefix)
    : level_(level), prefix_(std::move(prefix)) {
  // Copies of this logger share the mutex, so that calls do not overlap.
  callback_ = [mutex = std::make_shared<std::mutex>(),
               callback = std::move(callback)](LogLevel at,
                                               std::string_view line) {
    const std::lock_guard<std::mutex> lock(*mutex);
    callback(at, line);
  };
}

void Logger::Log(LogLevel level, std::string_view line) const {
  if (!enabled(level)) {
    return;
  }
  std::string text = prefix_.empty() ? "" : "[" + prefix_ + "] ";
  if (callback_) {
    text.append(line);
    callback_(level, text);
    return;
  }
  text = "ringpipe" + text + (text.empty() ? " " : "") + LogLevelName(level) +
         ": ";
  text.append(line);
  WriteToStderr(text);
}

Logger Logger::WithPrefix(std::string prefix) const {
  Logger other = *this;
  other.prefix_ = std::move(prefix);
  return other;
}

}  // namespace ringpipe
