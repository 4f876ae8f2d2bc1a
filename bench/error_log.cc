#include "bench/error_log.h"

#include <climits>
#include <cstdlib>
#include <regex>

namespace ringpipe {
namespace {

// The beginning of a stop record; other records begin with a number.
constexpr char kStop = 's';

// What every other rank says when one has failed: one of them is enough.
bool IsConsequence(StatusCode code) {
  return code == StatusCode::kPeerLost || code == StatusCode::kAborted ||
         code == StatusCode::kTimeout || code == StatusCode::kMismatch;
}

// The same for a rank's own words and for those of a rank that it told first:
// "no such device", "rank 3: no such device".
std::string WithoutTeller(const std::string& message) {
  static const std::regex teller("rank [0-9]+: ");
  return std::regex_replace(message, teller, "",
                            std::regex_constants::format_first_only);
}

}  // namespace

// "RANK CODE MESSAGE\n".
std::string ErrorLog::Record(int rank, const Status& status) {
  std::string record = std::to_string(rank) + " " +
                       std::to_string(static_cast<int>(status.code())) + " " +
                       status.ToString();
  for (char& c : record) {
    c = c == '\n' ? ' ' : c;
  }
  record.resize(std::min<std::size_t>(record.size(), PIPE_BUF - 2));
  return record + "\n";
}

// "sSIGNAL\n".
std::string ErrorLog::StopRecord(int signal) {
  return kStop + std::to_string(signal) + "\n";
}

void ErrorLog::Take(std::string_view bytes) {
  pending_ += bytes;
  for (auto end = pending_.find('\n'); end != pending_.npos;
       end = pending_.find('\n')) {
    TakeRecord(pending_.substr(0, end));
    pending_.erase(0, end + 1);
  }
}

void ErrorLog::Print(const std::string& line) {
  ++printed_;
  print_(line);
}

void ErrorLog::TakeRecord(const std::string& record) {
  if (stop_signal_ != 0) {
    return;
  }
  if (record.starts_with(kStop)) {
    stop_signal_ = std::atoi(record.c_str() + 1);
    return;
  }
  char* rest = nullptr;
  const long rank = std::strtol(record.c_str(), &rest, 10);
  const auto code = static_cast<StatusCode>(std::strtol(rest, &rest, 10));
  const std::string message = *rest == ' ' ? rest + 1 : rest;
  if (!seen_.insert(WithoutTeller(message)).second) {
    return;
  }
  if (IsConsequence(code)) {
    // An abort that follows an error has that error for its reason.
    if (consequence_printed_ || (code == StatusCode::kAborted && !empty())) {
      return;
    }
    consequence_printed_ = true;
  }
  Print(rank < 0 ? message : "rank " + std::to_string(rank) + ": " + message);
}

}  // namespace ringpipe
