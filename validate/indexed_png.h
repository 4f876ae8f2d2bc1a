// A picture of few colours as a PNG file, without a library.
#ifndef RINGPIPE_VALIDATE_INDEXED_PNG_H_
#define RINGPIPE_VALIDATE_INDEXED_PNG_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringpipe::validate {

using Colour = std::array<std::uint8_t, 3>;  // red, green, blue

// `pixels` row by row from the top, each an index into `palette`, of at most
// 256 colours. Not compressed: a pixel is a byte. (ISO/IEC 15948.)
std::string IndexedPng(int width, int height,
                       const std::vector<std::uint8_t>& pixels,
                       const std::vector<Colour>& palette);

// For data: addresses.
std::string Base64(std::string_view bytes);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_INDEXED_PNG_H_
