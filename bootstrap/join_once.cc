// One rank as a process, for tests: joins by its launcher's variables, gathers
// the ranks' numbers, checks them, leaves. Prints one line; exits with 1 on any
// error.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/environment.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/launcher.h"

namespace ringpipe {
namespace {

Status JoinOnce() {
  RINGPIPE_ASSIGN_OR_RETURN(const Environment environment,
                            Environment::FromProcess());
  const Deadline deadline = Deadline::After(std::chrono::seconds(30));
  Bootstrap::Options options;
  RINGPIPE_ASSIGN_OR_RETURN(options.launch, DetectLaunch(environment));
  options.secret = environment.secret;
  options.deadline = deadline;
  RINGPIPE_ASSIGN_OR_RETURN(const auto bootstrap, Bootstrap::Join(options));
  const int rank = bootstrap->rank();
  RINGPIPE_ASSIGN_OR_RETURN(
      const std::vector<std::string> ranks,
      bootstrap->AllGather(std::to_string(rank), deadline));
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != std::to_string(i)) {
      return {StatusCode::kInternal,
              "rank " + ranks[i] + " is at place " + std::to_string(i)};
    }
  }
  RINGPIPE_RETURN_IF_ERROR(bootstrap->Barrier(deadline));
  std::printf("joined %s %d/%zu\n", options.launch.launcher.c_str(), rank,
              ranks.size());
  return Status::Ok();
}

}  // namespace
}  // namespace ringpipe

int main() {
  const ringpipe::Status status = ringpipe::JoinOnce();
  if (!status.ok()) {
    std::fprintf(stderr, "join_once: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
