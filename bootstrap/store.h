#ifndef RINGPIPE_BOOTSTRAP_STORE_H_
#define RINGPIPE_BOOTSTRAP_STORE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace ringpipe {

// A place outside of ringpipe, with keys and values, where the ranks of a job
// find each other: their launcher's, or their framework's.
//
// Both are called on the thread that creates the communicator, and never after
// that: `put` on rank 0, once; `get` on the others, again and again. They must
// not call ringpipe, nor throw. Keys begin with "ringpipe/" and have the job
// id. What is there under that key must be of this job alone: where one store
// serves several communicators, each needs a job id of its own. Who can read
// the value can join, and who can write it decides whom the ranks join.
struct Store {
  // A value is not longer.
  static constexpr std::size_t kMostBytes = 4096;

  std::function<Status(const std::string& key, const std::string& value)> put;
  // Waits for the key, for at most `timeout`. nullopt: nobody has put it.
  std::function<Result<std::optional<std::string>>(
      const std::string& key, std::chrono::milliseconds timeout)>
      get;
};

// A root for a job with a store: rank 0 listens at any address, at a port that
// the kernel chooses.
inline constexpr char kAnyAddress[] = "*:0";

}  // namespace ringpipe

#endif  // RINGPIPE_BOOTSTRAP_STORE_H_
