// Atomics: what they do, and that they exclude each other whoever executes them
// and however it reaches the memory.
#include <signal.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "base/deadline.h"
#include "base/liveness_bound.h"
#include "base/peer_process.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"
#include "verbs/soft/forbidden_copies.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

std::uint64_t Word(Endpoint& endpoint, std::size_t offset) {
  return std::atomic_ref(
             *reinterpret_cast<std::uint64_t*>(endpoint.data() + offset))
      .load();
}

void SetWord(Endpoint& endpoint, std::size_t offset, std::uint64_t word) {
  memcpy(endpoint.data() + offset, &word, sizeof word);
}

// (adversary seed, private memory)
class Atomics : public testing::TestWithParam<std::tuple<std::uint64_t, bool>> {
 protected:
  Atomics() {
    options_.adversary_seed = std::get<0>(GetParam());
    options_.private_memory = std::get<1>(GetParam());
  }
  EndpointOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Atomics,
                         testing::Combine(testing::Values(0, 11),
                                          testing::Bool()));

TEST_P(Atomics, FetchAddAddsAndReturnsWhatWasThere) {
  Pair pair(options_);
  SetWord(pair.b, 16, ~std::uint64_t{0});
  ASSERT_EQ(pair.a.FetchAdd(5, {pair.a.Sge(8, 8)}, pair.b.identity(), 16, 3),
            0);
  const auto done = pair.a.Poll();
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, IBV_WC_SUCCESS);
  EXPECT_EQ(done->opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(done->byte_len, 8u);
  EXPECT_EQ(Word(pair.a, 8), ~std::uint64_t{0});
  EXPECT_EQ(Word(pair.b, 16), 2u);  // modulo 2^64
  EXPECT_TRUE(pair.b.Quiet());
}

TEST_P(Atomics, CompareSwapSwapsOnlyWhatItExpects) {
  Pair pair(options_);
  SetWord(pair.b, 0, 100);
  const std::uint64_t compares[] = {99, 100, 100};
  for (const std::uint64_t compare : compares) {
    const std::uint64_t before = Word(pair.b, 0);
    ASSERT_EQ(pair.a.CompareSwap(1, {pair.a.Sge(0, 8)}, pair.b.identity(), 0,
                                 compare, 200),
              0);
    const auto done = pair.a.Poll();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->status, IBV_WC_SUCCESS);
    EXPECT_EQ(done->opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(Word(pair.a, 0), before);
    EXPECT_EQ(Word(pair.b, 0), compare == before ? 200u : before);
  }
}

TEST_P(Atomics, ResultIsScattered) {
  Pair pair(options_);
  SetWord(pair.b, 0, 0x0807060504030201);
  ASSERT_EQ(pair.a.FetchAdd(1, {pair.a.Sge(1, 3), pair.a.Sge(100, 5)},
                            pair.b.identity(), 0, 1),
            0);
  ASSERT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.data()[3], std::byte{3});
  EXPECT_EQ(pair.a.data()[100], std::byte{4});
  EXPECT_EQ(pair.a.data()[104], std::byte{8});
}

TEST_P(Atomics, ThreadsOfOneProcessSumUpExactly) {
  constexpr std::uint64_t kEach = 300;
  Pair first(options_);
  // A second requester, on memory of the same context.
  EndpointOptions options = options_;
  Endpoint second(options);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = first.b.cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* own = first.b.qp;
  ibv_qp* other = first.b.library().create_qp(first.b.pd, &init);
  ASSERT_NE(other, nullptr);
  first.b.qp = other;
  first.b.ToInit();
  second.Connect(first.b.identity());
  first.b.Connect(second.identity());
  first.b.qp = own;
  const Identity target = first.b.identity();
  const auto add = [&](Endpoint& endpoint) {
    for (std::uint64_t i = 0; i < kEach; ++i) {
      ASSERT_EQ(endpoint.FetchAdd(i, {endpoint.Sge(0, 8)}, target, 8, 1), 0);
      ASSERT_EQ(endpoint.Poll().value().status, IBV_WC_SUCCESS);
    }
  };
  std::thread thread([&] { add(second); });
  add(first.a);
  thread.join();
  EXPECT_EQ(Word(first.b, 8), 2 * kEach);
  EXPECT_EQ(first.b.library().destroy_qp(other), 0);
}

// --- Across processes --------------------------------------------------------

// A responder with a queue pair for each of its requesters.
class Responders {
 public:
  Responders(const EndpointOptions& options, int count) : endpoint_(options) {
    for (int i = 1; i < count; ++i) {
      ibv_qp_init_attr init = {};
      init.send_cq = init.recv_cq = endpoint_.cq;
      init.cap = {4, 4, 1, 1, 0};
      init.qp_type = IBV_QPT_RC;
      more_.push_back(endpoint_.library().create_qp(endpoint_.pd, &init));
    }
  }
  ~Responders() {
    for (ibv_qp* qp : more_) {
      endpoint_.library().destroy_qp(qp);
    }
  }

  // Connects the queue pair number `i` with who is at the other end of `pipe`.
  void Connect(int i, ValuePipe& pipe) {
    ibv_qp* own = endpoint_.qp;
    if (i > 0) {
      endpoint_.qp = more_[i - 1];
      endpoint_.ToInit();
    }
    pipe.Put(endpoint_.identity());
    endpoint_.Connect(pipe.Get<Identity>());
    endpoint_.qp = own;
  }
  Endpoint& endpoint() { return endpoint_; }

 private:
  Endpoint endpoint_;
  std::vector<ibv_qp*> more_;
};

using Prepare = void (*)();
void DoNothing() {}

