#include "bootstrap/endpoint.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "auth/confined_process.h"

namespace ringpipe {
namespace {

Endpoint Of(const std::string& address) {
  const boost::asio::ip::tcp::endpoint endpoint(
      boost::asio::ip::make_address(address), 9);
  return Endpoint(endpoint.data(), endpoint.size());
}

NameFilter Interfaces(const std::string& text) {
  const auto filter = NameFilter::Parse(text, NameFilter::Ports::kNone);
  EXPECT_TRUE(filter.ok()) << text;
  return filter.ok() ? filter.value() : NameFilter();
}

TEST(EndpointTest, WhereOnlyLinkLocalAddressesListenNobodyCanBeTold) {
  const auto told = AddressesOf({Of("fe80::1")}, NameFilter());
  EXPECT_EQ(told.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(told.status().message().find("link-local"), std::string::npos);
  EXPECT_EQ(AddressesOf({Of("fe80::1"), Of("192.0.2.1")}, NameFilter()).value(),
            std::vector<std::string>{"192.0.2.1:9"});
}

TEST(EndpointTest, WithoutInterfacesTheKernelChoosesTheSource) {
  const auto routes = RoutesTo({Of("192.0.2.1")}, NameFilter());
  ASSERT_TRUE(routes.ok()) << routes.status().ToString();
  ASSERT_EQ(routes->size(), 1u);
  EXPECT_EQ(ToString(routes->front().there), "192.0.2.1:9");
  EXPECT_FALSE(routes->front().source);
}

TEST(EndpointTest, OnThisHostInterfacesPlayNoPart) {
  for (const Endpoint& here :
       {Of("127.0.0.1"), Of("::1"), UnixEndpoint("name")}) {
    const auto routes = RoutesTo({here}, Interfaces("=none77"));
    ASSERT_TRUE(routes.ok()) << routes.status().ToString();
    EXPECT_FALSE(routes->front().source);
  }
}

// tests/hosts/join_test.py tries which source is taken, between hosts.
TEST(EndpointTest, LoopbackIsNoSourceForAnotherHost) {
  for (const char* address : {"192.0.2.1", "2001:db8::1"}) {
    for (const char* interfaces : {"=none77", "=lo"}) {
      const auto routes = RoutesTo({Of(address)}, Interfaces(interfaces));
      ASSERT_FALSE(routes.ok()) << address;
      EXPECT_EQ(routes.status().code(), StatusCode::kUnavailable);
      EXPECT_NE(routes.status().message().find("RINGPIPE_SOCKET_IFNAME"),
                std::string::npos);
      EXPECT_NE(routes.status().message().find("lo 127.0.0.1"),
                std::string::npos);
    }
  }
}

TEST(EndpointTest, AnEndpointIsWrittenAsUsersWriteIt) {
  EXPECT_EQ(ToString(Of("10.0.0.1")), "10.0.0.1:9");
  EXPECT_EQ(ToString(Of("2001:db8::1")), "[2001:db8::1]:9");
  EXPECT_EQ(ToString(Of("::ffff:10.0.0.1")), "10.0.0.1:9");
  EXPECT_EQ(ToString(UnixEndpoint("name")), "unix:@name");
}

TEST(EndpointTest, ThisHostsAddressesAreToldFromOthers) {
  EXPECT_TRUE(IsOwn(Of("127.0.0.1")));
  EXPECT_TRUE(IsOwn(Of("127.77.0.1")));
  EXPECT_FALSE(IsOwn(Of("192.0.2.1")));
}

bool Answers(const std::string& address, uint16_t port) {
  const FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const boost::asio::ip::tcp::endpoint there(
      boost::asio::ip::make_address(address), port);
  return connect(fd.get(), there.data(), there.size()) == 0;
}

// Whether it does at an address of this host that is no interface's.
bool ListensEverywhere(const NameFilter& interfaces) {
  const std::vector<Endpoint> all = ListeningEndpoints(interfaces, 0).value();
  const auto ipv4 = std::find_if(all.begin(), all.end(), [](const Endpoint& i) {
    return i.protocol().family() == AF_INET;
  });
  const FileDescriptor listener = OpenListening(*ipv4).value();
  sockaddr_in own{};
  std::memcpy(&own, OwnSide(listener.get()).data(), sizeof own);
  EXPECT_TRUE(Answers("127.0.0.1", ntohs(own.sin_port)));
  return Answers("127.0.0.2", ntohs(own.sin_port));
}

TEST(EndpointTest, RankZeroListensAtTheAdmittedInterfacesAlone) {
  EXPECT_TRUE(ListensEverywhere(NameFilter()));
  EXPECT_FALSE(ListensEverywhere(Interfaces("=lo")));
}

constexpr int kNoNetwork = 77;

// In a network of its own, whose few ports soon come round to that one.
int ConnectsToItselfAndThenListens() {
  if (unshare(CLONE_NEWNET) != 0) {
    return kNoNetwork;
  }
  const FileDescriptor any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback = {};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  if (ioctl(any.get(), SIOCSIFFLAGS, &loopback) != 0 ||
      !(std::ofstream("/proc/sys/net/ipv4/ip_local_port_range")
        << "40000 40007" << std::flush)) {
    return kNoNetwork;
  }
  const boost::asio::ip::tcp::endpoint there(
      boost::asio::ip::make_address("127.0.0.1"), 40000);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), there.data(), there.size()) == 0) {
      const bool found = IsConnectedToItself(fd.get());
      fd = FileDescriptor();
      return !found ? 1 : OpenListening(there).ok() ? 0 : 2;
    }
  }
  return 3;
}

TEST(EndpointTest, ASocketThatIsConnectedToItselfIsToldAndFreesThePort) {
  const pid_t child = ForkIntoUserNamespace();
  if (child == 0) {
    _exit(ConnectsToItselfAndThenListens());
  }
  int status = kNoNetwork << 8;
  if (child > 0) {
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNetwork) {
    SkipWithoutUserNamespaces();
    return;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(EndpointTest, ASocketThatIsConnectedToAnotherIsNotConnectedToItself) {
  const boost::asio::ip::tcp::endpoint any(
      boost::asio::ip::make_address("127.0.0.1"), 0);
  const FileDescriptor listener = OpenListening(any).value();
  const Endpoint there = OwnSide(listener.get());
  const FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(fd.get(), there.data(), there.size()), 0);
  EXPECT_FALSE(IsConnectedToItself(fd.get()));
}

}  // namespace
}  // namespace ringpipe
