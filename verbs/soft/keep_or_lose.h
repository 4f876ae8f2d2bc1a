#ifndef RINGPIPE_VERBS_SOFT_KEEP_OR_LOSE_H_
#define RINGPIPE_VERBS_SOFT_KEEP_OR_LOSE_H_

#include <deque>
#include <new>

namespace ringpipe::verbs::soft {

// Keeps a number for its next use. What destroys an object may not fail: where
// there is no memory, the number is not used again.
template <typename T>
void KeepOrLose(std::deque<T>& unused, T number) noexcept {
  try {
    unused.push_back(number);
  } catch (const std::bad_alloc&) {
    static_cast<void>(number);
  }
}

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_KEEP_OR_LOSE_H_
