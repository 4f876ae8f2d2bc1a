// What exists while a device is open, and that nothing is left afterwards.
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/liveness_bound.h"
#include "base/peer_process.h"
#include "base/thread_count.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"
#include "verbs/soft/stopped_copy.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint32_t kStoppedBytes = 256 << 10;
constexpr int kWritten = 0x11;
constexpr int kFilled = 0x77;

std::ptrdiff_t Count(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return std::distance(begin(entries), end(entries));
}

struct Held {
  std::ptrdiff_t descriptors = Count("/proc/self/fd");
  int threads = CountThreads();
  bool operator==(const Held&) const = default;
};

TEST(Lifetime, NothingIsLeftAfterClose) {
  { Pair warm_up; }  // a sanitizer may open something of its own
  const Held before;
  for (int i = 0; i < 3; ++i) {
    Pair pair;
    ASSERT_EQ(pair.b.Receive(1, {pair.b.Sge(0, 8)}), 0);
    ASSERT_EQ(pair.a.Send(1, {pair.a.Sge(0, 8)}), 0);
    ASSERT_TRUE(pair.a.Poll());
  }
  EXPECT_EQ(Held(), before);
}

TEST(Lifetime, NothingIsLeftOfAKilledPeer) {
  { Pair warm_up; }
  const Held before;
  {
    PeerProcess peer([](ValuePipe& pipe) {
      Endpoint endpoint;
      pipe.Put(endpoint.identity());
      endpoint.Connect(pipe.Get<Identity>());
      endpoint.Receive(1, {});
      pipe.Put(true);
      pipe.Get<bool>();
      return true;
    });
    Endpoint endpoint;
    const auto identity = peer.pipe().Get<Identity>();
    peer.pipe().Put(endpoint.identity());
    endpoint.Connect(identity);
    peer.pipe().Get<bool>();
    ASSERT_EQ(endpoint.Send(1, {}), 0);
    ASSERT_TRUE(endpoint.Poll());
    peer.Kill();
  }
  EXPECT_EQ(Held(), before);
}

TEST(Lifetime, HundredsOfQueuePairsShareALink) {
  constexpr int kQueuePairs = 300;
  EndpointOptions options;
  options.cqe = 4096;
  Pair pair(options);
  const Held before;
  std::vector<ibv_qp*> queue_pairs[2];
  Endpoint* const ends[2] = {&pair.a, &pair.b};
  for (int i = 0; i < 2 * kQueuePairs; ++i) {
    Endpoint& end = *ends[i % 2];
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = end.cq;
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    queue_pairs[i % 2].push_back(end.library().create_qp(end.pd, &attr));
    ASSERT_NE(queue_pairs[i % 2].back(), nullptr);
  }
  for (int i = 0; i < kQueuePairs; ++i) {
    for (int side = 0; side < 2; ++side) {
      // An endpoint connects its `qp`.
      std::swap(ends[side]->qp, queue_pairs[side][i]);
      ends[side]->ToInit();
      Identity peer;
      peer.qpn = queue_pairs[1 - side][i]->qp_num;
      ends[side]->Connect(peer);
      if (side == 1) {
        ASSERT_EQ(ends[1]->Receive(i, {}), 0);
      }
      std::swap(ends[side]->qp, queue_pairs[side][i]);
    }
  }
  for (int i = 0; i < kQueuePairs; ++i) {
    ibv_send_wr request = {};
    request.wr_id = i;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad;
    ASSERT_EQ(ibv_post_send(queue_pairs[0][i], &request, &bad), 0);
  }
  for (int i = 0; i < kQueuePairs; ++i) {
    ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
    ASSERT_EQ(pair.b.Poll().value().status, IBV_WC_SUCCESS);
  }
  EXPECT_LT(Held().descriptors - before.descriptors, 20);
  for (int i = 0; i < 2 * kQueuePairs; ++i) {
    EXPECT_EQ(ends[i % 2]->library().destroy_qp(queue_pairs[i % 2][i / 2]), 0);
  }
}

