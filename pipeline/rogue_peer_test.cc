// A peer that does not keep to the rules of rails: the others end with an error
// that names it, or are not harmed.
#include <infiniband/verbs.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/while_waiting.h"
#include "engine/algorithms.h"
#include "gtest/gtest.h"
#include "memory_pool/slot_pool.h"
#include "pipeline/executor.h"
#include "pipeline/host_accelerator.h"
#include "pipeline/rails/rail_transport.h"
#include "pipeline/test_job.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;

// Rank 1 of 2 is a bare connection in the test's hands; rank 0 runs a ring
// allreduce of kCount floats with it.
class RoguePeerTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kCount = 100;
  static constexpr std::uint32_t kHalf = kCount / 2 * sizeof(float);

  void SetUp() override {
    rails_ = rogue_rails_ = SoftRails(1);
    Meet();
  }

  void Meet() {
    abort_ = AbortSignal::Create().value();
    RailTransport::Options rails = RailOptions(0, 2, 1, check_);
    rails.receives = 8;
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(
        RailTransport::Create(rails_, rails_[0]->device(), rails).value());
    Transport& transport = *transports[0];
    own_end_ = static_cast<RailConnection*>(transport.connection(1));
    Executor::Options options;
    options.size = 2;
    options.abort = abort_.get();
    options.check = &check_;
    executor_ = std::make_unique<Executor>(
        SlotPool::Create(rails_, *rails_[0]->device(), kSubchunkBytes, 8)
            .value(),
        std::move(transports), options);

    pool_ = SlotPool::Create(rogue_rails_, *rogue_rails_[0]->device(),
                             kSubchunkBytes, 16)
                .value();
    rails = RailOptions(1, 2, 1, rogue_check_);
    rails.receives = 8;
    rogue_transport_ =
        RailTransport::Create(rogue_rails_, rogue_rails_[0]->device(), rails)
            .value();
    const Deadline deadline = Deadline::After(milliseconds(5000));
    const std::vector<std::string> to_rogue = {"",
                                               rogue_transport_->AddressFor(0)};
    ASSERT_TRUE(transport.Connect(to_rogue, deadline, -1).ok());
    const std::vector<std::string> to_rank_zero = {transport.AddressFor(1), ""};
    ASSERT_TRUE(rogue_transport_->Connect(to_rank_zero, deadline, -1).ok());
    rogue_ = rogue_transport_->connection(0);
  }

  static Digest GoodDigest() {
    Digest digest;
    digest.count = kCount;
    return digest;
  }

  // The first message, and the receives of the ring.
  Status Begin(const Digest& digest = GoodDigest()) {
    rogue_check_.Begin(digest);
    rogue_->Begin({&digest, true, true, false});
    for (std::uint32_t i = 0; i < 2; ++i) {
      rogue_->Expect({0, i}, Slot(static_cast<int>(i), kSubchunkBytes));
    }
    return rogue_->Progress(events_).status();
  }

  Memory Slot(int slot, std::uint32_t bytes) const {
    return {pool_->data(slot), bytes, &pool_->lkeys()};
  }

  // Whatever credit there is.
  Status SendData(std::uint32_t bytes) {
    DataChannel& channel = *rogue_->rails()[0].channel;
    channel.AddSend({}, Slot(15, bytes));
    return channel.PostSends();
  }

  // Once rank 0 has given credit for it; kTimeout where it does not.
  Status SendDataWithCredit(std::uint32_t bytes) {
    const Deadline deadline = Deadline::After(milliseconds(5000));
    while (!deadline.expired()) {
      RINGPIPE_RETURN_IF_ERROR(rogue_transport_->Poll(events_).status());
      RINGPIPE_ASSIGN_OR_RETURN(const bool has_credit, rogue_->CanSend());
      if (has_credit) {
        RINGPIPE_RETURN_IF_ERROR(rogue_->Send({}, Slot(15, bytes)).status());
        return rogue_->Progress(events_).status();
      }
      std::this_thread::yield();
    }
    return {StatusCode::kTimeout, "rank 0 gives no credit"};
  }

  // Rank 0's allreduce, after what the rogue has sent.
  Status RunRankZero(milliseconds timeout = milliseconds(5000)) {
    const auto host = CreateHostAccelerator();
    const AlgorithmInfo ring =
        AlgorithmChoice().For(Collective::kAllReduce, 1 << 20);
    const auto peers = executor_->transports().Peers({}, {});
    const Plan plan = Compile(ring.algorithm({0, 2}), 0, 2,
                              {.message_bytes = message_bytes_, .peers = peers})
                          .value();
    const std::vector<float> input(kCount, 1);
    std::vector<float> output(kCount);
    Operation operation = MakeOperation(plan, input.data(), output.data(),
                                        kCount, 2, host.get(), timeout);
    operation.digest.sequence = sequence_;
    return executor_->Run(operation);
  }

  void ExpectError(StatusCode code, const std::string& word) {
    const Status status = RunRankZero();
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos);
    EXPECT_NE(status.message().find(word), std::string::npos)
        << status.ToString();
  }

  struct NoEvents final : Connection::Events {
    Status Arrived(Instance, const std::byte*, std::uint32_t) override {
      return Status::Ok();
    }
    Status Sent(Instance) override { return Status::Ok(); }
  };

  OwnedDomains rails_;
  OwnedDomains rogue_rails_;
  std::unique_ptr<AbortSignal> abort_;
  CallCheck check_{0, &DescribeForTest};
  CallCheck rogue_check_{1, &DescribeForTest};
  std::unique_ptr<Executor> executor_;
  RailConnection* own_end_ = nullptr;
  std::unique_ptr<SlotPool> pool_;
  std::unique_ptr<RailTransport> rogue_transport_;
  RailConnection* rogue_ = nullptr;
  NoEvents events_;
  std::uint64_t sequence_ = 0;  // of rank 0's call
  std::uint32_t message_bytes_ = 0;
};

