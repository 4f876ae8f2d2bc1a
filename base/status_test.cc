#include "base/status.h"

#include <cerrno>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

std::string MessageOf(int error) {
  return ErrnoStatus(StatusCode::kDeviceError, "posting", error).message();
}

TEST(ErrnoStatusTest, NamesTheError) {
  EXPECT_EQ(MessageOf(ENODEV), "posting: No such device (ENODEV)");
}

TEST(ErrnoStatusTest, ANegativeErrorIsMeantAsItsOpposite) {
  EXPECT_EQ(MessageOf(-EINVAL), "posting: Invalid argument (EINVAL)");
}

TEST(ErrnoStatusTest, AnUnknownNumberIsPrinted) {
  EXPECT_EQ(MessageOf(99'999), "posting: unknown error (99999)");
  EXPECT_EQ(MessageOf(-99'999), "posting: unknown error (-99999)");
}

}  // namespace
}  // namespace ringpipe
