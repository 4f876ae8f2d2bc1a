// Two ends of one connection over the software device, in one thread: each does
// only what the test tells it to, so what has been looked at is known.
#include "pipeline/rails/rail_connection.h"

#include <poll.h>
#include <sched.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "gtest/gtest.h"
#include "memory_pool/slot_pool.h"
#include "pipeline/call_check.h"
#include "pipeline/rails/rail_transport.h"
#include "verbs/device.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;
using Texts = std::vector<std::string>;

constexpr milliseconds kPatience(5000);
constexpr int kSlots = 16;

std::string DescribeForTest(const Digest& digest) {
  return "call(count " + std::to_string(digest.count) + ")";
}

// What a call has to send on the connection, and how.
struct Traffic {
  bool sends = false;
  bool receives = false;
  bool eager = false;
};
constexpr Traffic kSends = {.sends = true};
constexpr Traffic kReceives = {.receives = true};
constexpr Traffic kSendsEagerly = {.sends = true, .eager = true};
constexpr Traffic kReceivesEagerly = {.receives = true, .eager = true};

class End final : public Connection::Events {
 public:
  explicit End(int rank, std::uint64_t adversary_seed = 0)
      : rank_(rank), check_(rank, &DescribeForTest) {
    verbs::soft::Options soft;
    soft.adversary_seed = adversary_seed;
    auto device = verbs::Device::OpenSoftware(
        verbs::soft::CreateSoftLibrary(soft), "the test asks for it");
    rails_.push_back(
        verbs::ProtectionDomain::Create(std::move(device).value()).value());
    pool_ = SlotPool::Create(rails_, *rails_[0]->device(), kEagerBytes, kSlots)
                .value();
    RailTransport::Options options;
    options.rank = rank;
    options.size = 2;
    options.rails_of_peer.resize(2);
    options.rails_of_peer[1 - rank] = {0};
    options.receives = kSlots;
    options.check = &check_;
    transport_ =
        RailTransport::Create(rails_, rails_[0]->device(), options).value();
  }

  void ConnectTo(const End& peer) {
    Texts addresses(2);
    addresses[peer.rank_] = peer.transport_->AddressFor(rank_);
    ExpectOk(transport_->Connect(addresses, Deadline::After(kPatience), -1));
  }

  RailConnection& connection() { return *transport_->connection(1 - rank_); }

  // Messages that this end has looked at and whose receives are not posted
  // anew.
  int kept() {
    return kControlReceives - connection().control().receives_posted();
  }
  const Texts& arrived() const { return arrived_; }

  // --- What the executor does -----------------------------------------------

  void Begin(std::uint64_t sequence, const Traffic& traffic,
             std::uint64_t count = 10) {
    digest_.sequence = sequence;
    digest_.count = count;
    check_.Begin(digest_);
    connection().Begin(
        {&digest_, traffic.sends, traffic.receives, traffic.eager});
    ExpectOk(transport_->Begin(sequence));
  }

  void Expect(std::uint32_t bytes = kEagerBytes) {
    connection().Expect({}, Slot(bytes));
  }
  // Returns whether the source is free at once.
  bool Send(const std::string& text) {
    const Memory source = Slot(static_cast<std::uint32_t>(text.size()));
    std::memcpy(source.data, text.data(), text.size());
    const Result<bool> free = connection().Send({}, source);
    ExpectOk(free.status());
    return free.ok() && *free;
  }
  bool CanSend() {
    const Result<bool> can_send = connection().CanSend();
    ExpectOk(can_send.status());
    return can_send.ok() && *can_send;
  }
  bool Progress() {
    const Result<bool> happened = connection().Progress(*this);
    ExpectOk(happened.status());
    return happened.ok() && *happened;
  }
  void Announce() { ExpectOk(connection().Announce()); }
  void PrepareToSleep() { ExpectOk(connection().PrepareToSleep(true)); }

