// Ranks as threads of one process, each with its own communicator, device
// context and bootstrap, over the same shared-memory rings: so that a sanitizer
// sees all of them.
#ifndef RINGPIPE_TESTS_RANK_THREADS_H_
#define RINGPIPE_TESTS_RANK_THREADS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "engine/communicator.h"
#include "tests/ways.h"

namespace ringpipe::testing {

// What a test lets every rank do; its status is the rank's result.
using RankBody = std::function<Status(Communicator&)>;

// Options for `rank` of a job that no other test meets: silent, and for this
// way; the transport of a test network is not among them.
CommunicatorOptions RankOptions(Way way, int rank, int size,
                                const std::string& job);

// A name for RankOptions that is used once.
std::string NewJob();

// Creates `size` communicators, which are connected by `way`, and runs `body`
// on each, on a thread each. A communicator whose body fails is aborted, and
// destroyed when all bodies have returned. `adjust` may change a rank's
// options. Returns every rank's status: that of Create where it failed.
std::vector<Status> RunRanks(
    Way way, int size, const RankBody& body,
    const std::function<void(int rank, CommunicatorOptions&)>& adjust = {});

// The same where all are expected to succeed: fails the running test for each
// rank that does not.
void ExpectRanks(
    Way way, int size, const RankBody& body,
    const std::function<void(int rank, CommunicatorOptions&)>& adjust = {});

// Fails the running test where the status is another one, or its message lacks
// one of `words`.
void ExpectError(const Status& status, StatusCode code,
                 const std::vector<std::string>& words);

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_RANK_THREADS_H_
