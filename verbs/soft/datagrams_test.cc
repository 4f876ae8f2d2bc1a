// UD: datagrams between queue pairs that are not connected.
#include "verbs/soft/datagrams.h"

#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "auth/mac.h"
#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/liveness_bound.h"
#include "gtest/gtest.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/ud_endpoint.h"

namespace ringpipe::verbs::soft {
namespace {

void ExpectArrives(UdEndpoint& a, UdEndpoint& b, ibv_ah* path) {
  for (const std::uint32_t bytes : {0u, 1u, 64u, 1000u, kMaxDatagramBytes}) {
    for (std::uint32_t i = 0; i < bytes; ++i) {
      a.buffer[i] = static_cast<char>(i * 7 + bytes);
    }
    ASSERT_EQ(b.Receive(bytes, 0, kGrhBytes + kMaxDatagramBytes), 0);
    ASSERT_EQ(a.Send(path, b.qp->qp_num, 0, bytes, kQkey, bytes), 0);
    const auto sent = a.Poll();
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->status, IBV_WC_SUCCESS);
    const auto received = b.Poll();
    ASSERT_TRUE(received);
    EXPECT_EQ(received->status, IBV_WC_SUCCESS);
    EXPECT_EQ(received->wr_id, bytes);
    EXPECT_EQ(received->byte_len, bytes + kGrhBytes);
    EXPECT_EQ(received->src_qp, a.qp->qp_num);
    EXPECT_EQ(received->imm_data, bytes);
    EXPECT_NE(received->wc_flags & IBV_WC_WITH_IMM, 0u);
    EXPECT_EQ(memcmp(a.buffer.data(), b.buffer.data() + kGrhBytes, bytes), 0);
  }
}

TEST(Datagrams, ArriveWithTheirSourceAndImmediate) {
  UdEndpoint a, b;
  ExpectArrives(a, b, a.PathTo(b));
}

TEST(Datagrams, ArriveByLidOnInfiniband) {
  const Options infiniband = {.link_layer = LinkLayer::kInfiniband};
  UdEndpoint a(infiniband), b(infiniband);
  ExpectArrives(a, b, a.PathByLid(b));
}

TEST(Datagrams, FillASharedReceiveQueue) {
  UdEndpoint a;
  UdEndpoint b({}, kQkey, /*shares_receives=*/true);
  ibv_ah* path = a.PathTo(b);
  ASSERT_EQ(a.Send(path, b.qp->qp_num, 0, 8), 0);  // no receive: lost
  ASSERT_TRUE(a.Poll());
  EXPECT_FALSE(b.Poll(std::chrono::milliseconds(20)));
  for (std::uint64_t id = 1; id <= 2; ++id) {
    ASSERT_EQ(b.Receive(id, 0, kGrhBytes + 8), 0);
    ASSERT_EQ(a.Send(path, b.qp->qp_num, 0, 8), 0);
    ASSERT_TRUE(a.Poll());
    const auto received = b.Poll();
    ASSERT_TRUE(received);
    EXPECT_EQ(received->wr_id, id);
    EXPECT_EQ(received->src_qp, a.qp->qp_num);
  }
}

TEST(Datagrams, NeedAGrhOnEthernet) {
  UdEndpoint a;
  ibv_ah_attr attr = {};
  attr.port_num = 1;
  attr.dlid = 1;
  EXPECT_EQ(CreateAh(a.pd, &attr), nullptr);
}

TEST(Datagrams, CarryTheAddressesInTheGrh) {
  UdEndpoint a, b;
  ASSERT_EQ(b.Receive(1, 0, 256), 0);
  ASSERT_EQ(a.Send(a.PathTo(b), b.qp->qp_num, 0, 8), 0);
  const auto received = b.Poll();
  ASSERT_TRUE(received);
  EXPECT_NE(received->wc_flags & IBV_WC_GRH, 0u);
  ibv_gid gid;
  ASSERT_EQ(QueryGid(a.context, 1, 0, &gid), 0);
  // RoCE v2 over IPv4: an IPv4 header in the last 20 of the 40 bytes.
  EXPECT_EQ(memcmp(b.buffer.data() + 32, gid.raw + 12, 4), 0);
  EXPECT_EQ(memcmp(b.buffer.data() + 36, gid.raw + 12, 4), 0);
}

TEST(Datagrams, AreLostWithTheWrongQkeyWithoutAReceiveAndWithoutRoom) {
  UdEndpoint a, b;
  ibv_ah* path = a.PathTo(b);
  ASSERT_EQ(a.Send(path, b.qp->qp_num, 0, 8), 0);  // no receive
  ASSERT_TRUE(a.Poll());
  EXPECT_FALSE(b.Poll(std::chrono::milliseconds(20)));
  ASSERT_EQ(b.Receive(1, 0, kGrhBytes + 8), 0);
  ASSERT_EQ(a.Send(path, b.qp->qp_num, 0, 8, kQkey + 1), 0);
  ASSERT_TRUE(a.Poll());
  ASSERT_EQ(a.Send(path, b.qp->qp_num, 0, 9), 0);  // no room
  ASSERT_TRUE(a.Poll());
  EXPECT_FALSE(b.Poll(std::chrono::milliseconds(20)));
  ASSERT_EQ(a.Send(path, b.qp->qp_num, 0, 8), 0);
  ASSERT_TRUE(a.Poll());
  const auto received = b.Poll();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->wr_id, 1u);
}