  // Looks at all that has landed.
  void Poll() {
    Result<bool> happened = true;
    while (happened.ok() && *happened) {
      happened = transport_->Poll(*this);
    }
    ExpectOk(happened.status());
  }
  // Fails where it never comes so far.
  template <typename Condition>
  void PollUntil(Condition condition) {
    const Deadline deadline = Deadline::After(kPatience);
    while (!condition()) {
      ASSERT_FALSE(deadline.expired());
      Poll();
      sched_yield();
    }
  }
  void PollUntilAgreed() {
    Progress();
    PollUntil([this] { return connection().agreed(); });
  }
  // Until all that this end has sent has landed, whether the other looks or
  // not.
  void PollUntilLanded() {
    ExpectOk(connection().Probe());
    PollUntil([this] {
      return !connection().control().awaits_completion() &&
             !connection().sending();
    });
  }
  // Whether the transport finds anything, asked once.
  bool PollOnce() {
    const Result<bool> happened = transport_->Poll(*this);
    ExpectOk(happened.status());
    return happened.ok() && *happened;
  }
  void Probe() { ExpectOk(connection().Probe()); }
  void FinishSending() {
    transport_->FinishSending(Deadline::After(kPatience));
  }
  // The first error that Poll returns.
  Status PollUntilError() {
    const Deadline deadline = Deadline::After(kPatience);
    while (!deadline.expired()) {
      if (const auto happened = transport_->Poll(*this); !happened.ok()) {
        return happened.status();
      }
      sched_yield();
    }
    return Status::Ok();
  }

  // Why the connection has failed, by what the device says without being
  // polled.
  Status AwaitEvent() {
    const Deadline deadline = Deadline::After(kPatience);
    while (connection().failure().ok() && !deadline.expired()) {
      ExpectOk(transport_->CheckAsyncEvents(nullptr));
      sched_yield();
    }
    return connection().failure();
  }

  void Arm() {
    ExpectOk(transport_->Arm());
    Poll();
  }
  // After Arm: whether anything wakes this end.
  bool Wakes() {
    std::vector<pollfd> descriptors(transport_->descriptors().begin(),
                                    transport_->descriptors().end());
    const bool wakes = poll(descriptors.data(), descriptors.size(),
                            static_cast<int>(kPatience.count())) > 0;
    transport_->ConsumeEvents();
    return wakes;
  }

 private:
  static void ExpectOk(const Status& status) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  // The slots take turns; no test fills them all at once.
  Memory Slot(std::uint32_t bytes) {
    next_slot_ = (next_slot_ + 1) % kSlots;
    return {pool_->data(next_slot_), bytes, &pool_->lkeys()};
  }

  Status Arrived(Instance /*instance*/, const std::byte* data,
                 std::uint32_t bytes) override {
    arrived_.emplace_back(reinterpret_cast<const char*>(data), bytes);
    return Status::Ok();
  }
  Status Sent(Instance /*instance*/) override { return Status::Ok(); }

  const int rank_;
  std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails_;
  CallCheck check_;
  std::unique_ptr<SlotPool> pool_;
  std::unique_ptr<RailTransport> transport_;
  Digest digest_;
  int next_slot_ = 0;
  Texts arrived_;
};

// Rank 0 and rank 1.
class RailConnectionTest : public ::testing::Test {
 protected:
  RailConnectionTest() {
    a_.ConnectTo(b_);
    b_.ConnectTo(a_);
  }

  // Call 1, in which a has to send, and b has given it no credit.
  void StarveA() {
    a_.Begin(1, kSends);
    b_.Begin(1, kReceives);
    a_.Progress();
    b_.Progress();
    a_.PollUntilAgreed();
    b_.PollUntilAgreed();
    EXPECT_FALSE(a_.CanSend());
  }

  End a_ = End(0);
  End b_ = End(1);
};

// --- The first message -------------------------------------------------------

