// What the software device says where the process has run out of something.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "verbs/device.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe::verbs {
namespace {

// What a process with that limit is told when it opens the device.
std::string OpenWith(decltype(RLIMIT_NOFILE) resource, rlim_t most) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {most, most};
    std::string text = "setrlimit";
    if (setrlimit(resource, &limit) == 0) {
      const auto device =
          Device::OpenSoftware(soft::CreateSoftLibrary({}), "asked for");
      text = device.status().ToString();
    }
    _exit(write(ends[1], text.data(), text.size()) ==
                  static_cast<ssize_t>(text.size())
              ? 0
              : 1);
  }
  close(ends[1]);
  std::string text(1000, '\0');
  const ssize_t got = read(ends[0], text.data(), text.size());
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return text.substr(0, got > 0 ? got : 0);
}

void ExpectSays(const std::string& text, const std::string& advice) {
  EXPECT_TRUE(text.starts_with("resource exhausted: the software device: "))
      << text;
  EXPECT_NE(text.find(advice), std::string::npos) << text;
}

TEST(SoftwareLimitsTest, Descriptors) {
  ExpectSays(OpenWith(RLIMIT_NOFILE, 6), "ulimit -n");
}

TEST(SoftwareLimitsTest, SizesOfFiles) {
  ExpectSays(OpenWith(RLIMIT_FSIZE, 1 << 20), "ulimit -f");
}

TEST(SoftwareLimitsTest, AddressSpace) {
  ExpectSays(OpenWith(RLIMIT_AS, rlim_t{1} << 30), "ulimit -v");
  EXPECT_EQ(OpenWith(RLIMIT_AS, rlim_t{4} << 30), "ok");
}

TEST(SoftwareLimitsTest, EnoughIsEnough) {
  EXPECT_EQ(OpenWith(RLIMIT_NOFILE, 1000), "ok");
}

}  // namespace
}  // namespace ringpipe::verbs
