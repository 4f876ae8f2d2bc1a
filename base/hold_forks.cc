#include "base/hold_forks.h"

#include <pthread.h>

#include <mutex>

namespace ringpipe {
namespace {

constinit std::mutex forks;

void Hold() { forks.lock(); }
void Release() { forks.unlock(); }

}  // namespace

HoldForks::HoldForks() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(&Hold, &Release, &Release);
  Hold();
}

HoldForks::~HoldForks() { Release(); }

}  // namespace ringpipe
