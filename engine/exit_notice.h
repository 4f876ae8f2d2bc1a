#ifndef RINGPIPE_ENGINE_EXIT_NOTICE_H_
#define RINGPIPE_ENGINE_EXIT_NOTICE_H_

#include <unistd.h>

#include <functional>

namespace ringpipe {

// Calls a function if the process exits, by exit() or a return from main(),
// while this object is there. A child of the process does not. Thread-safe.
//
// That a process exits is known to it alone, so this is the one list of
// communicators that a process has.
class ExitNotice {
 public:
  explicit ExitNotice(std::function<void()> on_exit);
  // Not before `on_exit` has returned, if it has begun.
  ~ExitNotice();
  ExitNotice(const ExitNotice&) = delete;
  ExitNotice& operator=(const ExitNotice&) = delete;

 private:
  struct List;
  static List list_;

  const pid_t process_ = getpid();
  const std::function<void()> on_exit_;
  // In the list, which allocates nothing.
  ExitNotice* previous_ = nullptr;
  ExitNotice* next_ = nullptr;
};

}  // namespace ringpipe

#endif  // RINGPIPE_ENGINE_EXIT_NOTICE_H_
