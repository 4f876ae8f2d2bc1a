#include "auth/frame_decoder.h"

#include <algorithm>

#include "auth/byte_stream.h"

namespace ringpipe {

FrameHeader MakeFrameHeader(size_t payload_bytes) {
  ByteWriter writer;
  writer.U32(static_cast<uint32_t>(payload_bytes));
  FrameHeader header;
  std::copy_n(writer.bytes().begin(), header.size(), header.begin());
  return header;
}

std::string EncodeFrame(std::string_view payload) {
  ByteWriter writer;
  writer.String(payload);
  return writer.Take();
}

void FrameDecoder::Append(std::string_view bytes) {
  // Moving what is left to the front now, not after each frame, keeps a burst
  // of small frames linear.
  bytes_.erase(0, taken_);
  taken_ = 0;
  bytes_.append(bytes);
}

Result<std::optional<std::string>> FrameDecoder::Next() {
  std::string_view rest = std::string_view(bytes_).substr(taken_);
  if (rest.size() < sizeof(FrameHeader)) {
    return std::optional<std::string>();
  }
  const size_t payload_bytes = ByteReader(rest).U32();
  if (payload_bytes > most_payload_bytes_) {
    return Status(StatusCode::kInvalidArgument,
                  "a frame of more than " +
                      std::to_string(most_payload_bytes_) +
                      " bytes was announced");
  }
  rest.remove_prefix(sizeof(FrameHeader));
  if (rest.size() < payload_bytes) {
    return std::optional<std::string>();
  }
  taken_ += sizeof(FrameHeader) + payload_bytes;
  return std::optional<std::string>(rest.substr(0, payload_bytes));
}

}  // namespace ringpipe
