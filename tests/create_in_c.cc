#include "tests/create_in_c.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace ringpipe::testing {

ringpipe_options OptionsInC(int rank, int size, const std::string& root,
                            const std::string& job) {
  ringpipe_options options = {};
  options.struct_size = sizeof options;
  options.explicit_rank = 1;
  options.rank = rank;
  options.size = size;
  options.root = root.c_str();
  options.job_id = job.c_str();
  options.log = [](ringpipe_log_level, const char*, void*) {};
  return options;
}

ringpipe_communicator* CreateInC(int rank, int size, const std::string& job) {
  const std::string root = "unix:@" + job;
  const ringpipe_options options = OptionsInC(rank, size, root, job);
  ringpipe_communicator* communicator = nullptr;
  EXPECT_EQ(ringpipe_create(&options, &communicator), RINGPIPE_OK)
      << ringpipe_error_message();
  return communicator;
}

WayOfThisProcess::WayOfThisProcess(Way way) {
  if (!SharesMemory(way)) {
    setenv("RINGPIPE_DEVICE", "soft", 1);
  }
}

WayOfThisProcess::~WayOfThisProcess() { unsetenv("RINGPIPE_DEVICE"); }

}  // namespace ringpipe::testing
