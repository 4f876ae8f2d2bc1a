#include "bootstrap/test_job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <latch>
#include <thread>

namespace ringpipe {

std::string UniqueName() {
  static std::atomic<int> count{0};
  return "ringpipe-test-" + std::to_string(getpid()) + "-" +
         std::to_string(++count);
}

Bootstrap::Options MakeOptions(const std::string& root, int rank, int size) {
  Bootstrap::Options options;
  options.launch = {rank, size, root, "job", "test"};
  options.deadline = Soon();
  options.logger = Logger(LogLevel::kError);
  return options;
}

std::vector<Joined> JoinAll(const std::vector<Bootstrap::Options>& all) {
  std::vector<std::future<Joined>> joining;
  // At the same time: a rank 0 that fails tells it for less than a second.
  std::latch all_run(static_cast<std::ptrdiff_t>(all.size()));
  for (const Bootstrap::Options& options : all) {
    joining.push_back(std::async(std::launch::async, [options, &all_run] {
      all_run.arrive_and_wait();
      return Bootstrap::Join(options);
    }));
  }
  std::vector<Joined> joined;
  for (auto& future : joining) {
    joined.push_back(future.get());
  }
  return joined;
}

std::vector<Bootstrap::Options> MakeJob(int size) {
  const std::string root = "unix:@" + UniqueName();
  std::vector<Bootstrap::Options> all;
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(MakeOptions(root, rank, size));
  }
  return all;
}

void OnAll(std::vector<Joined>* ranks,
           const std::function<void(Bootstrap*)>& f) {
  std::vector<std::thread> threads;
  for (Joined& rank : *ranks) {
    ASSERT_TRUE(rank.ok()) << rank.status().ToString();
    threads.emplace_back([&f, &rank] { f(rank.value().get()); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void ExpectSays(const Status& status, StatusCode code,
                const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "no \"" << word << "\" in: " << status.ToString();
  }
}

}  // namespace ringpipe
