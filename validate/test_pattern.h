// Bytes that tell which message they are of and where they belong in it.
#ifndef RINGPIPE_VALIDATE_TEST_PATTERN_H_
#define RINGPIPE_VALIDATE_TEST_PATTERN_H_

#include <cstddef>
#include <cstdint>

namespace ringpipe::validate {

// Of a message from one rank to another; different for each.
std::uint64_t PatternSeed(int from, int to, std::uint64_t message);

// `bytes` is a multiple of 8, `memory` aligned to it.
void FillPattern(void* memory, std::size_t bytes, std::uint64_t seed);
std::uint64_t CountWrongBytes(const void* memory, std::size_t bytes,
                              std::uint64_t seed);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_TEST_PATTERN_H_
