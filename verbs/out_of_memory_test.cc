// Whichever allocation fails, the device has back what was taken from it.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

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

}  // namespace
}  // namespace ringpipe::verbs
