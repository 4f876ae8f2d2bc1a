// What QueuePair asks of a device, on one that only takes notes. How a queue
// pair behaves is in queue_pair_test.cc.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "verbs/fake_library.h"
#include "verbs/queue_pair.h"

namespace ringpipe::verbs {
namespace {

class QueuePairSetupTest : public testing::Test {
 protected:
  ~QueuePairSetupTest() override {
    pd_.reset();
    cq_.reset();
    EXPECT_EQ(machine_.live, 0) << "left open";
  }

  void OpenDevice(FakeDevice fake) {
    fake.name = "mlx5_0";
    machine_.Add(fake);
    auto devices = Device::Open(
        {}, {}, Result<std::shared_ptr<const Library>>(machine_.library()),
        machine_.soft(), machine_.sysfs_class());
    ASSERT_TRUE(devices.ok()) << devices.status().ToString();
    auto pd = ProtectionDomain::Create(devices->front());
    auto cq = CompletionQueue::Create(devices->front(), 16);
    ASSERT_TRUE(pd.ok() && cq.ok());
    pd_ = pd.value();
    cq_ = cq.value();
  }

  Result<std::unique_ptr<QueuePair>> Create(const QueuePair::Options& options) {
    return QueuePair::Create(pd_, cq_, options);
  }

  // The last change to `state`.
  FakeMachine::Modification To(ibv_qp_state state) const {
    FakeMachine::Modification last = {};
    for (const auto& modification : machine_.modifications) {
      if (modification.attr.qp_state == state) {
        last = modification;
      }
    }
    return last;
  }

