// Compiled by fuzz.sh, with RINGPIPE_FUZZ naming the target's function.
#include "verbs/soft/fuzz/introduction_fuzzer.h"
#include "verbs/soft/fuzz/packets_fuzzer.h"
#include "verbs/soft/fuzz/segment_fuzzer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  ringpipe::verbs::soft::RINGPIPE_FUZZ(data, size);
  return 0;
}
