// The connection manager on a real iWARP device, such as the kernel's siw: two
// ends with a context each, of one device or of two that a link connects.
//
// RDMA_DEV and RDMA_ADDR name the device and its interface's address; RDMA_DEV2
// and RDMA_ADDR2, where they are set, those of the second end.
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/liveness_bound.h"
#include "verbs/connection_manager.h"

namespace ringpipe::verbs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kBytes = 1 << 20;
constexpr int kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Place {
  std::string device;
  IpAddress ip;
};

// Of end 0 or 1.
Place PlaceOf(int end) {
  const char* device = std::getenv(end == 0 ? "RDMA_DEV" : "RDMA_DEV2");
  const char* address = std::getenv(end == 0 ? "RDMA_ADDR" : "RDMA_ADDR2");
  if (end == 1 && device == nullptr) {
    return PlaceOf(0);
  }
  const auto ip = IpAddress::Parse(address != nullptr ? address : "");
  EXPECT_TRUE(ip.has_value()) << "no address for " << device;
  return {device, ip.value_or(IpAddress{})};
}

bool TwoDevices() { return std::getenv("RDMA_DEV2") != nullptr; }

std::shared_ptr<Device> OpenDevice(const std::string& name) {
  const auto opened = Device::Open(DeviceRequest::Parse("=" + name).value(), {},
                                   LoadSystemLibrary(), nullptr);
  EXPECT_TRUE(opened.ok()) << opened.status().ToString();
  return opened.ok() ? opened.value().front() : nullptr;
}

// The name of the network interface that has `ip`.
std::string InterfaceOf(const IpAddress& ip) {
  ifaddrs* all = nullptr;
  std::string name;
  const sockaddr_storage wanted = ip.SocketAddress(0);
  if (getifaddrs(&all) != 0) {
    return name;
  }
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET &&
        wanted.ss_family == AF_INET &&
        std::memcmp(each->ifa_addr, &wanted, sizeof(sockaddr_in)) == 0) {
      name = each->ifa_name;
    }
  }
  freeifaddrs(all);
  return name;
}

std::uint64_t SentBytes(const Place& place) {
  std::ifstream file("/sys/class/net/" + InterfaceOf(place.ip) +
                     "/statistics/tx_bytes");
  std::uint64_t bytes = 0;
  EXPECT_TRUE(file >> bytes) << place.device << " " << place.ip.Text();
  return bytes;
}

ibv_send_wr Request(ibv_wr_opcode opcode, unsigned int flags) {
  ibv_send_wr request = {};
  request.opcode = opcode;
  request.send_flags = flags;
  return request;
}

// One end: two queue pairs on one completion queue, the first active at end 0,
// the second at end 1.
struct End {
  explicit End(int rank) : end(rank) {
    const Place place = PlaceOf(end);
    device = OpenDevice(place.device);
    pd = ProtectionDomain::Create(device).value();
    cq = CompletionQueue::Create(device, 256).value();
    for (auto& qp : qps) {
      auto created =
          QueuePair::Create(pd, cq, {.max_send = 16, .max_receive = 16});
      EXPECT_TRUE(created.ok()) << created.status().ToString();
      qp = std::move(created).value();
    }
    memory.resize(kBytes);
    region = MemoryRegion::Register(pd, memory.data(), kBytes, kAll).value();
    auto created = ConnectionManager::Create(pd, place.ip);
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    manager = std::move(created).value();
  }

  std::vector<ConnectionManager::Connection> Connections(
      const ConnectionManagerAddress& remote) {
    return {{qps[0].get(), 7, 1 - end, end == 0, remote},
            {qps[1].get(), 8, 1 - end, end == 1, remote}};
  }

  Status Connect(const ConnectionManagerAddress& remote,
                 Deadline deadline = Deadline::After(seconds(10))) {
    return manager->ConnectAll(end, Connections(remote), deadline);
  }

  ibv_sge Piece(std::size_t offset, std::size_t bytes) const {
    return {reinterpret_cast<std::uint64_t>(memory.data()) + offset,
            static_cast<std::uint32_t>(bytes), region.lkey()};
  }

