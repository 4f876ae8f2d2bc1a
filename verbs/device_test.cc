#include "verbs/device.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "verbs/fake_library.h"

namespace ringpipe::verbs {
namespace {

using LibraryResult = Result<std::shared_ptr<const Library>>;

class DeviceTest : public testing::Test {
 protected:
  ~DeviceTest() override { EXPECT_EQ(machine_.live, 0) << "left open"; }

  using Devices = std::vector<std::shared_ptr<Device>>;

  // The first of the rails.
  Result<std::shared_ptr<Device>> Open(const std::string& text) {
    return OpenWith(text, LibraryResult(machine_.library()));
  }
  Result<std::shared_ptr<Device>> OpenWith(const std::string& text,
                                           const LibraryResult& system) {
    const auto request = DeviceRequest::Parse(text);
    EXPECT_TRUE(request.ok());
    auto devices = Device::Open(request.value(), address_, system,
                                machine_.soft(), machine_.sysfs_class());
    if (!devices.ok()) {
      return devices.status();
    }
    EXPECT_FALSE(devices->empty());
    return devices->front();
  }
  Result<Devices> OpenAll(const std::string& text) {
    const auto request = DeviceRequest::Parse(text);
    EXPECT_TRUE(request.ok());
    return Device::Open(request.value(), address_,
                        LibraryResult(machine_.library()), machine_.soft(),
                        machine_.sysfs_class());
  }

  AddressRequest address_;
  FakeMachine machine_;
};

FakeDevice WithPort(const std::string& name, ibv_port_state state) {
  FakeDevice device;
  device.name = name;
  device.ports[0].state = state;
  return device;
}

FakeDevice Ethernet(std::vector<std::string> gids,
                    std::vector<std::string> types = {}) {
  FakeDevice device = WithPort("rxe0", IBV_PORT_ACTIVE);
  device.ports[0].ethernet = true;
  device.ports[0].gids = std::move(gids);
  device.ports[0].gid_types = std::move(types);
  return device;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(DeviceTest, WithoutALibraryTheSoftwareDeviceOpensAndNamesTheReason) {
  const auto device = OpenWith(
      "", Status(StatusCode::kUnavailable, "libibverbs.so.1: no such file"));
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const DeviceInfo& info = device.value()->info();
  EXPECT_TRUE(info.software);
  EXPECT_FALSE(info.pins_memory);
  EXPECT_EQ(info.name, "soft0");
  EXPECT_TRUE(Has(info.reason, "libibverbs.so.1: no such file"));
}

TEST_F(DeviceTest, WithoutADeviceTheSoftwareDeviceOpens) {
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_TRUE(device.value()->info().software);
  EXPECT_TRUE(Has(device.value()->info().reason, "lists none"));
}

TEST_F(DeviceTest, AnActiveDeviceOpensWithItsLimits) {
  machine_.Add(WithPort("mlx5_0", IBV_PORT_ACTIVE));
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const DeviceInfo& info = device.value()->info();
  EXPECT_EQ(info.name, "mlx5_0");
  EXPECT_FALSE(info.software);
  EXPECT_TRUE(info.pins_memory);
  EXPECT_FALSE(info.ethernet);
  EXPECT_EQ(info.lid, 1);
  EXPECT_EQ(info.mtu, IBV_MTU_4096);
  EXPECT_EQ(info.max_qp_wr, 1024);
  EXPECT_EQ(info.max_cqe, 4096);
  EXPECT_EQ(info.max_sge, 4);
  EXPECT_EQ(info.max_message_bytes, 1u << 30);
  EXPECT_TRUE(Has(info.reason, "mlx5_0 port 1 is active"));
}

TEST_F(DeviceTest, OnlyADeviceThatIsDownMeansTheSoftwareDeviceAndIsNamed) {
  machine_.Add(WithPort("mlx5_0", IBV_PORT_DOWN));
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_TRUE(device.value()->info().software);
  EXPECT_TRUE(Has(device.value()->info().reason, "mlx5_0 port 1 is down"));
}

TEST_F(DeviceTest, DevicesAreTriedByTheValueOfTheirNumbers) {
  machine_.Add(WithPort("mlx5_10", IBV_PORT_ACTIVE));
  machine_.Add(WithPort("mlx5_2", IBV_PORT_ACTIVE));
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ(device.value()->info().name, "mlx5_2");
}

TEST_F(DeviceTest, AnActiveDeviceThatMayNotBeOpenedIsPermissionDenied) {
  FakeDevice locked = WithPort("mlx5_0", IBV_PORT_ACTIVE);
  locked.open_errno = EACCES;
  machine_.Add(locked);
  const auto device = Open("");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kPermissionDenied);
  for (const char* part : {"mlx5_0", "EACCES", "/dev/infiniband"}) {
    EXPECT_TRUE(Has(device.status().message(), part)) << part;
  }
}

TEST_F(DeviceTest, AnActiveDeviceWithoutItsFileIsUnavailable) {
  FakeDevice gone = WithPort("mlx5_0", IBV_PORT_ACTIVE);
  gone.open_errno = ENOENT;
  machine_.Add(gone);
  const auto device = Open("mlx5_0");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(device.status().message(), "ENOENT"));
  EXPECT_TRUE(Has(device.status().message(), "container"));
}

// A container that sees /sys but was not given /dev/infiniband.
TEST_F(DeviceTest, AnActiveDeviceThatTheLibraryHidesIsAnErrorNotAFallback) {
  FakeDevice hidden = WithPort("mlx5_0", IBV_PORT_ACTIVE);
  hidden.listed = false;
  machine_.Add(hidden);
  const auto device = Open("");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(device.status().message(), "mlx5_0"));
  const auto without = OpenWith("", Status(StatusCode::kUnavailable, "no lib"));
  ASSERT_FALSE(without.ok());
  EXPECT_TRUE(Has(without.status().message(), "no lib"));
}

