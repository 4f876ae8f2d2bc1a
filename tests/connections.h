// By which way the ranks of a test are connected: TEST_CONNECTIONS.
#ifndef RINGPIPE_TESTS_CONNECTIONS_H_
#define RINGPIPE_TESTS_CONNECTIONS_H_

#include <cstdlib>
#include <string>

namespace ringpipe::testing {

// "rails", "test_network", "host_memory"; or "both" or "host_and_test_network":
// some ranks are connected by the test network and some by rails, or through
// host memory.
inline std::string Connections() {
  const char* const ways = std::getenv("TEST_CONNECTIONS");
  return ways == nullptr ? "rails" : ways;
}

// Whether the test network connects all of them; only between threads.
inline bool OverTestNetwork() { return Connections() == "test_network"; }
// Whether ranks share memory, at least some.
inline bool OverHostMemory() { return Connections().starts_with("host"); }

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_CONNECTIONS_H_
