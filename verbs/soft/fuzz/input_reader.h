#ifndef RINGPIPE_VERBS_SOFT_FUZZ_INPUT_READER_H_
#define RINGPIPE_VERBS_SOFT_FUZZ_INPUT_READER_H_

#include <string.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ringpipe::verbs::soft {

// Takes an input apart. Beyond its end everything is 0.
class InputReader {
 public:
  InputReader(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }

  // The next bytes as a value, little-endian.
  template <typename T>
  T Next() {
    T value = 0;
    const std::span<const std::uint8_t> bytes = Bytes(sizeof value);
    memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::uint8_t Byte() { return Next<std::uint8_t>(); }

  // Up to `most` bytes.
  std::span<const std::uint8_t> Bytes(std::size_t most) {
    const std::span<const std::uint8_t> bytes =
        rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_FUZZ_INPUT_READER_H_
