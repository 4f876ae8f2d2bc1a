#include "engine/exit_notice.h"

#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

namespace ringpipe {

struct ExitNotice::List {
  List() {
    // Where there is no room for it, an exit is the loss of the rank.
    static_cast<void>(std::atexit([] { ProcessList().TellAll(); }));
  }

  void TellAll() {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const ExitNotice* const notice : notices) {
      if (notice->process_ == getpid()) {
        notice->on_exit_();
      }
    }
  }

  std::mutex mutex;
  std::set<const ExitNotice*> notices;
};

ExitNotice::List& ExitNotice::ProcessList() {
  static List* const list = new List;  // outlives other statics
  return *list;
}

ExitNotice::ExitNotice(std::function<void()> on_exit)
    : on_exit_(std::move(on_exit)) {
  List& list = ProcessList();
  const std::lock_guard<std::mutex> lock(list.mutex);
  list.notices.insert(this);
}

ExitNotice::~ExitNotice() {
  List& list = ProcessList();
  const std::lock_guard<std::mutex> lock(list.mutex);
  list.notices.erase(this);
}

}  // namespace ringpipe
