// The floating-point types of 16 bits, one element at a time: IEEE 754's
// binary16, and bfloat16, which is the upper half of a float32. A value is
// computed with as float32 and rounded to the nearest, ties to even.
#ifndef RINGPIPE_REDUCTION_NARROW_FLOAT_H_
#define RINGPIPE_REDUCTION_NARROW_FLOAT_H_

#include <bit>
#include <cstdint>

namespace ringpipe {

inline float WidenFloat16(std::uint16_t bits) {
  // The exponent's bias differs by 112; multiplied, denormals come out right.
  const std::uint32_t magnitude = (bits & 0x7fffU) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
  const std::uint32_t special = magnitude >= (31U << 23) ? 255U << 23 : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special |
                              (bits & 0x8000U) << 16);
}

inline std::uint16_t NarrowToFloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t narrow;
  if (magnitude >= (143U << 23)) {  // 2^16 and more
    narrow = magnitude > (255U << 23) ? 0x7e00 : 0x7c00;
  } else if (magnitude < (113U << 23)) {
    // Less than 2^-14: the unit in the last place of 0.5 is that of denormals.
    narrow =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
        (126U << 23);
  } else {
    narrow = (magnitude - (112U << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  }
  return static_cast<std::uint16_t>(narrow | (bits >> 16 & 0x8000U));
}

inline float WidenBfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

inline std::uint16_t NarrowToBfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffU) > (255U << 23);
  return static_cast<std::uint16_t>(
      is_nan ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// An element, which converts to and from float.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) : bits(NarrowToFloat16(value)) {}
  operator float() const { return WidenFloat16(bits); }  // NOLINT
};

struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  explicit Bfloat16(float value) : bits(NarrowToBfloat16(value)) {}
  operator float() const { return WidenBfloat16(bits); }  // NOLINT
};

}  // namespace ringpipe

#endif  // RINGPIPE_REDUCTION_NARROW_FLOAT_H_
