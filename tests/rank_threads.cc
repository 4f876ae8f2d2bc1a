#include "tests/rank_threads.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <latch>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "pipeline/test_network.h"

namespace ringpipe::testing {
namespace {

// nullptr where the way has none.
std::shared_ptr<TransportFactory> TestNetworkFor(Way way, int size) {
  if (way == Way::kRails || way == Way::kAdversarialRails ||
      way == Way::kHostMemory) {
    return nullptr;
  }
  static std::atomic<std::uint64_t> seed = 0;
  TestNetwork::Options options;
  options.size = size;
  options.seed = ++seed;
  if (way != Way::kTestNetwork) {
    options.connects = [](int a, int b) { return (a + b) % 2 != 0; };
  }
  return std::make_shared<TestNetwork>(options);
}

}  // namespace

std::string NewJob() {
  static std::atomic<int> jobs = 0;
  return "ringpipe-test-" + std::to_string(getpid()) + "-" +
         std::to_string(jobs++);
}

CommunicatorOptions RankOptions(Way way, int rank, int size,
                                const std::string& job) {
  CommunicatorOptions options;
  // So that any variable can be tried with --test_env.
  if (auto from_process = CommunicatorOptions::FromProcess();
      from_process.ok()) {
    options = std::move(from_process).value();
  } else {
    ADD_FAILURE() << from_process.status().ToString();
  }
  options.rank = rank;
  options.size = size;
  options.job_id = job;
  options.root = "unix:@" + job;
  if (SharesMemory(way)) {
    options.environment.host_memory = "auto";
  } else {
    options.environment.device = "soft";
  }
  if (IsAdversarial(way)) {
    options.environment.soft_adversary_seed = 1;
  }
  options.environment.log_level = LogLevel::kError;
  return options;
}

std::vector<Status> RunRanks(
    Way way, int size, const RankBody& body,
    const std::function<void(int, CommunicatorOptions&)>& adjust) {
  const std::string job = NewJob();
  const auto network = TestNetworkFor(way, size);
  std::vector<Status> statuses(size);
  std::vector<std::thread> threads;
  std::latch bodies(size);
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options = RankOptions(way, rank, size, job);
      options.transport = network;
      if (adjust) {
        adjust(rank, options);
      }
      auto communicator = Communicator::Create(options);
      if (!communicator.ok()) {
        statuses[rank] = communicator.status();
        bodies.count_down();
        return;
      }
      statuses[rank] = body(**communicator);
      if (!statuses[rank].ok()) {
        // The other ranks must not wait for this one, and are to hear of its
        // reason before they see its end.
        (*communicator)->Abort(statuses[rank].ToString());
      }
      bodies.count_down();
      if (!statuses[rank].ok()) {
        bodies.wait();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return statuses;
}

void ExpectRanks(Way way, int size, const RankBody& body,
                 const std::function<void(int, CommunicatorOptions&)>& adjust) {
  const std::vector<Status> statuses = RunRanks(way, size, body, adjust);
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_TRUE(statuses[rank].ok())
        << "rank " << rank << ": " << statuses[rank].ToString();
  }
}

void ExpectError(const Status& status, StatusCode code,
                 const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "\"" << word << "\" is not in: " << status.ToString();
  }
}

}  // namespace ringpipe::testing
