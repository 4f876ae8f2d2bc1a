#ifndef RINGPIPE_VERBS_SOFT_RETRIES_H_
#define RINGPIPE_VERBS_SOFT_RETRIES_H_

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/deadline.h"
#include "verbs/soft/operation.h"

namespace ringpipe::verbs::soft {

// The retries of the oldest request of a requester: how long it may go without
// an answer, and how often without a receive. Not thread-safe.
class Retries {
 public:
  // At RTS, in ibv_qp_attr's encodings. As on adapters, a shorter time than
  // 67 ms for one try (timeout 14) is that.
  void Set(int timeout, int retry_count, int rnr_retry);

  // How long the oldest request may go without an answer; zero: for ever.
  Clock::duration transport_timeout() const { return transport_timeout_; }

  // The oldest request got on.
  void Clear();

  // It could not: whether that is final, and if so by which status; else when
  // to try again. `step` is kNotReady or kNoReceive, `min_rnr_timer` the
  // responder's.
  bool Exhausted(Step step, std::uint32_t min_rnr_timer, Clock::time_point now,
                 ibv_wc_status* status, Clock::time_point* again);

 private:
  enum class Wait { kNone, kTransport, kReceive };

  bool TransportExhausted(Clock::time_point now, Clock::time_point* again);
  bool ReceiverExhausted(std::uint32_t min_rnr_timer, Clock::time_point now,
                         Clock::time_point* again);

  Clock::duration transport_timeout_{};  // zero: for ever
  int rnr_retry_ = 7;                    // 7: for ever
  Wait wait_ = Wait::kNone;
  Clock::time_point since_{};
  Clock::duration interval_{};
  Clock::time_point rnr_expiry_{};
  int rnr_tries_ = 0;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_RETRIES_H_