TEST(Datagrams, ToNobodyAreSentAndLost) {
  UdEndpoint a;
  auto b = std::make_unique<UdEndpoint>();
  ibv_ah* path = a.PathTo(*b);
  const std::uint32_t qpn = b->qp->qp_num;
  b.reset();
  ASSERT_EQ(a.Send(path, qpn, 0, 8), 0);
  const auto sent = a.Poll();
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, IBV_WC_SUCCESS);
}

TEST(Datagrams, LongerThanThePacketFailAtTheSender) {
  UdEndpoint a, b;
  ASSERT_EQ(a.Send(a.PathTo(b), b.qp->qp_num, 0, kMaxDatagramBytes + 1), 0);
  const auto sent = a.Poll();
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, IBV_WC_LOC_LEN_ERR);
}

TEST(Datagrams, WakeAnArmedReceiver) {
  UdEndpoint a, b;
  ASSERT_EQ(b.Receive(1, 0, 256), 0);
  ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
  ASSERT_EQ(a.Send(a.PathTo(b), b.qp->qp_num, 0, 8), 0);
  pollfd readable = {b.channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 10'000), 1);
  ibv_cq* cq;
  void* cq_context;
  ASSERT_EQ(GetCqEvent(b.channel, &cq, &cq_context), 0);
  AckCqEvents(cq, 1);
  EXPECT_TRUE(b.Poll(std::chrono::milliseconds(0)));
}

TEST(Datagrams, WakeACompletionQueueThatWasArmedBeforeItsQueuePairExisted) {
  UdEndpoint a;
  UdEndpoint b({}, kQkey, /*shares_receives=*/false, /*arm_first=*/true);
  ASSERT_EQ(b.Receive(1, 0, 256), 0);
  ASSERT_EQ(a.Send(a.PathTo(b), b.qp->qp_num, 0, 8), 0);
  pollfd readable = {b.channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 10'000), 1);
  ibv_cq* cq;
  void* cq_context;
  ASSERT_EQ(GetCqEvent(b.channel, &cq, &cq_context), 0);
  AckCqEvents(cq, 1);
}

// The socket of a context that is not there, as if its process were slow.
FileDescriptor SlowReceiver(std::uint32_t block) {
  FileDescriptor receiver(
      socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = DatagramAddress(Options(), block, &address);
  EXPECT_EQ(bind(receiver.get(), reinterpret_cast<sockaddr*>(&address), length),
            0);
  return receiver;
}

// How many sends have ended, once one has; nobody polls meanwhile.
int TakeAfterEvent(UdEndpoint& endpoint) {
  ibv_cq* cq;
  void* cq_context;
  EXPECT_EQ(GetCqEvent(endpoint.channel, &cq, &cq_context), 0);
  AckCqEvents(cq, 1);
  EXPECT_EQ(ibv_req_notify_cq(endpoint.cq, 0), 0);
  int taken = 0;
  while (endpoint.Poll(std::chrono::milliseconds(0))) {
    ++taken;
  }
  return taken;
}

// The kernel queues few datagrams for a receiver (net.unix.max_dgram_qlen). A
// sender that found so many there, and that nobody polls for, tried again by a
// timer of 10 ms: a hundred datagrams a second.
TEST(Datagrams, ThatNobodyPollsForWaitForRoomAndNotForATimer) {
  constexpr std::uint32_t kBlock = (1u << kBlockBits) - 1;
  constexpr int kWindow = 60;  // of sends; more than there is room for
  constexpr int kDatagrams = 1'500;
  const FileDescriptor receiver = SlowReceiver(kBlock);
  UdEndpoint sender({}, kQkey, false, /*arm_first=*/true);
  ibv_ah* const path = sender.PathTo(sender);
  const auto start = Clock::now();
  int posted = 0;
  for (int sent = 0; sent < kDatagrams; sent += TakeAfterEvent(sender)) {
    for (; posted - sent < kWindow; ++posted) {
      ASSERT_EQ(sender.Send(path, kBlock << kIndexBits, 0, 8), 0);
    }
    std::byte datagram[256];
    ASSERT_GT(recv(receiver.get(), datagram, sizeof datagram, 0), 0);
  }
  EXPECT_LT(Clock::now() - start, LivenessBound(std::chrono::seconds(1)));
}

// As a datagram comes over UDP to a queue pair: with the MAC by `key`.
std::string UdpDatagram(const UdEndpoint& to, const std::string& key) {
  DatagramHeader header;
  header.dest_qpn = to.qp->qp_num;
  header.src_qpn = 1;
  header.qkey = kQkey;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += "payload!";
  const Result<Mac> mac =
      ComputeMac(key, {"ringpipe software verbs datagram", bytes});
  bytes.append(reinterpret_cast<const char*>(mac.value().data()), sizeof(Mac));
  return bytes;
}

TEST(Datagrams, OverUdpWithoutTheSecretAreDropped) {
  Options options;
  options.key = "the secret";
  options.other_hosts = true;
  UdEndpoint endpoint(options);
  ASSERT_EQ(endpoint.Receive(1, 0, kGrhBytes + kMaxDatagramBytes), 0);
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(
      options.first_port + BlockOf(endpoint.qp->qp_num)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto send = [&](const std::string& key) {
    const std::string bytes = UdpDatagram(endpoint, key);
    EXPECT_EQ(
        sendto(socket.get(), bytes.data(), bytes.size(), 0,
               reinterpret_cast<const sockaddr*>(&address), sizeof address),
        static_cast<ssize_t>(bytes.size()));
  };
  send("");
  send("another secret");
  EXPECT_FALSE(endpoint.Poll(std::chrono::milliseconds(100)));
  send(options.key);
  EXPECT_TRUE(endpoint.Poll());
}

// A receiver that does not poll must not hold its senders up for ever.
TEST(Datagrams, AreLostWhenTheReceiverDoesNotKeepUp) {
  UdEndpoint a, b;
  ibv_ah* path = a.PathTo(b);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(a.Send(path, b.qp->qp_num, 0, 4096), 0);
    const auto sent = a.Poll(std::chrono::seconds(5));
    ASSERT_TRUE(sent);
    ASSERT_EQ(sent->status, IBV_WC_SUCCESS);
  }
}

}  // namespace
}  // namespace ringpipe::verbs::soft