TEST_F(RailConnectionTest, AFirstMessageIsHeldBackAndTakesItsPayloadAlong) {
  a_.Begin(1, kSendsEagerly);
  EXPECT_FALSE(a_.Progress());
  EXPECT_TRUE(a_.connection().holds_back());
  EXPECT_TRUE(a_.Send("payload"));
  EXPECT_FALSE(a_.connection().holds_back());
  a_.PollUntilLanded();
  b_.Poll();
  EXPECT_EQ(b_.kept(), 1);

  b_.Begin(1, kReceivesEagerly);
  b_.Expect();
  b_.PollUntilAgreed();
  b_.Progress();
  EXPECT_EQ(b_.arrived(), Texts{"payload"});
  EXPECT_EQ(b_.kept(), 0);
}

TEST_F(RailConnectionTest, AFirstMessageWaitsForRoomAmongTheSends) {
  a_.Begin(1, kReceives);
  while (a_.connection().control().CanSend()) {
    ASSERT_TRUE(a_.connection().control().WriteCredit(0).ok());
  }
  EXPECT_FALSE(a_.Progress());
  a_.PollUntil([this] { return a_.connection().control().CanSend(); });
  EXPECT_TRUE(a_.Progress());
  b_.Begin(1, kSends);
  b_.PollUntilAgreed();
  a_.PollUntilAgreed();
}

TEST_F(RailConnectionTest, AnnounceSendsTheFirstMessageAndThePayloadFollows) {
  a_.Begin(1, kSendsEagerly);
  a_.Announce();
  EXPECT_FALSE(a_.connection().holds_back());
  b_.Begin(1, kReceivesEagerly);
  b_.Expect();
  b_.PollUntilAgreed();
  b_.Progress();
  EXPECT_EQ(b_.arrived(), Texts{});
  EXPECT_EQ(b_.kept(), 0);

  EXPECT_TRUE(a_.Send("payload"));
  a_.PollUntilLanded();
  b_.Poll();
  b_.Progress();
  EXPECT_EQ(b_.arrived(), Texts{"payload"});
  EXPECT_EQ(b_.kept(), 0);
}

TEST_F(RailConnectionTest, WhatComesBeforeTheCallIsKeptUntilItIsExpected) {
  a_.Begin(1, kSendsEagerly);
  a_.Announce();
  a_.Send("payload");
  a_.PollUntilLanded();
  b_.Poll();
  EXPECT_EQ(b_.kept(), 2);

  b_.Begin(1, kReceivesEagerly);
  b_.Progress();
  b_.Poll();
  EXPECT_TRUE(b_.connection().agreed());
  EXPECT_EQ(b_.arrived(), Texts{});
  EXPECT_EQ(b_.kept(), 1);  // the payload

  b_.Expect();
  b_.Progress();
  EXPECT_EQ(b_.arrived(), Texts{"payload"});
  EXPECT_EQ(b_.kept(), 0);
}

TEST_F(RailConnectionTest, AnEagerMessageMayBeOfNoBytes) {
  a_.Begin(1, kSendsEagerly);
  a_.Send("");
  b_.Begin(1, kReceivesEagerly);
  b_.Expect();
  b_.PollUntilAgreed();
  b_.Progress();
  EXPECT_EQ(b_.arrived(), Texts{""});
}

// Longer than inline: each holds a buffer of a until a has seen its completion.
TEST_F(RailConnectionTest, AnEagerMessageWaitsForOneOfTheTwoBuffers) {
  const Texts texts = {std::string(kEagerBytes, 'x'),
                       std::string(kEagerBytes, 'y'),
                       std::string(kEagerBytes, 'z')};
  a_.Begin(1, kSendsEagerly);
  EXPECT_TRUE(a_.CanSend());
  a_.Send(texts[0]);
  a_.Begin(2, kSendsEagerly);
  EXPECT_TRUE(a_.CanSend());
  a_.Send(texts[1]);
  a_.Begin(3, kSendsEagerly);
  EXPECT_FALSE(a_.CanSend());
  a_.PollUntil([this] { return a_.CanSend(); });
  a_.Send(texts[2]);

  for (const int call : {1, 2, 3}) {
    b_.Begin(call, kReceivesEagerly);
    b_.Expect();
    b_.PollUntilAgreed();
    b_.Progress();
  }
  EXPECT_EQ(b_.arrived(), texts);
}

