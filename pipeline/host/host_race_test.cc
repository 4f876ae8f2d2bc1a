// ThreadSanitizer sees through host memory: ranks as threads share the
// mappings. Two builds, one of them with a planted mistake (kPublishes), which
// it has to find.
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "pipeline/host/host_connection.h"
#include "pipeline/host/host_transport.h"
#include "pipeline/host/region_memory.h"

namespace ringpipe {
namespace {

constexpr std::uint32_t kBytes = 4096;

std::string Describe(const Digest& /*digest*/) { return "a call"; }

struct Events final : Connection::Events {
  Status Arrived(Instance /*instance*/, const std::byte* data,
                 std::uint32_t /*bytes*/) override {
    arrived = data;
    return Status::Ok();
  }
  Status Sent(Instance /*instance*/) override {
    sent = true;
    return Status::Ok();
  }
  const std::byte* arrived = nullptr;
  bool sent = false;
};

// One of two ranks, without sockets.
struct End {
  explicit End(int its_rank)
      : rank(its_rank),
        region(HostTransport::CreateRegion(rank, 2).value()),
        memory(std::make_shared<RegionMemory>(region)),
        message(memory->Allocate(kBytes).value()),
        lines(RegionHeader::Of(*region), waker, check, 2),
        connection(rank, 1 - rank, region, lines) {}

  void Begin() {
    check.Begin(digest);
    connection.Begin({&digest, true, true, false});
    lines.Begin(digest.sequence);
    EXPECT_TRUE(connection.Progress(events).ok());
  }
  void Poll() { EXPECT_TRUE(connection.Poll(events).ok()); }

  const int rank;
  std::shared_ptr<Region> region;
  std::shared_ptr<RegionMemory> memory;
  Allocation message;
  Digest digest;
  CallCheck check{rank, &Describe};
  Waker waker{2};
  CallLines lines;
  HostConnection connection;
  Events events;
};

void Attach(End& end, const End& other) {
  RegionPeer peer;
  peer.region = other.region;
  end.connection.other().Attach(std::move(peer));
}

// One rank writes a message, the other one reads it, and the first writes to
// the same place again.
void Exchange() {
  End sender(0);
  End receiver(1);
  Attach(sender, receiver);
  Attach(receiver, sender);
  std::thread sending([&] {
    sender.Begin();
    std::memset(sender.message.data(), 1, kBytes);
    while (!sender.connection.CanSend().value()) {
      sender.Poll();
    }
    EXPECT_TRUE(
        sender.connection
            .Send({0, 0}, Memory{sender.message.data(), kBytes, nullptr})
            .ok());
    while (!sender.events.sent) {
      sender.Poll();
    }
    std::memset(sender.message.data(), 2, kBytes);
  });
  receiver.Begin();
  receiver.connection.Expect({0, 0}, {});
  while (receiver.events.arrived == nullptr) {
    receiver.Poll();
  }
  std::array<std::byte, kBytes> read = {};
  std::memcpy(read.data(), receiver.events.arrived, kBytes);
  EXPECT_EQ(read[kBytes - 1], std::byte{1});
  EXPECT_TRUE(receiver.connection.Release({0, 0}).ok());
  sending.join();
}

#if defined(RINGPIPE_PLANTED_RACE) && defined(__SANITIZE_THREAD__)
TEST(HostRaceDeathTest, AMessageThatIsNotPublishedIsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(Exchange(), "ThreadSanitizer: data race");
}
#else
TEST(HostRaceTest, AMessageIsReadAfterItWasWrittenAndBeforeTheNext) {
  Exchange();
}
#endif

}  // namespace
}  // namespace ringpipe
