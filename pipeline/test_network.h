// Connections for tests, which do at will all that a Connection may do.
#ifndef RINGPIPE_PIPELINE_TEST_NETWORK_H_
#define RINGPIPE_PIPELINE_TEST_NETWORK_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "pipeline/abilities.h"
#include "pipeline/call_check.h"
#include "pipeline/connection.h"

namespace ringpipe {

// Connects ranks that are threads of one process, without any device. What it
// promises is what connection.h does, and no more. By a seed it
//
//   - delivers messages late, and says so in any order, before the peer's first
//     message too;
//   - reads a source at the last moment, and writes garbage to a target as soon
//     as that may be written;
//   - reports late, and hides room that there is;
//   - gives each pair of ranks other abilities, and each buffer another reach.
//
// Thread-safe; outlives its transports.
class TestNetwork final : public TransportFactory {
 public:
  struct Options {
    int size = 1;
    std::uint64_t seed = 1;
    // Of the connection between two ranks; empty: by the seed.
    std::function<Abilities(int a, int b)> abilities = {};
    // Of a buffer; empty: by the seed, each time anew.
    std::function<Reach(const UserMemory&)> reach = {};
    // Whether two ranks are connected; empty: all are.
    std::function<bool(int a, int b)> connects = {};
  };

  explicit TestNetwork(const Options& options);
  ~TestNetwork() override;
  TestNetwork(const TestNetwork&) = delete;
  TestNetwork& operator=(const TestNetwork&) = delete;

  // Once for each rank. Destroying what it returns is what the death of a
  // process is to the others, unless it was told to FinishSending.
  std::unique_ptr<Transport> Create(int rank, const CallCheck& check) override;

 private:
  class LooseTransport;
  class LooseConnection;
  struct Shared;

  const std::unique_ptr<Shared> shared_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_TEST_NETWORK_H_
