#ifndef RINGPIPE_VERBS_SOFT_FUZZ_RECEIPTS_H_
#define RINGPIPE_VERBS_SOFT_FUZZ_RECEIPTS_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <unordered_map>

namespace ringpipe::verbs::soft {

// What was posted and has not come back as a completion. Aborts at a completion
// that cannot be, whatever a peer did.
class Receipts {
 public:
  // Nothing is posted.
  void Clear() { posted_.clear(); }

  // The wr_id for a request to `queue`, a queue pair number, with room for (or
  // of) so many bytes.
  std::uint64_t AddSend(std::uint32_t queue);
  std::uint64_t AddReceive(std::uint32_t queue, std::uint64_t room);
  // The post was refused.
  void Withdraw(std::uint64_t wr_id) { posted_.erase(wr_id); }
  // A reset of the queue pair: what it had never completes.
  void Forget(std::uint32_t queue);

  // `completion` has come: from now on it may not again.
  void Take(const ibv_wc& completion);

 private:
  struct Posted {
    std::uint32_t queue;
    bool is_receive;
    std::uint64_t room;
  };

  std::uint64_t last_ = 0;
  std::unordered_map<std::uint64_t, Posted> posted_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_FUZZ_RECEIPTS_H_
