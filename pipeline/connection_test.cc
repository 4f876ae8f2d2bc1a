// What connection.h promises, of each kind of connection: two ends of one in
// this process, driven by hand.
#include "pipeline/connection.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "gtest/gtest.h"
#include "pipeline/test_job.h"

namespace ringpipe {
namespace {

constexpr std::uint32_t kBytes = 512;
constexpr int kSlots = 64;

std::byte Pattern(std::uint64_t call, std::uint32_t message, int sender) {
  return static_cast<std::byte>(1 + (call * 31 + message * 7 + sender) % 250);
}

std::uint32_t BytesOf(std::uint32_t message) { return message * 13 % kBytes; }

// One rank of two.
class End final : public Connection::Events {
 public:
  End(TestJob& job, int rank, std::uint64_t seed)
      : executor_(job.executor(rank)),
        check_(job.check(rank)),
        rank_(rank),
        connection_(*executor_.transports().connection(1 - rank)),
        transport_(executor_.transports().TransportTo(1 - rank)),
        random_(seed) {
    EXPECT_TRUE(executor_.pool().UseLong().ok());
    handle_ = transport_.HandleOf(executor_.pool());
    for (int slot = 0; slot < kSlots; ++slot) {
      (slot % 2 == 0 ? sources_free_ : targets_free_).push_back(slot);
    }
  }

  Connection& connection() { return connection_; }
  Transport& transport() { return transport_; }
  bool Flip() { return random_() % 2 == 0; }

  // With `sends` messages to the peer and `receives` from it.
  void Begin(const Digest& digest, std::uint32_t sends, std::uint32_t receives,
             bool eager = false) {
    digest_ = digest;
    sends_ = sends;
    receives_ = receives;
    sent_ = freed_ = expected_ = arrived_ = 0;
    eager_ = eager;
    check_.Begin(digest_);
    connection_.Begin({&digest_, sends > 0, receives > 0, eager});
    begun_ = transport_.Begin(digest_.sequence);
  }

  bool done() const {
    return connection_.agreed() && freed_ == sends_ && arrived_ == receives_;
  }
  std::uint32_t sent() const { return sent_; }
  std::uint32_t arrived() const { return arrived_; }

  // Does some of what it may do; `sends`: also messages.
  Status Act(bool sends = true) {
    RINGPIPE_RETURN_IF_ERROR(begun_);
    RINGPIPE_RETURN_IF_ERROR(transport_.Poll(*this).status());
    if (expected_ < receives_ && !targets_free_.empty() &&
        connection_.CanExpect() && Flip()) {
      ExpectNext();
    }
    RINGPIPE_RETURN_IF_ERROR(connection_.Progress(*this).status());
    if (sends && sent_ < sends_ && Flip() && !sources_free_.empty()) {
      RINGPIPE_ASSIGN_OR_RETURN(const bool can, connection_.CanSend());
      if (can) {
        RINGPIPE_RETURN_IF_ERROR(SendNext());
        RINGPIPE_RETURN_IF_ERROR(connection_.Progress(*this).status());
      }
    }
    return sends ? ReleaseSome() : Status::Ok();
  }
  void EndCall() { transport_.End(); }

  void ExpectNext() {
    const std::uint32_t number = expected_++;
    // Where the connection reads the peer, a message may stay there.
    const bool stays = connection_.abilities().reads_peer && Flip();
    const int slot = stays ? -1 : TakeTarget();
    targets_[number] = slot;
    connection_.Expect({0, number}, stays ? Memory() : Slot(slot, kBytes));
  }

  Memory Slot(int slot, std::uint32_t bytes) const {
    return {executor_.pool().data(slot), bytes, handle_};
  }
  int TakeTarget() { return TakeFrom(targets_free_); }

 private:
  static int TakeFrom(std::vector<int>& free) {
    const int slot = free.back();
    free.pop_back();
    return slot;
  }

  Status SendNext() {
    const std::uint32_t number = sent_++;
    const int slot = TakeFrom(sources_free_);
    const Memory source = Slot(slot, BytesOf(number));
    std::memset(source.data,
                static_cast<int>(Pattern(digest_.sequence, number, rank_)),
                kBytes);
    sources_[number] = slot;
    RINGPIPE_ASSIGN_OR_RETURN(const bool free,
                              connection_.Send({1, number}, source));
    return free ? Sent({1, number}) : Status::Ok();
  }

