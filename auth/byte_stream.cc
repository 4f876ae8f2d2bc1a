#include "auth/byte_stream.h"

namespace ringpipe {

void ByteWriter::String(std::string_view bytes) {
  U32(static_cast<uint32_t>(bytes.size()));
  Raw(bytes);
}

void ByteWriter::Integer(uint64_t value, size_t width) {
  for (size_t i = 0; i < width; ++i) {
    bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
}

std::string_view ByteReader::Raw(size_t bytes) {
  if (!ok_ || bytes > left_.size()) {
    ok_ = false;
    return {};
  }
  const std::string_view read = left_.substr(0, bytes);
  left_.remove_prefix(bytes);
  return read;
}

std::string_view ByteReader::String(size_t most_bytes) {
  const uint32_t bytes = U32();
  if (bytes > most_bytes) {
    ok_ = false;
  }
  return Raw(bytes);
}

uint64_t ByteReader::Integer(size_t width) {
  const std::string_view bytes = Raw(width);
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return value;
}

}  // namespace ringpipe
