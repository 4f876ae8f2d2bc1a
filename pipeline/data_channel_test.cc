#include "pipeline/data_channel.h"

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
  std::vector<bool> Post(int count, DataChannel::Completions completions) {
    const auto devices = verbs::Device::Open(
        {}, {},
        Result<std::shared_ptr<const verbs::Library>>(machine_.library()),
        machine_.soft(), machine_.sysfs_class());
    auto pd = verbs::ProtectionDomain::Create(devices->front());
    auto cq = verbs::CompletionQueue::Create(devices->front(), 64);
    auto queue_pair = verbs::QueuePair::Create(*pd, *cq, {});
    queue_pair.value()->get()->context->ops.post_send = &RecordSends;
    DataChannel channel(std::move(queue_pair).value(), 1, 0, 16, 16,
                        completions);
    for (int i = 0; i < count; ++i) {
      channel.AddSend({}, data_.data(), data_.size(), 0);
    }
    EXPECT_TRUE(channel.PostSends().ok());
    return asks_;
  }

  verbs::FakeMachine machine_;
  std::vector<char> data_ = std::vector<char>(64 << 10);
  std::vector<bool> asks_;
};

TEST_F(DataChannelTest, TheLastSendOfAListAsksForACompletion) {
  EXPECT_EQ(Post(3, DataChannel::Completions::kLastOfList),
            std::vector<bool>({false, false, true}));
}

TEST_F(DataChannelTest, EverySendAsksForACompletionWhereItHasTo) {
  EXPECT_EQ(Post(3, DataChannel::Completions::kEverySend),
            std::vector<bool>({true, true, true}));
}

}  // namespace
}  // namespace ringpipe
