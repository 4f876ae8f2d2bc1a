#include "verbs/library.h"

#include <gtest/gtest.h>

namespace ringpipe::verbs {
namespace {

TEST(LibraryTest, AMissingLibraryIsUnavailableAndNamed) {
  const auto library = LoadLibrary("libringpipe_no_such_verbs.so.1");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(library.status().message().find("libringpipe_no_such_verbs.so.1"),
            std::string::npos);
}

TEST(LibraryTest, ALibraryThatIsNotVerbsIsUnavailableAndSaysWhatItLacks) {
  const auto library = LoadLibrary("libm.so.6");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(library.status().message().find("ibv_get_device_list"),
            std::string::npos);
}

// Machines without libibverbs are supported: there the status must say so.
TEST(LibraryTest, TheSystemLibraryFillsEveryVerbOrSaysWhyNot) {
  const auto library = LoadSystemLibrary();
  if (!library.ok()) {
    EXPECT_EQ(library.status().code(), StatusCode::kUnavailable);
    EXPECT_NE(library.status().message().find("libibverbs.so.1"),
              std::string::npos);
    return;
  }
  const Library& table = *library.value();
  EXPECT_NE(table.get_device_list, nullptr);
  EXPECT_NE(table.query_port, nullptr);
  EXPECT_NE(table.reg_mr, nullptr);
  EXPECT_NE(table.ack_async_event, nullptr);
  EXPECT_EQ(table.allocate, nullptr);
  EXPECT_EQ(table.free, nullptr);
}

}  // namespace
}  // namespace ringpipe::verbs
