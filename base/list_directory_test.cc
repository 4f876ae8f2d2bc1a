#include "base/list_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/exception_status.h"
#include "base/failing_memory.h"

namespace ringpipe {
namespace {

namespace fs = std::filesystem;

class ListDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "b");
    std::ofstream(folder_ / "a") << "one";
  }
  void TearDown() override { fs::remove_all(folder_); }

  const fs::path folder_ = fs::path(testing::TempDir()) / "list_directory_test";
};

TEST_F(ListDirectoryTest, NamesAreSorted) {
  EXPECT_EQ(ListDirectory(folder_), (std::vector<std::string>{"a", "b"}));
}

TEST_F(ListDirectoryTest, WhatIsNoFolderHasNone) {
  EXPECT_TRUE(ListDirectory(folder_ / "a").empty());
  EXPECT_TRUE(ListDirectory(folder_ / "c").empty());
}

TEST_F(ListDirectoryTest, NoMemoryIsAnException) {
  const std::string path = folder_;
  FailEach([&] {
    return WithoutExceptions([&]() -> Status {
      EXPECT_EQ(ListDirectory(path).size(), 2u);
      return Status::Ok();
    });
  });
}

}  // namespace
}  // namespace ringpipe
