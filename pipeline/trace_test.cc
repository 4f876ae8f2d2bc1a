#include "pipeline/trace.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "pipeline/call_trace.h"

namespace ringpipe {
namespace {

using std::chrono::nanoseconds;

TraceEvent Numbered(std::uint64_t number) {
  TraceEvent event;
  event.call = event.bytes = event.subchunk = event.detail = number;
  event.begin_ns = event.end_ns = static_cast<std::int64_t>(number);
  event.step = event.message = static_cast<std::uint32_t>(number);
  event.peer = static_cast<std::int32_t>(number);
  return event;
}

Clock::time_point At(int ns) { return Clock::time_point(nanoseconds(ns)); }

TEST(TraceTest, IsEmptyAtFirst) {
  const Trace trace(4);
  EXPECT_TRUE(trace.Read().events.empty());
  EXPECT_EQ(trace.Read().dropped, 0u);
}

TEST(TraceTest, KeepsTheLastEventsAndCountsTheOthers) {
  Trace trace(3);
  for (std::uint64_t number = 0; number < 5; ++number) {
    trace.Record(Numbered(number));
    const Trace::Contents contents = trace.Read();
    const std::size_t kept = std::min<std::uint64_t>(number + 1, 3);
    ASSERT_EQ(contents.events.size(), kept);
    EXPECT_EQ(contents.dropped, number + 1 - kept);
    for (std::size_t i = 0; i < kept; ++i) {
      EXPECT_EQ(contents.events[i], Numbered(contents.dropped + i));
    }
  }
}

TEST(TraceTest, AReaderGetsWholeEventsInOrderWhileAnotherThreadRecords) {
  Trace trace(16);
  std::atomic<bool> stop = false;
  std::thread recorder([&] {
    for (std::uint64_t number = 0; !stop; ++number) {
      trace.Record(Numbered(number));
    }
  });
  for (int reads = 0; reads < 20'000; ++reads) {
    const Trace::Contents contents = trace.Read();
    for (std::size_t i = 0; i < contents.events.size(); ++i) {
      ASSERT_EQ(contents.events[i], Numbered(contents.dropped + i));
    }
  }
  stop = true;
  recorder.join();
}

TEST(TraceTest, EveryTrackHasAName) {
  for (int track = 0; track < kTraceTracks; ++track) {
    EXPECT_STRNE(Name(static_cast<TraceTrack>(track)), "unknown");
  }
  EXPECT_STREQ(Name(static_cast<TraceTrack>(kTraceTracks)), "unknown");
}

TEST(TraceEventTest, ACallKeepsItsDigest) {
  const Digest digest = {.sequence = 1ULL << 40,
                         .count = 1ULL << 50,
                         .collective = 3,
                         .algorithm = 7'000,
                         .type = 9,
                         .op = 4,
                         .subchunk_elements = 1U << 31,
                         .root = 65'535,
                         .depth = 64};
  EXPECT_EQ(TraceEvent::ForCall(digest).digest(), digest);
  Digest with_counts = digest;
  with_counts.counts = 0x123456789abcdef0;
  EXPECT_GT(TraceEvent::ForCall(with_counts).digest().counts, Digest::kOfPairs);
  with_counts.counts = Digest::kOfPairs;
  EXPECT_EQ(TraceEvent::ForCall(with_counts).digest().counts, Digest::kOfPairs);
  EXPECT_EQ(TraceEvent::ForCall(with_counts).digest().depth, digest.depth);
}

class CallTraceTest : public ::testing::Test {
 protected:
  std::vector<TraceEvent> events() const { return trace_.Read().events; }

  Trace trace_{16};
  CallTrace call_{trace_, 3};
};

TEST_F(CallTraceTest, WorkOnATrackBeginsWhenTheWorkBeforeItEnds) {
  call_.Work(TraceTrack::kReduce, {.step = 1}, At(10), At(20));
  call_.Work(TraceTrack::kReduce, {.step = 2}, At(15), At(40));
  call_.Work(TraceTrack::kCopyIn, {.step = 3}, At(12), At(30));
  ASSERT_EQ(events().size(), 3u);
  EXPECT_EQ(events()[1].begin_ns, 20);
  EXPECT_EQ(events()[1].end_ns, 40);
  EXPECT_EQ(events()[2].begin_ns, 12) << "another track";
}

TEST_F(CallTraceTest, MessagesAreNumberedByPeerAndDirectionFromZeroInEachCall) {
  for (std::uint64_t call = 0; call < 2; ++call) {
    Digest digest;
    digest.sequence = call;
    call_.Begin(digest);
    call_.MakeRoom(4);
    call_.MessageBegins(TraceTrack::kSend, 0, 1);
    call_.MessageBegins(TraceTrack::kSend, 1, 1);
    call_.MessageBegins(TraceTrack::kSend, 2, 2);
    call_.MessageBegins(TraceTrack::kReceive, 3, 1);
    call_.MessageEnds(TraceTrack::kSend, 1, {.peer = 1});
    call_.MessageEnds(TraceTrack::kSend, 0, {.peer = 1});
    call_.MessageEnds(TraceTrack::kSend, 2, {.peer = 2});
    call_.MessageEnds(TraceTrack::kReceive, 3, {.peer = 1, .bytes = 7});
  }
  ASSERT_EQ(events().size(), 8u);
  const std::uint32_t expected[] = {1, 0, 0, 0};
  for (std::size_t i = 0; i < 8; ++i) {
    const TraceEvent event = events()[i];
    EXPECT_EQ(event.message, expected[i % 4]) << i;
    EXPECT_EQ(event.call, i / 4);
    EXPECT_GT(event.begin_ns, 0);
    EXPECT_LE(event.begin_ns, event.end_ns);
  }
  EXPECT_EQ(events()[7].bytes, 7u);
}

TEST_F(CallTraceTest, AWaitDoesNotBeginBeforeItsCall) {
  call_.Begin({});
  const Clock::time_point now = Clock::now();
  call_.Waited(TraceTrack::kReceive, At(1), now);
  call_.End(false);
  ASSERT_EQ(events().size(), 2u);
  EXPECT_EQ(events()[0].begin_ns, events()[1].begin_ns);
  EXPECT_EQ(events()[0].waits_for, TraceTrack::kReceive);
  EXPECT_TRUE(events()[1].failed);
}

}  // namespace
}  // namespace ringpipe
