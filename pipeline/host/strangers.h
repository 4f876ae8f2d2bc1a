#ifndef RINGPIPE_PIPELINE_HOST_STRANGERS_H_
#define RINGPIPE_PIPELINE_HOST_STRANGERS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace ringpipe {

// Connections that ended without a proof that they are of the job, counted by
// user. What is kept and said of them has a bound. Not thread-safe.
class Strangers {
 public:
  void Count(uid_t user);

  std::uint64_t count() const { return count_; }

  // "; 5 connections to this rank proved nothing (of user 0: 2; of user 65534:
  // 3)"; "" where there were none.
  std::string Describe() const;

 private:
  std::uint64_t count_ = 0;
  std::uint64_t of_others_ = 0;
  std::map<uid_t, std::uint64_t> of_;  // the first users that came
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_STRANGERS_H_
