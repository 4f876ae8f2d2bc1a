#ifndef RINGPIPE_VERBS_SOFT_FUZZ_INTRODUCTION_FUZZER_H_
#define RINGPIPE_VERBS_SOFT_FUZZ_INTRODUCTION_FUZZER_H_

#include <cstddef>
#include <cstdint>

namespace ringpipe::verbs::soft {

// Gives the input to an acceptor (first byte even) or a connector (odd) as what
// a stranger sends before the two know each other.
void FuzzIntroduction(const std::uint8_t* data, std::size_t size);

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_FUZZ_INTRODUCTION_FUZZER_H_
