#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/exception_status.h"
#include "base/failing_memory.h"

namespace {
int umask_calls = 0;
}  // namespace

// Instead of the system's: it changes what other threads create meanwhile.
extern "C" mode_t umask(mode_t mask) {
  ++umask_calls;
  return static_cast<mode_t>(syscall(SYS_umask, mask));
}

namespace ringpipe {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(testing::TempDir()) / "atomic_file_test";
    fs::remove_all(directory_);
    fs::create_directory(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Path(const char* name) const { return directory_ / name; }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::size_t Files() const {
    return std::distance(fs::directory_iterator(directory_), {});
  }

  fs::path directory_;
};

TEST_F(AtomicFileTest, WritesAndReplacesAndLeavesNothingElse) {
  ASSERT_TRUE(WriteAtomically(Path("a"), "one").ok());
  ASSERT_TRUE(WriteAtomically(Path("a"), "two").ok());
  EXPECT_EQ(Read(Path("a")), "two");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(AtomicFileTest, LeavesNothingWhereMemoryRunsOut) {
  const std::string path = Path("a");
  const auto write = [&] {
    static_cast<void>(
        WithoutExceptions([&] { return WriteAtomically(path, "one"); }));
  };
  long which = 0;
  for (; FailOne(which, write); ++which) {
    EXPECT_EQ(Files(), 0u) << "allocation " << which;
  }
  EXPECT_GT(which, 1);
  EXPECT_EQ(Files(), 1u);
}

TEST_F(AtomicFileTest, CheckLeavesTheDirectoryAsItWas) {
  EXPECT_TRUE(CheckWritable(Path("a")).ok());
  EXPECT_EQ(Files(), 0u);
}

TEST_F(AtomicFileTest, MissingDirectoryAndDirectoryAndDeviceAreErrors) {
  for (const std::string& path :
       {Path("no/such/a"), directory_.string(), std::string("/dev/null")}) {
    const Status status = CheckWritable(path);
    EXPECT_FALSE(status.ok()) << path;
    EXPECT_NE(status.message().find(path), std::string::npos);
    EXPECT_FALSE(WriteAtomically(path, "x").ok());
  }
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(AtomicFileTest, IsWhatTheUmaskAllowsAndNeverChangesIt) {
  const mode_t before = umask(027);
  umask_calls = 0;
  ASSERT_TRUE(WriteAtomically(Path("a"), "x").ok());
  EXPECT_EQ(umask_calls, 0);
  EXPECT_EQ(umask(before), 027U);
  struct stat info = {};
  ASSERT_EQ(stat(Path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640U);
}

// Of a process that was killed, and had the same number.
TEST_F(AtomicFileTest, LeftoversAreNoObstacle) {
  for (int i = 0; i < 100; ++i) {
    std::ofstream(Path("a") + "." + std::to_string(getpid()) + "." +
                  std::to_string(i))
        << "left";
  }
  ASSERT_TRUE(WriteAtomically(Path("a"), "x").ok());
  EXPECT_EQ(Read(Path("a")), "x");
  EXPECT_EQ(Files(), 101U);
}

TEST_F(AtomicFileTest, ASymbolicLinkStaysOne) {
  ASSERT_TRUE(WriteAtomically(Path("target"), "old").ok());
  fs::create_symlink(Path("target"), Path("link"));
  ASSERT_TRUE(WriteAtomically(Path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Read(Path("target")), "new");
}

}  // namespace
}  // namespace ringpipe
