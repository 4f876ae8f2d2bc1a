#include "docs/interface_page.h"

#include "docs/page_file.h"
#include "gtest/gtest.h"
#include "pipeline/collective.h"

namespace ringpipe {
namespace {

TEST(InterfacePageTest, TheFileIsAsTheTableHasIt) {
  ExpectPageIsInFile("interface", InterfacePage());
}

TEST(InterfacePageTest, EveryCollectiveHasARow) {
  const std::string page = InterfacePage();
  for (const CollectiveInfo& info : kCollectiveTable) {
    EXPECT_NE(page.find(std::string("\n| ") + info.name + " | `"),
              std::string::npos)
        << info.name;
  }
}

}  // namespace
}  // namespace ringpipe
