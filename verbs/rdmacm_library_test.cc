#include "verbs/rdmacm_library.h"

#include <gtest/gtest.h>

#include <string>

namespace ringpipe::verbs {
namespace {

TEST(RdmacmLibrary, AMissingLibraryIsUnavailableAndSaysWhatToInstall) {
  const auto library = LoadRdmacmLibrary("librdmacm_that_nobody_has.so.1");
  EXPECT_EQ(library.status().code(), StatusCode::kUnavailable);
  const std::string& message = library.status().message();
  EXPECT_NE(message.find("librdmacm_that_nobody_has.so.1"), std::string::npos)
      << message;
  EXPECT_NE(message.find("librdmacm1"), std::string::npos) << message;
  EXPECT_NE(message.find("RINGPIPE_DEVICE"), std::string::npos) << message;
}

TEST(RdmacmLibrary, ALibraryWithoutTheFunctionsIsUnavailable) {
  const auto library = LoadRdmacmLibrary("libc.so.6");
  EXPECT_EQ(library.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(library.status().message().find("rdma_create_event_channel"),
            std::string::npos)
      << library.status().message();
}

TEST(RdmacmLibrary, TheSystemsHasAllFunctions) {
  const auto library = LoadRdmacmLibrary();
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  EXPECT_NE(library.value()->get_src_port, nullptr);
}

}  // namespace
}  // namespace ringpipe::verbs
