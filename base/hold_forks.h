#ifndef RINGPIPE_BASE_HOLD_FORKS_H_
#define RINGPIPE_BASE_HOLD_FORKS_H_

namespace ringpipe {

// While one lives, a fork() by another thread waits: no child gets what is made
// here before it is kept from children (MADV_DONTFORK, KeepFromChildren). For a
// few system calls; nothing that forks or takes a lock. One thread may have
// several.
class HoldForks {
 public:
  HoldForks();
  ~HoldForks();
  HoldForks(const HoldForks&) = delete;
  HoldForks& operator=(const HoldForks&) = delete;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_HOLD_FORKS_H_
