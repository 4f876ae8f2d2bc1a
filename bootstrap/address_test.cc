#include "bootstrap/address.h"

#include <gtest/gtest.h>

#include <string>

namespace ringpipe {
namespace {

TEST(AddressTest, ThreeFormsAreTakenApartAndWrittenAgain) {
  const Address name = Address::Parse("gpu03:29500").value();
  EXPECT_EQ(name.host, "gpu03");
  EXPECT_EQ(name.port, 29500);
  const Address ipv6 = Address::Parse("[fd00::2]:1").value();
  EXPECT_EQ(ipv6.host, "fd00::2");
  const Address local = Address::Parse("unix:@a:1").value();
  EXPECT_TRUE(local.unix_socket);
  EXPECT_EQ(local.host, "a:1");
  for (const std::string text :
       {"gpu03:29500", "[fd00::2]:1", "unix:@a:1", "127.0.0.1:65535"}) {
    EXPECT_EQ(Address::Parse(text).value().ToString(), text);
  }
}

TEST(AddressTest, AnythingElseIsAnErrorThatNamesTheForms) {
  for (const std::string text :
       {"", "host", "host:", ":1", "host:0", "host:65536", "host:1x",
        "fd00::2:1", "unix:@", "[]:1", "unix:/tmp/socket", "host:-1"}) {
    const Status status = Address::Parse(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("HOST:PORT"), std::string::npos) << text;
  }
  EXPECT_TRUE(Address::Parse("unix:@" + std::string(107, 'n')).ok());
  EXPECT_FALSE(Address::Parse("unix:@" + std::string(108, 'n')).ok());
}

TEST(AddressTest, ALinkLocalAddressNeedsItsInterface) {
  const Status status = Address::Parse("[fe80::2]:1").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("[fe80::2%eth0]:1"), std::string::npos);
  EXPECT_TRUE(Address::Parse("[fe80::2%lo]:1").ok());
  EXPECT_TRUE(Address::Parse("[fe80::2%none77]:1").ok());
}

}  // namespace
}  // namespace ringpipe
