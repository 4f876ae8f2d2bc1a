// ThreadSanitizer sees through the software device: ranks as threads share the
// rings and the memory, so that who reads a receive buffer before its
// completion is caught, and who waits for it is not.
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "verbs/completion_queue.h"
#include "verbs/device.h"
#include "verbs/memory_region.h"
#include "verbs/queue_pair.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe {
namespace {

constexpr std::size_t kBytes = 4096;

// One end of a connection, with a buffer that peers on the host can reach.
struct End {
  End() {
    device = verbs::Device::OpenSoftware(verbs::soft::CreateSoftLibrary({}),
                                         "the test asks for it")
                 .value();
    pd = verbs::ProtectionDomain::Create(device).value();
    cq = verbs::CompletionQueue::Create(device, 16).value();
    queue_pair = verbs::QueuePair::Create(pd, cq, {}).value();
    memory = device->Allocate(kBytes).value();
    region = verbs::MemoryRegion::Register(pd, memory.data(), kBytes,
                                           IBV_ACCESS_LOCAL_WRITE)
                 .value();
  }

  ibv_sge Sge() const {
    return {reinterpret_cast<std::uintptr_t>(memory.data()), kBytes,
            region.lkey()};
  }
  void PostReceive() {
    ibv_sge sge = Sge();
    ibv_recv_wr request = {};
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(queue_pair->get(), &request, &bad), 0);
  }
  void Send() {
    ibv_sge sge = Sge();
    ibv_send_wr request = {};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(queue_pair->get(), &request, &bad), 0);
  }
  void AwaitCompletion() {
    ibv_wc completion;
    while (cq->Poll({&completion, 1}) == 0) {
    }
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  }

  std::shared_ptr<verbs::Device> device;
  std::shared_ptr<verbs::ProtectionDomain> pd;
  std::shared_ptr<verbs::CompletionQueue> cq;
  std::unique_ptr<verbs::QueuePair> queue_pair;
  Allocation memory;
  verbs::MemoryRegion region;
};

// Sends 1s from one thread to another, which looks at them after the completion
// or, planted, before.
void Transfer(bool wait_for_completion) {
  End sender;
  End receiver;
  ASSERT_TRUE(sender.queue_pair->Connect(receiver.queue_pair->endpoint()).ok());
  ASSERT_TRUE(receiver.queue_pair->Connect(sender.queue_pair->endpoint()).ok());
  receiver.PostReceive();
  std::thread sending([&] {
    sender.memory.data()[kBytes - 1] = std::byte{1};
    sender.Send();
    sender.AwaitCompletion();
  });
  if (wait_for_completion) {
    receiver.AwaitCompletion();
  }
  const volatile std::byte& last = receiver.memory.data()[kBytes - 1];
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (last != std::byte{1} && std::chrono::steady_clock::now() < end) {
  }
  sending.join();
}

TEST(RaceTest, ReadingAfterTheCompletionIsNone) { Transfer(true); }

TEST(RaceDeathTest, ReadingBeforeTheCompletionIsFound) {
#ifdef __SANITIZE_THREAD__
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(Transfer(false), "ThreadSanitizer: data race");
#else
  GTEST_SKIP() << "a planted race is for bazel test --config=tsan to find";
#endif
}

}  // namespace
}  // namespace ringpipe