  int PostReceive(int qp, std::uint64_t id, std::size_t offset,
                  std::size_t bytes) {
    ibv_sge piece = Piece(offset, bytes);
    ibv_recv_wr request = {};
    request.wr_id = id;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qps[qp]->get(), &request, &bad);
  }

  // A signaled SEND, unless `request` says otherwise.
  int PostSend(int qp, std::uint64_t id, std::size_t offset, std::size_t bytes,
               ibv_send_wr request = Request(IBV_WR_SEND, IBV_SEND_SIGNALED)) {
    ibv_sge piece = Piece(offset, bytes);
    request.wr_id = id;
    request.sg_list = &piece;
    request.num_sge = bytes == 0 ? 0 : 1;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qps[qp]->get(), &request, &bad);
  }

  // The next completion; status IBV_WC_GENERAL_ERR and id 0 after `wait`.
  ibv_wc Next(milliseconds wait = seconds(20)) {
    ibv_wc completion = {};
    const Deadline deadline = Deadline::After(wait);
    while (true) {
      EXPECT_TRUE(cq->Arm().ok());
      if (cq->Poll({&completion, 1}) == 1) {
        return completion;
      }
      if (deadline.expired()) {
        completion.status = IBV_WC_GENERAL_ERR;
        return completion;
      }
      pollfd ready = {cq->fd(), POLLIN, 0};
      poll(&ready, 1, deadline.PollTimeoutMs(1000));
      cq->ConsumeEvents();
    }
  }

  void ExpectNext(std::uint64_t id) {
    const ibv_wc completion = Next();
    EXPECT_EQ(completion.wr_id, id);
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS)
        << DescribeCompletion(completion.status);
  }

  int end;
  std::shared_ptr<Device> device;
  std::shared_ptr<ProtectionDomain> pd;
  std::shared_ptr<CompletionQueue> cq;
  std::vector<std::uint8_t> memory;
  MemoryRegion region;
  std::unique_ptr<ConnectionManager> manager;
  std::array<std::unique_ptr<QueuePair>, 2> qps;
};

class ConnectionManagerOnDevice : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::getenv("RDMA_DEV") != nullptr &&
                std::getenv("RDMA_ADDR") != nullptr)
        << "they name the iWARP device to test, and its interface's address";
  }
};

void ConnectBoth(End& a, End& b) {
  Status of_b;
  std::thread thread([&] { of_b = b.Connect(a.manager->address()); });
  const Status of_a = a.Connect(b.manager->address());
  thread.join();
  ASSERT_TRUE(of_a.ok()) << of_a.ToString();
  ASSERT_TRUE(of_b.ok()) << of_b.ToString();
}

TEST_F(ConnectionManagerOnDevice, EitherEndSendsFirstAndTheDataCrossTheLink) {
  End a(0);
  End b(1);
  for (std::size_t i = 0; i < kBytes; ++i) {
    a.memory[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  }
  for (int qp = 0; qp < 2; ++qp) {
    const std::size_t at = qp * kBytes / 4;
    ASSERT_EQ(b.PostReceive(qp, 10 + qp, at, kBytes / 4), 0);
    ASSERT_EQ(a.PostReceive(qp, 20 + qp, kBytes / 2 + at, kBytes / 4), 0);
  }
  const std::uint64_t a_before = SentBytes(PlaceOf(0));
  const std::uint64_t b_before = SentBytes(PlaceOf(1));
  ConnectBoth(a, b);
  for (int qp = 0; qp < 2; ++qp) {
    const std::size_t at = qp * kBytes / 4;
    ASSERT_EQ(a.PostSend(qp, 30 + qp, at, kBytes / 4), 0);
    a.ExpectNext(30 + qp);
    b.ExpectNext(10 + qp);
    ASSERT_EQ(b.PostSend(qp, 40 + qp, at, kBytes / 4), 0);
    b.ExpectNext(40 + qp);
    a.ExpectNext(20 + qp);
  }
  EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + kBytes / 2,
                         b.memory.begin()));
  EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + kBytes / 2,
                         a.memory.begin() + kBytes / 2));
  if (TwoDevices()) {
    EXPECT_GE(SentBytes(PlaceOf(0)) - a_before, kBytes / 2);
    EXPECT_GE(SentBytes(PlaceOf(1)) - b_before, kBytes / 2);
  }
}

TEST_F(ConnectionManagerOnDevice, ThePassiveEndMaySendAtOnceAgainAndAgain) {
  for (int round = 0; round < 20; ++round) {
    End a(0);
    End b(1);
    ASSERT_EQ(a.PostReceive(0, 1, 0, 4096), 0);
    // On its thread, without a word of the other: b is passive for queue pair
    // 0.
    Status of_b;
    int posted = -1;
    std::thread thread([&] {
      of_b = b.Connect(a.manager->address());
      posted = of_b.ok() ? b.PostSend(0, 2, 0, 4096) : -1;
    });
    const Status of_a = a.Connect(b.manager->address());
    thread.join();
    ASSERT_TRUE(of_a.ok()) << of_a.ToString();
    ASSERT_TRUE(of_b.ok()) << of_b.ToString();
    ASSERT_EQ(posted, 0);
    a.ExpectNext(1);
    b.ExpectNext(2);
  }
}

