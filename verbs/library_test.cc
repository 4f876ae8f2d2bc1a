#include "verbs/library.h"

#include <gtest/gtest.h>

#include "verbs/fake_library.h"

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
  // Its state is the process's: a second load finds the same.
  const auto again = LoadSystemLibrary();
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again.value()->fork_support, table.fork_support);
}

TEST(ForkSupportTest, WhereTheLibrarySaysThatItIsUnneededNothingIsDone) {
  FakeMachine machine;
  machine.fork_status = IBV_FORK_UNNEEDED;
  EXPECT_EQ(EnableForkSupport(*machine.library(), "4.18.0-477.el8"),
            ForkSupport::kUnneeded);
  EXPECT_EQ(machine.fork_init_calls, 0);
}

TEST(ForkSupportTest, OnKernelsThatDoNotCopyPinnedPagesItIsSwitchedOn) {
  for (const char* release : {"5.11.22-generic", "4.19.0", "", "unheard-of"}) {
    FakeMachine machine;
    EXPECT_EQ(EnableForkSupport(*machine.library(), release),
              ForkSupport::kEnabled)
        << release;
    EXPECT_EQ(machine.fork_init_calls, 1) << release;
  }
}

TEST(ForkSupportTest, OnKernelsThatCopyThemItIsNot) {
  for (const char* release : {"5.12.0", "6.1.0-13-amd64", "10.2"}) {
    FakeMachine machine;
    EXPECT_EQ(EnableForkSupport(*machine.library(), release),
              ForkSupport::kUnneeded)
        << release;
    EXPECT_EQ(machine.fork_init_calls, 0) << release;
  }
}

TEST(ForkSupportTest, WhatTheUserSwitchedOnIsLeftAlone) {
  FakeMachine machine;
  machine.fork_status = IBV_FORK_ENABLED;  // RDMAV_FORK_SAFE=1
  EXPECT_EQ(EnableForkSupport(*machine.library(), "4.18.0"),
            ForkSupport::kEnabled);
  EXPECT_EQ(machine.fork_init_calls, 0);
}

TEST(ForkSupportTest, WhereItIsRefusedItIsDisabled) {
  FakeMachine machine;
  machine.fork_init_result = EINVAL;  // somebody registered memory before
  EXPECT_EQ(EnableForkSupport(*machine.library(), "4.18.0"),
            ForkSupport::kDisabled);
}

TEST(ForkSupportTest, ALibraryThatCannotSayIsJudgedByTheKernel) {
  FakeMachine machine;
  EXPECT_EQ(EnableForkSupport(*machine.old_library(), "5.15.0"),
            ForkSupport::kUnneeded);
  EXPECT_EQ(EnableForkSupport(*machine.old_library(), "5.4.0"),
            ForkSupport::kDisabled);
}

}  // namespace
}  // namespace ringpipe::verbs
