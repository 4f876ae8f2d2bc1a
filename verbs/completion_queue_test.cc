#include "verbs/completion_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <set>

#include "verbs/fake_library.h"

namespace ringpipe::verbs {
namespace {

TEST(DescribeCompletionTest, EveryStatusHasItsOwnNameAndACause) {
  std::set<std::string> names;
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_TM_RNDV_INCOMPLETE;
       ++status) {
    const std::string text =
        DescribeCompletion(static_cast<ibv_wc_status>(status));
    const std::size_t space = text.find(" (");
    ASSERT_NE(space, std::string::npos) << text;
    EXPECT_EQ(text.rfind("IBV_WC_", 0), 0u) << text;
    EXPECT_GT(text.size(), space + 5) << text;
    names.insert(text.substr(0, space));
  }
  EXPECT_EQ(names.size(), IBV_WC_TM_RNDV_INCOMPLETE + 1u);
}

TEST(DescribeCompletionTest, AStatusThatVerbsDoesNotKnowIsGivenByNumber) {
  EXPECT_EQ(DescribeCompletion(static_cast<ibv_wc_status>(31)),
            "completion status 31 (unknown)");
}

TEST(DescribeCompletionTest, AVendorErrorIsGivenWhereThereIsOne) {
  const std::string text = DescribeCompletion(IBV_WC_FATAL_ERR, 0x81);
  EXPECT_EQ(text.rfind("IBV_WC_FATAL_ERR, vendor error 0x81 (", 0), 0u) << text;
  EXPECT_EQ(DescribeCompletion(IBV_WC_FATAL_ERR, 0).find("vendor error"),
            std::string::npos);
}

TEST(DescribeCompletionTest, EveryErrorThatIsTheFirstSaysWhatToDo) {
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_TM_RNDV_INCOMPLETE;
       ++status) {
    const auto meaning =
        MeaningOfCompletion(static_cast<ibv_wc_status>(status));
    EXPECT_EQ(std::string(meaning.advice).empty(),
              status == IBV_WC_WR_FLUSH_ERR)
        << meaning.name;
  }
}

class CompletionQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = Device::OpenSoftware(machine_.soft(), "the test asks for it");
    ASSERT_TRUE(device.ok()) << device.status().ToString();
    device_ = std::move(device).value();
  }

  FakeMachine machine_;
  std::shared_ptr<Device> device_;
};

TEST_F(CompletionQueueTest, MoreEntriesThanTheDeviceHasIsResourceExhausted) {
  EXPECT_TRUE(CompletionQueue::Create(device_, 4096).ok());
  for (const int entries : {4097, 0, -1}) {
    const auto cq = CompletionQueue::Create(device_, entries);
    ASSERT_FALSE(cq.ok()) << entries;
    EXPECT_EQ(cq.status().code(), StatusCode::kResourceExhausted);
    EXPECT_NE(cq.status().message().find("4096"), std::string::npos);
    EXPECT_NE(cq.status().message().find("RINGPIPE_SLOTS"), std::string::npos);
  }
}

TEST_F(CompletionQueueTest, OneMoreThanTheDeviceHasIsRefusedWithItsLimit) {
  machine_.soft_device.max_cq = 1;
  const auto first = CompletionQueue::Create(device_, 16);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  for (const int error : {ENOMEM, EINVAL}) {
    machine_.soft_device.limit_errno = error;
    const auto cq = CompletionQueue::Create(device_, 16);
    ASSERT_FALSE(cq.ok());
    EXPECT_EQ(cq.status().code(), StatusCode::kResourceExhausted);
    for (const char* part :
         {"soft0", "1 completion queues (max_cq)", "RINGPIPE_SLOTS"}) {
      EXPECT_NE(cq.status().message().find(part), std::string::npos)
          << cq.status().message();
    }
  }
  EXPECT_EQ(machine_.live, 3) << "a completion channel was left";
}

TEST_F(CompletionQueueTest, ItsDescriptorDoesNotBlock) {
  const auto cq = CompletionQueue::Create(device_, 1);
  ASSERT_TRUE(cq.ok());
  EXPECT_NE(fcntl(cq.value()->fd(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(CompletionQueueTest, ItKeepsTheDeviceOpenAndLeavesNothingBehind) {
  auto cq = CompletionQueue::Create(device_, 1);
  ASSERT_TRUE(cq.ok());
  device_.reset();
  EXPECT_EQ(machine_.live, 3);  // context, channel, queue
  cq = Status(StatusCode::kInternal, "given up");
  EXPECT_EQ(machine_.live, 0);
}

}  // namespace
}  // namespace ringpipe::verbs
