// Sizes as people write them on a command line: "256M", "64K", "1G", "1000".
#ifndef RINGPIPE_BENCH_BYTE_SIZE_H_
#define RINGPIPE_BENCH_BYTE_SIZE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ringpipe {

// Bytes: a number, with a fraction if the result is whole, and one of K, M, G
// or T (binary, as in nccl-tests: K is 1024), in either case. kInvalidArgument
// for anything else, and for 2^62 or more.
Result<std::uint64_t> ParseByteSize(std::string_view text);

// "256M" where that is exact, else with two decimals: "1.50G"; "1000".
std::string FormatByteSize(std::uint64_t bytes);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_BYTE_SIZE_H_