TEST_F(ConnectionManagerOnDevice, AStrangerIsRefusedAndHurtsNobody) {
  End a(0);
  End b(1);
  End stranger(0);
  ConnectionManagerAddress wrong = b.manager->address();
  wrong.token ^= 1;
  const ConnectionManager::Connection intrusion = {stranger.qps[0].get(), 7, 1,
                                                   true, wrong};
  Status of_stranger;
  std::thread intruder([&] {
    of_stranger = stranger.manager->ConnectAll(0, {&intrusion, 1},
                                               Deadline::After(seconds(10)));
  });
  // b is at work and refuses, while a has not come yet.
  Status of_b;
  std::thread thread([&] { of_b = b.Connect(a.manager->address()); });
  intruder.join();
  const Status of_a = a.Connect(b.manager->address());
  thread.join();
  EXPECT_TRUE(of_a.ok()) << of_a.ToString();
  EXPECT_TRUE(of_b.ok()) << of_b.ToString();
  EXPECT_EQ(b.manager->strangers(), 1);
  EXPECT_EQ(of_stranger.code(), StatusCode::kPeerLost);
  EXPECT_NE(of_stranger.message().find("RDMA_CM_EVENT_REJECTED"),
            std::string::npos)
      << of_stranger.message();
}

TEST_F(ConnectionManagerOnDevice, APeerThatNeverComesEndsInTimeAtBothEnds) {
  End a(0);
  End b(1);  // listens, but does not look
  const auto start = Clock::now();
  const Status status =
      a.Connect(b.manager->address(), Deadline::After(seconds(1)));
  EXPECT_LT(Clock::now() - start, LivenessBound(seconds(2)));
  // The kernel's own timer of 10 s ends the handshake.
  a.qps = {};
  a.manager.reset();
  EXPECT_LT(Clock::now() - start, seconds(10) + LivenessBound(seconds(2)));
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
  EXPECT_NE(status.message().find("rank 1"), std::string::npos)
      << status.message();
  std::printf("never comes: %s\n", status.ToString().c_str());
}

TEST_F(ConnectionManagerOnDevice, AClosedPortIsTriedUntilTheDeadline) {
  End a(0);
  ConnectionManagerAddress gone;
  {
    End b(1);
    gone = b.manager->address();
  }
  const auto start = Clock::now();
  const Status status = a.Connect(gone, Deadline::After(seconds(1)));
  EXPECT_LT(Clock::now() - start, LivenessBound(seconds(2)));
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_NE(status.message().find("the last try"), std::string::npos)
      << status.message();
  std::printf("closed port: %s\n", status.ToString().c_str());
}

TEST_F(ConnectionManagerOnDevice, AnAddressOfNobodyIsNamed) {
  End a(0);
  ConnectionManagerAddress nobody = a.manager->address();
  nobody.ip.bytes[15] = 99;
  const auto start = Clock::now();
  const Status status = a.Connect(nobody, Deadline::After(seconds(5)));
  std::printf("nobody, after %lld ms: %s\n",
              static_cast<long long>(
                  std::chrono::duration_cast<milliseconds>(Clock::now() - start)
                      .count()),
              status.ToString().c_str());
  EXPECT_LT(Clock::now() - start, seconds(5) + LivenessBound(seconds(2)));
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(nobody.ip.Text()), std::string::npos);
}

TEST_F(ConnectionManagerOnDevice, DestroyingOneEndFlushesTheOther) {
  for (const bool manager_first : {true, false}) {
    End a(0);
    End b(1);
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(a.PostReceive(0, i, 0, 64), 0);
    }
    ConnectBoth(a, b);
    const auto start = Clock::now();
    if (manager_first) {
      b.manager.reset();
    }
    b.qps = {};
    b.manager.reset();
    EXPECT_LT(Clock::now() - start, LivenessBound(seconds(2)));
    for (std::uint64_t i = 0; i < 4; ++i) {
      const ibv_wc completion = a.Next();
      EXPECT_EQ(completion.wr_id, i);
      EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    }
  }
}

// What a child process tells its parent and the other way round.
struct Message {
  ConnectionManagerAddress address;
};

[[noreturn]] void RunUntilKilled(int fd) {
  End b(1);
  Message mine = {b.manager->address()};
  Message theirs;
  if (write(fd, &mine, sizeof(mine)) == sizeof(mine) &&
      read(fd, &theirs, sizeof(theirs)) == sizeof(theirs) &&
      b.Connect(theirs.address).ok() && b.PostReceive(0, 1, 0, 64) == 0 &&
      write(fd, "c", 1) == 1) {
    pause();
  }
  _exit(1);
}

