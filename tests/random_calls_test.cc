// Calls drawn at random, of which each rank makes its own in its own way, with
// messages cut up and algorithms chosen at random, give the right results; and
// the same bits again.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/algorithms.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"
#include "tests/reference.h"
#include "tests/tested_call.h"
#include "tests/ways.h"

namespace ringpipe::testing {
namespace {

// What a seed makes: so many ranks, how their messages are cut up, and by which
// algorithm each collective goes.
struct RandomJob {
  explicit RandomJob(int seed) : random(seed), size(1 + Below(kMostRanks)) {
    subchunk_bytes = 256 << Below(8);
    depth = 1 + Below(4);
    for (int i = 0; i < kCollectives; ++i) {
      const auto collective = static_cast<Collective>(i);
      std::vector<const AlgorithmInfo*> all;
      for (const AlgorithmInfo& info : Algorithms()) {
        if (info.collective == collective && Exists(info, {0, size})) {
          all.push_back(&info);
        }
      }
      const AlgorithmInfo& chosen = *all[Below(static_cast<int>(all.size()))];
      algorithms += (algorithms.empty() ? "" : ",") +
                    std::string(CollectiveName(collective)) + ":" +
                    std::string(chosen.name);
      if (collective == Collective::kAllReduce) {
        same_bits = chosen.same_bits;
      }
    }
  }

  int Below(int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  }

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  static constexpr int kMostRanks = 5;
  static constexpr int kMostElementsLog = 12;
#else
  static constexpr int kMostRanks = 9;
  static constexpr int kMostElementsLog = 15;
#endif
  std::mt19937_64 random;
  int size;
  std::int64_t subchunk_bytes = 0;
  int depth = 0;
  std::string algorithms;
  bool same_bits = true;  // of its allreduce
};

// Drawn by each rank for itself.
How RandomHow(std::mt19937_64& random) {
  const auto below = [&random](unsigned limit) { return random() % limit; };
  return {.in_place = below(2) == 1,
          .asynchronous = below(2) == 1,
          .memory = static_cast<Memory>(below(3)),
          .in_pieces = below(3) == 0};
}

// The same on every rank but for how each makes it.
Status MakeRandomCall(Communicator& c, RandomJob& job, const How& how) {
  Call call;
  call.type = kDataTypes[job.Below(kDataTypes.size())];
  call.op = kReduceOps[job.Below(kReduceOps.size())];
  call.count = job.Below(1 << job.Below(job.kMostElementsLog));
  call.root = job.Below(c.size());
  call.collective = static_cast<Collective>(job.Below(kCollectives));
  std::vector<std::size_t> counts;
  if (InfoOf(call.collective).takes_counts() && job.Below(2) == 1) {
    for (int rank = 0; rank < c.size(); ++rank) {
      counts.push_back(job.Below(3) == 0 ? 0 : job.Below(2 * call.count + 1));
    }
    call.count = 0;
    call.counts = counts;
  }
  return TestCallOfType(c, call, std::span<const How>(&how, 1));
}

// Twice the same sums, which round: the same bits each time, and on every rank
// if the algorithm promises that.
Status CompareBits(Communicator& c, RandomJob& job) {
  const std::size_t count = 1 + job.Below(1 << job.kMostElementsLog);
  std::vector<float> send(count);
  for (float& value : send) {
    value = 1.0F / static_cast<float>(1 + (job.random() + c.rank()) % 1001);
  }
  std::vector<float> receive[2];
  std::vector<std::uint32_t> bits[2];
  for (int run = 0; run < 2; ++run) {
    receive[run].resize(count);
    bits[run].resize(count);
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive[run].data(),
                                         count, DataType::kFloat32,
                                         ReduceOp::kSum));
    std::memcpy(bits[run].data(), receive[run].data(), count * sizeof(float));
  }
  RINGPIPE_RETURN_IF_ERROR(Compare(bits[1], bits[0], "another run's bits"));
  std::vector<std::uint32_t> first = bits[0];
  RINGPIPE_RETURN_IF_ERROR(
      c.Broadcast(first.data(), first.data(), count, DataType::kInt32, 0));
  return job.same_bits ? Compare(bits[0], first, "another rank's bits")
                       : Status::Ok();
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSeeds = 8;
#else
constexpr int kSeeds = 40;
#endif

// (the way, the seed)
class RandomCallsTest : public ::testing::TestWithParam<std::tuple<Way, int>> {
};

INSTANTIATE_TEST_SUITE_P(
    Ways, RandomCallsTest,
    ::testing::Combine(::testing::ValuesIn(WaysOf("random_calls_test")),
                       ::testing::Range(1, kSeeds + 1)),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_seed" +
             std::to_string(std::get<1>(info.param));
    });

TEST_P(RandomCallsTest, AreRight) {
  const auto [way, seed] = GetParam();
  const RandomJob job(seed);
  SCOPED_TRACE(std::to_string(job.size) + " ranks, sub-chunks of " +
               std::to_string(job.subchunk_bytes) + " bytes, depth " +
               std::to_string(job.depth) + ", " + job.algorithms);
  ExpectRanks(
      way, job.size,
      [&job, seed = seed](Communicator& c) -> Status {
        RandomJob own = job;
        std::mt19937_64 of_rank(1000 * seed + c.rank());
        for (int call = 0; call < 8; ++call) {
          RINGPIPE_RETURN_IF_ERROR(MakeRandomCall(c, own, RandomHow(of_rank)));
        }
        return CompareBits(c, own);
      },
      [&job](int /*rank*/, CommunicatorOptions& options) {
        options.environment.subchunk_bytes = job.subchunk_bytes;
        options.environment.depth = job.depth;
        options.environment.algorithm = job.algorithms;
      });
}

}  // namespace
}  // namespace ringpipe::testing
