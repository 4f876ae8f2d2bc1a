// What a real device's asynchronous events become, as an administrator brings
// them about with ip. Only where RINGPIPE_TEST_DEVICE names a device of
// rdma_rxe and RINGPIPE_TEST_INTERFACE the network interface beneath it, both
// of which this may take down: as root, in a virtual machine of its own. The
// last test deletes the interface.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "verbs/device.h"
#include "verbs/fake_library.h"
#include "verbs/memory_region.h"

namespace ringpipe::verbs {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Starts a program found by PATH, with words as arguments; -1 if it cannot.
pid_t Start(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  pid_t pid = -1;
  return posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ) ==
                 0
             ? pid
             : -1;
}

bool Ended(pid_t pid) {
  int status = -1;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

bool Do(const std::vector<std::string>& words) { return Ended(Start(words)); }

class DeviceEventsTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* device = std::getenv("RINGPIPE_TEST_DEVICE");
    const char* interface = std::getenv("RINGPIPE_TEST_INTERFACE");
    if (device == nullptr || interface == nullptr) {
      GTEST_SKIP() << "needs RINGPIPE_TEST_DEVICE and RINGPIPE_TEST_INTERFACE";
    }
    interface_ = interface;
    const auto request = DeviceRequest::Parse(device);
    ASSERT_TRUE(request.ok()) << request.status().ToString();
    const auto opened =
        Device::Open(request.value(), {}, LoadSystemLibrary(), machine_.soft());
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    device_ = opened.value().front();
  }

  // The address by which the device is reached, without its prefix length.
  std::string Address() const {
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, device_->info().gid.raw + 12, text, sizeof(text));
    return text;
  }

  // Takes events until one is fatal, a notice has `wanted` in it, or 20 s have
  // passed.
  Status Await(const std::string& wanted) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(20));
    while (!deadline.expired()) {
      pollfd descriptor = {device_->async_fd(), POLLIN, 0};
      poll(&descriptor, 1, deadline.PollTimeoutMs(20'000));
      std::vector<std::string> notices;
      Status status = device_->CheckAsyncEvents(&notices);
      for (const std::string& notice : notices) {
        std::cout << "notice: " << notice << "\n";
      }
      if (!status.ok()) {
        std::cout << "error: " << status.ToString() << "\n";
        return status;
      }
      for (const std::string& notice : notices) {
        if (Has(notice, wanted)) {
          return status;
        }
      }
    }
    ADD_FAILURE() << "no " << wanted << " in time";
    return Status::Ok();
  }

  FakeMachine machine_;  // for want of a software device
  std::string interface_;
  std::shared_ptr<Device> device_;
};

TEST_F(DeviceEventsTest, MemoryIsRegisteredWithAndWithoutRelaxedOrdering) {
  const auto pd = ProtectionDomain::Create(device_);
  ASSERT_TRUE(pd.ok());
  std::vector<std::byte> memory(1 << 20);
  for (const bool relaxed : {false, true}) {
    const auto region =
        MemoryRegion::Register(pd.value(), memory.data(), memory.size(),
                               IBV_ACCESS_LOCAL_WRITE, relaxed);
    EXPECT_TRUE(region.ok()) << region.status().ToString();
  }
  std::cout << "fork support: "
            << DescribeForkSupport(device_->library().fork_support) << "\n";
}

TEST_F(DeviceEventsTest, AnotherAddressOfThePortIsANotice) {
  ASSERT_TRUE(Do({"ip", "addr", "add", "192.168.250.1/24", "dev", interface_}));
  EXPECT_TRUE(Await("IBV_EVENT_GID_CHANGE on port 1").ok());
  ASSERT_TRUE(Do({"ip", "addr", "del", "192.168.250.1/24", "dev", interface_}));
  EXPECT_TRUE(Await("IBV_EVENT_GID_CHANGE on port 1").ok());
}

TEST_F(DeviceEventsTest, ThatItsOwnAddressIsGoneIsAnErrorThatNamesIt) {
  const std::string address = Address();
  ASSERT_TRUE(Do({"ip", "addr", "del", address + "/24", "dev", interface_}));
  const Status status = Await("nothing else");
  ASSERT_TRUE(Do({"ip", "addr", "add", address + "/24", "dev", interface_}));
  EXPECT_EQ(status.code(), StatusCode::kDeviceError);
  EXPECT_TRUE(Has(status.message(), "IBV_EVENT_GID_CHANGE"));
  EXPECT_TRUE(Has(status.message(), address));
}

TEST_F(DeviceEventsTest, ThatTheLinkWentDownIsAnErrorAndThatItCameUpIsNot) {
  ASSERT_TRUE(Do({"ip", "link", "set", interface_, "down"}));
  const Status status = Await("nothing else");
  EXPECT_EQ(status.code(), StatusCode::kDeviceError);
  EXPECT_TRUE(Has(status.message(), "IBV_EVENT_PORT_ERR on port 1"));
  ASSERT_TRUE(Do({"ip", "link", "set", interface_, "up"}));
  EXPECT_TRUE(Await("IBV_EVENT_PORT_ACTIVE on port 1").ok());
}

// Only drivers of real hardware let go of a device that is in use and raise
// IBV_EVENT_DEVICE_FATAL ("rdma link delete" would wait for us, without a
// word). The loss of what is beneath is what a program on a soft device hears
// of.
TEST_F(DeviceEventsTest, ThatTheInterfaceWasRemovedIsAnErrorWhileStillOpen) {
  const pid_t removing = Start({"ip", "link", "delete", interface_});
  ASSERT_GT(removing, 0);
  const Status status = Await("nothing else");
  EXPECT_EQ(status.code(), StatusCode::kDeviceError);
  // The removal ends as soon as nobody has the device open.
  device_.reset();
  EXPECT_TRUE(Ended(removing));
}

}  // namespace
}  // namespace ringpipe::verbs
