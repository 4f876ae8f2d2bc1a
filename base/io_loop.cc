#include "base/io_loop.h"

#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <system_error>

#include "base/glance.h"

namespace ringpipe {

struct IoLoop::Context : boost::asio::io_context {
  Context() : io_context(1) {}
  // Ends what is pending, and closes no descriptor.
  using io_context::shutdown;

  Context* left_before = nullptr;
};

namespace {

FileDescriptor Watched() {
  FileDescriptor watched(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!watched) {
    throw std::system_error(errno, std::generic_category(), "socket");
  }
  return watched;
}

}  // namespace

IoLoop::IoLoop() : context_(nullptr), watched_(Watched()) {
  context_ = new Context;
}

boost::asio::io_context& IoLoop::context() { return *context_; }

IoLoop::~IoLoop() {
  if (is_intact()) {
    delete context_;
    return;
  }
  // Its destructor would close the numbers of its epoll, timer and event. In a
  // list, so that who looks for leaks finds it.
  static std::atomic<Context*> left = nullptr;
  context_->shutdown();
  context_->left_before = left.exchange(context_);
}

// A thread that sleeps in epoll_wait hears nothing of a close: the files of all
// that it waits for have gone.
void IoLoop::Run() {
  while (context_->run_one_for(kGlance) > 0 ||
         (!context_->stopped() && is_intact())) {
  }
}

}  // namespace ringpipe
