// Every function of the C interface, called from C by the ranks of a job.
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/c_rank.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

class CInterfaceTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, CInterfaceTest,
                         ::testing::ValuesIn(WaysOf("c_interface_test")),
                         NameOfWay);

TEST_P(CInterfaceTest, EveryFunctionDoesWhatItsHeaderSays) {
  constexpr int kRanks = 4;
  const std::string job = NewJob();
  const std::string root = "unix:@" + job;
  setenv("RINGPIPE_LOG_LEVEL", "info", 1);
  if (!SharesMemory(GetParam())) {
    setenv("RINGPIPE_DEVICE", "soft", 1);
  }
  std::array<std::array<char, 1000>, kRanks> errors = {};
  int ended = 0, looked = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      RunRankInC(rank, kRanks, root.c_str(), job.c_str(), &ended, &looked,
                 errors[rank].data(), errors[rank].size());
    });
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

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CRankTest, CallsEveryFunctionOfTheHeader) {
  const std::string header = ReadFile("engine/ringpipe.h");
  const std::string rank = ReadFile("tests/c_rank.c");
  const std::regex function("RINGPIPE_API[^;]*?(ringpipe_\\w+\\()");
  int functions = 0;
  for (std::sregex_iterator found(header.begin(), header.end(), function), end;
       found != end; ++found) {
    ++functions;
    EXPECT_NE(rank.find((*found)[1].str()), std::string::npos)
        << "tests/c_rank.c does not call " << (*found)[1].str();
  }
  EXPECT_GT(functions, 15);
}

}  // namespace
}  // namespace ringpipe::testing
