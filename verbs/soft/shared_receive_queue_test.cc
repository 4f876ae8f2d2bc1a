// Receives that several queue pairs share.
#include "verbs/soft/shared_receive_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "base/deadline.h"
#include "base/peer_process.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"
#include "verbs/soft/forbidden_copies.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

using Prepare = void (*)();
void DoNothing() {}

// A receiver with several queue pairs on one shared receive queue; the first is
// the endpoint's.
class Receiver {
 public:
  // Two, of which the second has a completion queue for itself.
  static constexpr int kApart = -2;

  Receiver(const EndpointOptions& options, int count) : endpoint(options) {
    others_cq =
        endpoint.library().create_cq(endpoint.context, 64, nullptr, nullptr, 0);
    queue_pairs.push_back(endpoint.qp);
    for (int i = 1; i < abs(count); ++i) {
      ibv_qp_init_attr init = {};
      init.send_cq = endpoint.cq;
      init.recv_cq = count == kApart ? others_cq : endpoint.cq;
      init.srq = endpoint.srq;
      init.cap = {4, 0, 1, 0, 0};
      init.qp_type = IBV_QPT_RC;
      queue_pairs.push_back(endpoint.library().create_qp(endpoint.pd, &init));
      With(i, [this] { endpoint.ToInit(); });
    }
  }
  ~Receiver() {
    for (std::size_t i = 1; i < queue_pairs.size(); ++i) {
      if (queue_pairs[i] != nullptr) {
        endpoint.library().destroy_qp(queue_pairs[i]);
      }
    }
    endpoint.library().destroy_cq(others_cq);
  }

  // An endpoint acts on its `qp`.
  template <typename Action>
  void With(int i, const Action& action) {
    ibv_qp* own = endpoint.qp;
    endpoint.qp = queue_pairs[i];
    action();
    endpoint.qp = own;
  }
  void Connect(int i, Endpoint& sender) {
    With(i, [&] {
      endpoint.Connect(sender.identity());
      sender.Connect(endpoint.identity());
    });
  }
  void Connect(int i, ValuePipe& pipe) {
    With(i, [&] {
      pipe.Put(endpoint.identity());
      endpoint.Connect(pipe.Get<Identity>());
    });
  }

  Endpoint endpoint;
  ibv_cq* others_cq = nullptr;
  std::vector<ibv_qp*> queue_pairs;
};

// --- Claims ------------------------------------------------------------------

TEST(ClaimReceive, GivesEachReceiveToOneOnly) {
  constexpr std::uint32_t kReceives = 4096;
  constexpr int kRounds = 30;
  const auto owned = std::make_unique<OwnedReceiveRing>();
  const auto ring = std::make_unique<SharedReceiveRing>();
  owned->mask = kReceives - 1;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint32_t first = round * kReceives;
    for (std::uint32_t i = 0; i < kReceives; ++i) {
      ring->words[i] = std::uint64_t{first + i} << 32 | i << 16;
    }
    owned->posted = first + kReceives;
    std::vector<std::uint32_t> claims[2];
    const auto claim = [&](std::uint32_t qp_index) {
      bool few_left;
      while (const std::optional<std::uint32_t> receive =
                 ClaimReceive(*owned, *ring, qp_index, &few_left)) {
        claims[qp_index].push_back(*receive);
      }
    };
    std::thread other([&] { claim(1); });
    claim(0);
    other.join();
    ASSERT_EQ(claims[0].size() + claims[1].size(), kReceives);
    for (std::uint32_t qp_index : {0, 1}) {
      for (const std::uint32_t receive : claims[qp_index]) {
        ASSERT_EQ(ring->words[receive] & 0xffff, qp_index + 1);
      }
    }
  }
}

TEST(ClaimReceive, GoesPastAClaimantThatDiedHalfWay) {
  const auto owned = std::make_unique<OwnedReceiveRing>();
  const auto ring = std::make_unique<SharedReceiveRing>();
  owned->mask = 1;
  owned->posted = 2;
  ring->words[0] = 0 | 9;  // claimed by queue pair 8, which advanced nothing
  ring->words[1] = std::uint64_t{1} << 32 | 1 << 16;
  bool few_left;
  EXPECT_EQ(ClaimReceive(*owned, *ring, 3, &few_left), 1u);
  EXPECT_EQ(ClaimReceive(*owned, *ring, 3, &few_left), std::nullopt);
}

// (adversary seed, private memory)
class SharedReceives
    : public testing::TestWithParam<std::tuple<std::uint64_t, bool>> {
 protected:
  SharedReceives() {
    options_.adversary_seed = std::get<0>(GetParam());
    options_.private_memory = std::get<1>(GetParam());
    shared_ = options_;
    shared_.shared_receives = 8;
  }
  EndpointOptions options_;
  EndpointOptions shared_;
};

