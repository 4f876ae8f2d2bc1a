// One rank as a process, for tests: joins by its launcher's variables, gathers
// the ranks' numbers, checks them, leaves. Prints one line; exits with 1 on any
// error. Before that, a line with the address by which it met other hosts, if
// there are any. With the argument "stay" it does not leave but waits to be
// killed, or for the end of its standard input.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/name_filter.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/launcher.h"

namespace ringpipe {
namespace {

Status JoinOnce(bool stay) {
  RINGPIPE_ASSIGN_OR_RETURN(const Environment environment,
                            Environment::FromProcess());
  const Deadline deadline =
      Deadline::After(std::chrono::milliseconds(environment.join_timeout_ms));
  Bootstrap::Options options;
  RINGPIPE_ASSIGN_OR_RETURN(options.launch, DetectLaunch(environment));
  options.secret = environment.secret;
  RINGPIPE_ASSIGN_OR_RETURN(options.interfaces,
                            NameFilter::Parse(environment.socket_interfaces,
                                              NameFilter::Ports::kNone));
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
  if (!bootstrap->address().empty()) {
    std::printf("address %s\n", bootstrap->address().c_str());
  }
  std::printf("joined %s %d/%zu\n", options.launch.launcher.c_str(), rank,
              ranks.size());
  std::fflush(stdout);
  while (stay && std::getchar() != EOF) {
  }
  return Status::Ok();
}

}  // namespace
}  // namespace ringpipe

int main(int argc, char** argv) {
  const ringpipe::Status status =
      ringpipe::JoinOnce(argc > 1 && std::strcmp(argv[1], "stay") == 0);
  if (!status.ok()) {
    std::fprintf(stderr, "join_once: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