TEST_F(ConnectionManagerOnDevice, AKilledPeersReceiverIsFlushedWithinASecond) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const pid_t child = fork();  // before this test opens a device
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(fds[0]);
    RunUntilKilled(fds[1]);
  }
  close(fds[1]);
  End a(0);
  ASSERT_EQ(a.PostReceive(0, 5, 0, 64), 0);
  const Message mine = {a.manager->address()};
  Message theirs;
  char connected = 0;
  ASSERT_EQ(read(fds[0], &theirs, sizeof(theirs)),
            static_cast<ssize_t>(sizeof(theirs)));
  ASSERT_EQ(write(fds[0], &mine, sizeof(mine)),
            static_cast<ssize_t>(sizeof(mine)));
  const Status status = a.Connect(theirs.address);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(read(fds[0], &connected, 1), 1);
  const auto start = Clock::now();
  kill(child, SIGKILL);
  const ibv_wc completion = a.Next();
  EXPECT_LT(Clock::now() - start, LivenessBound(seconds(1)));
  EXPECT_EQ(completion.wr_id, 5U);
  EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
  waitpid(child, nullptr, 0);
  close(fds[0]);
}

TEST_F(ConnectionManagerOnDevice, CarriesWhatTheWireProtocolUses) {
  End a(0);
  End b(1);
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(b.PostReceive(0, 100 + i, 1024 + 64 * i, 64), 0);
  }
  ConnectBoth(a, b);
  std::printf("max_inline_bytes granted of 64: %d\n",
              a.qps[0]->max_inline_bytes());
  ASSERT_GE(a.qps[0]->max_inline_bytes(), 16);

  // Inline: the source may change at once.
  a.memory[0] = 11;
  ASSERT_EQ(
      a.PostSend(0, 1, 0, 16,
                 Request(IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE)),
      0);
  a.memory[0] = 12;
  a.ExpectNext(1);
  b.ExpectNext(100);
  EXPECT_EQ(b.memory[1024], 11);

  // A credit: an inline write of 8 bytes, then an empty write as a probe.
  ibv_send_wr write =
      Request(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  write.wr.rdma.remote_addr = b.Piece(64, 8).addr;
  write.wr.rdma.rkey = b.region.rkey();
  const std::uint64_t word = 0x0123456789abcdef;
  std::memcpy(&a.memory[128], &word, 8);
  ASSERT_EQ(a.PostSend(0, 2, 128, 8, write), 0);
  a.ExpectNext(2);
  write.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(a.PostSend(0, 3, 0, 0, write), 0);
  a.ExpectNext(3);

  // Three linked requests, of which the last is signaled; writes and sends take
  // effect in order, so the word is there when the sends have come.
  ibv_sge piece = a.Piece(0, 64);
  ibv_send_wr batch[3] = {};
  for (int i = 0; i < 3; ++i) {
    batch[i].wr_id = 4 + i;
    batch[i].opcode = IBV_WR_SEND;
    batch[i].sg_list = &piece;
    batch[i].num_sge = 1;
    batch[i].next = i < 2 ? &batch[i + 1] : nullptr;
    batch[i].send_flags = i < 2 ? 0 : IBV_SEND_SIGNALED;
  }
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.qps[0]->get(), batch, &bad), 0);
  a.ExpectNext(6);
  for (int i = 1; i < 4; ++i) {
    b.ExpectNext(100 + i);
  }
  EXPECT_EQ(std::memcmp(&b.memory[64], &word, 8), 0);

  // More unsignaled sends than the queue has room for, in turns of 8.
  for (int i = 0; i < 64; ++i) {
    const bool signaled = i % 8 == 7;
    ASSERT_EQ(a.PostSend(0, 200 + i, 128, 8,
                         Request(IBV_WR_SEND,
                                 signaled ? unsigned{IBV_SEND_SIGNALED} : 0U)),
              0)
        << i;
    if (i < 4) {
      b.ExpectNext(104 + i);
    }
    ASSERT_EQ(b.PostReceive(0, 300 + i, 1024, 64), 0);
    if (i >= 4) {
      b.ExpectNext(300 + i - 4);
    }
    if (signaled) {
      a.ExpectNext(200 + i);
    }
  }

  // To ERR: what is posted is flushed, here and there.
  ASSERT_TRUE(b.qps[0]->Fail().ok());
  for (int i = 60; i < 64; ++i) {
    const ibv_wc completion = b.Next();
    EXPECT_EQ(completion.wr_id, 300U + i);
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
  }
}

}  // namespace
}  // namespace ringpipe::verbs