  // Whoever is told so writes there at once.
  Status Sent(Instance instance) override {
    EXPECT_EQ(instance.lane, 1U);
    const auto source = sources_.find(instance.step);
    if (source == sources_.end()) {
      ADD_FAILURE() << "message " << instance.step << " was freed twice";
      return Status::Ok();
    }
    std::memset(executor_.pool().data(source->second), 0xFF, kBytes);
    sources_free_.push_back(source->second);
    sources_.erase(source);
    ++freed_;
    return Status::Ok();
  }

  Status Arrived(Instance instance, const std::byte* data,
                 std::uint32_t bytes) override {
    EXPECT_EQ(instance.lane, 0U);
    const auto target = targets_.find(instance.step);
    if (target == targets_.end()) {
      ADD_FAILURE() << "message " << instance.step << " arrived twice";
      return Status::Ok();
    }
    EXPECT_EQ(bytes, BytesOf(instance.step));
    const std::byte pattern =
        Pattern(digest_.sequence, instance.step, 1 - rank_);
    EXPECT_EQ(std::count(data, data + bytes, pattern), bytes)
        << "call " << digest_.sequence << ", message " << instance.step;
    if (target->second >= 0) {
      EXPECT_EQ(data, executor_.pool().data(target->second));
      targets_free_.push_back(target->second);
      ++arrived_;
    } else {
      lies_at_peer_[instance.step] = data;
    }
    targets_.erase(target);
    return Status::Ok();
  }

  // It has to be there until then.
  Status ReleaseSome() {
    while (!lies_at_peer_.empty() && Flip()) {
      const auto [number, data] = *lies_at_peer_.begin();
      if (BytesOf(number) > 0) {
        EXPECT_EQ(*data, Pattern(digest_.sequence, number, 1 - rank_));
      }
      lies_at_peer_.erase(number);
      RINGPIPE_RETURN_IF_ERROR(connection_.Release({0, number}));
      ++arrived_;
    }
    return Status::Ok();
  }

  Executor& executor_;
  CallCheck& check_;
  const int rank_;
  Connection& connection_;
  Transport& transport_;
  std::mt19937_64 random_;
  MemoryHandle handle_ = nullptr;
  // Slots. They are two kinds, so that neither direction waits for the other.
  std::vector<int> sources_free_;
  std::vector<int> targets_free_;

  // The call.
  Digest digest_;
  Status begun_;
  bool eager_ = false;
  std::uint32_t sends_ = 0, receives_ = 0;
  std::uint32_t sent_ = 0, freed_ = 0, expected_ = 0, arrived_ = 0;
  std::map<std::uint32_t, int> sources_;  // slots, by message
  std::map<std::uint32_t, int> targets_;  // -1: none
  std::map<std::uint32_t, const std::byte*> lies_at_peer_;
};

struct Case {
  const char* name;
  Way way;
  int seed;  // 0: nothing is adversarial
};

class ConnectionTest : public ::testing::TestWithParam<Case> {
 protected:
  ConnectionTest()
      : job_({.size = 2,
              .slots = kSlots,
              .seed = GetParam().seed,
              .way = GetParam().way,
              .abilities =
                  [](int, int) {
                    const auto seed =
                        static_cast<std::uint32_t>(GetParam().seed);
                    return Abilities{.reads_peer = seed % 2 == 0,
                                     .pieces = 1,
                                     .eager_bytes = 4096};
                  }}),
        a_(job_, 0, GetParam().seed),
        b_(job_, 1, GetParam().seed + 1) {}

  // Both ends act until `done`.
  void Drive(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(60));
    while (!done()) {
      ASSERT_FALSE(deadline.expired());
      for (End* const end : {&a_, &b_}) {
        const Status status = end->Act();
        ASSERT_TRUE(status.ok()) << status.ToString();
      }
    }
  }
  bool AllDone() { return a_.done() && b_.done(); }