INSTANTIATE_TEST_SUITE_P(Modes, SharedReceives,
                         testing::Combine(testing::Values(0, 11),
                                          testing::Bool()));

TEST_P(SharedReceives, AreTakenInTheOrderOfPostingByWhoeverNeedsOne) {
  Endpoint first(options_);
  Endpoint second(options_);
  Receiver receiver(shared_, 2);
  receiver.Connect(0, first);
  receiver.Connect(1, second);
  // Three rounds through the ring.
  for (std::uint64_t i = 0; i < 24; ++i) {
    ASSERT_EQ(receiver.endpoint.Receive(i, {receiver.endpoint.Sge(i * 8, 8)}),
              0);
    Endpoint& sender = i % 3 == 0 ? first : second;
    memset(sender.data(), static_cast<int>(i + 1), 8);
    ASSERT_EQ(sender.Send(100 + i, {sender.Sge(0, 8)}), 0);
    ASSERT_EQ(sender.Poll().value().status, IBV_WC_SUCCESS);
    const auto received = receiver.endpoint.Poll();
    ASSERT_TRUE(received);
    EXPECT_EQ(received->status, IBV_WC_SUCCESS);
    EXPECT_EQ(received->wr_id, i);
    EXPECT_EQ(received->byte_len, 8u);
    EXPECT_EQ(received->qp_num,
              receiver.queue_pairs[i % 3 == 0 ? 0 : 1]->qp_num);
    EXPECT_EQ(receiver.endpoint.data()[i * 8 + 7],
              static_cast<std::byte>(i + 1));
  }
}

TEST_P(SharedReceives, WriteWithImmediateTakesOne) {
  Endpoint sender(options_);
  Receiver receiver(shared_, 1);
  receiver.Connect(0, sender);
  ASSERT_EQ(receiver.endpoint.Receive(4, {}), 0);
  ASSERT_EQ(sender.Write(1, {sender.Sge(0, 8)}, receiver.endpoint.identity(), 0,
                         IBV_SEND_SIGNALED, 99),
            0);
  const auto received = receiver.endpoint.Poll();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->wr_id, 4u);
  EXPECT_EQ(received->imm_data, 99u);
}

TEST_P(SharedReceives, NoneLeftIsReceiverNotReady) {
  EndpointOptions impatient = options_;
  impatient.rnr_retry = 1;
  Endpoint sender(impatient);
  Receiver receiver(shared_, 1);
  receiver.Connect(0, sender);
  ASSERT_EQ(sender.Send(1, {}), 0);
  EXPECT_EQ(sender.Poll().value().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(receiver.endpoint.State(), IBV_QPS_RTS);
}

TEST_P(SharedReceives, PlacesComeBackWhenTheirCompletionsArePolled) {
  Endpoint sender(options_);
  Receiver receiver(shared_, 1);
  receiver.Connect(0, sender);
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(receiver.endpoint.Receive(i, {}), 0);
  }
  EXPECT_EQ(receiver.endpoint.Receive(8, {}), ENOMEM);
  ASSERT_EQ(sender.Send(1, {}), 0);
  ASSERT_TRUE(sender.Poll());
  EXPECT_EQ(receiver.endpoint.Receive(8, {}), ENOMEM);
  ASSERT_TRUE(receiver.endpoint.Poll());
  EXPECT_EQ(receiver.endpoint.Receive(8, {}), 0);
  EXPECT_EQ(receiver.endpoint.Receive(9, {}), ENOMEM);
}

TEST_P(SharedReceives, OneThatIsHeldDoesNotStopTheOthers) {
  Endpoint holder(options_);
  Endpoint sender(options_);
  Receiver receiver(shared_, Receiver::kApart);
  receiver.Connect(1, holder);
  receiver.Connect(0, sender);
  ASSERT_EQ(receiver.endpoint.Receive(1000, {}), 0);
  ASSERT_EQ(holder.Send(1, {}), 0);
  ASSERT_TRUE(holder.Poll());
  // Round and round the ring, in which the first has its word.
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(receiver.endpoint.Receive(i, {}), 0);
    ASSERT_EQ(sender.Send(i, {}), 0);
    ASSERT_TRUE(sender.Poll());
    EXPECT_EQ(receiver.endpoint.Poll().value().wr_id, i);
  }
  ibv_wc held;
  ASSERT_EQ(ibv_poll_cq(receiver.others_cq, 1, &held), 1);
  EXPECT_EQ(held.wr_id, 1000u);
}

