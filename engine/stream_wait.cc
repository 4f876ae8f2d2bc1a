#include "engine/stream_wait.h"

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/while_waiting.h"

namespace ringpipe {
namespace {

constexpr std::chrono::nanoseconds kFirstSleep(50'000);
constexpr std::chrono::nanoseconds kLongestSleep(1'000'000);

bool Expired(const Timing& timing) {
  return timing.deadline.expired() ||
         (timing.earliest_deadline != nullptr &&
          Deadline::At(timing.earliest_deadline->load()).expired());
}

// Until the call is aborted, for so long. Whether a signal has come.
Result<bool> Sleep(const AbortSignal& abort, std::uint64_t call,
                   std::chrono::nanoseconds time) {
  abort.Rearm(call);
  pollfd heard = {abort.fd(), POLLIN, 0};
  const timespec timeout = {0, time.count()};
  const int ready = ppoll(&heard, 1, &timeout, nullptr);
  if (!abort.is_intact()) {
    return DescriptorsClosed();
  }
  return ready < 0;
}

}  // namespace

Status AwaitStream(StreamMark& mark, const AbortSignal& abort, int rank,
                   const Timing& timing) {
  for (auto sleep = kFirstSleep;; sleep = std::min(2 * sleep, kLongestSleep)) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool passed, mark.Passed());
    if (passed) {
      return Status::Ok();
    }
    if (abort.raised(timing.sequence)) {
      return abort.reason(timing.sequence);
    }
    if (Expired(timing)) {
      return {
          StatusCode::kTimeout,
          "rank " + std::to_string(rank) +
              " did not begin by the deadline: its stream had not done what "
              "it was given before the call; give the call more time, or "
              "wait for the stream first"};
    }
    RINGPIPE_ASSIGN_OR_RETURN(const bool interrupted,
                              Sleep(abort, timing.sequence, sleep));
    if (BlockingCall::EndsAfterPoll(interrupted)) {
      return EndedByCaller(rank, "a call that waited for its stream");
    }
  }
}

}  // namespace ringpipe
