#include "auth/mac.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <unistd.h>

#include <string>

namespace ringpipe {
namespace {

std::string Hex(const Mac& mac) {
  std::string text;
  for (const char c : mac) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

// RFC 4231, test case 2.
TEST(MacTest, MatchesThePublishedVector) {
  const Result<Mac> mac =
      ComputeMac("Jefe", {"what do ya want ", "for nothing?"});
  ASSERT_TRUE(mac.ok());
  EXPECT_EQ(Hex(mac.value()),
            "5bdcc146bf60754e6a042426089575c7"
            "5a003f089d2739839dec58b964ec3843");
}

TEST(MacTest, EmptyKeyIsAKey) {
  const Result<Mac> mac = ComputeMac("", {""});
  ASSERT_TRUE(mac.ok());
  EXPECT_EQ(Hex(mac.value()),
            "b613679a0814d9ec772f95d778c35fc5"
            "ff1697c493715653c6c712144292c5ad");
}

TEST(MacTest, EqualityLooksAtEveryByteAndTheLength) {
  const Mac mac = ComputeMac("k", {"m"}).value();
  std::string other(AsBytes(mac));
  EXPECT_TRUE(MacsEqual(mac, other));
  EXPECT_FALSE(MacsEqual(mac, other.substr(0, 31)));
  for (char& byte : other) {
    byte ^= 1;
    EXPECT_FALSE(MacsEqual(mac, other));
    byte ^= 1;
  }
}

// At exit OpenSSL frees its tables where the program has used it before
// ringpipe, whose threads go on until the process has ended.
TEST(MacTest, GoesOnWhenOpensslHasFreedItsTables) {
  EXPECT_EXIT(
      {
        const Mac before = ComputeMac("k", {"m"}).value();
        OPENSSL_cleanup();
        const Result<Mac> after = ComputeMac("k", {"m"});
        _exit(after.ok() && after.value() == before ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(MacTest, NoncesDiffer) {
  EXPECT_NE(RandomNonce().value(), RandomNonce().value());
}

}  // namespace
}  // namespace ringpipe