// Adds 1 at offset 8, `count` times (0: until it is killed).
bool Add(ValuePipe& pipe, const EndpointOptions& options, int count,
         Prepare prepare) {
  prepare();
  Endpoint endpoint(options);
  const auto target = pipe.Get<Identity>();
  pipe.Put(endpoint.identity());
  endpoint.Connect(target);
  pipe.Get<bool>();  // all are connected
  for (int i = 0; count == 0 || i < count; ++i) {
    endpoint.FetchAdd(i, {endpoint.Sge(0, 8)}, target, 8, 1);
    const auto done = endpoint.Poll();
    if (!done || done->status != IBV_WC_SUCCESS) {
      return false;
    }
    if (i == 0) {
      pipe.Put(true);
    }
  }
  pipe.Put(true);
  return pipe.Get<bool>();
}

void ExpectExactSum(const EndpointOptions& options, int count,
                    const std::vector<Prepare>& requesters) {
  std::vector<std::unique_ptr<PeerProcess>> peers;
  for (const Prepare prepare : requesters) {
    peers.push_back(std::make_unique<PeerProcess>(
        [=](ValuePipe& pipe) { return Add(pipe, options, count, prepare); }));
  }
  Responders responders(options, static_cast<int>(peers.size()));
  for (std::size_t i = 0; i < peers.size(); ++i) {
    responders.Connect(static_cast<int>(i), peers[i]->pipe());
  }
  for (const auto& peer : peers) {
    peer->pipe().Put(true);
  }
  for (const auto& peer : peers) {
    peer->pipe().Get<bool>();
    peer->pipe().Get<bool>();
  }
  EXPECT_EQ(Word(responders.endpoint(), 8), peers.size() * count);
  for (const auto& peer : peers) {
    peer->pipe().Put(true);
    EXPECT_TRUE(peer->Join());
  }
}

TEST_P(Atomics, FourProcessesSumUpExactly) {
  ExpectExactSum(options_, 500, {DoNothing, DoNothing, DoNothing, DoNothing});
}

TEST(AtomicsThroughSlots, SumUpExactly) {
  EndpointOptions options;
  options.private_memory = true;
  ExpectExactSum(options, 200, {ForbidProcessVm, ForbidProcessVm});
}

TEST(AtomicsThroughSlots, ExcludeThoseThatTheKernelAllows) {
  EndpointOptions options;
  options.private_memory = true;
  ExpectExactSum(options, 200,
                 {ForbidProcessVm, DoNothing, ForbidProcessVm, DoNothing});
}

// A peer that is slow to answer is asked again, and then answers each question.
TEST(AtomicsThroughSlots, AreExecutedOnceWhereAPeerAnswersTwice) {
  EndpointOptions options;
  options.private_memory = true;
  PeerProcess requester([options](ValuePipe& pipe) {
    ForbidProcessVm();
    Endpoint endpoint(options);
    pipe.Put(endpoint.identity());
    const auto target = pipe.Get<Identity>();
    endpoint.Connect(target);
    endpoint.FetchAdd(1, {endpoint.Sge(0, 8)}, target, 8, 1);
    const auto done = endpoint.Poll();
    pipe.Put(done && done->status == IBV_WC_SUCCESS);
    return pipe.Get<bool>();
  });
  PeerProcess responder([options](ValuePipe& pipe) {
    Endpoint endpoint(options);
    endpoint.Connect(pipe.Get<Identity>());
    pipe.Put(endpoint.identity());
    pipe.Get<bool>();  // all was added
    pipe.Put(Word(endpoint, 8));
    return pipe.Get<bool>();
  });
  responder.pipe().Put(requester.pipe().Get<Identity>());
  const auto target = responder.pipe().Get<Identity>();
  kill(responder.pid(), SIGSTOP);
  requester.pipe().Put(target);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // ten questions
  kill(responder.pid(), SIGCONT);
  EXPECT_TRUE(requester.pipe().Get<bool>());
  responder.pipe().Put(true);
  EXPECT_EQ(responder.pipe().Get<std::uint64_t>(), 1u);
  for (PeerProcess* peer : {&requester, &responder}) {
    peer->pipe().Put(true);
    EXPECT_TRUE(peer->Join());
  }
}

TEST(AtomicLock, IsTakenFromWhoDiedWithIt) {
  EndpointOptions options;
  options.private_memory = true;
  // Dies between the two halves of its first atomic.
  PeerProcess victim([options](ValuePipe& pipe) {
    return Add(pipe, options, 1, DieAtProcessVmWrite);
  });
  PeerProcess survivor([options](ValuePipe& pipe) {
    return Add(pipe, options, 100, DoNothing);
  });
  PeerProcess through_slots([options](ValuePipe& pipe) {
    return Add(pipe, options, 100, ForbidProcessVm);
  });
  Responders responders(options, 3);
  responders.Connect(0, victim.pipe());
  responders.Connect(1, survivor.pipe());
  responders.Connect(2, through_slots.pipe());
  victim.pipe().Put(true);
  EXPECT_FALSE(victim.Join());
  const Clock::time_point start = Clock::now();
  for (PeerProcess* peer : {&survivor, &through_slots}) {
    peer->pipe().Put(true);
  }
  for (PeerProcess* peer : {&survivor, &through_slots}) {
    peer->pipe().Get<bool>();
    peer->pipe().Get<bool>();
  }
  EXPECT_LT(Clock::now() - start, LivenessBound(std::chrono::seconds(2)));
  EXPECT_EQ(Word(responders.endpoint(), 8), 200u);  // half an add is none
  for (PeerProcess* peer : {&survivor, &through_slots}) {
    peer->pipe().Put(true);
    EXPECT_TRUE(peer->Join());
  }
}

}  // namespace
}  // namespace ringpipe::verbs::soft
