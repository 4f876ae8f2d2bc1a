#include "base/hold_forks.h"

#include <pthread.h>

#include <mutex>

namespace ringpipe {
namespace {

constinit std::mutex forks;
constinit thread_local int held = 0;

void Hold() {
  if (held++ == 0) {
    forks.lock();
  }
}

void Release() {
  if (held == 1) {
    forks.unlock();
  }
  --held;
}

// When this is loaded, so that other handlers, which may close what they have,
// mostly run outside of these.
[[maybe_unused]] const int registered =
    pthread_atfork(&Hold, &Release, &Release);

}  // namespace

HoldForks::HoldForks() { Hold(); }
HoldForks::~HoldForks() { Release(); }

}  // namespace ringpipe
