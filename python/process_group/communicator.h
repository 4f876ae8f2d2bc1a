#ifndef RINGPIPE_PYTHON_PROCESS_GROUP_COMMUNICATOR_H_
#define RINGPIPE_PYTHON_PROCESS_GROUP_COMMUNICATOR_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "engine/ringpipe.h"

namespace ringpipe::process_group {

// The communicator of one process group: shared by the group, the calls that
// have not ended, and the tensors in its memory. The last of them destroys it.
// Thread-safe.
class Communicator {
 public:
  struct Options {
    c10::intrusive_ptr<c10d::Store> store;  // this group's alone
    int rank = 0;
    int size = 1;
    // For calls, and for the creation.
    std::chrono::milliseconds timeout{0};
    // The group's ranks, as torch numbers them in the whole job; empty: all.
    std::vector<std::int64_t> global_ranks;
  };

  // Joins the other ranks, which find each other through the store. Throws
  // std::runtime_error, and what a signal handler raises meanwhile.
  static std::shared_ptr<Communicator> Create(const Options& options);
  // May take 2 s: ringpipe_destroy waits for the other ranks.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ringpipe_communicator* get() const { return communicator_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  // Whether this process is a child of the one that created it, which cannot
  // use it.
  bool IsChild() const;

  // The other ranks that are gone, as torch numbers them in the whole job.
  std::vector<std::int64_t> LostRanks() const;
  // What a call's exception says: `message` is ringpipe's. Names ranks of the
  // whole job too, where the group's have other numbers.
  std::string Describe(const char* title, const std::string& message) const;

 private:
  Communicator(ringpipe_communicator* communicator, const Options& options);

  ringpipe_communicator* const communicator_;
  const int rank_;
  const int size_;
  const std::vector<std::int64_t> global_ranks_;
  const pid_t process_;
};

}  // namespace ringpipe::process_group

#endif  // RINGPIPE_PYTHON_PROCESS_GROUP_COMMUNICATOR_H_