TEST_F(DeviceTest, ADeviceThatSysfsDoesNotKnowIsAskedItself) {
  FakeDevice up = WithPort("vsoft1", IBV_PORT_ACTIVE);
  FakeDevice down = WithPort("vsoft0", IBV_PORT_DOWN);
  up.in_sysfs = down.in_sysfs = false;
  machine_.Add(down);
  machine_.Add(up);
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ(device.value()->info().name, "vsoft1");
  EXPECT_EQ(device.value()->info().gigabits_per_second, 100);
}

TEST_F(DeviceTest, AnIwarpPortHasTheAddressOfItsNetworkInterface) {
  FakeDevice iwarp = WithPort("siw0", IBV_PORT_ACTIVE);
  iwarp.transport = IBV_TRANSPORT_IWARP;
  iwarp.ports[0].ethernet = true;
  iwarp.ports[0].gids = {"200:ff:fe00:1::"};
  iwarp.ports[0].gid_ndevs = {"lo"};
  machine_.Add(iwarp);
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const DeviceInfo& info = device.value()->info();
  EXPECT_EQ(info.transport, Transport::kIwarp);
  EXPECT_EQ(info.interface, "lo");
  // A machine without IPv4 has ::1 there.
  EXPECT_TRUE(info.gid.raw[12] == 127 || info.gid.raw[15] == 1);
}

TEST_F(DeviceTest, AnIwarpPortWithoutAnInterfaceIsAnErrorNotAFallback) {
  FakeDevice iwarp = WithPort("siw0", IBV_PORT_ACTIVE);
  iwarp.transport = IBV_TRANSPORT_IWARP;
  iwarp.ports[0].ethernet = true;
  machine_.Add(iwarp);
  const auto unknown = Open("");
  ASSERT_FALSE(unknown.ok());
  EXPECT_TRUE(Has(unknown.status().message(), "siw0 port 1"));
  EXPECT_TRUE(Has(unknown.status().message(), "network interface"));
}

TEST_F(DeviceTest, AnIwarpPortWhoseInterfaceHasNoAddressIsAnErrorThatNamesIt) {
  FakeDevice iwarp = WithPort("siw0", IBV_PORT_ACTIVE);
  iwarp.transport = IBV_TRANSPORT_IWARP;
  iwarp.ports[0].gid_ndevs = {"none77"};
  machine_.Add(iwarp);
  const auto device = Open("siw0");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(device.status().message(), "none77 an IP address"))
      << device.status().ToString();
}

TEST_F(DeviceTest, ADeviceOfAnUnknownTransportIsAnErrorThatSaysWhy) {
  FakeDevice other = WithPort("usnic_0", IBV_PORT_ACTIVE);
  other.transport = IBV_TRANSPORT_USNIC;
  machine_.Add(other);
  const auto device = Open("");
  ASSERT_FALSE(device.ok());
  EXPECT_TRUE(Has(device.status().message(), "reliable connected"));
}

