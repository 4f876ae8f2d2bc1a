// Communicators of the C interface, for tests in C++.
#ifndef RINGPIPE_TESTS_CREATE_IN_C_H_
#define RINGPIPE_TESTS_CREATE_IN_C_H_

#include <string>

#include "engine/ringpipe.h"
#include "tests/ways.h"

namespace ringpipe::testing {

// Options for a rank of `job`, silent; `root` is "unix:@" + job and outlives
// them, as `job` does.
ringpipe_options OptionsInC(int rank, int size, const std::string& root,
                            const std::string& job);

// A communicator by them; fails the running test if there is none.
ringpipe_communicator* CreateInC(int rank, int size, const std::string& job);

// As long as it lives, the environment of this process says which way ranks go
// whose options say nothing of it. Before there are other threads.
class WayOfThisProcess {
 public:
  explicit WayOfThisProcess(Way way);
  ~WayOfThisProcess();
  WayOfThisProcess(const WayOfThisProcess&) = delete;
  WayOfThisProcess& operator=(const WayOfThisProcess&) = delete;
};

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_CREATE_IN_C_H_
