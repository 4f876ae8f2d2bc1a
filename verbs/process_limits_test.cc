#include "verbs/process_limits.h"

#include <dirent.h>
#include <sys/resource.h>

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace ringpipe::verbs {
namespace {

int OpenDescriptors() {
  int count = 0;
  DIR* const directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) {
    ++count;
  }
  closedir(directory);
  return count - 3;  // ".", ".." and the directory's own
}

TEST(ProcessLimitsTest, SaysHowManyDescriptorsAreNeededAndLeft) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int open = OpenDescriptors();
  const rlimit limit = {static_cast<rlim_t>(open) + 5, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(CheckDescriptors(0).ok());
  EXPECT_TRUE(CheckDescriptors(5).ok());
  const Status status = CheckDescriptors(6);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("6 more descriptors are needed and 5 of " +
                                  std::to_string(open + 5) +
                                  " are left; raise 'ulimit -n' to at least " +
                                  std::to_string(open + 6)),
            std::string::npos)
      << status.ToString();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(OpenDescriptors(), open);
}

TEST(ProcessLimitsTest, SaysSoWhereNoDescriptorIsLeftToCountThem) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status status = CheckDescriptors(6);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("6 more descriptors are needed and not one "
                                  "is left to count them (Too many open "
                                  "files); raise 'ulimit -n' to at least 6"),
            std::string::npos)
      << status.ToString();
}

TEST(ProcessLimitsTest, TheSoftLimitOfDescriptorsIsRaisedWhereItIsTooLow) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int open = OpenDescriptors();
  const rlimit limit = {static_cast<rlim_t>(open) + 5, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::string notice;
  EXPECT_FALSE(RaiseDescriptorLimit(5, &notice));
  EXPECT_TRUE(RaiseDescriptorLimit(6, &notice));
  EXPECT_NE(notice.find("from " + std::to_string(open + 5)), std::string::npos)
      << notice;
  rlimit now;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, before.rlim_max);
  EXPECT_FALSE(RaiseDescriptorLimit(1 << 30, &notice));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(ProcessLimitsTest, SaysHowMuchAddressSpaceIsNeeded) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  EXPECT_TRUE(CheckAddressSpace(1'000 * kGiB).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit limit = {10 * kGiB, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_TRUE(CheckAddressSpace(0).ok());
  EXPECT_TRUE(CheckAddressSpace(3 * kGiB).ok());
  const Status status = CheckAddressSpace(11 * kGiB);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find(
                "11 GiB more of address space are needed; raise 'ulimit -v'"),
            std::string::npos)
      << status.ToString();
}

}  // namespace
}  // namespace ringpipe::verbs
