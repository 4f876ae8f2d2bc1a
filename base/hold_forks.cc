#include "base/hold_forks.h"

#include <pthread.h>

#include <mutex>

namespace ringpipe {
namespace {

constinit std::mutex forks;
constinit thread_local int held = 0;

void Hold() { forks.lock(); }
void Release() { forks.unlock(); }

}  // namespace

HoldForks::HoldForks() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(&Hold, &Release, &Release);
  if (held++ == 0) {
    Hold();
  }
}

HoldForks::~HoldForks() {
  if (--held == 0) {
    Release();
  }
}

}  // namespace ringpipe
