// Queue pairs, completion queues and memory regions together: two ends in one
// process, each on a context of its own. On the software device, or on the real
// one that RINGPIPE_TEST_DEVICE names ("rxe0"; not of iWARP, whose queue pairs
// have to be connected by rdma_cm).
#include "verbs/queue_pair.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe::verbs {
namespace {

constexpr std::size_t kBytes = 256 * 1024;

// nullptr: the software device.
const char* RealDevice() { return std::getenv("RINGPIPE_TEST_DEVICE"); }

Result<std::shared_ptr<Device>> OpenDevice(std::uint64_t adversary_seed) {
  const auto soft = soft::CreateSoftLibrary({adversary_seed});
  if (RealDevice() == nullptr) {
    return Device::OpenSoftware(soft, "the test asks for it");
  }
  RINGPIPE_ASSIGN_OR_RETURN(const DeviceRequest request,
                            DeviceRequest::Parse(RealDevice()));
  RINGPIPE_ASSIGN_OR_RETURN(
      const auto devices, Device::Open(request, {}, LoadSystemLibrary(), soft));
  return devices.front();
}

// Seeds of the adversarial mode, which real devices do not have.
std::vector<std::uint64_t> Seeds() {
  return RealDevice() != nullptr ? std::vector<std::uint64_t>{0}
                                 : std::vector<std::uint64_t>{0, 1, 2};
}

// Everything that one end of a connection needs.
struct End {
  explicit End(std::uint64_t adversary_seed) {
    auto opened = OpenDevice(adversary_seed);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    device = std::move(opened).value();
    pd = ProtectionDomain::Create(device).value();
    cq = CompletionQueue::Create(device, 64).value();
    // 67 ms and 6 repetitions: a peer that is gone is found in time, one that
    // is slow is not taken for it.
    qp = QueuePair::Create(pd, cq,
                           {.max_send = 16,
                            .max_receive = 16,
                            .timeout = 14,
                            .retry_count = 6})
             .value();
    memory = device->Allocate(kBytes).value();
    region =
        MemoryRegion::Register(pd, memory.data(), kBytes,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                               /*relaxed=*/true)
            .value();
  }

  ibv_sge Piece(std::size_t offset, std::size_t bytes) const {
    return {reinterpret_cast<std::uint64_t>(memory.data()) + offset,
            static_cast<std::uint32_t>(bytes), region.lkey()};
  }

  int PostReceive(std::uint64_t id, std::size_t offset, std::size_t bytes) {
    ibv_sge piece = Piece(offset, bytes);
    ibv_recv_wr request = {};
    request.wr_id = id;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp->get(), &request, &bad);
  }

  // `request` is complete but for its memory.
  int PostSend(ibv_send_wr request, std::size_t offset, std::size_t bytes) {
    ibv_sge piece = Piece(offset, bytes);
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp->get(), &request, &bad);
  }

  std::shared_ptr<Device> device;
  std::shared_ptr<ProtectionDomain> pd;
  std::shared_ptr<CompletionQueue> cq;
  Allocation memory;
  MemoryRegion region;
  std::unique_ptr<QueuePair> qp;
};

ibv_send_wr Request(ibv_wr_opcode opcode, std::uint64_t id) {
  ibv_send_wr request = {};
  request.opcode = opcode;
  request.wr_id = id;
  request.send_flags = IBV_SEND_SIGNALED;
  return request;
}

bool Readable(int fd, int timeout_ms) {
  pollfd descriptor = {fd, POLLIN, 0};
  return poll(&descriptor, 1, timeout_ms) == 1;
}

