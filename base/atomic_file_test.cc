#include "base/atomic_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

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

TEST_F(AtomicFileTest, ASymbolicLinkStaysOne) {
  ASSERT_TRUE(WriteAtomically(Path("target"), "old").ok());
  fs::create_symlink(Path("target"), Path("link"));
  ASSERT_TRUE(WriteAtomically(Path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Read(Path("target")), "new");
}

}  // namespace
}  // namespace ringpipe
