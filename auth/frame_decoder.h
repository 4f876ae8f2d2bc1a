// Cuts a stream of bytes into length-prefixed frames of bounded size.
#ifndef RINGPIPE_AUTH_FRAME_DECODER_H_
#define RINGPIPE_AUTH_FRAME_DECODER_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ringpipe {

//   | payload bytes: 32 bits, little-endian | payload |
using FrameHeader = std::array<char, 4>;

// `payload_bytes` must be below 4 GiB.
FrameHeader MakeFrameHeader(size_t payload_bytes);

// Header and payload in one string, for small messages.
std::string EncodeFrame(std::string_view payload);

// Holds at most what was appended and not yet taken: a reader that appends
// what it received and then takes all whole frames never holds more than one
// frame and one read. Not thread-safe.
class FrameDecoder {
 public:
  explicit FrameDecoder(size_t most_payload_bytes)
      : most_payload_bytes_(most_payload_bytes) {}

  // Limits the frames not yet taken: strangers get less room than peers.
  void set_most_payload_bytes(size_t bytes) { most_payload_bytes_ = bytes; }

  void Append(std::string_view bytes);

  // The next payload; nullopt if more bytes are needed for it.
  // kInvalidArgument if a header announces more than allowed: there is no way
  // to go on with such a stream, and every later call fails too.
  Result<std::optional<std::string>> Next();

  size_t held_bytes() const { return bytes_.size() - taken_; }

 private:
  size_t most_payload_bytes_;
  std::string bytes_;
  size_t taken_ = 0;  // bytes at the front that were returned already
};

}  // namespace ringpipe

#endif  // RINGPIPE_AUTH_FRAME_DECODER_H_
