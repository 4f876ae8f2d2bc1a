// The ways by which the ranks of a test are connected; and, in ways.cc, the
// list of which tests go which ways.
#ifndef RINGPIPE_TESTS_WAYS_H_
#define RINGPIPE_TESTS_WAYS_H_

#include <string>
#include <string_view>
#include <vector>

#include "engine/algorithms/algorithm.h"
#include "gtest/gtest.h"

namespace ringpipe::testing {

enum class Way {
  kRails,             // the software device
  kAdversarialRails,  // the software device in its adversarial mode
  kTestNetwork,       // pipeline/test_network.h; between threads only
  // Adversarial rails between some ranks, the test network between the others.
  kRailsAndTestNetwork,
  kHostMemory,
  // Host memory between some ranks, the test network between the others.
  kHostMemoryAndTestNetwork,
};

// "host_memory"; also part of a test's name.
std::string_view Name(Way way);
// What has that name.
Way WayNamed(std::string_view name);

// Whether ranks share memory, at least some.
constexpr bool SharesMemory(Way way) {
  return way == Way::kHostMemory || way == Way::kHostMemoryAndTestNetwork;
}
// Whether the software device is adversarial.
constexpr bool IsAdversarial(Way way) {
  return way == Way::kAdversarialRails || way == Way::kRailsAndTestNetwork;
}

// The ways that the list has for a test program, such as "misuse_test", in this
// build. Ends the program if the list does not have the test.
std::vector<Way> WaysOf(std::string_view test);

// For INSTANTIATE_TEST_SUITE_P.
std::string NameOfWay(const ::testing::TestParamInfo<Way>& info);

// What collectives_test runs: a collective by an algorithm between so many
// ranks that are connected by a way.
struct CollectiveCase {
  Collective collective;
  std::string_view algorithm;  // empty: the engine chooses
  Way way;
  int size;
  // The least of everything: slots, sub-chunks and depth; and no spinning, so
  // that each wait sleeps and each want of credit is announced.
  bool smallest;
};

// The cases that the list has for a collective, in this build.
std::vector<CollectiveCase> CasesOf(Collective collective);

// For INSTANTIATE_TEST_SUITE_P.
std::string NameOfCase(const ::testing::TestParamInfo<CollectiveCase>& info);
// GoogleTest prints a case by it.
void PrintTo(const CollectiveCase& test_case, std::ostream* out);

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_WAYS_H_
