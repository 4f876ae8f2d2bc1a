#include "base/name_filter.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ringpipe {
namespace {

NameFilter Filter(const std::string& text,
                  NameFilter::Ports ports = NameFilter::Ports::kAllowed) {
  const auto filter = NameFilter::Parse(text, ports);
  EXPECT_TRUE(filter.ok()) << text << ": " << filter.status().ToString();
  return filter.ok() ? filter.value() : NameFilter();
}

TEST(NameFilterTest, AnEmptyListAdmitsEveryName) {
  EXPECT_TRUE(Filter("").Admits("eth0"));
  EXPECT_TRUE(NameFilter().Admits("mlx5_0", 2));
  EXPECT_TRUE(Filter("").admits_all());
}

TEST(NameFilterTest, AnEntryMatchesWhatStartsWithIt) {
  const NameFilter filter = Filter("mlx5_1,rxe");
  EXPECT_TRUE(filter.Admits("mlx5_1"));
  EXPECT_TRUE(filter.Admits("mlx5_10"));
  EXPECT_TRUE(filter.Admits("rxe0"));
  EXPECT_FALSE(filter.Admits("mlx5_0"));
  EXPECT_FALSE(filter.Admits("xrxe0"));
}

TEST(NameFilterTest, AnEqualsSignMakesTheWholeListExact) {
  const NameFilter filter = Filter("=mlx5_1,rxe");
  EXPECT_TRUE(filter.Admits("mlx5_1"));
  EXPECT_FALSE(filter.Admits("mlx5_10"));
  EXPECT_FALSE(filter.Admits("rxe0"));
}

TEST(NameFilterTest, ACaretExcludesTheWholeList) {
  const NameFilter filter = Filter("^mlx5_1,rxe");
  EXPECT_FALSE(filter.Admits("mlx5_1"));
  EXPECT_FALSE(filter.Admits("mlx5_10"));
  EXPECT_FALSE(filter.Admits("rxe0"));
  EXPECT_TRUE(filter.Admits("mlx5_0"));
}

TEST(NameFilterTest, BothSignsExcludeExactly) {
  const NameFilter filter = Filter("^=mlx5_1");
  EXPECT_FALSE(filter.Admits("mlx5_1"));
  EXPECT_TRUE(filter.Admits("mlx5_10"));
}

TEST(NameFilterTest, APortNarrowsItsEntryAlone) {
  const NameFilter filter = Filter("=mlx5_0:2,mlx5_1");
  EXPECT_FALSE(filter.Admits("mlx5_0", 1));
  EXPECT_TRUE(filter.Admits("mlx5_0", 2));
  EXPECT_TRUE(filter.Admits("mlx5_1", 1));
  const NameFilter without = Filter("^mlx5_0:2");
  EXPECT_TRUE(without.Admits("mlx5_0", 1));
  EXPECT_FALSE(without.Admits("mlx5_0", 2));
  EXPECT_EQ(without.entries()[0].ToString(), "mlx5_0:2");
}

TEST(NameFilterTest, AnInterfaceNameMayHaveAColon) {
  const NameFilter filter = Filter("=eth0:1", NameFilter::Ports::kNone);
  EXPECT_TRUE(filter.Admits("eth0:1"));
  EXPECT_FALSE(filter.Admits("eth0"));
}

TEST(NameFilterTest, EmptyEntriesArePassedOver) {
  EXPECT_EQ(Filter("a,,b,"), Filter("a,b"));
}

TEST(NameFilterTest, WhatIsNoListIsRefusedWithTheEntryThatIsWrong) {
  for (const auto& [text, part] :
       std::vector<std::pair<std::string, std::string>>{
           {"^", "'^' has no entry"},
           {"=", "has no entry"},
           {",", "has no entry"},
           {"=a,=b", "'=b' has a sign"},
           {"=^a", "'^a' has a sign"},
           {"a b", "'a b' is not a name"},
           {"../a", "'../a' is not a name"},
           {":1", "':1' is not a name"},
           {"a,b:", "'b:' needs a port"},
           {"a:0", "'a:0' needs a port"},
           {"a:256", "'a:256' needs a port"},
           {"a:1x", "'a:1x' needs a port"},
           {std::string(64, 'a'), "is not a name"}}) {
    const auto filter = NameFilter::Parse(text, NameFilter::Ports::kAllowed);
    ASSERT_FALSE(filter.ok()) << text;
    EXPECT_EQ(filter.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(filter.status().message().find(part), std::string::npos)
        << filter.status().ToString();
  }
}

}  // namespace
}  // namespace ringpipe
