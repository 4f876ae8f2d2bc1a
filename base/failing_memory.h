// Memory that runs out where a test wants it to: operator new is this library's
// in a test that links it.
#ifndef RINGPIPE_BASE_FAILING_MEMORY_H_
#define RINGPIPE_BASE_FAILING_MEMORY_H_

#include <string>

#include "base/status.h"
#include "gtest/gtest.h"

namespace ringpipe {

// From now on, this thread's allocation number `which`, counted from 0, fails,
// and with `for_good` all after it too.
void FailAllocation(long which, bool for_good = false);
// Ends that; whether one has failed.
bool StopFailingAllocations();

// Asks `fails` about every allocation of every thread, too: true lets it fail.
// It must not allocate. Once, before there are other threads.
void SetAllocationFailure(bool (*fails)());

// Runs `f`, whose allocation number `which` fails; whether there was one.
template <typename F>
bool FailOne(long which, F f) {
  FailAllocation(which);
  f();
  return StopFailingAllocations();
}

// The same where no allocation succeeds any more after that.
template <typename F>
bool FailAllFrom(long which, F f) {
  FailAllocation(which, /*for_good=*/true);
  f();
  return StopFailingAllocations();
}

inline StatusCode CodeOf(const Status& status) { return status.code(); }
inline StatusCode CodeOf(StatusCode code) { return code; }
inline std::string InWords(const Status& status) { return status.ToString(); }
inline std::string InWords(StatusCode /*code*/) { return "in C"; }

// Runs `f`, which returns a Status or its code, until none of its allocations
// fails; expects kResourceExhausted as long as one does.
template <typename F>
void FailEach(F f) {
  constexpr long kMost = 5'000;  // nothing that is tried has as many
  bool failed = true;
  long which = 0;
  for (; failed && which < kMost; ++which) {
    decltype(f()) result{};
    failed = FailOne(which, [&] { result = f(); });
    EXPECT_EQ(CodeOf(result),
              failed ? StatusCode::kResourceExhausted : StatusCode::kOk)
        << "allocation " << which << ": " << InWords(result);
  }
  EXPECT_GT(which, 1);
  EXPECT_LT(which, kMost);
}

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_FAILING_MEMORY_H_