TEST_F(DeviceTest, AllActivePortsOpenEachWithAContextOfItsOwn) {
  FakeDevice two_ports = WithPort("mlx5_0", IBV_PORT_ACTIVE);
  two_ports.ports.push_back(FakePort{});
  two_ports.ports[1].lid = 22;
  machine_.Add(two_ports);
  FakeDevice fast = WithPort("mlx5_1", IBV_PORT_ACTIVE);
  fast.ports[0].gigabits_per_second = 400;
  machine_.Add(fast);
  machine_.Add(WithPort("mlx5_2", IBV_PORT_DOWN));
  const auto devices = OpenAll("");
  ASSERT_TRUE(devices.ok()) << devices.status().ToString();
  ASSERT_EQ(devices.value().size(), 3u);
  EXPECT_EQ(machine_.live, 3);
  EXPECT_EQ(devices.value()[0]->info().name, "mlx5_1");
  EXPECT_EQ(devices.value()[0]->info().gigabits_per_second, 400);
  EXPECT_EQ(devices.value()[2]->info().port, 2);
  EXPECT_EQ(devices.value()[2]->info().lid, 22);
  EXPECT_TRUE(Has(devices.value()[0]->info().left_out, "mlx5_2 port 1"));
}

TEST_F(DeviceTest, ARailThatCannotBeOpenedIsAnErrorAndLeavesNoneOpen) {
  machine_.Add(WithPort("mlx5_0", IBV_PORT_ACTIVE));
  FakeDevice locked = WithPort("mlx5_1", IBV_PORT_ACTIVE);
  locked.open_errno = EACCES;
  machine_.Add(locked);
  const auto devices = OpenAll("mlx5");
  ASSERT_FALSE(devices.ok());
  EXPECT_EQ(devices.status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(Has(devices.status().message(), "mlx5_1"));
  EXPECT_EQ(machine_.live, 0);
}

TEST_F(DeviceTest, TheSoftwareDeviceOpensWithTheReasonThatIsGiven) {
  const auto device = Device::OpenSoftware(machine_.soft(), "same host");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_TRUE(device.value()->info().software);
  EXPECT_EQ(device.value()->info().reason, "same host");
}

TEST_F(DeviceTest, TheSoftwareDeviceTakesTheAddressByWhichTheRanksMet) {
  machine_.soft_device.ports[0].ethernet = true;
  machine_.soft_device.ports[0].gids = {"::ffff:10.88.0.1", "::ffff:10.77.0.1",
                                        "fd00::1"};
  EXPECT_EQ(Open("soft").value()->info().gid_index, 0);
  address_.met_at = "10.77.0.1";
  EXPECT_EQ(Open("soft").value()->info().gid_index, 1);
  address_.met_at = "fd00::1";
  EXPECT_EQ(Open("soft").value()->info().gid_index, 2);
  address_.met_at = "127.0.0.1";
  EXPECT_EQ(Open("soft").value()->info().gid_index, 0);
}

TEST_F(DeviceTest, TheSoftwareDeviceObeysTheIndexOfRingpipesOwnVariableAlone) {
  machine_.soft_device.ports[0].ethernet = true;
  machine_.soft_device.ports[0].gids = {"::ffff:10.88.0.1", "::ffff:10.77.0.1"};
  address_ = {.gid_index = 1, .met_at = "10.88.0.1"};
  EXPECT_EQ(Open("soft").value()->info().gid_index, 1);
  address_.gid_index = 9;
  const auto device = Open("soft");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Has(device.status().message(), "RINGPIPE_GID_INDEX=9"));
  address_.variable = "NCCL_IB_GID_INDEX";
  EXPECT_EQ(Open("soft").value()->info().gid_index, 0);
}

TEST_F(DeviceTest, ASoftwareDeviceWithoutAnInterfaceThatIsUpSaysSo) {
  machine_.soft_device.ports[0].state = IBV_PORT_DOWN;
  const auto device = Open("");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(device.status().message(), "RINGPIPE_SOCKET_IFNAME"));
}

TEST_F(DeviceTest, ANamedDeviceThatIsMissingIsUnavailable) {
  machine_.Add(WithPort("mlx5_0", IBV_PORT_ACTIVE));
  const auto device = Open("mlx5_3");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(device.status().message(), "mlx5_0"));
}

TEST_F(DeviceTest, ANamedPortOpens) {
  FakeDevice two_ports = WithPort("mlx5_0", IBV_PORT_ACTIVE);
  two_ports.ports.push_back(FakePort{});
  two_ports.ports[1].lid = 22;
  machine_.Add(two_ports);
  const auto device = Open("mlx5_0:2");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ(device.value()->info().port, 2);
  EXPECT_EQ(device.value()->info().lid, 22);
}

