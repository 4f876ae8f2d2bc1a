#ifndef RINGPIPE_BOOTSTRAP_REFUSALS_H_
#define RINGPIPE_BOOTSTRAP_REFUSALS_H_

#include <map>
#include <mutex>
#include <string>

#include "base/log.h"

namespace ringpipe {

// Counts and logs connections that were no rank's. Of many different reasons
// the later ones are only counted: strangers choose them. Thread-safe.
class Refusals {
 public:
  void Note(const std::string& reason, const std::string& address,
            const Logger& logger);
  int total() const;
  // "; refused 3 connections (2: ..., 1: ...)".
  std::string Describe() const;

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, int> by_reason_;
  int otherwise_ = 0;
  int total_ = 0;
  int lines_ = 0;  // that were to be logged
};

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_REFUSALS_H_
