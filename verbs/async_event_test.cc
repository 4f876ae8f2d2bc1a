#include "verbs/async_event.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "verbs/fake_library.h"

namespace ringpipe::verbs {
namespace {

constexpr int kLastEvent = IBV_EVENT_WQ_FATAL;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Any event, with a queue behind it where it is a queue's.
ibv_async_event Event(int type, ibv_qp* qp, ibv_cq* cq) {
  ibv_async_event event = {};
  event.event_type = static_cast<ibv_event_type>(type);
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      event.element.qp = qp;
      break;
    case IBV_EVENT_CQ_ERR:
      event.element.cq = cq;
      break;
    default:
      event.element.port_num = 1;
  }
  return event;
}

ibv_async_event PortEvent(ibv_event_type type, int port) {
  ibv_async_event event = {};
  event.event_type = type;
  event.element.port_num = port;
  return event;
}

TEST(AsyncEventTest, EachHasItsOwnNameAndSaysWhatItMeans) {
  ibv_qp qp = {};
  qp.qp_num = 4711;
  ibv_cq cq = {};
  std::set<std::string> names;
  for (int type = 0; type <= kLastEvent; ++type) {
    const std::string text = DescribeAsyncEvent(Event(type, &qp, &cq));
    EXPECT_EQ(text.rfind("IBV_EVENT_", 0), 0u) << text;
    EXPECT_TRUE(Has(text, " (")) << text;
    names.insert(text.substr(0, text.find(' ')));
  }
  EXPECT_EQ(names.size(), kLastEvent + 1u);
  EXPECT_TRUE(Has(DescribeAsyncEvent(Event(IBV_EVENT_QP_FATAL, &qp, &cq)),
                  "queue pair 4711"));
}

TEST(AsyncEventTest, OnlyWhatEndsCommunicationIsFatal) {
  const std::set<int> fatal = {IBV_EVENT_CQ_ERR,     IBV_EVENT_QP_FATAL,
                               IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
                               IBV_EVENT_PORT_ERR,   IBV_EVENT_DEVICE_FATAL,
                               IBV_EVENT_SRQ_ERR,    IBV_EVENT_WQ_FATAL};
  for (int type = 0; type <= kLastEvent; ++type) {
    EXPECT_EQ(IsFatal(Event(type, nullptr, nullptr), 1), fatal.count(type) == 1)
        << type;
  }
}

// A port of a device that is open, as Device knows it.
class TakeAsyncEventsTest : public testing::Test {
 protected:
  void SetUp() override {
    FakeDevice fake;
    fake.name = "mlx5_0";
    fake.ports[0].lid = 9;
    fake.ports[0].gids = {"", "::ffff:10.0.0.1"};
    machine_.Add(fake);
    machine_.async_errno = EAGAIN;
    int count = 0;
    list_ = machine_.library()->get_device_list(&count);
    context_ = machine_.library()->open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
    info_.name = "mlx5_0";
    info_.lid = 9;
    info_.gid_index = 1;
    inet_pton(AF_INET6, "::ffff:10.0.0.1", info_.gid.raw);
  }
  void TearDown() override {
    machine_.library()->close_device(context_);
    machine_.library()->free_device_list(list_);
  }

  FakePort& port() { return machine_.devices[0]->ports[0]; }

  Status Take() {
    notices_.clear();
    return TakeAsyncEvents(*machine_.library(), context_, info_, &notices_);
  }

