// Two ends of a connection in this process, driven by hand.
#include "pipeline/host/host_connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "pipeline/host/host_transport.h"
#include "pipeline/host/region_memory.h"

namespace {

thread_local bool allocations_fail = false;

}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocations_fail ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}

void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) {
    return memory;
  }
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ringpipe {
namespace {

constexpr std::uint32_t kBytes = 256;

std::string Describe(const Digest& digest) {
  return "call " + std::to_string(digest.count);
}

// What has happened at one end.
struct Events final : Connection::Events {
  struct Arrival {
    Instance instance;
    const std::byte* data;
    std::uint32_t bytes;
  };
  Status Arrived(Instance instance, const std::byte* data,
                 std::uint32_t bytes) override {
    arrived.push_back({instance, data, bytes});
    return Status::Ok();
  }
  Status Sent(Instance instance) override {
    sent.push_back(instance);
    return Status::Ok();
  }
  std::deque<Arrival> arrived;
  std::deque<Instance> sent;
};

// One rank.
struct End {
  explicit End(int its_rank, int size)
      : rank(its_rank), check(rank, &Describe) {
    HostTransport::Options options;
    options.rank = rank;
    options.size = size;
    options.local.assign(size, true);
    options.job_key = "a job of tests";
    options.check = &check;
    region = HostTransport::CreateRegion(rank, size).value();
    transport = HostTransport::Create(options, region).value();
    memory = std::make_shared<RegionMemory>(region);
    slots = memory->Allocate(std::size_t{kBytes} * kSlots).value();
  }

  HostConnection& to(int peer) {
    return static_cast<HostConnection&>(*transport->connection(peer));
  }
  Memory Slot(std::uint32_t slot) const {
    return {slots.data() + std::size_t{slot} * kBytes, kBytes, nullptr};
  }
  RegionHeader& header() { return RegionHeader::Of(*region); }
  void Begin(std::uint64_t sequence, const std::vector<int>& peers,
             std::uint64_t count = 0) {
    digest = {.sequence = sequence, .count = count};
    check.Begin(digest);
    for (const int peer : peers) {
      to(peer).Begin({&digest, true, true, false});
    }
    EXPECT_TRUE(transport->Begin(sequence).ok());
    for (const int peer : peers) {
      const Status progressed = to(peer).Progress(events).status();
      EXPECT_TRUE(progressed.ok() || progressed.code() == StatusCode::kMismatch)
          << progressed.ToString();
      error = error.ok() ? progressed : error;
    }
  }
  // What has come, or the error that Begin has met.
  Result<bool> Poll() {
    return error.ok() ? transport->Poll(events) : Result<bool>(error);
  }
  // Whether nobody uses its memory any more, of which a call has had some.
  bool Leave(Deadline deadline) {
    EXPECT_TRUE(transport->ReachOf({slots.data(), kBytes, true}).ok());
    transport->Stop();
    return transport->Flush(deadline);
  }
  bool IsWoken() const {
    pollfd wakes = transport->descriptors()[0];
    return poll(&wakes, 1, 0) == 1;
  }

  static constexpr std::uint32_t kSlots = 256;
  const int rank;
  CallCheck check;
  Digest digest;
  Status error;
  std::shared_ptr<Region> region;
  std::unique_ptr<HostTransport> transport;
  std::shared_ptr<RegionMemory> memory;
  Allocation slots;
  Events events;
};

class HostConnectionTest : public ::testing::Test {
 protected:
  void SetUp() override { Connect(2); }

  void Connect(int size) {
    ends_.clear();
    for (int rank = 0; rank < size; ++rank) {
      ends_.push_back(std::make_unique<End>(rank, size));
    }
    std::vector<std::thread> threads;
    for (const auto& end : ends_) {
      threads.emplace_back([&] {
        std::vector<std::string> addresses;
        for (const auto& other : ends_) {
          addresses.push_back(
              other == end ? "" : other->transport->AddressFor(end->rank));
        }
        const Status status = end->transport->Connect(
            addresses, Deadline::After(std::chrono::seconds(20)), -1);
        EXPECT_TRUE(status.ok()) << status.ToString();
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  End& a() { return *ends_[0]; }
  End& b() { return *ends_[1]; }

  void BeginBoth(std::uint64_t sequence) {
    a().Begin(sequence, {1});
    b().Begin(sequence, {0});
    ASSERT_TRUE(a().Poll().ok());
    ASSERT_TRUE(b().Poll().ok());
    ASSERT_TRUE(a().to(1).agreed());
    ASSERT_TRUE(b().to(0).agreed());
  }

  std::vector<std::unique_ptr<End>> ends_;
};

TEST_F(HostConnectionTest, AMessageIsReadWhereItLiesAndHeldUntilThen) {
  BeginBoth(0);
  b().to(0).Expect({0, 7}, {});
  std::memset(a().Slot(3).data, 42, kBytes);
  ASSERT_TRUE(a().to(1).CanSend().value());
  EXPECT_FALSE(a().to(1).Send({1, 2}, a().Slot(3)).value());
  EXPECT_TRUE(b().Poll().value());
  ASSERT_EQ(b().events.arrived.size(), 1U);
  EXPECT_EQ(b().events.arrived[0].instance, (Instance{0, 7}));
  EXPECT_EQ(b().events.arrived[0].data, a().Slot(3).data);
  EXPECT_EQ(b().events.arrived[0].bytes, kBytes);
  a().Poll().value();
  EXPECT_TRUE(a().events.sent.empty());
  EXPECT_TRUE(a().to(1).sending());
  EXPECT_TRUE(b().to(0).Release({0, 7}).ok());
  EXPECT_TRUE(a().Poll().value());
  EXPECT_EQ(a().events.sent.front(), (Instance{1, 2}));
  EXPECT_FALSE(a().to(1).sending());
  EXPECT_FALSE(b().to(0).Release({0, 7}).ok());
}

TEST_F(HostConnectionTest, AMessageGoesIntoItsTargetAndIsFreeAtOnce) {
  BeginBoth(0);
  b().to(0).Expect({0, 7}, b().Slot(5));
  std::memset(a().Slot(3).data, 42, kBytes);
  ASSERT_TRUE(a().to(1).CanSend().value());
  EXPECT_TRUE(a().to(1).Send({1, 2}, a().Slot(3)).value());
  std::memset(a().Slot(3).data, 0, kBytes);
  EXPECT_TRUE(b().Poll().value());
  ASSERT_EQ(b().events.arrived.size(), 1U);
  EXPECT_EQ(b().events.arrived[0].data, b().Slot(5).data);
  EXPECT_EQ(b().Slot(5).data[kBytes - 1], std::byte{42});
}

TEST_F(HostConnectionTest, NothingGoesBeforeItIsExpectedOnceThePeerHasBegun) {
  BeginBoth(0);
  EXPECT_FALSE(a().to(1).CanSend().value());
  EXPECT_FALSE(a().Poll().value());
  b().to(0).Expect({0, 0}, {});
  EXPECT_TRUE(a().Poll().value());  // it may go on
  EXPECT_TRUE(a().to(1).CanSend().value());
}

TEST_F(HostConnectionTest, BeforeThePeerHasBegunAMessageWaitsWhereItLies) {
  a().Begin(0, {1});
  ASSERT_TRUE(a().to(1).CanSend().value());
  EXPECT_FALSE(a().to(1).Send({0, 0}, a().Slot(3)).value());
  std::memset(a().Slot(3).data, 42, kBytes);
  b().Begin(0, {0});
  b().to(0).Expect({0, 1}, b().Slot(9));
  EXPECT_TRUE(b().Poll().value());
  ASSERT_EQ(b().events.arrived.size(), 1U);
  EXPECT_EQ(b().Slot(9).data[0], std::byte{42});
  EXPECT_TRUE(a().Poll().value());
  EXPECT_EQ(a().events.sent.size(), 1U);
}

TEST_F(HostConnectionTest, AnotherCallIsAMismatchAtBothEnds) {
  a().Begin(0, {1}, 10);
  b().Begin(0, {0}, 11);
  for (End* end : {&a(), &b()}) {
    const auto polled = end->Poll();
    EXPECT_EQ(polled.status().code(), StatusCode::kMismatch);
    EXPECT_NE(polled.status().message().find("call 10"), std::string::npos);
    EXPECT_NE(polled.status().message().find("call 11"), std::string::npos);
  }
}

// Two ranks go on with calls in which the third has no part, and do not wait
// until it has read what they say of them.
TEST_F(HostConnectionTest, WhoReadsWhatIsBeingOverwrittenSeesTheMismatch) {
  Connect(3);
  End& c = *ends_[2];
  std::atomic<bool> done = false;
  std::thread others([&] {
    for (std::uint64_t call = 0; !done; ++call) {
      b().Begin(call, {2}, 2 * call + 1);
      c.Begin(call, {1}, 2 * call + 1);
      while (!b().to(2).agreed() || !c.to(1).agreed()) {
        EXPECT_TRUE(b().Poll().ok() && c.Poll().ok());
      }
    }
  });
  std::uint64_t last = 0;
  const Deadline end = Deadline::After(std::chrono::seconds(2));
  for (int tries = 0; tries < 20'000 && !end.expired();) {
    if (const std::uint64_t begun = b().header().begun.load(); begun > last) {
      last = begun;
      ++tries;
      a().error = Status::Ok();
      a().Begin(begun - 1, {1}, 2);  // expects nothing but a mismatch
    }
  }
  done = true;
  others.join();
}

// Far more messages than places, some put into targets, some read where they
// lie, some before the peer has begun; given back in any order. Each arrives
// once, in order of the stream, with what was sent; each source is free once.
TEST_F(HostConnectionTest, StreamsOutliveTheirWindow) {
  std::mt19937 random(3);
  std::uint32_t sent = 0;
  std::uint32_t expected = 0;
  std::uint32_t arrived = 0;
  std::uint32_t freed = 0;
  std::vector<Instance> held;
  for (std::uint64_t call = 0; call < 40; ++call) {
    const std::uint32_t end = sent + 1 + random() % 150;
    const bool targets = random() % 2 == 0;
    a().Begin(call, {1});
    bool begun = false;
    while (freed < end || arrived < end) {
      const unsigned what = random() % 5;
      if (what == 0 && sent < end && sent - freed < 200 &&
          a().to(1).CanSend().value()) {
        const Memory slot = a().Slot(sent % End::kSlots);
        std::memcpy(slot.data, &sent, sizeof sent);
        const Instance instance = {sent % 7, sent};
        if (a().to(1).Send(instance, slot).value()) {
          ++freed;
          std::memset(slot.data, 0xA5, kBytes);
        }
        ++sent;
      } else if (what == 1 && !begun) {
        b().Begin(call, {0});
        begun = true;
      } else if (what == 1 && expected < end && b().to(0).CanExpect()) {
        const bool target = targets || random() % 8 == 0;
        b().to(0).Expect({expected % 7, expected},
                         target ? b().Slot(expected % End::kSlots) : Memory());
        ++expected;
      } else if (what == 2 && begun) {
        ASSERT_TRUE(b().Poll().ok());
        for (const Events::Arrival& arrival : b().events.arrived) {
          ASSERT_EQ(arrival.instance, (Instance{arrived % 7, arrived}));
          std::uint32_t value = 0;
          std::memcpy(&value, arrival.data, sizeof value);
          ASSERT_EQ(value, arrived);
          if (arrival.data != b().Slot(arrived % End::kSlots).data) {
            held.push_back(arrival.instance);
          }
          ++arrived;
        }
        b().events.arrived.clear();
      } else if (what == 3 && !held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        ASSERT_TRUE(b().to(0).Release(held.back()).ok());
        held.pop_back();
      } else if (what == 4) {
        ASSERT_TRUE(a().Poll().ok());
        for (const Instance instance : a().events.sent) {
          std::memset(a().Slot(instance.step % End::kSlots).data, 0xA5, kBytes);
          ++freed;
        }
        a().events.sent.clear();
      }
      ASSERT_LE(freed, sent);
    }
    ASSERT_EQ(arrived, end);
    if (!begun) {
      b().Begin(call, {0});
    }
    ASSERT_TRUE(a().Poll().ok());
    ASSERT_TRUE(b().Poll().ok());
  }
}

// Rank 1 has not begun call 0, which names it, when rank 0 comes to call 2,
// which does not: what rank 0 said of call 0 stays until rank 1 has read it.
TEST_F(HostConnectionTest, WhatARankSaidStaysUntilAllHaveReadIt) {
  Connect(3);
  End& c = *ends_[2];
  a().Begin(0, {1, 2});
  c.Begin(0, {0});
  for (const std::uint64_t call : {1U, 2U}) {
    a().Begin(call, {2});
    c.Begin(call, {0});
  }
  EXPECT_EQ(a().header().calls[1].call.load(), 1U);
  EXPECT_FALSE(a().Poll().value() && c.to(0).agreed());
  // It has heard of call 2, but has not said that it makes it.
  EXPECT_FALSE(a().to(2).agreed());
  b().Begin(0, {0});
  EXPECT_TRUE(b().to(0).agreed());
  ASSERT_TRUE(a().transport->Arm().ok());
  EXPECT_FALSE(a().IsWoken());
  b().Begin(1, {});  // it has begun a later call than 0, though with nobody
  EXPECT_TRUE(a().IsWoken());
  EXPECT_TRUE(a().Poll().value());
  EXPECT_TRUE(a().to(2).Progress(a().events).value());
  EXPECT_EQ(a().header().calls[1].call.load(), 3U);
}

// --- What a peer writes is not believed --------------------------------------

class HostilePeerTest : public HostConnectionTest {
 protected:
  void SetUp() override {
    HostConnectionTest::SetUp();
    BeginBoth(0);
  }
  // As b, for a.
  Inbox& inbox() { return a().header().inbox(1); }
  void ExpectNamed(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos);
  }
};

TEST_F(HostilePeerTest, AMessageOutsideOfItsMemoryIsAnError) {
  for (const std::uint64_t offset :
       {~std::uint64_t{0}, ~std::uint64_t{0} - 100, std::uint64_t{1} << 60}) {
    SetUp();
    a().to(1).Expect({0, 0}, {});
    inbox().messages[1].address = offset;
    inbox().messages[1].space = Space::kRegion;
    inbox().messages[1].bytes = 4096;
    inbox().messages[1].number = 1;
    ExpectNamed(a().Poll().status());
  }
}

TEST_F(HostilePeerTest, AMessageLongerThanItsTargetIsAnError) {
  for (const Space space :
       {Space::kRegion, Space::kSlot, Space::kTarget, Space::kNone}) {
    SetUp();
    a().to(1).Expect({0, 0}, a().Slot(0));
    inbox().messages[1].bytes = kBytes + 1;
    inbox().messages[1].space = space;
    inbox().messages[1].number = 1;
    ExpectNamed(a().Poll().status());
  }
}

TEST_F(HostilePeerTest, ATargetOutsideOfItsMemoryIsAnError) {
  inbox().targets[1].address = std::uint64_t{1} << 60;
  inbox().targets[1].space = Space::kRegion;
  inbox().targets[1].bytes = kBytes;
  inbox().targets[1].number = 1;
  ASSERT_TRUE(a().to(1).CanSend().value());
  ExpectNamed(a().to(1).Send({0, 0}, a().Slot(0)).status());
}

TEST_F(HostilePeerTest, ATargetThatIsTooShortIsAnError) {
  inbox().targets[1].address = 0;
  inbox().targets[1].space = Space::kRegion;
  inbox().targets[1].bytes = kBytes - 1;
  inbox().targets[1].number = 1;
  ASSERT_TRUE(a().to(1).CanSend().value());
  ExpectNamed(a().to(1).Send({0, 0}, a().Slot(0)).status());
}

TEST_F(HostilePeerTest, NumbersThatWereNeverGivenChangeNothing) {
  for (auto& word : inbox().released) {
    word = 77;
  }
  inbox().taken = ~std::uint64_t{0};
  for (auto& message : inbox().messages) {
    message.number = 99;
  }
  EXPECT_FALSE(a().Poll().value());
  EXPECT_FALSE(a().to(1).CanSend().value());
  EXPECT_TRUE(a().events.sent.empty());
}

// At worst nobody wakes this rank any more, which looks twice a second.
TEST_F(HostilePeerTest, WhatItDoesToTheSocketThatWakesBlocksNobody) {
  const int wake = b().to(0).other().end().wake.get();
  fcntl(wake, F_SETFL, 0);
  a().transport->ConsumeEvents();  // nothing is there
  while (send(wake, "", 1, MSG_DONTWAIT) == 1) {
  }
  ASSERT_TRUE(a().transport->Arm().ok());
  b().to(0).other().sleeper().Notify();
  EXPECT_TRUE(a().IsWoken());
  shutdown(wake, SHUT_RDWR);
  for (int sleep = 0; sleep < 1000 && a().IsWoken(); ++sleep) {
    a().transport->ConsumeEvents();
  }
  ASSERT_TRUE(a().transport->Arm().ok());
  b().to(0).other().sleeper().Notify();
  EXPECT_EQ(a().header().asleep.load(), 0U);
}

// --- Private memory ----------------------------------------------------------

TEST_F(HostConnectionTest, PrivateMemoryIsWrittenByItsOwnerAlone) {
  BeginBoth(0);
  std::vector<std::byte> target(kBytes);
  b().to(0).Expect({0, 0}, {target.data(), kBytes, nullptr});
  std::memset(a().Slot(0).data, 42, kBytes);
  ASSERT_TRUE(a().to(1).CanSend().value());
  EXPECT_FALSE(a().to(1).Send({0, 0}, a().Slot(0)).value());
  EXPECT_EQ(target[0], std::byte{0});
  ASSERT_TRUE(b().Poll().value());  // which copies it
  EXPECT_EQ(target[0], std::byte{42});
}

TEST_F(HostConnectionTest, AMessageInPrivateMemoryIsRefused) {
  BeginBoth(0);
  b().to(0).Expect({0, 0}, {});
  std::vector<std::byte> source(kBytes);
  ASSERT_TRUE(a().to(1).CanSend().value());
  EXPECT_EQ(a().to(1)
                .Send({0, 0}, Memory{source.data(), kBytes, nullptr})
                .status()
                .code(),
            StatusCode::kInternal);
}

// Nobody else can have written there.
TEST_F(HostConnectionTest, AWriterThatStaysDoesNotHoldPrivateMemory) {
  BeginBoth(0);
  std::vector<std::byte> target(kBytes);
  b().to(0).Expect({0, 0}, {target.data(), kBytes, nullptr});
  b().header().inbox(0).writing = 1;
  EXPECT_TRUE(b().Leave(Deadline::At(Clock::now())));
}

// --- The end -----------------------------------------------------------------

TEST_F(HostConnectionTest, AReasonReachesThePeerThroughMemoryAlone) {
  BeginBoth(0);
  EXPECT_TRUE(b().to(0).failure().ok());
  a().transport->Tell({StatusCode::kDeviceError, "rank 0: no\npower"}, 0);
  a().transport->Tell({StatusCode::kInternal, "another one, later"}, 0);
  const Status status = b().to(0).failure();
  EXPECT_EQ(status.code(), StatusCode::kDeviceError);
  EXPECT_EQ(status.message(), "rank 0: no?power");
}

TEST_F(HostConnectionTest, WhoLeavesAfterACallIsMissedInTheNext) {
  BeginBoth(0);
  a().transport->Tell({StatusCode::kPeerLost, "rank 0 has ended"}, 1);
  EXPECT_TRUE(b().to(0).failure().ok());
  BeginBoth(1);
  EXPECT_EQ(b().to(0).failure().message(), "rank 0 has ended");
}

TEST_F(HostConnectionTest, AReasonWakesWhoeverSleeps) {
  BeginBoth(0);
  ASSERT_TRUE(b().transport->Arm().ok());
  EXPECT_FALSE(b().IsWoken());
  a().transport->Tell({StatusCode::kInternal, std::string(10'000, 'x')}, 0);
  EXPECT_TRUE(b().IsWoken());
  b().transport->ConsumeEvents();
  EXPECT_FALSE(b().IsWoken());
  // As much as the bootstrap tells.
  EXPECT_EQ(b().to(0).failure().message().size(), 4096U);
}

TEST_F(HostConnectionTest, AReasonInAnyLanguageReachesThePeer) {
  const std::string reason = "rank 0: \xC3\xBC\xE4\xB8\xAD";
  BeginBoth(0);
  a().transport->Tell({StatusCode::kAborted, reason}, 0);
  EXPECT_EQ(b().to(0).failure().message(), reason);
}

TEST_F(HostConnectionTest, AfterFlushNobodyBeginsToWrite) {
  BeginBoth(0);
  b().to(0).Expect({0, 0}, b().Slot(0));
  EXPECT_TRUE(b().Leave(Deadline::After(std::chrono::milliseconds(100))));
  ASSERT_TRUE(a().to(1).CanSend().value());
  const auto sent = a().to(1).Send({0, 0}, a().Slot(1));
  EXPECT_EQ(sent.status().code(), StatusCode::kPeerLost);
  EXPECT_EQ(b().Slot(0).data[0], std::byte{0});
}

// Else the owner would wait for a writer that has given up, and take its memory
// back.
TEST_F(HostConnectionTest, AWriterWithoutMemoryToSayWhyDoesNotWriteOn) {
  std::vector<std::byte> elsewhere(kBytes);
  for (const bool shared : {true, false}) {
    Connect(2);
    BeginBoth(0);
    b().to(0).Expect({0, 0}, shared
                                 ? b().Slot(0)
                                 : Memory{elsewhere.data(), kBytes, nullptr});
    ASSERT_TRUE(a().to(1).CanSend().value());
    if (shared) {
      EXPECT_TRUE(b().Leave(Deadline::At(Clock::now())));
    } else {
      b().transport->End();  // its private memory is not given any more
    }
    allocations_fail = true;
    try {
      static_cast<void>(a().to(1).Send({0, 0}, a().Slot(1)));
      ADD_FAILURE() << "it says something";
    } catch (const std::bad_alloc&) {
      // As it is to be.
    }
    allocations_fail = false;
    EXPECT_FALSE(b().to(0).other().Writes());
  }
}

// What lies in the peer's memory may be its user's again, once it has failed.
TEST_F(HostConnectionTest, WhatIsReadOfAPeerThatHasFailedIsAnError) {
  BeginBoth(0);
  b().to(0).Expect({0, 0}, {});
  b().to(0).Expect({0, 1}, {});
  for (const std::uint32_t message : {0U, 1U}) {
    ASSERT_TRUE(a().to(1).CanSend().value());
    EXPECT_FALSE(a().to(1).Send({0, message}, a().Slot(message)).value());
  }
  ASSERT_TRUE(b().Poll().value());
  EXPECT_TRUE(b().to(0).Release({0, 0}).ok());
  a().transport->Tell({StatusCode::kDeviceError, "rank 0: no power"}, 0);
  EXPECT_TRUE(a().Leave(Deadline::After(std::chrono::seconds(20))));
  EXPECT_EQ(b().to(0).Release({0, 1}).message(), "rank 0: no power");
}

TEST_F(HostConnectionTest, WhatIsCopiedFromAPeerThatHasFailedIsAnError) {
  a().Begin(0, {1});
  ASSERT_TRUE(a().to(1).CanSend().value());
  EXPECT_FALSE(a().to(1).Send({0, 0}, a().Slot(3)).value());
  b().Begin(0, {0});
  b().to(0).Expect({0, 0}, b().Slot(0));
  EXPECT_TRUE(a().Leave(Deadline::After(std::chrono::seconds(20))));
  EXPECT_EQ(b().Poll().status().code(), StatusCode::kPeerLost);
  EXPECT_TRUE(b().events.arrived.empty());
}

// As long as the ranks may mean different calls, a target may be of another
// one.
TEST_F(HostConnectionTest, NoTargetIsWrittenBeforeBothHaveSaidTheSame) {
  b().Begin(0, {0}, 11);
  b().to(0).Expect({0, 0}, b().Slot(0));
  a().Begin(0, {1}, 10);
  std::memset(a().Slot(3).data, 42, kBytes);
  ASSERT_TRUE(a().to(1).CanSend().value());
  EXPECT_FALSE(a().to(1).Send({0, 0}, a().Slot(3)).value());
  EXPECT_EQ(b().Poll().status().code(), StatusCode::kMismatch);
  EXPECT_EQ(b().Slot(0).data[0], std::byte{0});
}

// The mapping of a thread that stands in a copy is this one's: nothing can be
// taken back. (stopped_rank_test has a writer that is another process.)
TEST_F(HostConnectionTest, AThreadThatGoesOnWritingHoldsTheMemory) {
  BeginBoth(0);
  b().to(0).Expect({0, 0}, b().Slot(0));
  b().header().inbox(0).writing = 1;
  const Deadline soon = Deadline::After(std::chrono::milliseconds(1));
  EXPECT_FALSE(b().Leave(soon));
}

TEST_F(HostConnectionTest, FlushWaitsForWhoeverWrites) {
  BeginBoth(0);
  b().header().inbox(0).writing = 1;
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::memset(b().Slot(0).data, 42, kBytes);
    b().header().inbox(0).writing = 0;
  });
  EXPECT_TRUE(b().Leave(Deadline::After(std::chrono::seconds(20))));
  EXPECT_EQ(b().Slot(0).data[0], std::byte{42});
  writer.join();
}

}  // namespace
}  // namespace ringpipe
