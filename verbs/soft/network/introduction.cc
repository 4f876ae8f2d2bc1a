#include "verbs/soft/network/introduction.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "auth/byte_stream.h"
#include "auth/frame_decoder.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr char kPurpose[] = "software verbs device";
constexpr std::uint32_t kVersion = 1;
constexpr std::string_view kWelcome = "welcome";

Handshake::Options MakeOptions(const std::string& key) {
  return {
      .secret = key, .purpose = kPurpose, .job_id = "", .version = kVersion};
}

std::size_t PayloadBytes(const std::string& frame) {
  ByteReader reader(frame);
  return reader.U32();
}

Status Garbled() {
  return {StatusCode::kInvalidArgument,
          "what came is not an introduction of a software device"};
}

}  // namespace

Introduction::Introduction(bool connects, const Claim& claim,
                           Handshake handshake)
    : connects_(connects),
      own_claim_(claim),
      handshake_(std::move(handshake)) {}

Result<Introduction> Introduction::ForConnector(const std::string& key,
                                                const Claim& claim) {
  RINGPIPE_ASSIGN_OR_RETURN(
      Handshake handshake,
      Handshake::Create(Handshake::Role::kConnector, MakeOptions(key)));
  return Introduction(true, claim, std::move(handshake));
}

Result<Introduction> Introduction::ForAcceptor(const std::string& key) {
  RINGPIPE_ASSIGN_OR_RETURN(
      Handshake handshake,
      Handshake::Create(Handshake::Role::kAcceptor, MakeOptions(key)));
  return Introduction(false, Claim(), std::move(handshake));
}

std::string Introduction::Start() {
  const std::string hello = handshake_.Start();
  return hello.empty() ? hello : EncodeFrame(hello);
}

std::size_t Introduction::wanted() const {
  constexpr std::size_t kHeader = sizeof(FrameHeader);
  return frame_.size() < kHeader
             ? kHeader - frame_.size()
             : kHeader + PayloadBytes(frame_) - frame_.size();
}

Result<std::string> Introduction::Receive(std::string_view bytes) {
  frame_.append(bytes.substr(0, wanted()));
  if (frame_.size() < sizeof(FrameHeader)) {
    return std::string();
  }
  const std::size_t payload_bytes = PayloadBytes(frame_);
  if (payload_bytes == 0 || payload_bytes > Handshake::kMostMessageBytes) {
    return Garbled();
  }
  if (wanted() > 0) {
    return std::string();
  }
  std::string payload = frame_.substr(sizeof(FrameHeader));
  frame_.clear();
  return ReceiveFrame(std::move(payload));
}

Result<std::string> Introduction::ReceiveFrame(std::string payload) {
  if (handshake_.done()) {
    RINGPIPE_RETURN_IF_ERROR(Open(std::move(payload)));
    return std::string();
  }
  RINGPIPE_ASSIGN_OR_RETURN(std::string answer, handshake_.Receive(payload));
  std::string out = answer.empty() ? answer : EncodeFrame(answer);
  if (!handshake_.done()) {
    return out;
  }
  if (handshake_.peer_version() != kVersion) {
    return Status(StatusCode::kMismatch,
                  "the peer's software device speaks another version");
  }
  RINGPIPE_ASSIGN_OR_RETURN(FrameSealer sealer, handshake_.Sealer());
  RINGPIPE_ASSIGN_OR_RETURN(FrameOpener opener, handshake_.Opener());
  sealer_ = sealer;
  opener_ = opener;
  if (connects_) {
    ByteWriter writer;
    writer.Raw({reinterpret_cast<const char*>(own_claim_.from.gid.raw),
                sizeof own_claim_.from.gid.raw});
    writer.U32(own_claim_.from.qpn);
    writer.U32(own_claim_.to_qpn);
    writer.U32(own_claim_.type);
    RINGPIPE_ASSIGN_OR_RETURN(std::string claim, Seal(writer.bytes()));
    out += claim;
  }
  return out;
}

Result<std::string> Introduction::Seal(const std::string& payload) {
  RINGPIPE_ASSIGN_OR_RETURN(ringpipe::Seal seal, sealer_->SealPayload(payload));
  return std::string(seal.header.data(), seal.header.size()) + payload +
         std::string(AsBytes(seal.mac));
}

Status Introduction::Open(std::string payload) {
  if (claim_ || welcomed_) {
    return Garbled();
  }
  RINGPIPE_ASSIGN_OR_RETURN(const std::string message,
                            opener_->Open(std::move(payload)));
  if (connects_) {
    welcomed_ = message == kWelcome;
    return welcomed_ ? Status() : Garbled();
  }
  ByteReader reader(message);
  Claim claim;
  const std::string_view gid = reader.Raw(sizeof claim.from.gid.raw);
  claim.from.qpn = reader.U32();
  claim.to_qpn = reader.U32();
  claim.type = reader.U32();
  if (!reader.finished()) {
    return Garbled();
  }
  memcpy(claim.from.gid.raw, gid.data(), gid.size());
  claim_ = claim;
  return {};
}

Result<std::string> Introduction::Welcome() {
  return Seal(std::string(kWelcome));
}

}  // namespace ringpipe::verbs::soft
