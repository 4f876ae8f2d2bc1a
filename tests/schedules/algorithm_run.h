// Runs algorithms on real memory, and compares what they give with what the
// collective promises.
#ifndef RINGPIPE_TESTS_SCHEDULES_ALGORITHM_RUN_H_
#define RINGPIPE_TESTS_SCHEDULES_ALGORITHM_RUN_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/algorithms.h"
#include "pipeline/chunking.h"
#include "pipeline/plan.h"
#include "pipeline/test_job.h"

namespace ringpipe {

// One algorithm among `size` ranks, from root `size / 2`, with messages of
// `elements` floats, through slots of so many bytes. The algorithm is told that
// the ranks lie on hosts of `ranks_per_host` each; 0: nothing.
class AlgorithmRun {
 public:
  AlgorithmRun(const AlgorithmInfo& info, int size, std::uint64_t elements,
               std::size_t slot_bytes = kSubchunkBytes, int ranks_per_host = 0);

  // One rank's part. `plan` is the run's, and outlives the job: executors know
  // plans by where they lie.
  Status On(TestJob& job, int rank, std::uint64_t sequence, bool in_place,
            Plan& plan, std::chrono::minutes timeout) const;

  int slots() const;
  int root() const { return size_ / 2; }

 private:
  static constexpr int kDepth = 2;

  Member MemberOf(int rank) const { return {rank, size_, root(), hosts_}; }
  Chunking ChunkingOf() const;
  float Sum(std::uint64_t element) const;
  Status Verify(int rank, const std::vector<float>& output) const;

  const AlgorithmInfo& info_;
  const int size_;
  const std::uint64_t elements_;
  const std::uint64_t slot_elements_;
  const std::vector<int> hosts_;  // by rank, or empty
  const Shape shape_;
  const Walk walk_;
};

// How many elements the algorithm's message has, if `count` are wanted: where
// chunks belong to ranks, each has as many.
std::uint64_t ElementsFor(const AlgorithmInfo& info, int size,
                          std::uint64_t count);

// Which ranks call in place, where the algorithm can be: none, and then all;
// all; every second one.
enum class Places { kBoth, kInPlaceIfItCanBe, kEverySecondInPlace };

// Every algorithm is right. Those that need as many slots share a job.
struct RunSettings {
  int size = 2;
  std::vector<std::uint64_t> counts = {};  // elements
  int seed = 0;
  Way way = Way::kRails;
  std::size_t slot_bytes = kSubchunkBytes;
  Places places = Places::kBoth;
  int ranks_per_host = 0;
  std::chrono::minutes timeout = std::chrono::minutes(1);
};
void ExpectAllRight(const RunSettings& settings);

}  // namespace ringpipe

#endif  // RINGPIPE_TESTS_SCHEDULES_ALGORITHM_RUN_H_
