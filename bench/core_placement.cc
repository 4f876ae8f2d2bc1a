// bench/core_placement [CORE CORE]: how far apart two cores are (the first two
// that it may run on, where none are named). Prints "far 507 ns, cores 0 and
// 1": the placement, and the round trip of a cache line.
#include <charconv>
#include <cstdio>
#include <string_view>

#include "bench/core_distance.h"

namespace ringpipe {
namespace {

Result<std::vector<int>> ParseCores(int argc, char** argv) {
  std::vector<int> cores;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    int core = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), core);
    if (error != std::errc() || end != text.data() + text.size()) {
      return Status(StatusCode::kInvalidArgument,
                    std::string(text) + ": the number of a core, from 0 up");
    }
    cores.push_back(core);
  }
  if (cores.empty()) {
    cores = UsableCores();
    cores.resize(cores.size() < 2 ? 0 : 2);
  }
  if (cores.size() != 2) {
    return Status(
        StatusCode::kInvalidArgument,
        "name two cores, such as core_placement 0 1; or name none, if "
        "this process may run on at least two");
  }
  return cores;
}

Status Main(int argc, char** argv) {
  RINGPIPE_ASSIGN_OR_RETURN(const auto cores, ParseCores(argc, argv));
  RINGPIPE_ASSIGN_OR_RETURN(const double ns,
                            CacheLineRoundTripNs(cores[0], cores[1]));
  std::printf("%s, cores %d and %d\n", FormatPlacement(ns).c_str(), cores[0],
              cores[1]);
  return std::fflush(stdout) == 0 ? Status()
                                  : Status(StatusCode::kUnavailable,
                                           "cannot write to standard output");
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) {
  const ringpipe::Status status = ringpipe::Main(argc, argv);
  if (!status.ok()) {
    std::fprintf(stderr, "core_placement: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