TEST_F(RoguePeerTest, ThatKeepsToTheRulesIsServed) {
  ASSERT_TRUE(Begin().ok());
  Status sent;
  std::thread peer([&] {
    sent = SendDataWithCredit(kHalf);
    if (sent.ok()) {
      sent = SendDataWithCredit(kHalf);
    }
  });
  const Status status = RunRankZero();
  peer.join();
  EXPECT_TRUE(sent.ok()) << sent.ToString();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_F(RoguePeerTest, ThatGivesCreditWithoutADigestIsSentNothing) {
  own_end_->control().memory().word->credits = 2;
  const Status status = RunRankZero(milliseconds(300));
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
  EXPECT_NE(status.message().find("rank 1 to make the same call"),
            std::string::npos);
  EXPECT_EQ(own_end_->rails()[0].channel->messages_sent(), 0U);
}

TEST_F(RoguePeerTest, ThatSendsAnotherLengthThanTheSchedulesIsAnError) {
  ASSERT_TRUE(Begin().ok());
  Status sent;
  std::thread peer([&] { sent = SendDataWithCredit(kHalf - 4); });
  ExpectError(StatusCode::kInternal, "where the schedule has 200");
  peer.join();
  EXPECT_TRUE(sent.ok()) << sent.ToString();
}

TEST_F(RoguePeerTest, ThatSendsWithoutCreditHarmsNobody) {
  // The device holds back what has no receive.
  ASSERT_TRUE(Begin().ok());
  for (int i = 0; i < 3; ++i) {  // one more than the ring's two
    ASSERT_TRUE(SendData(kHalf).ok());
  }
  const Status status = RunRankZero(milliseconds(5000));
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_F(RoguePeerTest, ThatGivesImpossibleCreditIsAnError) {
  ASSERT_TRUE(Begin().ok());
  own_end_->control().memory().word->credits = 1ULL << 40;
  ExpectError(StatusCode::kInternal, "impossible number");
}

TEST_F(RoguePeerTest, ThatGivesImpossibleCreditWithItsDigestIsAnError) {
  ControlHeader header;
  header.digest = GoodDigest();
  header.credits = 1ULL << 40;
  ASSERT_TRUE(rogue_->control().Send(header).ok());
  ExpectError(StatusCode::kInternal, "impossible number");
}

TEST_F(RoguePeerTest, ThatSendsAShortDigestIsAnError) {
  const Memory memory = Slot(15, 8);
  ibv_sge sge = {reinterpret_cast<std::uintptr_t>(memory.data), memory.bytes,
                 pool_->lkeys()[0]};
  ibv_send_wr request = {};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(rogue_->control().queue_pair().get(), &request, &bad),
            0);
  ExpectError(StatusCode::kInternal, "unknown kind or length");
}

TEST_F(RoguePeerTest, ThatSendsAnEagerMessageInALongCallIsAnError) {
  ControlHeader header;
  header.digest = GoodDigest();
  header.has_payload = 1;
  ASSERT_TRUE(rogue_->control().Send(header, pool_->data(15), kHalf).ok());
  ExpectError(StatusCode::kInternal, "eager message");
}

TEST_F(RoguePeerTest, ThatSendsTwoEagerMessagesIsAnError) {
  message_bytes_ = kEagerBytes;
  ControlHeader header;
  header.digest = GoodDigest();
  header.has_payload = 1;
  ASSERT_TRUE(rogue_->control().Send(header, pool_->data(15), kHalf).ok());
  ASSERT_TRUE(rogue_->control().Send(header, pool_->data(15), kHalf).ok());
  ExpectError(StatusCode::kInternal, "eager message");
}

TEST_F(RoguePeerTest, ThatSendsAnEagerMessageOfAnotherLengthIsAnError) {
  message_bytes_ = kEagerBytes;
  for (const std::uint32_t bytes : {kHalf - 4, kEagerBytes}) {
    SetUp();
    ControlHeader header;
    header.digest = GoodDigest();
    header.has_payload = 1;
    ASSERT_TRUE(rogue_->control().Send(header, pool_->data(0), bytes).ok());
    ExpectError(StatusCode::kInternal, "where the schedule has");
  }
}

TEST_F(RoguePeerTest, ThatAsksForMoreAnswersThanItTakesIsAnError) {
  ASSERT_TRUE(Begin().ok());
  // Each asks for the counter anew; nobody takes the answers.
  for (int i = 0; i < ControlChannel::kMaxSends / 2 + kControlReceives; ++i) {
    ASSERT_TRUE(rogue_->control()
                    .Send({.kind = ControlHeader::Kind::kSleep, .credits = 123})
                    .ok());
  }
  ExpectError(StatusCode::kInternal, "more answers");
}

TEST_F(RoguePeerTest, ThatWasSixtyFourCallsBehindIsAMismatch) {
  Digest other = GoodDigest();
  other.count = 55;
  ASSERT_TRUE(Begin(other).ok());
  sequence_ = 64;
  ExpectError(StatusCode::kMismatch, "count 55");
}

// Over TCP, whose connection it closes.
class PeerOfAnotherHostTest : public RoguePeerTest {
 protected:
  void SetUp() override {
    verbs::soft::Options host = {.host_id = "here",
                                 .key = "of the test",
                                 .other_hosts = true,
                                 .tcp_timeout = std::chrono::minutes(1)};
    rails_ = SoftRails(1, host);
    host.host_id = "there";
    rogue_rails_ = SoftRails(1, host);
    Meet();
  }

  // In the middle of the call: rank 0 has heard of it, and has given credit.
  void Go() {
    EXPECT_TRUE(SendDataWithCredit(kHalf).ok());
    rogue_transport_->Stop();
  }
};

// It has given rank 0 up, say; but the network is slow to pass on why.
TEST_F(PeerOfAnotherHostTest, ThatGoesIsNotBlamedBeforeItsReasonCanBeHere) {
  ASSERT_TRUE(Begin().ok());
  std::thread peer([&] {
    Go();
    std::this_thread::sleep_for(milliseconds(1000));
    static_cast<void>(
        abort_->Raise({StatusCode::kPeerLost, "rank 0 does not answer"}));
  });
  const Status status = RunRankZero(milliseconds(20000));
  peer.join();
  EXPECT_EQ(status.message(), "rank 0 does not answer");
}

TEST_F(PeerOfAnotherHostTest, ThatGoesKeepsNobodyWhoseCallerHasEnough) {
  ASSERT_TRUE(Begin().ok());
  std::thread peer([&] { Go(); });
  bool has_gone = false;
  WhileWaiting hook;
  hook.function = [&] {
    has_gone = has_gone || !own_end_->failure().ok();
    return has_gone;
  };
  const BlockingCall call(hook);
  const Status status = RunRankZero(milliseconds(20000));
  peer.join();
  EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
}

TEST_F(PeerOfAnotherHostTest, ThatGoesWithoutAWordIsLostByTheDeadline) {
  ASSERT_TRUE(Begin().ok());
  std::thread peer([&] { Go(); });
  const Clock::time_point start = Clock::now();
  const Status status = RunRankZero(milliseconds(2000));
  peer.join();
  EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.ToString();
  EXPECT_NE(status.message().find("closed by its other end"), std::string::npos)
      << status.ToString();
  // Not some 600 ms and then 3 s.
  EXPECT_LT(Clock::now() - start, milliseconds(3200));
}

}  // namespace
}  // namespace ringpipe