TEST(Lifetime, AllocatedMemoryIsZeroedAndReused) {
  Endpoint endpoint;
  const Library& library = endpoint.library();
  constexpr std::size_t kBytes = 3 << 20;
  void* first = library.allocate(endpoint.context, kBytes);
  ASSERT_NE(first, nullptr);
  memset(first, 1, kBytes);
  library.free(endpoint.context, first, kBytes);
  auto* second = static_cast<char*>(library.allocate(endpoint.context, kBytes));
  EXPECT_EQ(second, first);
  for (std::size_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(second[i], 0);
  }
  library.free(endpoint.context, second, kBytes);
  EXPECT_EQ(library.allocate(endpoint.context, std::size_t{1} << 60), nullptr);
}

// --- Deregistration in flight ------------------------------------------------

class Deregister : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Memory, Deregister, testing::Bool());

TEST_P(Deregister, NothingIsWrittenAfterItReturns) {
  EndpointOptions options;
  options.private_memory = GetParam();
  Pair pair(options);
  const Identity target = pair.b.identity();
  std::atomic<int> written{0};
  std::thread writer([&] {
    while (pair.a.Write(1, {pair.a.Sge(0, 100'000)}, target, 0) == 0) {
      const auto done = pair.a.Poll();
      if (!done || done->status != IBV_WC_SUCCESS) {
        EXPECT_EQ(done.value().status, IBV_WC_REM_ACCESS_ERR);
        return;
      }
      ++written;
    }
  });
  while (written < 10) {
    std::this_thread::yield();
  }
  ASSERT_EQ(pair.b.library().dereg_mr(pair.b.mr), 0);
  pair.b.mr = nullptr;
  memset(pair.b.data(), 0x77, 100'000);  // a race, if a still wrote
  writer.join();
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(pair.b.data()[i], std::byte{0x77});
  }
}

// After it the memory may be unmapped: who still looked would fault.
TEST_P(Deregister, NothingIsReadOrUpdatedAfterItReturns) {
  EndpointOptions options;
  options.private_memory = GetParam();
  for (const bool atomic : {false, true}) {
    Pair pair(options);
    const Identity target = pair.b.identity();
    std::atomic<int> done_before{0};
    std::atomic<bool> gone{false};
    std::thread reader([&] {
      while (true) {
        const bool after = gone;
        const int posted =
            atomic ? pair.a.FetchAdd(1, {pair.a.Sge(0, 8)}, target, 0, 1)
                   : pair.a.Read(1, {pair.a.Sge(0, 100'000)}, target, 0);
        ASSERT_EQ(posted, 0);
        const auto done = pair.a.Poll();
        ASSERT_TRUE(done);
        if (done->status != IBV_WC_SUCCESS) {
          EXPECT_EQ(done->status, IBV_WC_REM_ACCESS_ERR);
          return;
        }
        EXPECT_FALSE(after);
        ++done_before;
      }
    });
    while (done_before < 10) {
      std::this_thread::yield();
    }
    EXPECT_EQ(pair.b.library().dereg_mr(pair.b.mr), 0);
    gone = true;
    pair.b.mr = nullptr;
    memset(pair.b.data(), 0x77, 100'000);  // a race, if a were still at it
    reader.join();
    EXPECT_EQ(pair.b.data()[0], std::byte{0x77});
  }
}

// --- Deregistration while a peer is stopped ----------------------------------

// Writes all of its buffer to all of the other's; returns the status.
ibv_wc_status WriteAll(Endpoint& endpoint, const Identity& peer) {
  EXPECT_EQ(endpoint.Write(1, {endpoint.Sge(0, kStoppedBytes)}, peer, 0), 0);
  const auto done = endpoint.Poll();
  return done ? done->status : IBV_WC_GENERAL_ERR;
}

// A peer that writes, is stopped in the middle of its second write, goes on and
// ends it, and writes once more each time that it is told to. It puts the
// statuses of all but the first.
bool WriteAndStop(ValuePipe& pipe, const EndpointOptions& options) {
  Endpoint endpoint(options);
  memset(endpoint.data(), kWritten, kStoppedBytes);
  pipe.Put(endpoint.identity());
  const auto target = pipe.Get<Identity>();
  endpoint.Connect(target);
  pipe.Get<bool>();
  // The first one attaches, and so is the housekeeper's to make.
  if (WriteAll(endpoint, target) != IBV_WC_SUCCESS) {
    return false;
  }
  StopInNextCopyFrom(endpoint.data() + kStoppedBytes / 2);
  for (int write = 0; write < 3; ++write) {
    pipe.Put(WriteAll(endpoint, target));
    pipe.Get<bool>();
  }
  return true;
}

class StoppedPeer : public testing::TestWithParam<bool> {
 protected:
  StoppedPeer() {
    options_.private_memory = GetParam();
    options_.buffer_bytes = kStoppedBytes;
  }

  void Fill(Endpoint& endpoint, int value) {
    memset(endpoint.data(), value, kStoppedBytes);
  }
  int Dereg(Endpoint& endpoint) {
    return endpoint.library().dereg_mr(endpoint.mr);
  }

  EndpointOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Memory, StoppedPeer, testing::Bool());

// ibv_dereg_mr returns 0 or an errno, and after 0 no device touches the memory.
// An adapter can always keep that, as it ends what is in flight; a process that
// is stopped with the copy half made cannot be made to. So it must be refused,
// leave the region as it was, and work once the peer has gone on.
TEST_P(StoppedPeer, InTheMiddleOfAWriteHasDeregistrationRefused) {
  PeerProcess peer(
      [this](ValuePipe& pipe) { return WriteAndStop(pipe, options_); });
  Endpoint endpoint(options_);
  const auto identity = peer.pipe().Get<Identity>();
  endpoint.Connect(identity);
  peer.pipe().Put(endpoint.identity());
  peer.pipe().Put(true);
  int status = 0;
  ASSERT_EQ(waitpid(peer.pid(), &status, WUNTRACED), peer.pid());
  ASSERT_TRUE(WIFSTOPPED(status));

  const Clock::time_point start = Clock::now();
  EXPECT_EQ(Dereg(endpoint), EBUSY);
  EXPECT_LT(Clock::now() - start, LivenessBound(std::chrono::seconds(2)));
  Fill(endpoint, kFilled);
  kill(peer.pid(), SIGCONT);
  EXPECT_EQ(peer.pipe().Get<ibv_wc_status>(), IBV_WC_SUCCESS);
  // Why it had to be refused: the rest of the write came.
  EXPECT_EQ(endpoint.data()[kStoppedBytes - 1], std::byte{kWritten});

  peer.pipe().Put(true);
  EXPECT_EQ(peer.pipe().Get<ibv_wc_status>(), IBV_WC_SUCCESS);
  EXPECT_EQ(endpoint.data()[0], std::byte{kWritten});

  EXPECT_EQ(Dereg(endpoint), 0);
  endpoint.mr = nullptr;
  Fill(endpoint, kFilled);
  peer.pipe().Put(true);
  EXPECT_EQ(peer.pipe().Get<ibv_wc_status>(), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(endpoint.data()[0], std::byte{kFilled});
  EXPECT_EQ(endpoint.data()[kStoppedBytes - 1], std::byte{kFilled});
  peer.pipe().Put(true);
  EXPECT_TRUE(peer.Join());
}

// Only what is in the middle of something may hold deregistration up.
TEST_P(StoppedPeer, BetweenWritesLetsDeregistrationPass) {
  PeerProcess peer([this](ValuePipe& pipe) {
    Endpoint endpoint(options_);
    pipe.Put(endpoint.identity());
    const auto target = pipe.Get<Identity>();
    endpoint.Connect(target);
    pipe.Get<bool>();
    for (int write = 0; write < 2; ++write) {
      pipe.Put(WriteAll(endpoint, target));
      pipe.Get<bool>();
    }
    return true;
  });
  Endpoint endpoint(options_);
  const auto identity = peer.pipe().Get<Identity>();
  endpoint.Connect(identity);
  peer.pipe().Put(endpoint.identity());
  peer.pipe().Put(true);
  EXPECT_EQ(peer.pipe().Get<ibv_wc_status>(), IBV_WC_SUCCESS);
  int status = 0;
  kill(peer.pid(), SIGSTOP);
  ASSERT_EQ(waitpid(peer.pid(), &status, WUNTRACED), peer.pid());
  EXPECT_EQ(Dereg(endpoint), 0);
  endpoint.mr = nullptr;
  Fill(endpoint, kFilled);
  kill(peer.pid(), SIGCONT);
  peer.pipe().Put(true);
  EXPECT_EQ(peer.pipe().Get<ibv_wc_status>(), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(endpoint.data()[0], std::byte{kFilled});
  peer.pipe().Put(true);
  EXPECT_TRUE(peer.Join());
}

}  // namespace
}  // namespace ringpipe::verbs::soft