// --- The end -----------------------------------------------------------------

// Of the messages one in 16 has a completion; what comes after it has none of
// its own.
TEST_F(RailConnectionTest, TheLastMessageIsOutWhenSendingHasFinished) {
  for (const int messages : {1, 16, 17, 31, 33}) {
    for (int message = 0; message < messages; ++message) {
      ASSERT_TRUE(a_.connection().control().WriteCredit(0).ok());
    }
    a_.FinishSending();
    EXPECT_EQ(a_.connection().control().outstanding(), 0) << messages;
  }
}

// --- Credit ------------------------------------------------------------------

TEST_F(RailConnectionTest, CreditWakesASenderThatSleeps) {
  StarveA();
  for (const std::string& text : Texts{"one", "two"}) {
    a_.PrepareToSleep();
    a_.PollUntilLanded();
    b_.Poll();  // takes the SLEEP, and has no credit to give
    a_.Arm();
    EXPECT_FALSE(a_.CanSend());
    b_.Expect();
    b_.Progress();
    EXPECT_TRUE(a_.Wakes());
    a_.Poll();
    ASSERT_TRUE(a_.CanSend());
    EXPECT_FALSE(a_.Send(text));
    a_.Progress();
    a_.PollUntilLanded();
    EXPECT_FALSE(a_.CanSend());
  }
  b_.Poll();
  EXPECT_EQ(b_.arrived(), (Texts{"one", "two"}));
}

TEST_F(RailConnectionTest, CreditThatCrossesASleepIsToldAgain) {
  StarveA();
  a_.PrepareToSleep();
  a_.PollUntilLanded();
  b_.Expect();
  b_.Progress();  // before b has looked at the SLEEP
  a_.Arm();
  b_.Poll();
  EXPECT_TRUE(a_.Wakes());
  EXPECT_TRUE(a_.CanSend());
}

// The worst that message_test finds: b does not look at its control messages
// from the end of call 1 on.
TEST_F(RailConnectionTest, AllThatAPeerMaySendAheadFindsAReceive) {
  a_.Begin(1, kReceives);
  b_.Begin(1, kSends);
  a_.Progress();
  b_.Progress();
  b_.PollUntilAgreed();
  b_.PrepareToSleep();
  a_.Expect();
  a_.Progress();  // before a has looked at the SLEEP
  b_.PollUntil([this] { return b_.CanSend(); });
  b_.Send("one");
  b_.Progress();
  b_.PollUntilLanded();
  a_.Poll();  // the SLEEP: a sends kWake
  EXPECT_EQ(a_.arrived(), Texts{"one"});

  a_.Begin(2, kSendsEagerly);
  a_.Announce();  // a kCall
  b_.Begin(2, kReceivesEagerly);
  b_.Progress();
  a_.PollUntilAgreed();
  a_.Send("two");  // a second one
  EXPECT_FALSE(a_.CanSend());
  a_.PrepareToSleep();  // kSleep
  b_.Expect();
  b_.Expect();
  b_.Progress();
  a_.PollUntil([this] { return a_.CanSend(); });
  a_.Send("three");
  a_.Progress();

  a_.Begin(3, kSendsEagerly);
  a_.Announce();    // a kCall
  a_.Send("four");  // a second one
  a_.PollUntilLanded();
  EXPECT_EQ(b_.kept(), 0);  // it has looked at none

  b_.Poll();
  EXPECT_EQ(b_.kept(), 3);
  b_.Progress();
  b_.Begin(3, kReceivesEagerly);
  b_.Expect();
  b_.Poll();
  b_.Progress();
  EXPECT_EQ(b_.arrived(), (Texts{"three", "two", "four"}));
  EXPECT_EQ(b_.kept(), 0);
}

