#include "bootstrap/message.h"

#include <algorithm>
#include <utility>

#include "auth/byte_stream.h"

namespace ringpipe {
namespace {

constexpr size_t kMostHostBytes = 256;
constexpr size_t kMostReasonBytes = 4096;

enum class Type : uint8_t {
  kAbortNotice = 1,
  kJoinRequest = 2,
  kContribution = 3,
  kGatheredBlobs = 4,
  kDeparture = 5,
  kQuestion = 6,
  kReply = 7,
  kReplies = 8,
};

void Begin(ByteWriter* writer, Type type) {
  writer->U8(static_cast<uint8_t>(type));
}

void WriteIdentity(const Identity& identity, ByteWriter* writer) {
  writer->U32(identity.pid);
  writer->String(identity.host.substr(0, kMostHostBytes));
  writer->Raw(AsBytes(identity.nonce));
  writer->String(identity.contact.substr(0, kMostHostBytes));
}

Identity ReadIdentity(ByteReader* reader) {
  Identity identity;
  identity.pid = reader->U32();
  identity.host = reader->String(kMostHostBytes);
  const std::string_view nonce = reader->Raw(sizeof(Nonce));
  std::copy(nonce.begin(), nonce.end(), identity.nonce.begin());
  identity.contact = reader->String(kMostHostBytes);
  return identity;
}

struct Encoder {
  ByteWriter writer;

  void operator()(const AbortNotice& notice) {
    Begin(&writer, Type::kAbortNotice);
    writer.U32(static_cast<uint32_t>(notice.reason.code()));
    writer.String(notice.reason.message().substr(0, kMostReasonBytes));
  }
  void operator()(const JoinRequest& request) {
    Begin(&writer, Type::kJoinRequest);
    writer.U32(request.rank);
    writer.U32(request.size);
    writer.U64(static_cast<uint64_t>(request.left_ms));
    WriteIdentity(request.identity, &writer);
  }
  void operator()(const Contribution& contribution) {
    Begin(&writer, Type::kContribution);
    writer.U64(contribution.sequence);
    writer.U8(static_cast<uint8_t>(contribution.gathering));
    writer.U64(static_cast<uint64_t>(contribution.left_ms));
    writer.String(contribution.blob);
  }
  void operator()(const GatheredBlobs& gathered) {
    Begin(&writer, Type::kGatheredBlobs);
    writer.U64(gathered.sequence);
    writer.U32(gathered.first_rank);
    writer.U32(static_cast<uint32_t>(gathered.blobs.size()));
    for (const std::string& blob : gathered.blobs) {
      writer.String(blob);
    }
  }
  void operator()(const Departure& departure) {
    Begin(&writer, Type::kDeparture);
    writer.U32(departure.rank);
    writer.U64(departure.calls);
    writer.U8(departure.lives_on ? 1 : 0);
  }
  void operator()(const Question& /*question*/) {
    Begin(&writer, Type::kQuestion);
  }
  void operator()(const Reply& reply) {
    Begin(&writer, Type::kReply);
    writer.String(reply.text.substr(0, kMostReplyBytes));
  }
  void operator()(const Replies& replies) {
    Begin(&writer, Type::kReplies);
    writer.U32(replies.first_rank);
    writer.U32(static_cast<uint32_t>(replies.texts.size()));
    for (const std::string& text : replies.texts) {
      writer.String(text.substr(0, kMostReplyBytes));
    }
  }
};

AbortNotice ReadAbortNotice(ByteReader* reader) {
  // A code of a later version, or none, must not turn an abort into an ok.
  const uint32_t code = reader->U32();
  const bool known =
      code > 0 && code <= static_cast<uint32_t>(StatusCode::kMemoryHeld);
  return {Status(known ? static_cast<StatusCode>(code) : StatusCode::kAborted,
                 std::string(reader->String(kMostReasonBytes)))};
}

JoinRequest ReadJoinRequest(ByteReader* reader) {
  JoinRequest request;
  request.rank = reader->U32();
  request.size = reader->U32();
  request.left_ms = static_cast<int64_t>(reader->U64());
  request.identity = ReadIdentity(reader);
  return request;
}

Contribution ReadContribution(ByteReader* reader) {
  Contribution contribution;
  contribution.sequence = reader->U64();
  contribution.gathering =
      static_cast<Gathering>(std::min<uint8_t>(reader->U8(), uint8_t{4}));
  contribution.left_ms = static_cast<int64_t>(reader->U64());
  contribution.blob = reader->String(kMostBlobBytes);
  return contribution;
}

Replies ReadReplies(ByteReader* reader) {
  Replies replies;
  replies.first_rank = reader->U32();
  const uint32_t count = reader->U32();
  // Ends with the bytes, whatever `count` says.
  for (uint32_t i = 0; i < count && reader->ok(); ++i) {
    replies.texts.emplace_back(reader->String(kMostReplyBytes));
  }
  return replies;
}

GatheredBlobs ReadGatheredBlobs(ByteReader* reader) {
  GatheredBlobs gathered;
  gathered.sequence = reader->U64();
  gathered.first_rank = reader->U32();
  const uint32_t count = reader->U32();
  // Ends with the bytes, whatever `count` says.
  for (uint32_t i = 0; i < count && reader->ok(); ++i) {
    gathered.blobs.emplace_back(reader->String(kMostBlobBytes));
  }
  return gathered;
}

}  // namespace

std::string Identity::ToString() const {
  return "pid " + std::to_string(pid) + " on host " + host;
}

std::string Identity::Encode() const {
  ByteWriter writer;
  WriteIdentity(*this, &writer);
  return writer.Take();
}

Result<Identity> Identity::Decode(std::string_view bytes) {
  ByteReader reader(bytes);
  Identity identity = ReadIdentity(&reader);
  if (!reader.finished()) {
    return Status(StatusCode::kInvalidArgument, "not a rank's identity");
  }
  return identity;
}

void GatheredBlobs::InMessages(
    uint64_t sequence, const std::vector<std::string>& blobs,
    const std::function<void(const GatheredBlobs&)>& send) {
  GatheredBlobs batch;
  batch.sequence = sequence;
  size_t batch_bytes = 0;
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    batch.blobs.push_back(blobs[rank]);
    batch_bytes += sizeof(uint32_t) + blobs[rank].size();
    if (batch_bytes >= kBlobBatchBytes || rank + 1 == blobs.size()) {
      send(batch);
      batch.blobs.clear();
      batch.first_rank = static_cast<uint32_t>(rank + 1);
      batch_bytes = 0;
    }
  }
}

