#include "pipeline/rails/data_channel.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "verbs/device.h"
#include "verbs/fake_library.h"

namespace ringpipe {
namespace {

// Whether each send that was posted asks for a completion.
std::vector<bool>* asks = nullptr;

int RecordSends(ibv_qp* /*qp*/, ibv_send_wr* request, ibv_send_wr** /*bad*/) {
  for (; request != nullptr; request = request->next) {
    asks->push_back((request->send_flags & IBV_SEND_SIGNALED) != 0);
  }
  return 0;
}

class DataChannelTest : public testing::Test {
 protected:
  DataChannelTest() {
    asks = &asks_;
    verbs::FakeDevice fake;
    fake.name = "fake0";
    machine_.Add(fake);
  }

  // Of sends of 64 KiB that are posted as one list.
  std::vector<bool> Post(int count, bool completes_every_send) {
    const auto devices = verbs::Device::Open(
        {}, {},
        Result<std::shared_ptr<const verbs::Library>>(machine_.library()),
        machine_.soft(), machine_.sysfs_class());
    auto pd = verbs::ProtectionDomain::Create(devices->front());
    auto cq = verbs::CompletionQueue::Create(devices->front(), 64);
    auto queue_pair = verbs::QueuePair::Create(*pd, *cq, {});
    queue_pair.value()->get()->context->ops.post_send = &RecordSends;
    DataChannel channel(std::move(queue_pair).value(), 1, 0, 0, 16, 16,
                        completes_every_send);
    const RailKeys keys = {};
    for (int i = 0; i < count; ++i) {
      channel.AddSend({}, Memory{data_.data(), kBytes, &keys});
    }
    EXPECT_TRUE(channel.PostSends().ok());
    return asks_;
  }

  verbs::FakeMachine machine_;
  static constexpr std::uint32_t kBytes = 64 << 10;
  std::vector<std::byte> data_ = std::vector<std::byte>(kBytes);
  std::vector<bool> asks_;
};

TEST_F(DataChannelTest, TheLastSendOfAListAsksForACompletion) {
  EXPECT_EQ(Post(3, /*completes_every_send=*/false),
            std::vector<bool>({false, false, true}));
}

TEST_F(DataChannelTest, EverySendAsksForACompletionWhereItHasTo) {
  EXPECT_EQ(Post(3, /*completes_every_send=*/true),
            std::vector<bool>({true, true, true}));
}

}  // namespace
}  // namespace ringpipe
