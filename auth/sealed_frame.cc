#include "auth/sealed_frame.h"

#include "auth/byte_stream.h"

namespace ringpipe {
namespace {

Result<Mac> FrameMac(const Mac& key, uint64_t number,
                     std::string_view payload) {
  ByteWriter prefix;
  prefix.U64(number);
  prefix.U64(payload.size());
  return ComputeMac(AsBytes(key), {prefix.bytes(), payload});
}

}  // namespace

Result<Seal> FrameSealer::SealPayload(std::string_view payload) {
  RINGPIPE_ASSIGN_OR_RETURN(const Mac mac, FrameMac(key_, number_, payload));
  ++number_;
  return Seal{MakeFrameHeader(payload.size() + mac.size()), mac};
}

Result<std::string> FrameOpener::Open(std::string frame) {
  const Status refused(StatusCode::kPermissionDenied,
                       "frame " + std::to_string(number_) +
                           " has a wrong MAC: it was changed on its way, "
                           "repeated or left out");
  if (frame.size() < sizeof(Mac)) {
    return refused;
  }
  const size_t payload_bytes = frame.size() - sizeof(Mac);
  const std::string_view whole = frame;
  RINGPIPE_ASSIGN_OR_RETURN(
      const Mac mac, FrameMac(key_, number_, whole.substr(0, payload_bytes)));
  if (!MacsEqual(mac, whole.substr(payload_bytes))) {
    return refused;
  }
  ++number_;
  frame.resize(payload_bytes);
  return frame;
}

}  // namespace ringpipe
