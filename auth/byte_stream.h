// Integers and strings as little-endian bytes, for messages between processes.
#ifndef RINGPIPE_AUTH_BYTE_STREAM_H_
#define RINGPIPE_AUTH_BYTE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ringpipe {

// Appends to a string. Not thread-safe.
class ByteWriter {
 public:
  void U8(uint8_t value) { Integer(value, 1); }
  void U32(uint32_t value) { Integer(value, 4); }
  void U64(uint64_t value) { Integer(value, 8); }
  void Raw(std::string_view bytes) { bytes_.append(bytes); }
  // A 32-bit length, then the bytes. `bytes` must be shorter than 4 GiB.
  void String(std::string_view bytes);

  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  void Integer(uint64_t value, size_t width);

  std::string bytes_;
};

// Reads what ByteWriter wrote, or what a stranger sent: after the first read
// past the end, or of a string longer than allowed, ok() is false and every
// value is zero or empty. Views stay valid as long as the input. Not
// thread-safe.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  uint8_t U8() { return static_cast<uint8_t>(Integer(1)); }
  uint32_t U32() { return static_cast<uint32_t>(Integer(4)); }
  uint64_t U64() { return Integer(8); }
  std::string_view Raw(size_t bytes);
  std::string_view String(size_t most_bytes);

  bool ok() const { return ok_; }
  // Everything was there, and nothing is left over.
  bool finished() const { return ok_ && left_.empty(); }
  size_t left_bytes() const { return left_.size(); }

 private:
  uint64_t Integer(size_t width);

  std::string_view left_;
  bool ok_ = true;
};

}  // namespace ringpipe

#endif  // RINGPIPE_AUTH_BYTE_STREAM_H_
