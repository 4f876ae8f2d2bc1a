#include "base/file_descriptor.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

int NewFile() { return memfd_create("file", MFD_CLOEXEC); }
bool IsThere(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FileDescriptorTest, ClosesItsFile) {
  const int fd = NewFile();
  FileDescriptor(fd).Close();
  EXPECT_FALSE(IsThere(fd));
}

TEST(FileDescriptorTest, SeesThatSomebodyElseHasClosedIt) {
  const FileDescriptor descriptor(NewFile());
  EXPECT_TRUE(descriptor.IsOpen());
  close(descriptor.get());
  EXPECT_FALSE(descriptor.IsOpen());
}

TEST(FileDescriptorTest, LeavesAFileAloneThatHasGotItsNumber) {
  const int fd = NewFile();
  {
    FileDescriptor descriptor(fd);
    close(fd);
    ASSERT_EQ(NewFile(), fd);
    const FileDescriptor moved(std::move(descriptor));
    EXPECT_FALSE(moved.IsOpen());
  }
  EXPECT_TRUE(IsThere(fd));
  close(fd);
}

TEST(FileDescriptorTest, LeavesAnotherOneAloneThatHasGotItsNumber) {
  FileDescriptor first(NewFile());
  close(first.get());
  const FileDescriptor second(NewFile());
  ASSERT_EQ(second.get(), first.get());
  first.Close();
  EXPECT_TRUE(second.IsOpen());
}

// What a child of fork() sees of `fd`.
bool ChildHas(int fd) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(IsThere(fd) ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status) == 1;
}

TEST(FileDescriptorTest, AChildHasNoneButAFileThatHasGotTheNumber) {
  const FileDescriptor descriptor(NewFile());
  EXPECT_FALSE(ChildHas(descriptor.get()));
  close(descriptor.get());
  const int fd = NewFile();
  ASSERT_EQ(fd, descriptor.get());
  EXPECT_TRUE(ChildHas(fd));
  close(fd);
}

}  // namespace
}  // namespace ringpipe
