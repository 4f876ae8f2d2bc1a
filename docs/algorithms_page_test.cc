#include "docs/algorithms_page.h"

#include "docs/page_file.h"
#include "docs/schedule_picture.h"
#include "engine/algorithms.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

TEST(AlgorithmsPageTest, TheFileIsAsTheRegistryHasIt) {
  ExpectPageIsInFile("algorithms", AlgorithmsPage());
}

TEST(AlgorithmsPageTest, EveryAlgorithmHasItsSection) {
  const std::string page = AlgorithmsPage();
  for (const AlgorithmInfo& info : Algorithms()) {
    const std::string name = std::string(CollectiveName(info.collective)) +
                             ":" + std::string(info.name);
    EXPECT_NE(page.find("### `" + name + "`\n"), std::string::npos) << name;
    EXPECT_FALSE(info.how.empty()) << name;
    EXPECT_FALSE(info.cost.time.empty()) << name;
    EXPECT_FALSE(info.cost.sends.empty()) << name;
  }
}

TEST(AlgorithmsPageTest, APictureHasAColumnForEachRankAndARowForEachStep) {
  const SentMessage messages[] = {
      {.from = 0, .to = 1, .source = Input(1), .reduced = true, .chain = 1},
      {.from = 0, .to = 2, .source = Output(2, 2), .chain = 1},
      {.from = 2, .to = 0, .source = Scratch(4), .chain = 2}};
  EXPECT_EQ(PictureOf(messages, 3, 3, /*equal_chunks=*/false),
            "step  rank 0    rank 1   rank 2\n"
            "  1   B +-> 1\n"
            "      CA -> 2\n"
            "  2                      B -> 0\n");
  EXPECT_EQ(PictureOf(std::span(messages).last(1), 3, 3, /*equal_chunks=*/true),
            "step  rank 0   rank 1   rank 2\n"
            "  2                     1 chunk -> 0\n");
}

}  // namespace
}  // namespace ringpipe