TEST_F(DeviceTest, AnExcludedDeviceIsPassedOver) {
  machine_.Add(WithPort("mlx5_0", IBV_PORT_ACTIVE));
  machine_.Add(WithPort("mlx5_1", IBV_PORT_ACTIVE));
  const auto device = Open("^mlx5_0");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ(device.value()->info().name, "mlx5_1");
}

TEST_F(DeviceTest, TheSoftwareDeviceByNameIsOpenedBesideAnActiveOne) {
  machine_.Add(WithPort("mlx5_0", IBV_PORT_ACTIVE));
  const auto device = Open("soft");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_TRUE(device.value()->info().software);
}

TEST_F(DeviceTest, OnEthernetARoutableRoceV2AddressIsPreferred) {
  machine_.Add(Ethernet(
      {"fe80::1", "fe80::1", "", "2001:db8::5", "::ffff:192.168.77.1",
       "::ffff:192.168.77.1"},
      {"IB/RoCE v1", "RoCE v2", "", "RoCE v2", "IB/RoCE v1", "RoCE v2"}));
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_TRUE(device.value()->info().ethernet);
  EXPECT_EQ(device.value()->info().gid_index, 5);
  EXPECT_EQ(device.value()->info().gid.raw[12], 192);
}

TEST_F(DeviceTest, WithoutTypesTheFirstIpv4AddressIsChosen) {
  machine_.Add(Ethernet(
      {"fe80::1", "2001:db8::5", "::ffff:10.0.0.1", "::ffff:10.0.0.2"}));
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ(device.value()->info().gid_index, 2);
}

TEST_F(DeviceTest, ARoutableAddressIsPreferredToALinkLocalOneOfRoceV2) {
  machine_.Add(Ethernet({"fe80::1", "2001:db8::5"}, {"RoCE v2", "IB/RoCE v1"}));
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ(device.value()->info().gid_index, 1);
}

TEST_F(DeviceTest, ALinkLocalAddressAloneIsAnErrorThatListsIt) {
  machine_.Add(Ethernet({"", "fe80::1"}, {"", "RoCE v2"}));
  const auto device = Open("");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  for (const char* part : {"IP address", "1: fe80::1 (RoCE v2)"}) {
    EXPECT_TRUE(Has(device.status().message(), part))
        << device.status().ToString();
  }
}

TEST_F(DeviceTest, APortWithoutAnAddressIsPassedOverForOneThatHasOne) {
  FakeDevice bare = Ethernet({"fe80::1"});
  bare.name = "mlx5_0";
  bare.ports[0].gigabits_per_second = 400;
  machine_.Add(bare);
  machine_.Add(Ethernet({"fe80::2", "::ffff:10.0.0.1"}));
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ(device.value()->info().name, "rxe0");
  EXPECT_TRUE(Has(device.value()->info().left_out, "no usable GID"));
}

TEST_F(DeviceTest, TheGidThatIsAskedForIsUsedWhateverItIs) {
  FakeDevice ethernet =
      Ethernet({"fe80::1", "::ffff:10.0.0.1"}, {"RoCE v2", "RoCE v2"});
  ethernet.ports[0].gid_ndevs = {"eth0", "eth0"};
  machine_.Add(ethernet);
  address_.gid_index = 0;
  const auto device = Open("");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ(device.value()->info().gid_index, 0);
  EXPECT_EQ(device.value()->info().gid.raw[0], 0xfe);
  EXPECT_EQ(device.value()->info().gid_type, "RoCE v2");
  EXPECT_EQ(device.value()->info().interface, "eth0");
}

TEST_F(DeviceTest, AGidThatIsNotThereIsAnErrorWithTheTable) {
  machine_.Add(Ethernet({"fe80::1", "", "::ffff:10.0.0.1"}));
  address_.variable = "NCCL_IB_GID_INDEX";
  for (const int index : {1, 3, 200}) {
    address_.gid_index = index;
    const auto device = Open("");
    ASSERT_FALSE(device.ok()) << index;
    EXPECT_EQ(device.status().code(), StatusCode::kInvalidArgument);
    for (const std::string& part :
         {"NCCL_IB_GID_INDEX=" + std::to_string(index),
          std::string("0: fe80::1, 2: ::ffff:10.0.0.1")}) {
      EXPECT_TRUE(Has(device.status().message(), part))
          << device.status().ToString();
    }
  }
}

