// The connection manager over fake devices and a fake network: what goes wrong.
#include "verbs/connection_manager.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/liveness_bound.h"
#include "verbs/connection_setup.h"
#include "verbs/fake_library.h"
#include "verbs/fake_rdmacm.h"

namespace ringpipe::verbs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kRemoteToken = 0x1234;
constexpr std::uint64_t kOne = 1;

// The functions of a Library have no room for state.
ibv_qp_state state_of_queue_pairs = IBV_QPS_INIT;
int writes = 0;
int writes_lost = 0;  // of those to come
std::uint64_t* answer_to = nullptr;

int QueryQp(ibv_qp*, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
  attr->qp_state = state_of_queue_pairs;
  return 0;
}

// Writes for real, as all ends are in this process, and answers for the other
// end.
int PostSend(ibv_qp*, ibv_send_wr* request, ibv_send_wr**) {
  ++writes;
  EXPECT_EQ(request->opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(request->send_flags & IBV_SEND_SIGNALED, 0U);
  if (writes_lost > 0) {
    --writes_lost;
    return 0;
  }
  std::memcpy(reinterpret_cast<void*>(request->wr.rdma.remote_addr),
              reinterpret_cast<void*>(request->sg_list[0].addr),
              request->sg_list[0].length);
  if (answer_to != nullptr) {
    *answer_to = kOne;
  }
  return 0;
}

class ConnectionManagerTest : public testing::Test {
 protected:
  ConnectionManagerTest() {
    state_of_queue_pairs = IBV_QPS_INIT;
    writes = 0;
    writes_lost = 0;
    answer_to = nullptr;
    FakeDevice siw;
    siw.name = "siw0";
    machine_.Add(siw);
    auto library = std::make_shared<Library>(*machine_.library());
    library->query_qp = QueryQp;
    device_ =
        Device::Open(DeviceRequest::Parse("siw0").value(), {},
                     Result<std::shared_ptr<const Library>>(std::move(library)),
                     machine_.soft(), machine_.sysfs_class())
            .value()
            .front();
    device_->context()->device->transport_type = IBV_TRANSPORT_IWARP;
    device_->context()->ops.post_send = PostSend;
    network_.emplace(device_->context());
    pd_ = ProtectionDomain::Create(device_).value();
    cq_ = CompletionQueue::Create(device_, 64).value();
    manager_ = Create().value();
  }

  Result<std::unique_ptr<ConnectionManager>> Create() {
    return ConnectionManager::Create(network_->library(), pd_,
                                     *IpAddress::Parse("192.168.77.1"));
  }

  // To rank 3 at 192.168.77.2:99.
  ConnectionManager::Connection NewConnection(std::uint32_t id, bool active) {
    queue_pairs_.push_back(QueuePair::Create(pd_, cq_, {}).value());
    queue_pairs_.back()->get()->pd = pd_->get();
    ConnectionManagerAddress remote;
    remote.ip = *IpAddress::Parse("192.168.77.2");
    remote.port = 99;
    remote.token = kRemoteToken;
    return {queue_pairs_.back().get(), id, 3, active, remote};
  }

  Status Connect(std::vector<ConnectionManager::Connection> connections,
                 milliseconds timeout = seconds(5), int abort_fd = -1) {
    return manager_->ConnectAll(0, connections, Deadline::After(timeout),
                                abort_fd);
  }

  // What rank 3 says, about `id`.
  HandshakeData Remote(std::uint32_t id, std::uint64_t token) {
    HandshakeData data = {};
    data.token = token;
    data.id = id;
    data.rank = 3;
    data.word = reinterpret_cast<std::uint64_t>(&remote_word_);
    return data;
  }

  // Rank 3 accepts whatever comes.
  void AcceptConnections() {
    network_->on_connect = [this](rdma_cm_id* id,
                                  const rdma_conn_param& param) {
      HandshakeData request;
      std::memcpy(&request, param.private_data, sizeof(request));
      answer_to = reinterpret_cast<std::uint64_t*>(request.word);
      const HandshakeData data = Remote(request.id, request.token);
      network_->Raise(RDMA_CM_EVENT_ESTABLISHED, id, 0, &data, sizeof(data));
    };
  }

  void ExpectNothingLeft() {
    manager_.reset();
    EXPECT_EQ(network_->live_ids, 0);
    EXPECT_EQ(network_->live_channels, 0);
    EXPECT_EQ(network_->unacknowledged, 0);
    EXPECT_EQ(network_->destroyed_too_early, 0);
  }

  static bool Has(const Status& status, const std::string& text) {
    return status.message().find(text) != std::string::npos;
  }

  FakeMachine machine_;
  std::shared_ptr<Device> device_;
  std::optional<FakeRdmacm> network_;
  std::shared_ptr<ProtectionDomain> pd_;
  std::shared_ptr<CompletionQueue> cq_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;
  std::unique_ptr<ConnectionManager> manager_;
  std::uint64_t remote_word_ = 0;
};

TEST_F(ConnectionManagerTest, AnActiveEndIsReadyWhenTheOtherHasAnswered) {
  AcceptConnections();
  const Status status = Connect({NewConnection(7, true)});
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(remote_word_, kOne);
  EXPECT_EQ(writes, 1);
  EXPECT_EQ(network_->source, "192.168.77.1");
  EXPECT_EQ(network_->live_ids, 1);  // the connection's; no longer listening
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, AWriteThatNobodyNoticesIsRepeated) {
  AcceptConnections();
  writes_lost = 2;
  const Status status = Connect({NewConnection(7, true)});
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(writes, 3);
}

TEST_F(ConnectionManagerTest, WritesAreNoMoreThanAnnounced) {
  AcceptConnections();
  writes_lost = 1000;
  const Status status = Connect({NewConnection(7, true)}, seconds(1));
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_LE(writes, ConnectionManager::kReadyWrites);
}

TEST_F(ConnectionManagerTest, APassiveEndIsReadyWhenItHasBeenWrittenTo) {
  network_->on_accept = [this](rdma_cm_id* id, const rdma_conn_param& param) {
    HandshakeData data;
    std::memcpy(&data, param.private_data, sizeof(data));
    EXPECT_EQ(data.token, manager_->address().token);
    network_->Raise(RDMA_CM_EVENT_ESTABLISHED, id);
    *reinterpret_cast<std::uint64_t*>(data.word) = kOne;
  };
  const HandshakeData data = Remote(7, manager_->address().token);
  network_->Request(&data, sizeof(data));
  const Status status = Connect({NewConnection(7, false)});
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(remote_word_, kOne);
  EXPECT_EQ(manager_->strangers(), 0);
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, APassiveEndIsNotReadyBeforeItHasBeenWrittenTo) {
  network_->on_accept = [this](rdma_cm_id* id, const rdma_conn_param&) {
    network_->Raise(RDMA_CM_EVENT_ESTABLISHED, id);
  };
  const HandshakeData data = Remote(7, manager_->address().token);
  network_->Request(&data, sizeof(data));
  const Status status = Connect({NewConnection(7, false)}, milliseconds(100));
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_EQ(writes, 0);
}

TEST_F(ConnectionManagerTest, StrangersAreRefusedAndCounted) {
  const HandshakeData wrong_token = Remote(7, ~manager_->address().token);
  const HandshakeData unknown_id = Remote(8, manager_->address().token);
  HandshakeData unknown_rank = Remote(7, manager_->address().token);
  unknown_rank.rank = 4;
  network_->Request(nullptr, 0);
  network_->Request("x", 1);
  network_->Request(&wrong_token, sizeof(wrong_token));
  network_->Request(&unknown_id, sizeof(unknown_id));
  network_->Request(&unknown_rank, sizeof(unknown_rank));
  // What is meant for an active end is no request for it either.
  const HandshakeData for_active = Remote(9, manager_->address().token);
  network_->Request(&for_active, sizeof(for_active));
  AcceptConnections();
  const Status status = Connect(
      {NewConnection(7, false), NewConnection(9, true)}, milliseconds(100));
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
  EXPECT_TRUE(Has(status, "from rank 3")) << status.message();
  EXPECT_TRUE(Has(status, "it has not asked")) << status.message();
  EXPECT_EQ(manager_->strangers(), 6);
  EXPECT_EQ(network_->rejected.size(), 6U);
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, ASecondRequestForAConnectionIsRefused) {
  network_->on_accept = [this](rdma_cm_id* id, const rdma_conn_param& param) {
    HandshakeData data;
    std::memcpy(&data, param.private_data, sizeof(data));
    network_->Raise(RDMA_CM_EVENT_ESTABLISHED, id);
    *reinterpret_cast<std::uint64_t*>(data.word) = kOne;
  };
  const HandshakeData data = Remote(7, manager_->address().token);
  network_->Request(&data, sizeof(data));
  network_->Request(&data, sizeof(data));
  const Status status = Connect({NewConnection(7, false)});
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(manager_->strangers(), 1);
}

TEST_F(ConnectionManagerTest, AnotherListenerAtTheAddressIsAMismatch) {
  network_->on_connect = [this](rdma_cm_id* id, const rdma_conn_param&) {
    const HandshakeData data = Remote(7, kRemoteToken + 1);
    network_->Raise(RDMA_CM_EVENT_ESTABLISHED, id, 0, &data, sizeof(data));
  };
  const Status status = Connect({NewConnection(7, true)});
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_EQ(writes, 0);
}

TEST_F(ConnectionManagerTest, WhatPassesIsTriedAgain) {
  AcceptConnections();
  network_->resolve_events = {-ETIMEDOUT, -EHOSTUNREACH};
  network_->connect_errnos = {ECONNREFUSED};
  const Status status = Connect({NewConnection(7, true)});
  EXPECT_TRUE(status.ok()) << status.ToString();
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, ARejectIsTriedAgainOnlyIfTheQueuePairIsInInit) {
  int rejects = 0;
  network_->on_connect = [&](rdma_cm_id* id, const rdma_conn_param&) {
    ++rejects;
    network_->Raise(RDMA_CM_EVENT_REJECTED, id, -ECONNREFUSED);
  };
  state_of_queue_pairs = IBV_QPS_ERR;
  const Status status = Connect({NewConnection(7, true)});
  EXPECT_EQ(rejects, 1);
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_TRUE(Has(status, "to rank 3 (192.168.77.1 to 192.168.77.2:99)"))
      << status.message();
  EXPECT_TRUE(Has(status, "ECONNREFUSED")) << status.message();

  state_of_queue_pairs = IBV_QPS_INIT;
  manager_.reset();
  manager_ = Create().value();
  rejects = 0;
  const Status later = Connect({NewConnection(7, true)}, milliseconds(200));
  EXPECT_GT(rejects, 1);
  EXPECT_EQ(later.code(), StatusCode::kTimeout);
  EXPECT_TRUE(Has(later, "RDMA_CM_EVENT_REJECTED")) << later.message();
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, AFailureLeavesTheOthersQueuePairsInError) {
  network_->on_connect = [&](rdma_cm_id* id, const rdma_conn_param&) {
    network_->Raise(RDMA_CM_EVENT_UNREACHABLE, id, -ETIMEDOUT);
  };
  state_of_queue_pairs = IBV_QPS_ERR;
  const auto connections = {NewConnection(7, true), NewConnection(8, false)};
  machine_.modifications.clear();
  EXPECT_EQ(Connect(connections).code(), StatusCode::kPeerLost);
  ASSERT_EQ(machine_.modifications.size(), 2U);
  EXPECT_EQ(machine_.modifications[0].attr.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(machine_.modifications[1].attr.qp_state, IBV_QPS_ERR);
}

TEST_F(ConnectionManagerTest, TheRemovalOfTheDeviceIsItsOwnError) {
  network_->Raise(RDMA_CM_EVENT_DEVICE_REMOVAL, nullptr);
  const Status status = Connect({NewConnection(7, false)});
  EXPECT_EQ(status.code(), StatusCode::kDeviceError);
  EXPECT_TRUE(Has(status, "siw0 was removed")) << status.message();
}

TEST_F(ConnectionManagerTest, AnAbortEndsTheWait) {
  const int fd = eventfd(1, 0);
  const auto start = Clock::now();
  const Status status = Connect({NewConnection(7, false)}, seconds(30), fd);
  EXPECT_LT(Clock::now() - start, LivenessBound(seconds(2)));
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  close(fd);
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, NothingToConnectIsNoError) {
  EXPECT_TRUE(Connect({}).ok());
  EXPECT_EQ(Connect({}).code(), StatusCode::kInvalidArgument);  // once
}

TEST_F(ConnectionManagerTest, WithoutTheKernelsModuleTheAdviceNamesIt) {
  manager_.reset();
  network_->channel_errno = ENODEV;
  const auto created = Create();
  EXPECT_EQ(created.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(created.status(), "rdma_ucm")) << created.status().message();
  network_->channel_errno = EACCES;
  EXPECT_EQ(Create().status().code(), StatusCode::kPermissionDenied);
}

TEST_F(ConnectionManagerTest, AnAddressThatIsNotTheDevicesIsNamed) {
  manager_.reset();
  network_->bind_errno = EADDRNOTAVAIL;
  const auto created = Create();
  EXPECT_EQ(created.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(created.status(), "192.168.77.1"))
      << created.status().message();
  EXPECT_EQ(network_->live_ids, 0);
}

TEST_F(ConnectionManagerTest, OtherDevicesThanIwarpAreRefused) {
  device_->context()->device->transport_type = IBV_TRANSPORT_IB;
  EXPECT_EQ(Create().status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ringpipe::verbs