// `count` completions, by polling; fewer if they do not come in time.
std::vector<ibv_wc> Take(CompletionQueue& cq, std::size_t count) {
  const Deadline deadline = Deadline::After(std::chrono::seconds(20));
  std::vector<ibv_wc> taken;
  while (taken.size() < count && !deadline.expired()) {
    std::array<ibv_wc, 4> completions;
    const int polled = cq.Poll(completions);
    if (polled < 0) {
      ADD_FAILURE() << "the completion queue failed";
      return taken;
    }
    taken.insert(taken.end(), completions.begin(),
                 completions.begin() + polled);
    if (polled == 0) {
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(taken.size(), count);
  return taken;
}

// The next completion, asleep until it comes, as the pipeline waits.
ibv_wc Sleep(CompletionQueue& cq) {
  const Deadline deadline = Deadline::After(std::chrono::seconds(20));
  ibv_wc completion = {};
  while (!deadline.expired()) {
    EXPECT_TRUE(cq.Arm().ok());
    if (cq.Poll(std::span(&completion, 1)) == 1) {
      return completion;
    }
    if (Readable(cq.fd(), deadline.PollTimeoutMs(20'000))) {
      cq.ConsumeEvents();
    }
    if (cq.Poll(std::span(&completion, 1)) == 1) {
      return completion;
    }
  }
  ADD_FAILURE() << "no completion in time";
  completion.status = IBV_WC_GENERAL_ERR;
  return completion;
}

void Fill(End& end, std::byte value) {
  std::fill_n(end.memory.data(), kBytes, value);
}

// Whether [from, to) of the memory is `value` throughout.
bool Holds(const End& end, std::size_t from, std::size_t to, std::byte value) {
  return std::all_of(end.memory.data() + from, end.memory.data() + to,
                     [value](std::byte b) { return b == value; });
}

// With and without the software device's adversarial mode.
class QueuePairTest : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(left_.qp->Connect(right_.qp->endpoint()).ok());
    ASSERT_TRUE(right_.qp->Connect(left_.qp->endpoint()).ok());
    Fill(left_, std::byte{0xa1});
    Fill(right_, std::byte{0xb2});
  }

  End left_{GetParam()};
  End right_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Seed, QueuePairTest, testing::ValuesIn(Seeds()));

TEST_P(QueuePairTest, ASendLandsInTheReceiveThatWasPostedAndNowhereElse) {
  ASSERT_EQ(right_.PostReceive(5, 4096, 100'000), 0);
  ASSERT_EQ(left_.PostSend(Request(IBV_WR_SEND, 6), 0, 70'000), 0);
  const ibv_wc sent = Take(*left_.cq, 1).at(0);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS) << DescribeCompletion(sent.status);
  EXPECT_EQ(sent.wr_id, 6u);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  const ibv_wc received = Take(*right_.cq, 1).at(0);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.wr_id, 5u);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, 70'000u);
  EXPECT_EQ(received.qp_num, right_.qp->get()->qp_num);
  EXPECT_TRUE(Holds(right_, 0, 4096, std::byte{0xb2}));
  EXPECT_TRUE(Holds(right_, 4096, 74'096, std::byte{0xa1}));
  EXPECT_TRUE(Holds(right_, 74'096, kBytes, std::byte{0xb2}));
}

TEST_P(QueuePairTest, SendsMeetReceivesInOrder) {
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(right_.PostReceive(i, i * 64, 64), 0);
  }
  for (std::uint64_t i = 0; i < 8; ++i) {
    left_.memory.data()[i * 64] = static_cast<std::byte>(i);
    ASSERT_EQ(left_.PostSend(Request(IBV_WR_SEND, i), i * 64, 64), 0);
  }
  const auto received = Take(*right_.cq, 8);
  const auto sent = Take(*left_.cq, 8);
  ASSERT_EQ(received.size() + sent.size(), 16u);
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(received[i].wr_id, i);
    EXPECT_EQ(sent[i].wr_id, i);
    EXPECT_EQ(right_.memory.data()[i * 64], static_cast<std::byte>(i));
  }
}

TEST_P(QueuePairTest, AnInlineSendMayBeOverwrittenAtOnce) {
  ASSERT_GE(left_.qp->max_inline_bytes(), 8);
  ASSERT_EQ(right_.PostReceive(1, 0, 8), 0);
  ibv_send_wr request = Request(IBV_WR_SEND, 2);
  request.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(left_.PostSend(request, 0, 8), 0);
  Fill(left_, std::byte{0});
  ASSERT_EQ(Take(*right_.cq, 1).at(0).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(Holds(right_, 0, 8, std::byte{0xa1}));
}

TEST_P(QueuePairTest, AWriteLandsAndOnlyItsSenderIsTold) {
  ibv_send_wr request = Request(IBV_WR_RDMA_WRITE, 9);
  request.wr.rdma.remote_addr =
      reinterpret_cast<std::uint64_t>(right_.memory.data()) + 64;
  request.wr.rdma.rkey = right_.region.rkey();
  ASSERT_EQ(left_.PostSend(request, 0, 100'000), 0);
  const ibv_wc sent = Take(*left_.cq, 1).at(0);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS) << DescribeCompletion(sent.status);
  EXPECT_EQ(sent.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(Holds(right_, 0, 64, std::byte{0xb2}));
  EXPECT_TRUE(Holds(right_, 64, 100'064, std::byte{0xa1}));
  EXPECT_TRUE(Holds(right_, 100'064, kBytes, std::byte{0xb2}));
  ibv_wc none = {};
  EXPECT_EQ(right_.cq->Poll(std::span(&none, 1)), 0);
}

TEST_P(QueuePairTest, AWriteWithAWrongKeyIsRefusedByThePeer) {
  ibv_send_wr request = Request(IBV_WR_RDMA_WRITE, 9);
  request.wr.rdma.remote_addr =
      reinterpret_cast<std::uint64_t>(right_.memory.data());
  request.wr.rdma.rkey = right_.region.rkey() ^ 0x5555;
  ASSERT_EQ(left_.PostSend(request, 0, 100), 0);
  EXPECT_EQ(Take(*left_.cq, 1).at(0).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(Holds(right_, 0, kBytes, std::byte{0xb2}));
}

TEST_P(QueuePairTest, FailFlushesEveryReceiveInOrder) {
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(right_.PostReceive(i, 0, 64), 0);
  }
  ASSERT_TRUE(right_.qp->Fail().ok());
  const auto flushed = Take(*right_.cq, 4);
  ASSERT_EQ(flushed.size(), 4u);
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(flushed[i].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed[i].wr_id, i);
  }
  EXPECT_TRUE(right_.qp->Fail().ok()) << "a second time";
}

TEST_P(QueuePairTest, FailOnAnotherThreadWakesWhoSleeps) {
  ASSERT_EQ(right_.PostReceive(3, 0, 64), 0);
  std::thread failing([this] { EXPECT_TRUE(right_.qp->Fail().ok()); });
  const ibv_wc flushed = Sleep(*right_.cq);
  failing.join();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 3u);
}

TEST_P(QueuePairTest, WhoSleepsIsWokenByASend) {
  ASSERT_EQ(right_.PostReceive(3, 0, 64), 0);
  std::thread sending([this] {
    EXPECT_EQ(left_.PostSend(Request(IBV_WR_SEND, 4), 0, 64), 0);
    EXPECT_EQ(Sleep(*left_.cq).status, IBV_WC_SUCCESS);
  });
  const ibv_wc received = Sleep(*right_.cq);
  sending.join();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.wr_id, 3u);
}

TEST_P(QueuePairTest, ConsumedEventsLeaveTheDescriptorQuiet) {
  ASSERT_EQ(right_.PostReceive(1, 0, 64), 0);
  EXPECT_FALSE(Readable(right_.cq->fd(), 0));
  right_.cq->ConsumeEvents();  // of none: returns
  ASSERT_TRUE(right_.cq->Arm().ok());
  ASSERT_EQ(left_.PostSend(Request(IBV_WR_SEND, 2), 0, 64), 0);
  ASSERT_EQ(Take(*left_.cq, 1).at(0).status, IBV_WC_SUCCESS);
  ASSERT_TRUE(Readable(right_.cq->fd(), 20'000));
  right_.cq->ConsumeEvents();
  EXPECT_FALSE(Readable(right_.cq->fd(), 0));
  EXPECT_EQ(Take(*right_.cq, 1).at(0).wr_id, 1u);
}

TEST_P(QueuePairTest, AZeroByteWriteNeedsNoMemoryAtEitherEnd) {
  ibv_send_wr request = Request(IBV_WR_RDMA_WRITE, 9);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(left_.qp->get(), &request, &bad), 0);
  const ibv_wc sent = Take(*left_.cq, 1).at(0);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS) << DescribeCompletion(sent.status);
}

TEST_P(QueuePairTest, AnInlineWriteNeedsNoRegisteredSource) {
  const std::uint64_t counter = 0x1122334455667788;
  ibv_sge piece = {reinterpret_cast<std::uint64_t>(&counter), sizeof(counter),
                   0};
  ibv_send_wr request = Request(IBV_WR_RDMA_WRITE, 9);
  request.send_flags |= IBV_SEND_INLINE;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.wr.rdma.remote_addr =
      reinterpret_cast<std::uint64_t>(right_.memory.data());
  request.wr.rdma.rkey = right_.region.rkey();
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(left_.qp->get(), &request, &bad), 0);
  EXPECT_EQ(Take(*left_.cq, 1).at(0).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(right_.memory.data(), &counter, sizeof(counter)), 0);
}

TEST_P(QueuePairTest, APeerThatIsGoneIsFoundAndNamed) {
  right_.qp.reset();
  ASSERT_EQ(left_.PostSend(Request(IBV_WR_SEND, 1), 0, 64), 0);
  const ibv_wc failed = Take(*left_.cq, 1).at(0);
  EXPECT_EQ(failed.status, IBV_WC_RETRY_EXC_ERR)
      << DescribeCompletion(failed.status);
  const std::string text = left_.qp->DescribeFailure(failed);
  const std::string path = left_.qp->DescribePath();
  const std::string peer = path.substr(path.find(" to ") + 4);
  EXPECT_EQ(text.rfind("IBV_WC_RETRY_EXC_ERR", 0), 0u) << text;
  EXPECT_NE(text.find("no answer from " + peer + " through " +
                      left_.device->info().name + " port 1"),
            std::string::npos)
      << text;
}

TEST_P(QueuePairTest, AConnectedQueuePairCannotBeConnectedAgain) {
  EXPECT_FALSE(left_.qp->Connect(right_.qp->endpoint()).ok());
}

TEST_P(QueuePairTest, ThePeersOtherLinkLayerIsAMismatch) {
  End lonely(GetParam());
  Endpoint remote = right_.qp->endpoint();
  remote.ethernet = 1 - remote.ethernet;
  EXPECT_EQ(lonely.qp->Connect(remote).code(), StatusCode::kMismatch);
}

}  // namespace
}  // namespace ringpipe::verbs
