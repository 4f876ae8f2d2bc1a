#include "verbs/soft/libibverbs/user_key.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <set>
#include <string>
#include <vector>

namespace ringpipe::verbs::soft {
namespace {

std::string NewHome() {
  std::string home = testing::TempDir() + "/home.XXXXXX";
  EXPECT_NE(mkdtemp(home.data()), nullptr);
  return home;
}

int CountEntries(const std::string& folder) {
  DIR* directory = opendir(folder.c_str());
  int count = -2;  // . and ..
  while (readdir(directory) != nullptr) {
    ++count;
  }
  closedir(directory);
  return count;
}

TEST(UserKeyTest, IsTheSameForAllWhoAskAtOnce) {
  const std::string home = NewHome();
  std::vector<std::future<std::string>> asked;
  for (int i = 0; i < 16; ++i) {
    asked.push_back(std::async(std::launch::async, UserKey, home));
  }
  std::set<std::string> keys;
  for (std::future<std::string>& one : asked) {
    keys.insert(one.get());
  }
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(keys.begin()->size(), 32U);
  EXPECT_EQ(CountEntries(home + "/.cache/ringpipe"), 1);
  EXPECT_EQ(UserKey(home), *keys.begin());
  EXPECT_NE(UserKey(NewHome()), *keys.begin());
}

TEST(UserKeyTest, WhatOthersMayReadOrHaveMadeIsNoKey) {
  const std::string home = NewHome();
  const std::string path = home + "/.cache/ringpipe/key";
  ASSERT_NE(UserKey(home), "");
  chmod(path.c_str(), 0640);
  EXPECT_EQ(UserKey(home), "");
  chmod(path.c_str(), 0600);
  EXPECT_NE(UserKey(home), "");
  ASSERT_EQ(rename(path.c_str(), (path + "2").c_str()), 0);
  ASSERT_EQ(symlink((path + "2").c_str(), path.c_str()), 0);
  EXPECT_EQ(UserKey(home), "");
  ASSERT_EQ(unlink(path.c_str()), 0);
  std::ofstream(path) << "short";
  chmod(path.c_str(), 0600);
  EXPECT_EQ(UserKey(home), "");
}

TEST(UserKeyTest, WithoutAFolderThereIsNone) {
  EXPECT_EQ(UserKey(""), "");
  EXPECT_EQ(UserKey("/proc/nowhere"), "");
}

}  // namespace
}  // namespace ringpipe::verbs::soft
