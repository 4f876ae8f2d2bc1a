// Two jobs that look alike in all that they were given: the software devices of
// one are not to be found by the other.
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/holdings.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

// The names of the devices' sockets while a job runs.
std::set<std::string> NamesOf(Way way, const std::string& job) {
  std::set<std::string> names;
  ExpectRanks(
      way, 2,
      [&names](Communicator& communicator) {
        RINGPIPE_RETURN_IF_ERROR(communicator.Barrier());
        if (communicator.rank() == 0) {
          for (const std::string& name : UnixNames(Footprint({getpid()}))) {
            if (name.starts_with("@ringpipe-soft/")) {
              names.insert(name);
            }
          }
        }
        return communicator.Barrier();
      },
      [&job](int, CommunicatorOptions& options) {
        options.job_id = job;
        options.root = "unix:@" + job;
        options.environment.secret = "the same";
        // So few names that two jobs of one key would have some in common.
        options.environment.soft_first_port = 20000 + getpid() % 3000 * 4;
        options.environment.soft_last_port =
            options.environment.soft_first_port + 2;
      });
  return names;
}

class JobKeyTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, JobKeyTest,
                         ::testing::ValuesIn(WaysOf("job_key_test")),
                         NameOfWay);

TEST_P(JobKeyTest, NamesTheDevicesOfEachJobAnew) {
  const std::string job = NewJob();
  const std::set<std::string> first = NamesOf(GetParam(), job);
  const std::set<std::string> second = NamesOf(GetParam(), job);
  EXPECT_EQ(first.size(), 2U);
  EXPECT_EQ(second.size(), 2U);
  std::vector<std::string> both;
  std::set_intersection(first.begin(), first.end(), second.begin(),
                        second.end(), std::back_inserter(both));
  EXPECT_EQ(both, std::vector<std::string>());
}

}  // namespace
}  // namespace ringpipe::testing
