#include "engine/exit_notice.h"

#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

namespace ringpipe {

struct ExitNotice::List {
  void TellAll() {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const ExitNotice* notice = first; notice != nullptr;
         notice = notice->next_) {
      if (notice->process_ == getpid()) {
        notice->on_exit_();
      }
    }
  }

  std::mutex mutex;
  ExitNotice* first = nullptr;
};

constinit ExitNotice::List ExitNotice::list_;

ExitNotice::ExitNotice(std::function<void()> on_exit)
    : on_exit_(std::move(on_exit)) {
  static_assert(std::is_trivially_destructible_v<List>, "used at exit");
  // A child begins with an empty list: nobody there would release a mutex that
  // another thread held.
  [[maybe_unused]] static const int forks =
      pthread_atfork(nullptr, nullptr, [] { new (&list_) List; });
  // Where there is no room for it, an exit is the loss of the rank.
  [[maybe_unused]] static const int exits =
      std::atexit([] { list_.TellAll(); });
  const std::lock_guard<std::mutex> lock(list_.mutex);
  next_ = list_.first;
  if (next_ != nullptr) {
    next_->previous_ = this;
  }
  list_.first = this;
}

ExitNotice::~ExitNotice() {
  if (process_ != getpid()) {
    return;  // the parent's
  }
  const std::lock_guard<std::mutex> lock(list_.mutex);
  (previous_ == nullptr ? list_.first : previous_->next_) = next_;
  if (next_ != nullptr) {
    next_->previous_ = previous_;
  }
}

}  // namespace ringpipe