// --- A peer that does not do the same ----------------------------------------

void ExpectError(const Status& status, StatusCode code,
                 const std::string& words) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_NE(status.message().find(words), std::string::npos)
      << status.ToString();
}

TEST_F(RailConnectionTest, AnEagerMessageThatTheScheduleDoesNotHaveIsAnError) {
  a_.Begin(1, kSendsEagerly);
  a_.Send("payload");
  b_.Begin(1, kReceives);
  ExpectError(b_.PollUntilError(), StatusCode::kInternal,
              "rank 0 sent an eager message that the schedule does not have");
}

TEST_F(RailConnectionTest, AnEagerMessageThatIsTooLongIsAnError) {
  a_.Begin(1, kSendsEagerly);
  a_.Send("payload");
  b_.Begin(1, kReceivesEagerly);
  b_.Expect(4);
  b_.PollUntilAgreed();
  const Result<bool> pushed = b_.connection().Progress(b_);
  ExpectError(pushed.status(), StatusCode::kInternal,
              "rank 0 sent 7 bytes where the schedule has 4");
  EXPECT_EQ(b_.arrived(), Texts{});
}

TEST_F(RailConnectionTest, AnEagerMessageThatIsTooShortArrivesWithItsLength) {
  a_.Begin(1, kSendsEagerly);
  a_.Send("pay");
  b_.Begin(1, kReceivesEagerly);
  b_.Expect(4);
  b_.PollUntilAgreed();
  b_.Progress();
  EXPECT_EQ(b_.arrived(), Texts{"pay"});
}

TEST_F(RailConnectionTest, AnotherCallAtTheSameNumberIsAMismatch) {
  a_.Begin(1, kSends, 10);
  b_.Begin(1, kReceives, 11);
  a_.Progress();
  b_.Progress();
  for (End* const end : {&a_, &b_}) {
    const Status status = end->PollUntilError();
    ExpectError(status, StatusCode::kMismatch, "call(count 10)");
    ExpectError(status, StatusCode::kMismatch, "call(count 11)");
    EXPECT_FALSE(end->connection().agreed());
  }
}

// An adversary's completion queue gives fewer completions than it has.
TEST(RailTransportTest, AnswersToProbesDoNotHideWhatLiesBehindThem) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    End a(0, seed);
    End b(1);
    a.ConnectTo(b);
    b.ConnectTo(a);
    a.Begin(1, kReceives);
    b.Begin(1, kSends);
    a.Probe();
    b.Announce();
    b.PollUntilLanded();
    std::this_thread::sleep_for(milliseconds(10));  // the answers too
    EXPECT_TRUE(a.PollOnce()) << seed;
  }
}

// So that a call that waits for other peers alone goes on.
TEST_F(RailConnectionTest, AnEventOfOneQueuePairIsTheFailureOfItsConnection) {
  char byte = 0;
  ibv_sge source = {reinterpret_cast<std::uintptr_t>(&byte), 1, 0};
  ibv_send_wr write = {};
  write.sg_list = &source;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.send_flags = IBV_SEND_INLINE;
  write.wr.rdma.rkey = 0;  // of nothing
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(
      ibv_post_send(a_.connection().control().queue_pair().get(), &write, &bad),
      0);
  const Status failure = b_.AwaitEvent();
  ExpectError(failure, StatusCode::kDeviceError,
              "rank 0 can no longer be reached from rank 1: ");
  ExpectError(failure, StatusCode::kDeviceError, "IBV_EVENT_QP_ACCESS_ERR");
}

}  // namespace
}  // namespace ringpipe