TEST_F(DeviceTest, AnEthernetPortWithoutAnAddressIsAnErrorNotAFallback) {
  machine_.Add(Ethernet({"", ""}));
  const auto device = Open("");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Has(device.status().message(), "IP address"));
}

TEST_F(DeviceTest, AllocatedMemoryIsZeroedWritableAndHugePageAligned) {
  machine_.Add(WithPort("mlx5_0", IBV_PORT_ACTIVE));
  const auto device = Open("");
  ASSERT_TRUE(device.ok());
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
    auto memory = device.value()->Allocate(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status().ToString();
    EXPECT_GE(memory->bytes(), bytes);
    EXPECT_EQ(memory->bytes() % 4096, 0u);
    const auto address = reinterpret_cast<std::uintptr_t>(memory->data());
    EXPECT_EQ(address % (bytes >= 2u << 20 ? 2u << 20 : 4096u), 0u);
    EXPECT_TRUE(std::all_of(memory->data(), memory->data() + memory->bytes(),
                            [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(memory->data(), memory->bytes(), std::byte{1});
  }
}

TEST_F(DeviceTest, MemoryKeepsItsDeviceOpen) {
  auto device = Open("soft");
  ASSERT_TRUE(device.ok());
  auto memory = device.value()->Allocate(1);
  ASSERT_TRUE(memory.ok());
  Allocation kept = std::move(memory).value();
  device = Status(StatusCode::kInternal, "given up");
  EXPECT_EQ(machine_.live, 1);
  kept = Allocation();
  EXPECT_EQ(machine_.live, 0);
}

TEST_F(DeviceTest, MoreMemoryThanThereIsIsResourceExhausted) {
  const auto device = Open("soft");
  ASSERT_TRUE(device.ok());
  for (const std::size_t bytes :
       {std::numeric_limits<std::size_t>::max(),
        std::numeric_limits<std::size_t>::max() / 4}) {
    const auto memory = device.value()->Allocate(bytes);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.status().code(), StatusCode::kResourceExhausted);
  }
}

TEST_F(DeviceTest, WithoutAsyncEventsTheCheckReturnsOkAndDoesNotBlock) {
  const auto device = Open("soft");
  ASSERT_TRUE(device.ok());
  ASSERT_NE(fcntl(device.value()->async_fd(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_TRUE(device.value()->CheckAsyncEvents().ok());
}

TEST_F(DeviceTest, EachCallTakesAsyncEventsToTheFirstFatalOneAndNamesIt) {
  const auto device = Open("soft");
  ASSERT_TRUE(device.ok());
  ibv_qp qp = {};
  qp.qp_num = 77;
  machine_.Raise(
      {.element = {.port_num = 1}, .event_type = IBV_EVENT_PORT_ACTIVE});
  machine_.Raise(
      {.element = {.qp = &qp}, .event_type = IBV_EVENT_QP_ACCESS_ERR});
  machine_.Raise(
      {.element = {.port_num = 1}, .event_type = IBV_EVENT_DEVICE_FATAL});
  const Status status = device.value()->CheckAsyncEvents();
  EXPECT_EQ(status.code(), StatusCode::kDeviceError);
  EXPECT_TRUE(Has(status.message(), "soft0")) << status.message();
  EXPECT_TRUE(Has(status.message(), "IBV_EVENT_QP_ACCESS_ERR"));
  EXPECT_TRUE(Has(status.message(), "77"));
  EXPECT_EQ(machine_.events_acknowledged, 2);
  EXPECT_TRUE(Has(device.value()->CheckAsyncEvents().message(),
                  "IBV_EVENT_DEVICE_FATAL"));
  EXPECT_EQ(machine_.events_acknowledged, 3);
  EXPECT_TRUE(device.value()->CheckAsyncEvents().ok());
}

TEST_F(DeviceTest, ThatAnotherPortWentDownIsNoError) {
  machine_.Add(WithPort("mlx5_0", IBV_PORT_ACTIVE));
  const auto device = Open("");
  ASSERT_TRUE(device.ok());
  machine_.Raise(
      {.element = {.port_num = 2}, .event_type = IBV_EVENT_PORT_ERR});
  EXPECT_TRUE(device.value()->CheckAsyncEvents().ok());
  machine_.Raise(
      {.element = {.port_num = 1}, .event_type = IBV_EVENT_PORT_ERR});
  EXPECT_EQ(device.value()->CheckAsyncEvents().code(),
            StatusCode::kDeviceError);
}

}  // namespace
}  // namespace ringpipe::verbs
