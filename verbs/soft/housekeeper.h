#ifndef RINGPIPE_VERBS_SOFT_HOUSEKEEPER_H_
#define RINGPIPE_VERBS_SOFT_HOUSEKEEPER_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "verbs/soft/link_message.h"

namespace ringpipe::verbs::soft {

class Context;

// The one thread of a context. Asleep, except to: answer requesters, learn that
// peers died, run timers of requests that nobody polls for, copy out of slots,
// and report errors that peers found.
class Housekeeper {
 public:
  explicit Housekeeper(Context* context) : context_(context) {}
  ~Housekeeper() { Stop(); }

  Status Start(FileDescriptor listener);
  void Stop();
  // After Stop, for tests: what the thread would do now. Returns when to do so
  // again.
  Clock::time_point Round() { return Round(Clock::now()); }

  // Any thread: do a round now, or at the latest at `when`.
  void Wake();
  void NeedTimer(Clock::time_point when);
  // A link's socket, until it is closed; false with errno.
  bool Watch(int socket);
  // The context's UD sockets; false with errno.
  bool WatchDatagrams();

 private:
  // Requester `second` is attached to the queue pair with index `first`.
  using Attachment = std::pair<std::uint32_t, std::uint32_t>;

  void Run();
  Clock::time_point Round(Clock::time_point until);
  void Wait(Clock::time_point until);
  void Handle(int fd);
  void Accept();
  void OnAcceptFailed(int error);
  void LogRefusal(const std::string& reason);
  void LogNoDescriptors(const std::string& consequence, int error);
  void HandleRequester(int socket);
  void Answer(int socket, const LinkMessage& request);
  void DropRequester(int socket);
  void HandleResponder(int socket);
  void Attend();

  Context* const context_;
  FileDescriptor epoll_;
  FileDescriptor listener_;
  FileDescriptor wake_;
  FileDescriptor spare_;  // to refuse somebody where there are no others
  std::atomic<bool> stop_{false};
  // When the thread will wake by itself; max() also while it is awake.
  std::atomic<Clock::time_point> planned_{Clock::time_point::max()};
  // Of the thread: those who connected to us.
  std::map<int, FileDescriptor> requesters_;
  std::map<Attachment, int> attachments_;
  int refused_ = 0;  // strangers' connections
  bool logged_no_descriptors_ = false;
  std::thread thread_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_HOUSEKEEPER_H_
