#ifndef RINGPIPE_VERBS_SOFT_FUZZ_PACKETS_FUZZER_H_
#define RINGPIPE_VERBS_SOFT_FUZZ_PACKETS_FUZZER_H_

#include <cstddef>
#include <cstdint>

namespace ringpipe::verbs::soft {

// What inputs may name: the queue pair's peer, its memory and the key of that.
inline constexpr std::uint32_t kPeerQpn = 5;
inline constexpr std::uint64_t kRegionAddress = 0x2000'0000'0000;
inline constexpr std::size_t kRegionBytes = 1 << 20;
inline constexpr std::uint32_t kOwnKey = 0x11111111;

// Gives the input to a queue pair as what its peer sends.
void FuzzPackets(const std::uint8_t* data, std::size_t size);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_FUZZ_PACKETS_FUZZER_H_
