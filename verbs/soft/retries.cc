#include "verbs/soft/retries.h"

#include <algorithm>

namespace ringpipe::verbs::soft {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// An acknowledgement here comes from a thread that has to get a core first.
// Adapters have a floor for lesser reasons (ConnectX-2: about 500 ms).
constexpr int kLeastTimeout = 14;

constexpr microseconds kFirstRetry{200};
constexpr microseconds kLongestRetry{10'000};

// InfiniBand Architecture Specification 1.3, table 45, in units of 10 us.
constexpr std::uint32_t kRnrTimer10us[32] = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

}  // namespace

void Retries::Set(int timeout, int retry_count, int rnr_retry) {
  transport_timeout_ = timeout == 0
                           ? nanoseconds(0)
                           : nanoseconds((std::int64_t{4096}
                                          << std::max(timeout, kLeastTimeout)) *
                                         (retry_count + 1));
  rnr_retry_ = rnr_retry;
}

void Retries::Clear() {
  wait_ = Wait::kNone;
  rnr_tries_ = 0;
}

bool Retries::Exhausted(Step step, std::uint32_t min_rnr_timer,
                        Clock::time_point now, ibv_wc_status* status,
                        Clock::time_point* again) {
  if (step == Step::kNoReceive) {
    *status = IBV_WC_RNR_RETRY_EXC_ERR;
    return ReceiverExhausted(min_rnr_timer, now, again);
  }
  *status = IBV_WC_RETRY_EXC_ERR;
  return TransportExhausted(now, again);
}

bool Retries::TransportExhausted(Clock::time_point now,
                                 Clock::time_point* again) {
  if (wait_ != Wait::kTransport) {
    wait_ = Wait::kTransport;
    since_ = now;
    interval_ = kFirstRetry;
  }
  *again = now + interval_;
  interval_ = std::min<Clock::duration>(interval_ * 2, kLongestRetry);
  if (transport_timeout_ == Clock::duration::zero()) {
    return false;
  }
  const Clock::time_point expiry = since_ + transport_timeout_;
  *again = std::min(*again, expiry);
  return now >= expiry;
}

bool Retries::ReceiverExhausted(std::uint32_t min_rnr_timer,
                                Clock::time_point now,
                                Clock::time_point* again) {
  const microseconds timer(kRnrTimer10us[min_rnr_timer % 32] * 10);
  if (wait_ != Wait::kReceive) {
    wait_ = Wait::kReceive;
    rnr_tries_ = 0;
  } else if (now < rnr_expiry_) {
    *again = rnr_expiry_;  // tried before its time, which is free
    return false;
  } else {
    ++rnr_tries_;
  }
  rnr_expiry_ = now + timer;
  *again = rnr_expiry_;
  return rnr_retry_ != 7 && rnr_tries_ >= rnr_retry_;
}

}  // namespace ringpipe::verbs::soft