  FakeMachine machine_;
  ibv_device** list_ = nullptr;
  ibv_context* context_ = nullptr;
  DeviceInfo info_;
  std::vector<std::string> notices_;
};

TEST_F(TakeAsyncEventsTest, ThatThePortWentDownIsAnErrorThatSaysWhereToLook) {
  machine_.Raise(PortEvent(IBV_EVENT_PORT_ERR, 1));
  const Status status = Take();
  EXPECT_EQ(status.code(), StatusCode::kDeviceError);
  for (const char* part : {"mlx5_0", "IBV_EVENT_PORT_ERR", "port 1", "cable"}) {
    EXPECT_TRUE(Has(status.message(), part)) << status.message();
  }
  EXPECT_TRUE(notices_.empty());
  EXPECT_EQ(machine_.events_acknowledged, 1);
}

// TCP goes on when the link, or the address, comes back.
TEST_F(TakeAsyncEventsTest, WhatHappensToTheSoftwareDevicesPortIsANotice) {
  info_.software = true;
  port().gids = {};
  machine_.Raise(PortEvent(IBV_EVENT_PORT_ERR, 1));
  machine_.Raise(PortEvent(IBV_EVENT_GID_CHANGE, 1));
  EXPECT_TRUE(Take().ok());
  EXPECT_EQ(notices_.size(), 2u);
}

TEST_F(TakeAsyncEventsTest, ThatItCameUpOrAnotherWentDownIsANotice) {
  machine_.Raise(PortEvent(IBV_EVENT_PORT_ACTIVE, 1));
  machine_.Raise(PortEvent(IBV_EVENT_PORT_ERR, 2));
  EXPECT_TRUE(Take().ok());
  ASSERT_EQ(notices_.size(), 2u);
  EXPECT_TRUE(Has(notices_[0], "mlx5_0: IBV_EVENT_PORT_ACTIVE on port 1"));
  EXPECT_TRUE(Has(notices_[1], "IBV_EVENT_PORT_ERR on port 2"));
}

TEST_F(TakeAsyncEventsTest, WithoutALogNoticesAreDropped) {
  machine_.Raise(PortEvent(IBV_EVENT_PORT_ACTIVE, 1));
  EXPECT_TRUE(
      TakeAsyncEvents(*machine_.library(), context_, info_, nullptr).ok());
  EXPECT_EQ(machine_.events_acknowledged, 1);
}

TEST_F(TakeAsyncEventsTest, ALidThatChangedIsAnErrorWithBothValues) {
  machine_.Raise(PortEvent(IBV_EVENT_LID_CHANGE, 1));
  EXPECT_TRUE(Take().ok()) << "it is the same";
  EXPECT_EQ(notices_.size(), 1u);
  port().lid = 12;
  machine_.Raise(PortEvent(IBV_EVENT_LID_CHANGE, 2));
  EXPECT_TRUE(Take().ok()) << "another port's";
  machine_.Raise(PortEvent(IBV_EVENT_LID_CHANGE, 1));
  const Status status = Take();
  EXPECT_EQ(status.code(), StatusCode::kDeviceError);
  EXPECT_TRUE(Has(status.message(), "was 9 and is now 12")) << status.message();
}

TEST_F(TakeAsyncEventsTest, AGidThatChangedIsAnErrorWithBothValues) {
  machine_.Raise(PortEvent(IBV_EVENT_GID_CHANGE, 1));
  EXPECT_TRUE(Take().ok()) << "the one in use is the same";
  EXPECT_EQ(notices_.size(), 1u);
  port().gids[1] = "::ffff:10.0.0.7";
  machine_.Raise(PortEvent(IBV_EVENT_GID_CHANGE, 2));
  EXPECT_TRUE(Take().ok()) << "another port's";
  machine_.Raise(PortEvent(IBV_EVENT_GID_CHANGE, 1));
  const Status status = Take();
  EXPECT_EQ(status.code(), StatusCode::kDeviceError);
  for (const char* part : {"index 1", "10.0.0.1", "10.0.0.7"}) {
    EXPECT_TRUE(Has(status.message(), part)) << status.message();
  }
}

TEST_F(TakeAsyncEventsTest, AGidThatIsGoneIsAnErrorThatAsksForTheAddress) {
  info_.ethernet = true;
  port().gids[1] = "";
  machine_.Raise(PortEvent(IBV_EVENT_GID_CHANGE, 1));
  Status status = Take();
  EXPECT_TRUE(Has(status.message(), "10.0.0.1 and is now gone"))
      << status.message();
  EXPECT_TRUE(Has(status.message(), "ip addr"));
  port().gids.clear();  // ibv_query_gid fails
  machine_.Raise(PortEvent(IBV_EVENT_GID_CHANGE, 1));
  status = Take();
  EXPECT_TRUE(Has(status.message(), "is now gone")) << status.message();
}

TEST_F(TakeAsyncEventsTest, ADescriptorThatFailsIsADeviceThatIsGone) {
  machine_.async_errno = EIO;
  const Status status = Take();
  EXPECT_EQ(status.code(), StatusCode::kDeviceError);
  EXPECT_TRUE(Has(status.message(), "EIO")) << status.message();
  machine_.async_errno = EINTR;
  EXPECT_TRUE(Take().ok());
}

TEST_F(TakeAsyncEventsTest, EachErrorEndsACallOfItsOwn) {
  machine_.Raise(PortEvent(IBV_EVENT_PORT_ERR, 1));
  machine_.Raise(PortEvent(IBV_EVENT_DEVICE_FATAL, 1));
  machine_.async_errno = EIO;
  EXPECT_TRUE(Has(Take().message(), "IBV_EVENT_PORT_ERR"));
  EXPECT_EQ(machine_.events_acknowledged, 1);
  EXPECT_TRUE(Has(Take().message(), "IBV_EVENT_DEVICE_FATAL"));
  EXPECT_EQ(machine_.events_acknowledged, 2);
  EXPECT_TRUE(Has(Take().message(), "was the device removed?"));
  EXPECT_EQ(notices_.size(), 0u);
}

TEST_F(TakeAsyncEventsTest, AnErrorOfOneQueuePairComesWithItsNumber) {
  ibv_qp qp = {};
  qp.qp_num = 17;
  ibv_cq cq = {};
  machine_.Raise(Event(IBV_EVENT_COMM_EST, &qp, &cq));
  std::uint32_t number = 0;
  EXPECT_TRUE(
      TakeAsyncEvents(*machine_.library(), context_, info_, nullptr, &number)
          .ok());
  EXPECT_EQ(number, 0u);
  machine_.Raise(Event(IBV_EVENT_QP_FATAL, &qp, &cq));
  machine_.Raise(PortEvent(IBV_EVENT_PORT_ERR, 1));
  EXPECT_FALSE(
      TakeAsyncEvents(*machine_.library(), context_, info_, nullptr, &number)
          .ok());
  EXPECT_EQ(number, 17u);
}

TEST_F(TakeAsyncEventsTest, AStormOfEventsDoesNotHoldTheCallerUp) {
  constexpr int kEvents = 100;
  for (int i = 0; i < kEvents; ++i) {
    machine_.Raise(PortEvent(IBV_EVENT_GID_CHANGE, 1));
  }
  EXPECT_TRUE(Take().ok());
  EXPECT_LT(machine_.events_acknowledged, kEvents);
  EXPECT_TRUE(Take().ok());
  EXPECT_EQ(machine_.events_acknowledged, kEvents);
}

}  // namespace
}  // namespace ringpipe::verbs