  TestJob job_;
  End a_;
  End b_;
};

TEST_P(ConnectionTest, MessagesArriveInOrderWithWhatTheyHeldWhenTheyWereSent) {
  a_.Begin({.sequence = 0}, 200, 150);
  b_.Begin({.sequence = 0}, 150, 200);
  Drive([&] { return AllDone(); });
}

// An end may begin the next call when its own is done.
TEST_P(ConnectionTest, EachCallGetsItsOwnMessages) {
  constexpr std::uint64_t kCalls = 60;
  std::uint64_t calls_of_a = 0;
  std::uint64_t calls_of_b = 0;
  const auto begin = [](End& end, std::uint64_t call, bool is_a) {
    const std::uint32_t there = call % 4;
    const std::uint32_t back = call % 3;
    end.Begin({.sequence = call}, is_a ? there : back, is_a ? back : there);
  };
  begin(a_, 0, true);
  begin(b_, 0, false);
  Drive([&] {
    if (a_.done() && calls_of_a < kCalls) {
      a_.EndCall();
      begin(a_, ++calls_of_a, true);
    }
    if (b_.done() && calls_of_b < kCalls) {
      b_.EndCall();
      begin(b_, ++calls_of_b, false);
    }
    return calls_of_a == kCalls && calls_of_b == kCalls && AllDone();
  });
}

TEST_P(ConnectionTest, FirstMessagesBringEagerOnesAlong) {
  for (std::uint64_t call = 0; call < 30; ++call) {
    a_.Begin({.sequence = call}, 3, call % 2, /*eager=*/true);
    b_.Begin({.sequence = call}, call % 2, 3, /*eager=*/true);
    Drive([&] { return AllDone(); });
    a_.EndCall();
    b_.EndCall();
  }
}

TEST_P(ConnectionTest, ACallCanBeAnnouncedBeforeItsEagerMessage) {
  a_.Begin({.sequence = 0}, 1, 0, /*eager=*/true);
  b_.Begin({.sequence = 0}, 0, 1, /*eager=*/true);
  EXPECT_TRUE(a_.connection().holds_back());
  ASSERT_TRUE(a_.connection().Announce().ok());
  EXPECT_FALSE(a_.connection().holds_back());
  const Deadline deadline = Deadline::After(std::chrono::seconds(60));
  while (!a_.connection().agreed() || !b_.connection().agreed()) {
    ASSERT_FALSE(deadline.expired());
    ASSERT_TRUE(a_.Act(/*sends=*/false).ok());
    ASSERT_TRUE(b_.Act(/*sends=*/false).ok());
  }
  EXPECT_EQ(b_.arrived(), 0U);
  Drive([&] { return AllDone(); });
}

// Whatever comes with the first message comes in vain.
TEST_P(ConnectionTest, TwoCallsAreAMismatchAtBothEnds) {
  a_.Begin({.sequence = 0, .count = 10}, 1, 1);
  b_.Begin({.sequence = 0, .count = 11}, 1, 1);
  for (End* const end : {&a_, &b_}) {
    End* const other = end == &a_ ? &b_ : &a_;
    const Deadline deadline = Deadline::After(std::chrono::seconds(60));
    Status status;
    while (status.ok()) {
      ASSERT_FALSE(deadline.expired());
      static_cast<void>(other->connection().Progress(*other));
      status = end->Act();
    }
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.ToString();
    EXPECT_FALSE(end->connection().agreed());
    EXPECT_EQ(end->arrived(), 0U);
  }
}

// Although the peer has learnt where its message was wanted.
TEST_P(ConnectionTest, AfterFlushNobodyWritesToMemory) {
  a_.Begin({.sequence = 0}, 0, 1);
  b_.Begin({.sequence = 0}, 1, 0);
  const Memory target = a_.Slot(a_.TakeTarget(), kBytes);
  const Deadline deadline = Deadline::After(std::chrono::seconds(60));
  while (!a_.connection().agreed() || !b_.connection().agreed() ||
         !a_.connection().CanExpect()) {
    ASSERT_FALSE(deadline.expired());
    ASSERT_TRUE(a_.transport().Poll(a_).ok());
    ASSERT_TRUE(a_.connection().Progress(a_).ok());
    ASSERT_TRUE(b_.Act(/*sends=*/false).ok());
  }
  a_.connection().Expect({0, 0}, target);
  ASSERT_TRUE(a_.connection().Progress(a_).ok());
  a_.transport().Stop();
  EXPECT_TRUE(a_.transport().Flush(Deadline::After(std::chrono::seconds(20))));
  std::memset(target.data, 0x3C, kBytes);
  for (int i = 0; i < 100 && b_.Act().ok(); ++i) {
  }
  EXPECT_EQ(std::count(target.data, target.data + kBytes, std::byte{0x3C}),
            kBytes);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int seed : {0, 1, 2}) {
    cases.push_back({"rails", Way::kRails, seed});
  }
  cases.push_back({"host_memory", Way::kHostMemory, 1});
  cases.push_back({"host_memory", Way::kHostMemory, 2});
  for (int seed = 1; seed <= 12; ++seed) {
    cases.push_back({"test_network", Way::kTestNetwork, seed});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Kinds, ConnectionTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return std::string(info.param.name) + "_seed" +
                                  std::to_string(info.param.seed);
                         });

}  // namespace
}  // namespace ringpipe
