#include "bootstrap/refusals.h"

#include <cstddef>

namespace ringpipe {
namespace {

// A flood of strangers must not become a flood of log lines.
constexpr int kMostLogged = 20;
constexpr std::size_t kMostReasonsKept = 5;

}  // namespace

void Refusals::Note(const std::string& reason, const std::string& address,
                    const Logger& logger) {
  int line = 0;  // of the log; 0: none
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++total_;
    const bool is_kept = by_reason_.count(reason) != 0;
    // A rank that is refused comes again, many times.
    line = is_kept ? 0 : ++lines_;
    ++(is_kept || by_reason_.size() < kMostReasonsKept ? by_reason_[reason]
                                                       : otherwise_);
  }
  if (line > 0 && line <= kMostLogged) {
    logger.Warning("refused a connection at " + address + ": " + reason);
  }
  if (line == kMostLogged) {
    logger.Warning("further refusals are only counted");
  }
}

int Refusals::total() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return total_;
}

std::string Refusals::Describe() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (total_ == 0) {
    return "; no connection was refused";
  }
  std::string text = "; refused " + std::to_string(total_) + " connection(s) (";
  bool first = true;
  for (const auto& [reason, count] : by_reason_) {
    text += (first ? "" : "; ") + std::to_string(count) + ": " + reason;
    first = false;
  }
  if (otherwise_ > 0) {
    text += "; " + std::to_string(otherwise_) + ": other reasons";
  }
  return text + ")";
}

}  // namespace ringpipe
