#ifndef RINGPIPE_BENCH_FORKED_RANKS_H_
#define RINGPIPE_BENCH_FORKED_RANKS_H_

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/communicator.h"

namespace ringpipe {

// Runs `body` in `ranks` processes of this host, with options for a job of
// theirs: they start when all are there. Returns what each has measured, in any
// order; fewer than `ranks` where one has failed, which says why on stderr,
// after `program`. Before this process has threads.
template <typename Measured>
std::vector<Measured> RunForkedRanks(
    const char* program, int ranks,
    const std::function<Status(const CommunicatorOptions&, Measured&)>& body) {
  static_assert(std::is_trivially_copyable_v<Measured>);
  int start[2];
  int output[2];
  if (pipe(start) != 0 || pipe(output) != 0) {
    std::perror(program);
    return {};
  }
  const std::string job = program + ("-" + std::to_string(getpid()));
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) {
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(start[1]);
    close(output[0]);
    char end;
    static_cast<void>(!read(start[0], &end, 1));
    auto options = CommunicatorOptions::FromProcess();
    Status status = options.status();
    Measured measured = {};
    if (options.ok()) {
      options->rank = rank;
      options->size = ranks;
      options->job_id = job;
      options->root = "unix:@" + job;
      status = body(*options, measured);
    }
    if (!status.ok()) {
      std::fprintf(stderr, "%s: rank %d: %s\n", program, rank,
                   status.ToString().c_str());
      _exit(1);
    }
    _exit(write(output[1], &measured, sizeof measured) == sizeof measured ? 0
                                                                          : 1);
  }
  close(output[1]);
  close(start[1]);
  close(start[0]);
  std::vector<Measured> all;
  Measured measured;
  while (read(output[0], &measured, sizeof measured) == sizeof measured) {
    all.push_back(measured);
  }
  close(output[0]);
  while (wait(nullptr) > 0) {
  }
  return all;
}

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_FORKED_RANKS_H_