  FakeMachine machine_;
  std::shared_ptr<ProtectionDomain> pd_;
  std::shared_ptr<CompletionQueue> cq_;
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

FakeDevice Ethernet() {
  FakeDevice device;
  device.ports[0].ethernet = true;
  device.ports[0].gids = {"fe80::1", "::ffff:10.0.0.1"};
  return device;
}

Endpoint Remote() {
  Endpoint remote;
  remote.qp_number = 0x456;
  remote.packet_sequence = 0x789;
  remote.lid = 9;
  remote.mtu = IBV_MTU_1024;
  return remote;
}

TEST_F(QueuePairSetupTest, ANewQueuePairIsInInitAndAllowsRemoteWrites) {
  OpenDevice({});
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok()) << qp.status().ToString();
  const auto init = To(IBV_QPS_INIT);
  EXPECT_EQ(init.mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                           IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(init.attr.port_num, 1);
  EXPECT_EQ(
      init.attr.qp_access_flags,
      static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  EXPECT_EQ(qp.value()->max_inline_bytes(), 64);
}

TEST_F(QueuePairSetupTest, WhereTheDeviceHasNoInlineDataNoneIsTaken) {
  FakeDevice device;
  device.max_inline_bytes = 0;
  OpenDevice(device);
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok()) << qp.status().ToString();
  EXPECT_EQ(qp.value()->max_inline_bytes(), 0);
}

TEST_F(QueuePairSetupTest, PastTheDevicesLimitsTheMessageSaysWhatToLower) {
  FakeDevice device;
  device.max_qp_wr = 100;
  OpenDevice(device);
  EXPECT_TRUE(Create({.max_send = 100, .max_receive = 100}).ok());
  for (const QueuePair::Options& options :
       {QueuePair::Options{.max_send = 101},
        QueuePair::Options{.max_receive = 101}}) {
    const auto qp = Create(options);
    ASSERT_FALSE(qp.ok());
    EXPECT_EQ(qp.status().code(), StatusCode::kResourceExhausted);
    for (const char* part : {"mlx5_0", "101", "100", "RINGPIPE_SLOTS"}) {
      EXPECT_NE(qp.status().message().find(part), std::string::npos) << part;
    }
  }
  EXPECT_EQ(Create({.max_send_sge = 5}).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(QueuePairSetupTest, OneMoreThanTheDeviceHasIsRefusedWithItsLimit) {
  FakeDevice device;
  device.max_qp = 1;
  OpenDevice(device);
  const auto first = Create({});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  for (const int error : {ENOMEM, EINVAL, ENOSPC}) {
    machine_.devices[0]->limit_errno = error;
    const auto qp = Create({});
    ASSERT_FALSE(qp.ok());
    EXPECT_EQ(qp.status().code(), StatusCode::kResourceExhausted);
    for (const char* part :
         {"mlx5_0", "1 queue pairs (max_qp)", "1024 work requests (max_qp_wr)",
          "RINGPIPE_SLOTS", "fewer ranks"}) {
      EXPECT_TRUE(Has(qp.status().message(), part)) << qp.status().message();
    }
    EXPECT_EQ(Has(qp.status().message(), "ulimit -l"), error == ENOMEM);
  }
  machine_.devices[0]->limit_errno = EACCES;
  const auto refused = Create({});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kPermissionDenied);
  EXPECT_FALSE(Has(refused.status().message(), "max_qp"));
}

TEST_F(QueuePairSetupTest, OptionsThatVerbsCannotEncodeAreInvalid) {
  OpenDevice({});
  for (const QueuePair::Options& options :
       {QueuePair::Options{.timeout = 32}, QueuePair::Options{.retry_count = 8},
        QueuePair::Options{.rnr_retry = -1},
        QueuePair::Options{.min_rnr_timer = 32},
        QueuePair::Options{.service_level = 16},
        QueuePair::Options{.traffic_class = 256},
        QueuePair::Options{.traffic_class = -1}}) {
    EXPECT_EQ(Create(options).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(QueuePairSetupTest, OnInfiniBandThePeerIsAddressedByItsLid) {
  OpenDevice({});
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  ASSERT_TRUE(qp.value()->Connect(Remote()).ok());
  const ibv_qp_attr attr = To(IBV_QPS_RTR).attr;
  EXPECT_EQ(attr.ah_attr.dlid, 9);
  EXPECT_EQ(attr.ah_attr.is_global, 0);
  EXPECT_EQ(attr.ah_attr.port_num, 1);
  EXPECT_EQ(attr.dest_qp_num, 0x456u);
  EXPECT_EQ(attr.rq_psn, 0x789u);
}

TEST_F(QueuePairSetupTest, OnEthernetThePeerIsAddressedByItsGid) {
  OpenDevice(Ethernet());
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  Endpoint remote = Remote();
  remote.ethernet = 1;
  inet_pton(AF_INET6, "::ffff:10.0.0.2", remote.gid);
  ASSERT_TRUE(qp.value()->Connect(remote).ok());
  const ibv_ah_attr address = To(IBV_QPS_RTR).attr.ah_attr;
  EXPECT_EQ(address.is_global, 1);
  EXPECT_EQ(address.grh.sgid_index, 1);
  EXPECT_EQ(address.grh.dgid.raw[15], 2);
  EXPECT_GT(address.grh.hop_limit, 0);
}

// An InfiniBand port in the subnet of `gid`.
FakeDevice InfiniBand(const std::string& gid, std::uint16_t lid = 1) {
  FakeDevice device;
  device.ports[0].gids = {gid};
  device.ports[0].lid = lid;
  return device;
}

Endpoint RemoteIn(const std::string& gid, std::uint16_t lid = 9) {
  Endpoint remote = Remote();
  inet_pton(AF_INET6, gid.c_str(), remote.gid);
  remote.lid = lid;
  return remote;
}

TEST_F(QueuePairSetupTest, WithinASubnetInfiniBandHasNoGlobalHeader) {
  OpenDevice(InfiniBand("fe80::1"));
  const auto qp = Create({.service_level = 3, .traffic_class = 96});
  ASSERT_TRUE(qp.ok());
  // A peer that does not tell its GID is taken to be in the same one.
  for (const char* gid : {"fe80::2", "::", "::2"}) {
    ASSERT_TRUE(qp.value()->Connect(RemoteIn(gid)).ok());
    const ibv_ah_attr address = To(IBV_QPS_RTR).attr.ah_attr;
    EXPECT_EQ(address.is_global, 0) << gid;
    EXPECT_EQ(address.dlid, 9) << gid;
    EXPECT_EQ(address.sl, 3) << gid;
  }
}

TEST_F(QueuePairSetupTest, AcrossSubnetsInfiniBandHasAGlobalHeader) {
  OpenDevice(InfiniBand("fec0:0:0:1::1"));
  const auto qp = Create({.traffic_class = 96});
  ASSERT_TRUE(qp.ok());
  ASSERT_TRUE(qp.value()->Connect(RemoteIn("fec0:0:0:2::5")).ok());
  const ibv_ah_attr address = To(IBV_QPS_RTR).attr.ah_attr;
  EXPECT_EQ(address.is_global, 1);
  EXPECT_EQ(address.dlid, 9);
  EXPECT_EQ(address.grh.dgid.raw[7], 2);
  EXPECT_EQ(address.grh.dgid.raw[15], 5);
  EXPECT_EQ(address.grh.sgid_index, 0);
  EXPECT_GT(address.grh.hop_limit, 1);
  EXPECT_EQ(address.grh.traffic_class, 96);
  EXPECT_EQ(qp.value()->DescribePath(),
            "mlx5_0 (LID 1, GID fec0:0:0:1::1) to LID 9, GID fec0:0:0:2::5");
}

TEST_F(QueuePairSetupTest, ARouterIsReachedByTheForwardingLidOfThePeersGid) {
  OpenDevice(InfiniBand("fec0:0:0:1::1"));
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  ASSERT_TRUE(qp.value()->Connect(RemoteIn("fec0:0:c012:2::5")).ok());
  EXPECT_EQ(To(IBV_QPS_RTR).attr.ah_attr.dlid, 0xc012);
  // Another forwarding LID, but the same subnet: there is no router between.
  ASSERT_TRUE(qp.value()->Connect(RemoteIn("fec0:0:c012:1::5")).ok());
  EXPECT_EQ(To(IBV_QPS_RTR).attr.ah_attr.dlid, 9);
}

TEST_F(QueuePairSetupTest, WithoutALidInfiniBandHasAGlobalHeader) {
  OpenDevice(InfiniBand("fe80::1"));
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  ASSERT_TRUE(qp.value()->Connect(RemoteIn("fe80::2", 0)).ok());
  EXPECT_EQ(To(IBV_QPS_RTR).attr.ah_attr.is_global, 1);
  EXPECT_EQ(qp.value()->DescribePath(),
            "mlx5_0 (LID 1, GID fe80::1) to GID fe80::2");
}

TEST_F(QueuePairSetupTest, TheClassesOfTrafficAreThoseOfTheOptions) {
  OpenDevice(Ethernet());
  const auto qp = Create({.service_level = 5, .traffic_class = 106});
  ASSERT_TRUE(qp.ok());
  Endpoint remote = RemoteIn("::ffff:10.0.0.2", 0);
  remote.ethernet = 1;
  ASSERT_TRUE(qp.value()->Connect(remote).ok());
  EXPECT_EQ(To(IBV_QPS_RTR).attr.ah_attr.sl, 5);
  EXPECT_EQ(To(IBV_QPS_RTR).attr.ah_attr.grh.traffic_class, 106);
}

TEST_F(QueuePairSetupTest, ThePathHasTheSmallerMtuOfBothEnds) {
  OpenDevice({});  // 4096
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  Endpoint remote = Remote();
  ASSERT_TRUE(qp.value()->Connect(remote).ok());
  EXPECT_EQ(To(IBV_QPS_RTR).attr.path_mtu, IBV_MTU_1024);
  remote.mtu = IBV_MTU_4096;
  ASSERT_TRUE(qp.value()->Connect(remote).ok());
  EXPECT_EQ(To(IBV_QPS_RTR).attr.path_mtu, IBV_MTU_4096);
}

TEST_F(QueuePairSetupTest, RetriesAndTimersAreThoseOfTheOptions) {
  OpenDevice({});
  const auto qp = Create(
      {.timeout = 19, .retry_count = 3, .rnr_retry = 5, .min_rnr_timer = 14});
  ASSERT_TRUE(qp.ok());
  ASSERT_TRUE(qp.value()->Connect(Remote()).ok());
  const ibv_qp_attr rts = To(IBV_QPS_RTS).attr;
  EXPECT_EQ(rts.timeout, 19);
  EXPECT_EQ(rts.retry_cnt, 3);
  EXPECT_EQ(rts.rnr_retry, 5);
  EXPECT_EQ(To(IBV_QPS_RTR).attr.min_rnr_timer, 14);
  // Each end expects what the other one says.
  EXPECT_EQ(rts.sq_psn, qp.value()->endpoint().packet_sequence);
  EXPECT_LE(rts.sq_psn, 0xff'ffffu);
}

TEST_F(QueuePairSetupTest, EndsOfDifferentLinkLayersAreAMismatch) {
  OpenDevice({});
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  Endpoint remote = Remote();
  remote.ethernet = 1;
  const Status status = qp.value()->Connect(remote);
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_NE(status.message().find("InfiniBand"), std::string::npos);
  EXPECT_NE(status.message().find("Ethernet"), std::string::npos);
  EXPECT_EQ(To(IBV_QPS_RTR).mask, 0) << "the device was asked nevertheless";
}

TEST_F(QueuePairSetupTest, AnEndpointThatCannotBeOneIsAMismatch) {
  OpenDevice({});
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  Endpoint bad_mtu = Remote();
  bad_mtu.mtu = 6;
  Endpoint bad_number = Remote();
  bad_number.qp_number = 1U << 24;
  Endpoint bad_sequence = Remote();
  bad_sequence.packet_sequence = 1U << 24;
  Endpoint bad_link = Remote();
  bad_link.ethernet = 2;
  for (const Endpoint& remote :
       {Endpoint(), bad_mtu, bad_number, bad_sequence, bad_link}) {
    EXPECT_EQ(qp.value()->Connect(remote).code(), StatusCode::kMismatch);
  }
}

ibv_wc Failed(ibv_wc_status status, std::uint32_t vendor_err = 0) {
  ibv_wc completion = {};
  completion.status = status;
  completion.vendor_err = vendor_err;
  return completion;
}

TEST_F(QueuePairSetupTest, APathIsDescribedByTheAddressesOfBothEnds) {
  OpenDevice(Ethernet());
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  EXPECT_EQ(qp.value()->DescribePath(),
            "mlx5_0 (GID ::ffff:10.0.0.1), not connected");
  Endpoint remote = RemoteIn("::ffff:10.0.0.2", 0);
  remote.ethernet = 1;
  ASSERT_TRUE(qp.value()->Connect(remote).ok());
  EXPECT_EQ(qp.value()->DescribePath(),
            "mlx5_0 (GID ::ffff:10.0.0.1) to GID ::ffff:10.0.0.2");
}

TEST_F(QueuePairSetupTest, APathBetweenLidsIsDescribedByThem) {
  OpenDevice(InfiniBand("fe80::1", 4));
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  EXPECT_EQ(qp.value()->DescribePath(), "mlx5_0 (LID 4), not connected");
  ASSERT_TRUE(qp.value()->Connect(RemoteIn("fe80::2")).ok());
  EXPECT_EQ(qp.value()->DescribePath(), "mlx5_0 (LID 4) to LID 9");
}

TEST_F(QueuePairSetupTest, APeerWithoutARouteIsUnavailableAndNamed) {
  OpenDevice(Ethernet());
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  Endpoint remote = RemoteIn("::ffff:10.0.0.2", 0);
  remote.ethernet = 1;
  for (const int error : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH}) {
    machine_.connect_errno = error;
    const Status status = qp.value()->Connect(remote);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    for (const char* part : {"mlx5_0 (GID ::ffff:10.0.0.1)",
                             "to GID ::ffff:10.0.0.2", "ping each other"}) {
      EXPECT_TRUE(Has(status.message(), part)) << status.message();
    }
  }
  machine_.connect_errno = EINVAL;
  EXPECT_EQ(qp.value()->Connect(remote).code(), StatusCode::kDeviceError);
}

TEST_F(QueuePairSetupTest, APeerThatIsSilentIsNamedWithWhatToLookAt) {
  FakeDevice device = Ethernet();
  device.ports[0].mtu = IBV_MTU_4096;
  OpenDevice(device);
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  Endpoint remote = RemoteIn("::ffff:10.0.0.2", 0);
  remote.ethernet = 1;
  remote.mtu = IBV_MTU_4096;
  ASSERT_TRUE(qp.value()->Connect(remote).ok());
  std::string text =
      qp.value()->DescribeFailure(Failed(IBV_WC_RETRY_EXC_ERR, 0x81));
  EXPECT_EQ(text.rfind("IBV_WC_RETRY_EXC_ERR, vendor error 0x81: no answer "
                       "from GID ::ffff:10.0.0.2 through mlx5_0 port 1 (",
                       0),
            0u)
      << text;
  for (const char* part : {"ping", "same MTU", "VLAN", "RoCE version"}) {
    EXPECT_TRUE(Has(text, part)) << text;
  }
  EXPECT_FALSE(Has(text, "4096")) << text;
  remote.mtu = IBV_MTU_1024;
  ASSERT_TRUE(qp.value()->Connect(remote).ok());
  text = qp.value()->DescribeFailure(Failed(IBV_WC_RETRY_EXC_ERR));
  EXPECT_TRUE(Has(text, "same MTU (here 4096, there 1024)?")) << text;
}

TEST_F(QueuePairSetupTest, AnotherFailureHasItsCauseAndThePath) {
  OpenDevice(InfiniBand("fe80::1", 4));
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  ASSERT_TRUE(qp.value()->Connect(RemoteIn("fe80::2")).ok());
  const std::string text =
      qp.value()->DescribeFailure(Failed(IBV_WC_REM_ACCESS_ERR));
  EXPECT_EQ(text, DescribeCompletion(IBV_WC_REM_ACCESS_ERR) +
                      " on port 1 of mlx5_0 (LID 4) to LID 9");
}

TEST_F(QueuePairSetupTest, APeerThatWasConnectedByOtherMeansIsNamedToo) {
  OpenDevice(Ethernet());
  const auto qp = Create({});
  ASSERT_TRUE(qp.ok());
  const ibv_wc silence = Failed(IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(Has(qp.value()->DescribeFailure(silence), "not connected"));
  qp.value()->set_peer_address("10.0.0.2:4711");
  EXPECT_TRUE(Has(qp.value()->DescribeFailure(silence),
                  "no answer from 10.0.0.2:4711 through mlx5_0 port 1"));
  EXPECT_EQ(qp.value()->DescribePath(),
            "mlx5_0 (GID ::ffff:10.0.0.1) to 10.0.0.2:4711");
}

}  // namespace
}  // namespace ringpipe::verbs