std::vector<Replies> Replies::InMessages(
    const std::vector<std::string>& texts) {
  static_assert(kMostTexts * (kMostReplyBytes + sizeof(uint32_t)) <=
                kMostBlobBytes);
  std::vector<Replies> messages;
  for (size_t first = 0; first < texts.size(); first += kMostTexts) {
    const auto begin = texts.begin() + static_cast<std::ptrdiff_t>(first);
    const size_t count = std::min(kMostTexts, texts.size() - first);
    messages.push_back({static_cast<uint32_t>(first),
                        {begin, begin + static_cast<std::ptrdiff_t>(count)}});
  }
  return messages;
}

const char* GatheringName(Gathering gathering) {
  switch (gathering) {
    case Gathering::kJoin:
      return "join";
    case Gathering::kAllGather:
      return "all-gather";
    case Gathering::kBarrier:
      return "barrier";
    case Gathering::kLeave:
      return "leave";
  }
  return "unknown collective";
}

std::string EncodeMessage(const Message& message) {
  Encoder encoder;
  std::visit(encoder, message);
  return encoder.writer.Take();
}

Result<Message> DecodeMessage(std::string_view bytes) {
  ByteReader reader(bytes);
  Message message;
  switch (static_cast<Type>(reader.U8())) {
    case Type::kAbortNotice:
      message = ReadAbortNotice(&reader);
      break;
    case Type::kJoinRequest:
      message = ReadJoinRequest(&reader);
      break;
    case Type::kContribution:
      message = ReadContribution(&reader);
      break;
    case Type::kGatheredBlobs:
      message = ReadGatheredBlobs(&reader);
      break;
    case Type::kDeparture:
      message = Departure{reader.U32(), reader.U64(), reader.U8() != 0};
      break;
    case Type::kQuestion:
      message = Question{};
      break;
    case Type::kReply:
      message = Reply{std::string(reader.String(kMostReplyBytes))};
      break;
    case Type::kReplies:
      message = ReadReplies(&reader);
      break;
    default:
      return Status(StatusCode::kInvalidArgument,
                    "a message of an unknown type came");
  }
  if (!reader.finished()) {
    return Status(StatusCode::kInvalidArgument, "a garbled message came");
  }
  return message;
}

}  // namespace ringpipe