TEST_P(SharedReceives, ErrorFlushesNothingThatIsNotClaimed) {
  Endpoint first(options_);
  Endpoint second(options_);
  Receiver receiver(shared_, 2);
  receiver.Connect(0, first);
  receiver.Connect(1, second);
  ASSERT_EQ(receiver.endpoint.Receive(1, {}), 0);
  receiver.endpoint.ToError();
  EXPECT_EQ(receiver.endpoint.NextEvent(), IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_TRUE(receiver.endpoint.Quiet());
  ASSERT_EQ(second.Send(5, {}), 0);
  EXPECT_EQ(receiver.endpoint.Poll().value().wr_id, 1u);
}

TEST_P(SharedReceives, LimitRaisesItsEventOnce) {
  Endpoint sender(options_);
  Receiver receiver(shared_, 1);
  receiver.Connect(0, sender);
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(receiver.endpoint.Receive(i, {}), 0);
  }
  ibv_srq_attr attr = {};
  attr.srq_limit = 4;
  ASSERT_EQ(ModifySrq(receiver.endpoint.srq, &attr, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(QuerySrq(receiver.endpoint.srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 4u);
  EXPECT_EQ(attr.max_wr, 8u);
  ASSERT_EQ(sender.Send(1, {}), 0);  // 4 left
  ASSERT_TRUE(sender.Poll());
  EXPECT_FALSE(receiver.endpoint.NextEvent(std::chrono::milliseconds(20)));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(sender.Send(1, {}), 0);
    ASSERT_TRUE(sender.Poll());
  }
  EXPECT_EQ(receiver.endpoint.NextEvent(), IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_FALSE(receiver.endpoint.NextEvent(std::chrono::milliseconds(20)));
  ASSERT_EQ(QuerySrq(receiver.endpoint.srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0u);
}

TEST_P(SharedReceives, MisuseIsRefused) {
  Receiver receiver(shared_, 1);
  Endpoint& endpoint = receiver.endpoint;
  EXPECT_EQ(DestroySrq(endpoint.srq), EBUSY);
  ibv_recv_wr request = {};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(endpoint.qp, &request, &bad), EINVAL);
  EXPECT_EQ(bad, &request);
  request.num_sge = 5;
  EXPECT_EQ(ibv_post_srq_recv(endpoint.srq, &request, &bad), EINVAL);
  ibv_srq_attr attr = {};
  attr.max_wr = 16;
  EXPECT_EQ(ModifySrq(endpoint.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  attr.srq_limit = 9;
  EXPECT_EQ(ModifySrq(endpoint.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
  ibv_srq_init_attr init = {};
  ibv_device_attr device;
  ASSERT_EQ(endpoint.library().query_device(endpoint.context, &device), 0);
  init.attr.max_wr = device.max_srq_wr + 1;
  EXPECT_EQ(CreateSrq(endpoint.pd, &init), nullptr);
  std::uint32_t number;
  EXPECT_EQ(ibv_get_srq_num(endpoint.srq, &number), 0);
}

// --- Across processes --------------------------------------------------------

constexpr std::uint32_t kBytes = 3000;

// Sends messages (sender, sequence), `count` of them or for ever.
bool SendAll(ValuePipe& pipe, const EndpointOptions& options, int sender,
             int count, Prepare prepare) {
  prepare();
  Endpoint endpoint(options);
  const auto identity = pipe.Get<Identity>();
  pipe.Put(endpoint.identity());
  endpoint.Connect(identity);
  pipe.Get<bool>();
  bool right = true;
  for (int i = 0; (count == 0 || i < count) && right; ++i) {
    const int header[] = {sender, i};
    memset(endpoint.data(), sender * 31 + i, kBytes);
    memcpy(endpoint.data(), header, sizeof header);
    endpoint.Send(i, {endpoint.Sge(0, kBytes)});
    const auto sent = endpoint.Poll();
    right = sent && sent->status == IBV_WC_SUCCESS;
    if (i == 20) {
      pipe.Put(true);
    }
  }
  pipe.Get<bool>();
  return right;
}

bool IsRight(const std::byte* message, int sender, int i) {
  const int header[] = {sender, i};
  if (memcmp(message, header, sizeof header) != 0) {
    return false;
  }
  for (std::uint32_t at = sizeof header; at < kBytes; ++at) {
    if (message[at] != static_cast<std::byte>(sender * 31 + i)) {
      return false;
    }
  }
  return true;
}

// Takes messages, each checked, until each of `senders` has sent `count`; the
// victim is killed at some point.
void ReceiveFrom(Receiver& receiver, std::vector<PeerProcess*> senders,
                 int count, PeerProcess* victim) {
  std::map<std::uint32_t, int> next;
  for (std::uint32_t i = 0; i < 8; ++i) {
    ASSERT_EQ(receiver.endpoint.Receive(
                  i, {receiver.endpoint.Sge(i * kBytes, kBytes)}),
              0);
  }
  for (std::size_t i = 0; i < senders.size(); ++i) {
    senders[i]->pipe().Put(true);
  }
  std::size_t working = senders.size();
  // To the end, and then what the victim had completed before it died.
  while (true) {
    const bool drain = working == 0;
    const auto received =
        receiver.endpoint.Poll(std::chrono::milliseconds(drain ? 50 : 10'000));
    if (drain && !received) {
      return;
    }
    ASSERT_TRUE(received);
    ASSERT_EQ(received->status, IBV_WC_SUCCESS);
    int sender = 0;
    while (receiver.queue_pairs[sender]->qp_num != received->qp_num) {
      ++sender;
    }
    const int sequence = next[sender]++;
    ASSERT_TRUE(IsRight(receiver.endpoint.data() + received->wr_id * kBytes,
                        sender, sequence));
    ASSERT_EQ(receiver.endpoint.Receive(
                  received->wr_id,
                  {receiver.endpoint.Sge(received->wr_id * kBytes, kBytes)}),
              0);
    const bool is_victim = senders[sender] == victim;
    if (is_victim && sequence == 25) {
      victim->Kill();
    }
    working -= sequence == (is_victim ? 25 : count - 1) ? 1 : 0;
  }
}

void ExpectEverything(const EndpointOptions& options, int count, bool kill_one,
                      const std::vector<Prepare>& prepare) {
  std::vector<std::unique_ptr<PeerProcess>> peers;
  std::vector<PeerProcess*> senders;
  EndpointOptions own = options;
  own.shared_receives = 0;
  for (int i = 0; i < static_cast<int>(prepare.size()); ++i) {
    const bool endless = kill_one && i == 0;
    peers.push_back(std::make_unique<PeerProcess>([=](ValuePipe& pipe) {
      return SendAll(pipe, own, i, endless ? 0 : count, prepare[i]);
    }));
    senders.push_back(peers.back().get());
  }
  Receiver receiver(options, static_cast<int>(peers.size()));
  for (int i = 0; i < static_cast<int>(peers.size()); ++i) {
    receiver.Connect(i, peers[i]->pipe());
  }
  ReceiveFrom(receiver, senders, count, kill_one ? senders[0] : nullptr);
  for (std::size_t i = kill_one ? 1 : 0; i < peers.size(); ++i) {
    peers[i]->pipe().Put(true);
    EXPECT_TRUE(peers[i]->Join());
  }
  if (!kill_one) {
    return;
  }
  // What the dead one held comes back as soon as its queue pair is reset: all
  // places can be posted again.
  receiver.endpoint.ToReset();
  int flushed = 0;
  while (receiver.endpoint.Receive(0, {}) == 0) {
    ++flushed;
  }
  EXPECT_LE(flushed, 1);
}

TEST_P(SharedReceives, SeveralProcessesLoseNothing) {
  ExpectEverything(shared_, 300, false,
                   {DoNothing, DoNothing, DoNothing, DoNothing});
}

TEST_P(SharedReceives, AKilledSenderCostsTheOthersNothing) {
  ExpectEverything(shared_, 200, true, {DoNothing, DoNothing, DoNothing});
}

TEST(SharedReceivesThroughSlots, KeepTheirClaimUntilTheBytesAreThere) {
  EndpointOptions options;
  options.private_memory = true;
  options.shared_receives = 8;
  ExpectEverything(options, 100, false,
                   {ForbidProcessVm, DoNothing, ForbidProcessVm});
}

TEST(SharedReceivesOfTheDead, AreFlushed) {
  EndpointOptions options;
  options.private_memory = true;
  // Dies between its claim and the completion.
  PeerProcess victim([options](ValuePipe& pipe) {
    return SendAll(pipe, options, 0, 1, DieAtProcessVmWrite);
  });
  EndpointOptions shared = options;
  shared.shared_receives = 2;
  Endpoint sender(options);
  Receiver receiver(shared, 2);
  receiver.Connect(0, victim.pipe());
  receiver.Connect(1, sender);
  ASSERT_EQ(receiver.endpoint.Receive(7, {receiver.endpoint.Sge(0, kBytes)}),
            0);
  ASSERT_EQ(receiver.endpoint.Receive(8, {}), 0);
  victim.pipe().Put(true);
  EXPECT_FALSE(victim.Join());
  ASSERT_EQ(sender.Send(1, {}), 0);
  EXPECT_EQ(receiver.endpoint.Poll().value().wr_id, 8u);
  ASSERT_EQ(receiver.endpoint.Receive(9, {}), 0);
  EXPECT_EQ(receiver.endpoint.Receive(10, {}), ENOMEM);
  receiver.endpoint.ToError();
  const auto flushed = receiver.endpoint.Poll();
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed->wr_id, 7u);
  EXPECT_EQ(flushed->qp_num, receiver.endpoint.qp->qp_num);
  EXPECT_TRUE(receiver.endpoint.Quiet());
  EXPECT_EQ(receiver.endpoint.Receive(10, {}), 0);
}

}  // namespace
}  // namespace ringpipe::verbs::soft
