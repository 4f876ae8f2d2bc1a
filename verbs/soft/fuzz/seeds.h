#ifndef RINGPIPE_VERBS_SOFT_FUZZ_SEEDS_H_
#define RINGPIPE_VERBS_SOFT_FUZZ_SEEDS_H_

#include <string>
#include <vector>

namespace ringpipe::verbs::soft {

// Inputs that get far, made by the code that a peer runs, so that they are in
// step with it.
std::vector<std::string> PacketSeeds();
std::vector<std::string> IntroductionSeeds();
std::vector<std::string> SegmentSeeds();

}  // namespace ringpipe::verbs::soft

#endif  // RINGPIPE_VERBS_SOFT_FUZZ_SEEDS_H_
