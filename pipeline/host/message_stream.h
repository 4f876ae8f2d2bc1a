#ifndef RINGPIPE_PIPELINE_HOST_MESSAGE_STREAM_H_
#define RINGPIPE_PIPELINE_HOST_MESSAGE_STREAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/status.h"
#include "pipeline/connection.h"
#include "pipeline/host/host_peer.h"
#include "pipeline/host/layout.h"
#include "pipeline/memory.h"

namespace ringpipe {

// The handle of slots; other memory has none.
inline constexpr char kSlotTag = 0;
inline constexpr MemoryHandle kSlot = &kSlotTag;

// The messages between this rank and one peer that are not eager, both ways:
// what lies in shared memory stays there until the peer has read it, or is
// written to where the peer wants it. One thread at a time.
//
// `call` is the running call's, as in CallLine.
class MessageStream {
 public:
  // `peer` outlives this object.
  explicit MessageStream(HostPeer& peer) : peer_(peer) {}

  // --- As Connection's
  bool CanExpect() const { return expected_[At(expects_ + 1)].number == 0; }
  void Expect(Instance instance, const Memory& target);
  // Before `agreed` messages are left where they lie: the peer can begin with
  // them at once, and has not said yet where it wants them.
  bool CanSend(bool agreed) const;
  Result<bool> Send(Instance instance, const Memory& source, bool agreed,
                    std::uint64_t call);
  Status Release(Instance instance, std::uint64_t call);
  bool sending() const { return sending_ > 0; }

  // Takes what has come; returns whether anything has.
  Result<bool> PollMessages(Connection::Events& events, std::uint64_t call);
  // The same of messages that the peer has read.
  Result<bool> PollReleased(Connection::Events& events);

  // Takes back the memory into which the peer might still write. kMemoryHeld
  // where it is a thread of this process.
  Status TakeBack();

 private:
  // A message that the peer has to read, and its number; 0: none.
  struct Sending {
    Instance instance;
    std::uint64_t number = 0;
  };
  // One that is expected, until it was read.
  struct Expected {
    Instance instance;
    Memory target;
    std::uint64_t number = 0;
    // Where it lies in the peer's slot, to be claimed when it was read.
    std::span<std::byte> slot = {};
  };

  static std::size_t At(std::uint64_t number) { return number % kWindow; }

  std::pair<Space, std::uint64_t> AddressOf(const Memory& memory) const;
  const Inbox::Entry* PeersTarget() const;
  bool HasRoom() const;
  Result<bool> Write(const Inbox::Entry& target, const Memory& source,
                     std::uint64_t call);
  void Publish(Inbox::Entry& entry, std::uint64_t number, Space space,
               std::uint64_t address, std::uint32_t bytes);
  void Say(Space space, std::uint64_t address, std::uint32_t bytes);
  Status Take(Connection::Events& events, std::uint64_t number,
              const Inbox::Entry& message, std::uint64_t call);
  Status TakeFromRegion(Connection::Events& events, std::uint64_t number,
                        Space space, std::uint64_t offset, std::uint32_t bytes,
                        std::uint64_t call);
  void Released(std::uint64_t number);
  void Close(std::uint64_t number);

  HostPeer& peer_;

  // By number modulo the window.
  std::array<Sending, kWindow> sends_;
  std::array<Expected, kWindow> expected_;
  std::uint64_t sent_ = 0;
  std::uint64_t oldest_sending_ = 0;  // up to there none is open
  int sending_ = 0;
  std::uint64_t expects_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t oldest_expected_ = 0;  // up to there none is open
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_MESSAGE_STREAM_H_
