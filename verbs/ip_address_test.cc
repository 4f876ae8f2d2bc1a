#include "verbs/ip_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

namespace ringpipe::verbs {
namespace {

TEST(IpAddress, TextComesBackAsItWent) {
  for (const char* text : {"192.168.77.1", "0.0.0.0", "fd00::1", "::1"}) {
    const auto address = IpAddress::Parse(text);
    ASSERT_TRUE(address.has_value()) << text;
    EXPECT_EQ(address->Text(), text);
  }
  EXPECT_EQ(IpAddress::Parse("::ffff:10.0.0.1"), IpAddress::Parse("10.0.0.1"));
}

TEST(IpAddress, WhatIsNoneIsRefused) {
  for (const char* text :
       {"", "10.0.0", "10.0.0.256", "host", "fd00::1%eth0"}) {
    EXPECT_FALSE(IpAddress::Parse(text).has_value()) << text;
  }
}

TEST(IpAddress, SocketAddressesHaveTheirFamilyAndPort) {
  const sockaddr_storage ipv4 = IpAddress::Parse("10.0.0.1")->SocketAddress(99);
  sockaddr_in in;
  std::memcpy(&in, &ipv4, sizeof(in));
  EXPECT_EQ(in.sin_family, AF_INET);
  EXPECT_EQ(in.sin_port, htons(99));
  EXPECT_EQ(in.sin_addr.s_addr, htonl(0x0a000001));
  EXPECT_EQ(IpAddress::Parse("fd00::1")->SocketAddress(1).ss_family, AF_INET6);
}

}  // namespace
}  // namespace ringpipe::verbs
