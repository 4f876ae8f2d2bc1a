#include "base/status.h"

#include <cerrno>
#include <string>
#include <utility>

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

TEST(ErrnoStatusTest, SaysWhatToRaiseForDescriptors) {
  EXPECT_EQ(MessageOf(EMFILE),
            "posting: Too many open files (EMFILE); raise 'ulimit -n'");
  EXPECT_EQ(MessageOf(ETOOMANYREFS),
            "posting: Too many references: cannot splice (ETOOMANYREFS); raise "
            "'ulimit -n', or run fewer ranks on this host");
}

TEST(StatusTest, IsOkOrSaysWhatItIs) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), StatusCode::kOk);
  EXPECT_EQ(Status().message(), "");
  EXPECT_EQ(Status().ToString(), "ok");
  EXPECT_TRUE(Status(StatusCode::kOk, "").ok());
  const Status failed(StatusCode::kTimeout, "rank 3");
  const Status copy = failed;  // NOLINT(performance-unnecessary-copy-*)
  EXPECT_EQ(copy.code(), StatusCode::kTimeout);
  EXPECT_EQ(copy.WithContext("call 4").ToString(), "timeout: call 4: rank 3");
  EXPECT_EQ(OutOfMemory().ToString(), "resource exhausted: out of memory");
}

Result<std::string> Failed() {
  return Status(StatusCode::kInvalidArgument, "DEPTH=0: use 1 to 64");
}

// Every way to read it.
TEST(ResultDeathTest, ReadingTheValueOfAFailureAbortsWithItsMessage) {
  constexpr char kMessage[] = "invalid argument: DEPTH=0: use 1 to 64";
  Result<std::string> failed = Failed();
  const Result<std::string>& constant = failed;
  EXPECT_DEATH(failed.value().clear(), kMessage);
  EXPECT_DEATH((void)constant.value().size(), kMessage);
  EXPECT_DEATH((void)Failed().value().size(), kMessage);
  EXPECT_DEATH(failed->clear(), kMessage);
  EXPECT_DEATH((void)constant->size(), kMessage);
  EXPECT_DEATH((*failed).clear(), kMessage);
  EXPECT_DEATH((void)(*constant).size(), kMessage);
  EXPECT_DEATH((void)(*Failed()).size(), kMessage);
}

TEST(ResultTest, TheValueOfASuccessIsRead) {
  Result<std::string> result = std::string("value");
  const Result<std::string>& constant = result;
  EXPECT_EQ(result.value(), "value");
  EXPECT_EQ(constant.value(), "value");
  EXPECT_EQ(result->size(), 5U);
  EXPECT_EQ(*constant, "value");
  EXPECT_EQ(*std::move(result), "value");
}

}  // namespace
}  // namespace ringpipe
