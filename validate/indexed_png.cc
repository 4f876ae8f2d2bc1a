#include "validate/indexed_png.h"

#include <algorithm>

namespace ringpipe::validate {
namespace {

void AppendBig32(std::string& bytes, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) {
    bytes += static_cast<char>(value >> shift & 0xFF);
  }
}

std::uint32_t Crc32(std::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table = {};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
      std::uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) {
        crc = crc & 1 ? 0xEDB88320 ^ crc >> 1 : crc >> 1;
      }
      table[i] = crc;
    }
    return table;
  }();
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<std::uint8_t>(byte)) & 0xFF] ^ crc >> 8;
  }
  return ~crc;
}

std::uint32_t Adler32(std::string_view bytes) {
  constexpr std::uint32_t kModulus = 65'521;
  std::uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<std::uint8_t>(byte)) % kModulus;
    b = (b + a) % kModulus;
  }
  return b << 16 | a;
}

// zlib's format with blocks that are stored as they are (RFC 1950, RFC 1951).
std::string Stored(std::string_view bytes) {
  constexpr std::size_t kMostOfABlock = 65'535;
  std::string stream = "\x78\x01";
  const std::uint32_t sum = Adler32(bytes);
  do {
    const std::string_view block = bytes.substr(0, kMostOfABlock);
    bytes.remove_prefix(block.size());
    const auto length = static_cast<std::uint16_t>(block.size());
    stream += static_cast<char>(bytes.empty() ? 1 : 0);
    for (const std::uint16_t value :
         {length, static_cast<std::uint16_t>(~length)}) {
      stream += static_cast<char>(value & 0xFF);
      stream += static_cast<char>(value >> 8);
    }
    stream += block;
  } while (!bytes.empty());
  AppendBig32(stream, sum);
  return stream;
}

void AppendChunk(std::string& file, std::string_view type,
                 std::string_view data) {
  AppendBig32(file, static_cast<std::uint32_t>(data.size()));
  const std::string checked = std::string(type) + std::string(data);
  file += checked;
  AppendBig32(file, Crc32(checked));
}

}  // namespace

std::string IndexedPng(int width, int height,
                       const std::vector<std::uint8_t>& pixels,
                       const std::vector<Colour>& palette) {
  std::string file("\x89PNG\r\n\x1A\n", 8);
  std::string header;
  AppendBig32(header, static_cast<std::uint32_t>(width));
  AppendBig32(header, static_cast<std::uint32_t>(height));
  header += std::string("\x08\x03\x00\x00\x00", 5);  // 8 bits, a palette
  AppendChunk(file, "IHDR", header);
  std::string colours;
  for (const Colour& colour : palette) {
    for (const std::uint8_t part : colour) {
      colours += static_cast<char>(part);
    }
  }
  AppendChunk(file, "PLTE", colours);
  std::string rows;
  for (int row = 0; row < height; ++row) {
    rows += '\0';  // no filter
    const auto begin =
        pixels.begin() + static_cast<std::ptrdiff_t>(row) * width;
    rows.append(begin, begin + width);
  }
  AppendChunk(file, "IDAT", Stored(rows));
  AppendChunk(file, "IEND", "");
  return file;
}

std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t here = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group =
          group << 8 | (k < here ? static_cast<std::uint8_t>(bytes[i + k]) : 0);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= here ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

}  // namespace ringpipe::validate
