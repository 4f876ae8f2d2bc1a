// Frames after the handshake: each carries a MAC over its number and content,
// so that a frame that was changed, dropped, doubled or moved is found.
//
//   | header: payload bytes + 32 | payload | MAC(key, number, payload) |
//
// A key serves one direction of one connection; the number counts from 0 and
// is not sent.
#ifndef RINGPIPE_AUTH_SEALED_FRAME_H_
#define RINGPIPE_AUTH_SEALED_FRAME_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "auth/frame_decoder.h"
#include "auth/mac.h"
#include "base/status.h"

namespace ringpipe {

// What to send before and after a payload, which thus need not be copied.
struct Seal {
  FrameHeader header;
  Mac mac;
};

// Not thread-safe: frames must be sent in the order in which they were sealed.
class FrameSealer {
 public:
  explicit FrameSealer(const Mac& key) : key_(key) {}

  // kUnavailable as ComputeMac.
  Result<Seal> SealPayload(std::string_view payload);

 private:
  Mac key_;
  uint64_t number_ = 0;
};

// Not thread-safe.
class FrameOpener {
 public:
  explicit FrameOpener(const Mac& key) : key_(key) {}

  // `frame` is what FrameDecoder returned: payload and MAC. Returns the
  // payload. kPermissionDenied if the MAC is not that of the next frame: the
  // connection must then be closed, and every later frame is refused too.
  Result<std::string> Open(std::string frame);

 private:
  Mac key_;
  uint64_t number_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_AUTH_SEALED_FRAME_H_
