#include "verbs/soft/port.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace ringpipe::verbs::soft {
namespace {

Port WithInterfaces(const std::string& text) {
  auto filter = NameFilter::Parse(text, NameFilter::Ports::kNone);
  EXPECT_TRUE(filter.ok()) << text;
  return Port(LinkLayer::kEthernet, std::move(filter).value());
}

bool IsLoopback(const ibv_gid& gid) {
  return IsIpv4(gid) ? gid.raw[12] == 127 : gid.raw[15] == 1;
}

TEST(PortTest, ANamedLoopbackInterfaceIsAllThatTheTableHas) {
  const Port port = WithInterfaces("=lo");
  EXPECT_EQ(port.attributes().state, IBV_PORT_ACTIVE);
  int entries = 0;
  for (int i = 0; i < Port::kGidEntries; ++i) {
    Port::Entry entry;
    ASSERT_TRUE(port.QueryGid(i, &entry));
    if (entry.interface != 0) {
      ++entries;
      EXPECT_TRUE(IsLoopback(entry.gid)) << i;
    }
  }
  EXPECT_GT(entries, 0);
}

TEST(PortTest, WithoutAnInterfaceThatMayBeUsedThePortIsDown) {
  const Port port = WithInterfaces("=none77");
  EXPECT_EQ(port.attributes().state, IBV_PORT_DOWN);
}

TEST(PortTest, AnAddressThatIsNotInTheTableIsStillThisHosts) {
  const Port port = WithInterfaces("=none77");
  ibv_gid loopback = {};
  loopback.raw[10] = loopback.raw[11] = 0xff;
  loopback.raw[12] = 127;
  loopback.raw[15] = 1;
  EXPECT_TRUE(port.IsLocal(loopback));
}

}  // namespace
}  // namespace ringpipe::verbs::soft
