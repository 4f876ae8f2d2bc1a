// The names of contexts on a host: who does not have the key cannot take them.
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "gtest/gtest.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/verbs_functions.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr int kBlocks = 8;

Options OptionsWith(const std::string& key) {
  Options options;
  options.key = key;
  options.last_port = options.first_port + kBlocks;
  return options;
}

// All names that contexts with `key` could have, taken.
std::vector<FileDescriptor> TakeNames(const std::string& key) {
  std::vector<FileDescriptor> taken;
  for (std::uint32_t block = 0; block <= kBlocks; ++block) {
    sockaddr_un address;
    const socklen_t length = ContextAddress(OptionsWith(key), block, &address);
    taken.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(
        bind(taken.back().get(), reinterpret_cast<sockaddr*>(&address), length),
        0);
  }
  return taken;
}

bool Opens(const std::string& key) {
  SoftDevice device;
  device.options = OptionsWith(key);
  ibv_context* const context = OpenDevice(&device);
  return context != nullptr && CloseDevice(context) == 0;
}

TEST(Names, CannotBeTakenByWhoDoesNotHaveTheKey) {
  const std::vector<FileDescriptor> without_key = TakeNames("");
  const std::vector<FileDescriptor> with_another = TakeNames("another");
  EXPECT_TRUE(Opens("ours"));
  const std::vector<FileDescriptor> with_ours = TakeNames("ours");
  EXPECT_FALSE(Opens("ours"));
  EXPECT_EQ(errno, EADDRINUSE);
}

}  // namespace
}  // namespace ringpipe::verbs::soft
