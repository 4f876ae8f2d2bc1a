#include "auth/handshake.h"

#include <algorithm>
#include <utility>

#include "auth/byte_stream.h"

namespace ringpipe {
namespace {

// Ten bytes that no other protocol starts with; the digit is the version of
// the handshake itself.
constexpr std::string_view kHelloMagic = "ringpipeH1";
constexpr std::string_view kChallengeMagic = "ringpipeC1";
constexpr std::string_view kProofMagic = "ringpipeP1";

constexpr std::string_view kConnectorProof = "connector proves";
constexpr std::string_view kAcceptorProof = "acceptor proves";
constexpr std::string_view kToAcceptorKey = "connector to acceptor";
constexpr std::string_view kToConnectorKey = "acceptor to connector";

static_assert(kHelloMagic.size() + 4 + sizeof(Nonce) +
                      2 * (4 + Handshake::kMostNameBytes) <=
                  Handshake::kMostMessageBytes,
              "the longest hello must fit");

Status Garbled() {
  return {StatusCode::kInvalidArgument,
          "what came is not ringpipe's handshake"};
}

std::string ProofMessage(const Mac& mac) {
  ByteWriter writer;
  writer.Raw(kProofMagic);
  writer.Raw(AsBytes(mac));
  return writer.Take();
}

}  // namespace

Result<Handshake> Handshake::Create(Role role, const Options& options) {
  RINGPIPE_ASSIGN_OR_RETURN(const Nonce nonce, RandomNonce());
  return Handshake(role, options, nonce);
}

Handshake::Handshake(Role role, const Options& options, const Nonce& nonce)
    : role_(role),
      options_(options),
      nonce_(nonce),
      state_(role == Role::kConnector ? State::kStart : State::kHello) {
  options_.purpose.resize(std::min(options_.purpose.size(), kMostNameBytes));
  options_.job_id.resize(std::min(options_.job_id.size(), kMostNameBytes));
}

std::string Handshake::Start() {
  if (state_ != State::kStart) {
    return "";
  }
  ByteWriter writer;
  writer.Raw(kHelloMagic);
  writer.U32(options_.version);
  writer.Raw(AsBytes(nonce_));
  writer.String(options_.purpose);
  writer.String(options_.job_id);
  hello_ = writer.Take();
  state_ = State::kChallenge;
  return hello_;
}

Result<std::string> Handshake::Receive(std::string_view message) {
  Result<std::string> answer = Garbled();
  if (state_ == State::kHello) {
    answer = ReceiveHello(message);
  } else if (state_ == State::kChallenge) {
    answer = ReceiveChallenge(message);
  } else if (state_ == State::kProof) {
    answer = ReceiveProof(message);
  }
  if (!answer.ok()) {
    state_ = State::kFailed;
  }
  return answer;
}

Result<std::string> Handshake::ReceiveHello(std::string_view message) {
  ByteReader reader(message);
  if (reader.Raw(kHelloMagic.size()) != kHelloMagic) {
    return Garbled();
  }
  peer_version_ = reader.U32();
  reader.Raw(sizeof(Nonce));
  const std::string_view purpose = reader.String(kMostNameBytes);
  const std::string_view job_id = reader.String(kMostNameBytes);
  if (!reader.finished()) {
    return Garbled();
  }
  if (purpose != options_.purpose) {
    return Status(StatusCode::kMismatch, "the peer is not here for " +
                                             options_.purpose +
                                             " but for something else");
  }
  if (job_id != options_.job_id) {
    // What the stranger said is not repeated: it would end in our log.
    return Status(StatusCode::kMismatch,
                  "the peer belongs to another job (job ids differ)");
  }
  hello_ = message;
  ByteWriter writer;
  writer.Raw(kChallengeMagic);
  writer.U32(options_.version);
  writer.Raw(AsBytes(nonce_));
  challenge_ = writer.Take();
  state_ = State::kProof;
  return challenge_;
}

Result<std::string> Handshake::ReceiveChallenge(std::string_view message) {
  ByteReader reader(message);
  if (reader.Raw(kChallengeMagic.size()) != kChallengeMagic) {
    return Garbled();
  }
  peer_version_ = reader.U32();
  reader.Raw(sizeof(Nonce));
  if (!reader.finished()) {
    return Garbled();
  }
  challenge_ = message;
  RINGPIPE_ASSIGN_OR_RETURN(const Mac mac, TranscriptMac(kConnectorProof));
  state_ = State::kProof;
  return ProofMessage(mac);
}

Result<std::string> Handshake::ReceiveProof(std::string_view message) {
  ByteReader reader(message);
  if (reader.Raw(kProofMagic.size()) != kProofMagic) {
    return Garbled();
  }
  const std::string_view proof = reader.Raw(sizeof(Mac));
  if (!reader.finished()) {
    return Garbled();
  }
  const bool connector = role_ == Role::kConnector;
  RINGPIPE_ASSIGN_OR_RETURN(
      const Mac expected,
      TranscriptMac(connector ? kAcceptorProof : kConnectorProof));
  if (!MacsEqual(expected, proof)) {
    return Status(StatusCode::kPermissionDenied,
                  "the peer has another secret (RINGPIPE_SECRET)");
  }
  state_ = State::kDone;
  if (connector) {
    return std::string();
  }
  RINGPIPE_ASSIGN_OR_RETURN(const Mac own, TranscriptMac(kAcceptorProof));
  return ProofMessage(own);
}

Result<Mac> Handshake::TranscriptMac(std::string_view label) const {
  ByteWriter writer;
  writer.String(label);
  writer.String(hello_);
  writer.String(challenge_);
  return ComputeMac(options_.secret, {writer.bytes()});
}

Result<FrameSealer> Handshake::Sealer() const {
  RINGPIPE_ASSIGN_OR_RETURN(
      const Mac key,
      TranscriptMac(role_ == Role::kConnector ? kToAcceptorKey
                                              : kToConnectorKey));
  return FrameSealer(key);
}

Result<FrameOpener> Handshake::Opener() const {
  RINGPIPE_ASSIGN_OR_RETURN(
      const Mac key, TranscriptMac(role_ == Role::kConnector ? kToConnectorKey
                                                             : kToAcceptorKey));
  return FrameOpener(key);
}

}  // namespace ringpipe
