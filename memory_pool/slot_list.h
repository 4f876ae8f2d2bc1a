// Which of a fixed number of slots are free, and how often none was.
#ifndef RINGPIPE_MEMORY_POOL_SLOT_LIST_H_
#define RINGPIPE_MEMORY_POOL_SLOT_LIST_H_

#include <vector>

#include "base/counters.h"

namespace ringpipe {

// A stack of slot numbers, so that the slot released last, whose memory is
// still in cache, is acquired next. Acquire and Release neither allocate nor
// lock: one thread at a time uses a SlotList.
class SlotList {
 public:
  explicit SlotList(int slots) {
    free_.reserve(slots);
    for (int slot = slots - 1; slot >= 0; --slot) {
      free_.push_back(slot);
    }
    counters_.slots = slots;
  }

  static constexpr int kNone = -1;

  // A slot, or kNone: back-pressure; the caller tries again after a Release.
  int Acquire() {
    if (free_.empty()) {
      ++counters_.waits;
      return kNone;
    }
    const int slot = free_.back();
    free_.pop_back();
    if (++counters_.in_use > counters_.high_water) {
      counters_.high_water = counters_.in_use;
    }
    return slot;
  }

  void Release(int slot) {
    free_.push_back(slot);
    --counters_.in_use;
  }

  const SlotCounters& counters() const { return counters_; }

 private:
  std::vector<int> free_;
  SlotCounters counters_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_MEMORY_POOL_SLOT_LIST_H_
