// Every function of the C interface, called from C by the ranks of a job.
#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/c_binding_rank.h"
#include "tests/c_rank.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

class CInterfaceTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, CInterfaceTest,
                         ::testing::ValuesIn(WaysOf("c_interface_test")),
                         NameOfWay);

constexpr int kRanks = 4;

// Runs `rank` for each rank of a job, on a thread each, and expects that it
// writes nothing to the text that it is given.
void ExpectNoErrors(
    Way way,
    const std::function<void(int rank, char* error, std::size_t bytes)>& run) {
  setenv("RINGPIPE_LOG_LEVEL", "info", 1);
  if (!SharesMemory(way)) {
    setenv("RINGPIPE_DEVICE", "soft", 1);
  }
  std::array<std::array<char, 1000>, kRanks> errors = {};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back(
        [&, rank] { run(rank, errors[rank].data(), errors[rank].size()); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  unsetenv("RINGPIPE_DEVICE");
  unsetenv("RINGPIPE_LOG_LEVEL");
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_STREQ(errors[rank].data(), "") << "rank " << rank;
  }
}

TEST_P(CInterfaceTest, EveryFunctionDoesWhatItsHeaderSays) {
  const std::string job = NewJob();
  const std::string root = "unix:@" + job;
  int ended = 0, looked = 0;
  ExpectNoErrors(GetParam(), [&](int rank, char* error, std::size_t bytes) {
    RunRankInC(rank, kRanks, root.c_str(), job.c_str(), &ended, &looked, error,
               bytes);
  });
}

TEST_P(CInterfaceTest, WhatBindingsNeedDoesWhatItsHeaderSays) {
  BindingJob* const job = NewBindingJob(kRanks, NewJob().c_str());
  ASSERT_NE(job, nullptr);
  ExpectNoErrors(GetParam(), [&](int rank, char* error, std::size_t bytes) {
    RunBindingRankInC(job, rank, error, bytes);
  });
  FreeBindingJob(job);
}

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CRankTest, CallsEveryFunctionOfTheHeader) {
  const std::string header = ReadFile("engine/ringpipe.h");
  const std::string ranks =
      ReadFile("tests/c_rank.c") + ReadFile("tests/c_binding_rank.c");
  const std::regex function("RINGPIPE_API[^;]*?(ringpipe_\\w+\\()");
  int functions = 0;
  for (std::sregex_iterator found(header.begin(), header.end(), function), end;
       found != end; ++found) {
    ++functions;
    EXPECT_NE(ranks.find((*found)[1].str()), std::string::npos)
        << "the ranks in C do not call " << (*found)[1].str();
  }
  EXPECT_GT(functions, 25);
}

}  // namespace
}  // namespace ringpipe::testing
