// What a report says about a run besides its figures: when, where and how.
#ifndef RINGPIPE_BENCH_RUN_FACTS_H_
#define RINGPIPE_BENCH_RUN_FACTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ringpipe {

// Where a rank runs.
struct RankPlace {
  std::string host;
  int pid = 0;
  std::string device;  // with the reason for its choice
};

struct Processor {
  std::string model;
  int cores = 0;         // online
  int usable_cores = 0;  // by this process
};

// How a message is cut into pieces, as agreed by all ranks.
struct ChunkingFacts {
  std::string algorithm;
  std::int64_t subchunk_bytes = 0;  // at most
  std::int64_t depth = 0;
  std::uint64_t slots = 0;
};

struct RunFacts {
  std::string version;
  std::string date;  // of its start, UTC, ISO 8601
  std::string launcher;
  Processor processor;                             // of rank 0
  std::map<std::string, std::string> environment;  // of rank 0
  ChunkingFacts chunking;
  std::vector<RankPlace> places;  // by rank
};

// "2026-11-21T22:09:27Z": now.
std::string UtcDate();

// This machine's.
Processor FindProcessor();

// The variables in `environment` (as environ) whose names begin with RINGPIPE_
// or NCCL_. Of one that has SECRET in its name not the value but "(set)".
std::map<std::string, std::string> ReportedVariables(
    const char* const* environment);

}  // namespace ringpipe

#endif  // RINGPIPE_BENCH_RUN_FACTS_H_
