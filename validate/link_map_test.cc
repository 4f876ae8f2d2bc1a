#include "validate/link_map.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ringpipe::validate {
namespace {

using Links = std::vector<std::pair<int, int>>;

constexpr int kRanks = 16;

// Hosts of two ranks, or one host.
std::string MapWith(const Links& links, bool on_one_host = false) {
  Measurements measured;
  for (int rank = 0; rank < kRanks; ++rank) {
    measured.ranks.push_back(
        {"c" + std::to_string(on_one_host ? 0 : rank / 2), 1, "", {}, 64});
  }
  const std::vector<double> ones(kRanks * kRanks, 1);
  return FormatLinkMap(measured,
                       {"map", ones, ones, "B", "", {{7, true, "it", links}}});
}

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// Host c3 has ranks 6 and 7.
Links Sent() {
  Links links;
  for (const int own : {6, 7}) {
    for (int other = 0; other < kRanks; ++other) {
      if (other / 2 != 3) {
        links.emplace_back(own, other);
      }
    }
  }
  return links;
}

Links Received() {
  Links links;
  for (const auto& [from, to] : Sent()) {
    links.emplace_back(to, from);
  }
  return links;
}

TEST(LinkMapTest, WhatAHostSendsAndWhatItReceivesAreOneRingEach) {
  const std::string sent = MapWith(Sent());
  EXPECT_EQ(Count(sent, "<a class=\"ring"), 1U);
  EXPECT_NE(sent.find("left:50%;top:43.75%;--w:100%;--h:12.5%"),
            std::string::npos)
      << sent;
  const std::string received = MapWith(Received());
  EXPECT_EQ(Count(received, "<a class=\"ring"), 1U);
  EXPECT_NE(received.find("left:43.75%;top:50%;--w:12.5%;--h:100%"),
            std::string::npos)
      << received;
}

TEST(LinkMapTest, BothOfAHostAreACross) {
  Links links = Sent();
  const Links received = Received();
  links.insert(links.end(), received.begin(), received.end());
  EXPECT_EQ(Count(MapWith(links), "<a class=\"ring"), 2U);
}

TEST(LinkMapTest, LinksThatAreApartHaveRingsOfTheirOwnOfWhichOneIsTheFirst) {
  const std::string map = MapWith({{1, 15}, {15, 1}, {4, 9}});
  EXPECT_EQ(Count(map, "<a class=\"ring"), 3U);
  EXPECT_EQ(Count(map, "id=\"ring-7\""), 1U);
  EXPECT_EQ(Count(map, "href=\"#cause-7\""), 3U);
}

TEST(LinkMapTest, LinksAllOverTheMapHaveABoundedNumberOfRings) {
  Links links;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = from % 2; to < kRanks; to += 2) {
      links.emplace_back(from, to);
    }
  }
  EXPECT_EQ(Count(MapWith(links), "<a class=\"ring"), 64U);
}

// Down and across.
TEST(LinkMapTest, TicksAreHostsAndOnOneHostRanks) {
  const std::string hosts = MapWith({});
  EXPECT_EQ(Count(hosts, "<i class"), 2U * 8);
  EXPECT_EQ(Count(hosts, ">c3</i>"), 2U);
  const std::string ranks = MapWith({}, /*on_one_host=*/true);
  EXPECT_EQ(Count(ranks, "<i class"), 2U * kRanks);
  EXPECT_EQ(Count(ranks, ">rank 15</i>"), 2U);
}

}  // namespace
}  // namespace ringpipe::validate
