// For tests: the executors of all ranks of a job in one process, connected by
// hand, without bootstrap and engine.
#ifndef RINGPIPE_PIPELINE_TEST_JOB_H_
#define RINGPIPE_PIPELINE_TEST_JOB_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory_source.h"
#include "memory_pool/registered_memory.h"
#include "pipeline/executor.h"
#include "pipeline/host/region.h"
#include "pipeline/rails/rail_transport.h"
#include "pipeline/test_network.h"
#include "pipeline/trace.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe {

constexpr std::size_t kSubchunkBytes = 1024;

std::string DescribeForTest(const Digest& digest);

using OwnedDomains = std::vector<std::shared_ptr<verbs::ProtectionDomain>>;

// `count` rails, each the software device.
OwnedDomains SoftRails(int count, const verbs::soft::Options& options = {});

// kBoth: to some peers by rails, to some by the test network;
// kHostAndTestNetwork likewise.
enum class Way {
  kRails,
  kTestNetwork,
  kBoth,
  kHostMemory,
  kHostAndTestNetwork,
};

// By every rail to everyone whom the test network does not connect.
RailTransport::Options RailOptions(int rank, int size, int rails,
                                   const CallCheck& check,
                                   Way way = Way::kRails);

// An allreduce of `count` floats.
Operation MakeOperation(const Plan& plan, const float* input, float* output,
                        std::size_t count, int depth, Accelerator* host,
                        std::chrono::milliseconds timeout, int widest = 1);

class TestJob {
 public:
  struct Options {
    int size = 2;
    int slots = 8;
    int seed = 0;  // of whatever is adversarial
    int rails = 1;
    Way way = Way::kRails;
    std::size_t subchunk_bytes = kSubchunkBytes;
    // The test network's.
    std::function<Abilities(int, int)> abilities = {};
    std::function<Reach(const UserMemory&)> reach = {};
    bool traces = false;
  };

  explicit TestJob(const Options& options);

  // Its Allocate gives what the rank's transports reach.
  RegisteredMemory& memory(int rank) { return *ranks_[rank].memory; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // The sequence number of the first of so many calls to come.
  std::uint64_t TakeSequence(int calls) {
    return std::exchange(next_sequence_, next_sequence_ + calls);
  }
  Executor& executor(int rank) { return *ranks_[rank].executor; }
  CallCheck& check(int rank) { return *ranks_[rank].check; }
  // With Options::traces.
  const Trace& trace(int rank) const { return *ranks_[rank].trace; }

  // `body(rank)` on a thread for each rank.
  template <typename Body>
  std::vector<Status> OnAll(Body body) {
    std::vector<Status> statuses(size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] { statuses[rank] = body(rank); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return statuses;
  }

 private:
  struct Rank {
    OwnedDomains rails;
    std::shared_ptr<MemorySource> source;
    std::unique_ptr<RegisteredMemory> memory;
    std::unique_ptr<AbortSignal> abort;
    std::unique_ptr<CallCheck> check;
    std::unique_ptr<Trace> trace;
    std::unique_ptr<Executor> executor;
  };

  void Create(int rank, const Options& options);
  // `region` is where ranks share memory.
  std::vector<std::unique_ptr<Transport>> TransportsOf(
      int rank, const Options& options, const std::shared_ptr<Region>& region);
  void Connect(std::size_t transport);

  TestNetwork network_;
  std::vector<Rank> ranks_;
  std::uint64_t next_sequence_ = 0;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_TEST_JOB_H_
