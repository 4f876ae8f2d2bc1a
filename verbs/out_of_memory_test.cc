// Whichever allocation fails, the device has back what was taken from it.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/exception_status.h"
#include "base/failing_memory.h"
#include "verbs/completion_queue.h"
#include "verbs/device.h"
#include "verbs/fake_library.h"
#include "verbs/memory_region.h"
#include "verbs/queue_pair.h"

namespace ringpipe::verbs {
namespace {

// All that a rank takes, and gives back at the end.
Status OpenAndClose(const FakeMachine& machine,
                    const Result<std::shared_ptr<const Library>>& system) {
  return WithoutExceptions([&]() -> Status {
    RINGPIPE_ASSIGN_OR_RETURN(const DeviceRequest request,
                              DeviceRequest::Parse("mlx5_0"));
    RINGPIPE_ASSIGN_OR_RETURN(auto devices,
                              Device::Open(request, {}, system, machine.soft(),
                                           machine.sysfs_class()));
    RINGPIPE_ASSIGN_OR_RETURN(auto domain,
                              ProtectionDomain::Create(devices.front()));
    RINGPIPE_ASSIGN_OR_RETURN(auto completions,
                              CompletionQueue::Create(devices.front(), 16));
    std::array<char, 64> memory = {};
    RINGPIPE_ASSIGN_OR_RETURN(
        const MemoryRegion region,
        MemoryRegion::Register(domain, memory.data(), memory.size(), 0));
    return QueuePair::Create(domain, completions, {}).status();
  });
}

TEST(OutOfMemoryTest, NothingOfTheDeviceIsKept) {
  FakeMachine machine;
  machine.Add({.name = "mlx5_0"});
  const Result<std::shared_ptr<const Library>> system = machine.library();
  Status status;
  long which = 0;
  while (FailOne(which, [&] { status = OpenAndClose(machine, system); })) {
    // A stream takes it for a file that cannot be read.
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted)
        << "allocation " << which << ": " << status.ToString();
    EXPECT_EQ(machine.live, 0) << "allocation " << which;
    ++which;
  }
  EXPECT_GT(which, 1);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// What is destroyed waits for them.
TEST(OutOfMemoryTest, EventsAreAcknowledged) {
  FakeMachine machine;
  auto device = Device::OpenSoftware(machine.soft(), "the test asks for it");
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  for (const ibv_event_type type :
       {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_DEVICE_FATAL}) {
    int raised = 0;
    machine.events_acknowledged = 0;
    Status status;
    long which = 0;
    const auto take = [&] {
      status = WithoutExceptions([&] {
        std::vector<std::string> notices;
        return (*device)->CheckAsyncEvents(&notices);
      });
    };
    bool failed = true;
    for (; failed; ++which) {
      ibv_async_event event = {};
      event.event_type = type;
      event.element.port_num = 1;
      machine.Raise(event);
      ++raised;
      failed = FailOne(which, take);
      EXPECT_EQ(machine.events_acknowledged, raised) << "allocation " << which;
      EXPECT_EQ(status.code(), failed ? StatusCode::kResourceExhausted
                               : type == IBV_EVENT_DEVICE_FATAL
                                   ? StatusCode::kDeviceError
                                   : StatusCode::kOk);
    }
    EXPECT_GT(which, 1);
  }
}

}  // namespace
}  // namespace ringpipe::verbs
