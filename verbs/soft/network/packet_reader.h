#ifndef RINGPIPE_VERBS_SOFT_PACKET_READER_H_
#define RINGPIPE_VERBS_SOFT_PACKET_READER_H_

#include <cstddef>
#include <memory>
#include <span>

#include "verbs/soft/network/wire.h"

namespace ringpipe::verbs::soft {

// Cuts the bytes of a connection into packets, in a buffer of its own that
// never grows. Not thread-safe.
class PacketReader {
 public:
  enum class Outcome {
    kPacket,
    kMore,     // take more bytes in first
    kGarbage,  // there is no going on with this stream
  };

  PacketReader();

  // Where to put the next bytes, never empty after Next has said kMore; then
  // say how many came. Moves the payloads that Next has returned.
  std::span<std::byte> Space();
  void Commit(std::size_t bytes) { end_ += bytes; }

  // Forgets what has come.
  void Clear() { begin_ = end_ = 0; }

  // The next packet. `payload` is valid until Space is called.
  Outcome Next(PacketHeader* header, std::span<const std::byte>* payload);

 private:
  // More than a packet, so that a read takes many small ones at once, and the
  // begun one that is left at the end is seldom a large part of it.
  static constexpr std::size_t kBufferBytes = 512 * 1024;
  static_assert(kBufferBytes >= 2 * (kPacketHeaderBytes + kMaxPayloadBytes));

  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_PACKET_READER_H_
