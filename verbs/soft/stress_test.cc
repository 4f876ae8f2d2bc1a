// Ranks as threads of one process, all talking to all, each with its own
// context: for ThreadSanitizer, which sees the shared rings as ordinary memory.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr int kMessages = 400;
constexpr std::uint32_t kBytes = 3000;
constexpr int kDepth = 4;

// Half of a connection, used by one thread: sends kMessages to the other end
// under credits, which are written into a word at the sender, and checks as
// many from it.
class Talker {
 public:
  explicit Talker(const EndpointOptions& options) : end(options) {}

  void Run(const Identity& peer) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(60));
    for (int i = 0; i < kDepth; ++i) {
      PostReceive(i);
    }
    GiveCredit(peer);
    while (
        (received_ < kMessages || completed_ < kMessages || outstanding_ > 0) &&
        !failed) {
      while (sent_ < kMessages && sent_ < Credit() &&
             sent_ - completed_ < kDepth) {
        SendNext();
      }
      Take(peer);
      failed = failed || deadline.expired();
    }
  }

  Endpoint end;
  bool failed = false;

 private:
  // Buffer: kDepth to receive into, kDepth to send from, my credit, what I
  // give.
  static constexpr std::size_t kCreditAt = 2 * kDepth * 4096;
  static constexpr std::size_t kGivenAt = kCreditAt + 64;

  std::uint64_t* Word(std::size_t offset) {
    return reinterpret_cast<std::uint64_t*>(end.data() + offset);
  }
  int Credit() {
    return static_cast<int>(std::atomic_ref<std::uint64_t>(*Word(kCreditAt))
                                .load(std::memory_order_acquire));
  }
  void PostReceive(int slot) {
    failed |= end.Receive(slot, {end.Sge(slot * 4096, kBytes)}) != 0;
    ++given_;
  }
  void GiveCredit(const Identity& peer) {
    if (outstanding_ == 0 && given_ != announced_) {
      *Word(kGivenAt) = announced_ = given_;
      failed |= end.Write(1000, {end.Sge(kGivenAt, 8)}, peer, kCreditAt) != 0;
      ++outstanding_;
    }
  }
  void SendNext() {
    const int slot = kDepth + sent_ % kDepth;
    for (std::uint32_t i = 0; i < kBytes; ++i) {
      end.data()[slot * 4096 + i] = static_cast<std::byte>(sent_ + i);
    }
    failed |= end.Send(2000, {end.Sge(slot * 4096, kBytes)}) != 0;
    ++sent_;
  }
  void Take(const Identity& peer) {
    ibv_wc completions[4];
    const int got = ibv_poll_cq(end.cq, 4, completions);
    failed |= got < 0;
    for (int i = 0; i < got; ++i) {
      const ibv_wc& completion = completions[i];
      failed |= completion.status != IBV_WC_SUCCESS;
      if (completion.wr_id == 1000) {
        --outstanding_;
      } else if (completion.wr_id == 2000) {
        ++completed_;
      } else {
        const std::size_t at = completion.wr_id * 4096;
        for (std::uint32_t j = 0; j < kBytes; ++j) {
          failed |= end.data()[at + j] != static_cast<std::byte>(received_ + j);
        }
        ++received_;
        PostReceive(static_cast<int>(completion.wr_id));
      }
    }
    GiveCredit(peer);
  }

  int sent_ = 0;
  int completed_ = 0;
  int received_ = 0;
  int outstanding_ = 0;  // writes of credit
  std::uint64_t given_ = 0;
  std::uint64_t announced_ = 0;
};

class Stress : public testing::TestWithParam<std::uint64_t> {};

INSTANTIATE_TEST_SUITE_P(Modes, Stress, testing::Values(0, 11));

TEST_P(Stress, ThreadsExchangeMessagesUnderCredits) {
  constexpr int kConnections = 3;
  EndpointOptions options;
  options.adversary_seed = GetParam();
  options.buffer_bytes = 64 * 1024;
  std::vector<std::unique_ptr<Talker>> talkers;
  for (int i = 0; i < 2 * kConnections; ++i) {
    options.private_memory = i % 3 == 0;
    talkers.push_back(std::make_unique<Talker>(options));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 2 * kConnections; ++i) {
    talkers[i]->end.Connect(talkers[i ^ 1]->end.identity());
  }
  for (int i = 0; i < 2 * kConnections; ++i) {
    threads.emplace_back(
        [&talkers, i] { talkers[i]->Run(talkers[i ^ 1]->end.identity()); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& talker : talkers) {
    EXPECT_FALSE(talker->failed);
  }
}

}  // namespace
}  // namespace ringpipe::verbs::soft
