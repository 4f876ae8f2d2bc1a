#include "pipeline/simulator.h"

#include <vector>

#include "gtest/gtest.h"
#include "pipeline/schedule.h"

namespace ringpipe {
namespace {

constexpr double kLatency = 1e-5;
constexpr double kWire = 1e-9;
constexpr double kReduce = 5e-10;
constexpr NetworkModel kNetwork = {.latency_s = kLatency,
                                   .wire_s_per_byte = kWire,
                                   .reduce_s_per_byte = kReduce};

#ifdef NDEBUG
constexpr int kLargestSize = 512;
#else
constexpr int kLargestSize = 64;  // with sanitizers
#endif

int Modulo(int value, int size) { return ((value % size) + size) % size; }

// The ring, as in engine/, which is above this folder.
std::vector<Schedule> RingAllReduce(int size) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank) {
    const int right = Modulo(rank + 1, size);
    const int left = Modulo(rank - 1, size);
    Schedule schedule = {size, size, {}};
    for (int step = 0; step < 2 * (size - 1); ++step) {
      const bool reduces = step < size - 1;
      const int sent = Modulo(rank - step, size);
      const int received = Modulo(rank - step - 1, size);
      schedule.transfers.push_back(Transfer::Send(step == 0 ? Input(sent)
                                                  : reduces ? Scratch(sent)
                                                            : Output(sent),
                                                  right));
      schedule.transfers.push_back(
          !reduces ? Transfer::ReceiveCopy(Output(received), left)
          : step < size - 2
              ? Transfer::ReceiveReduce(Input(received), Scratch(received),
                                        left)
              : Transfer::ReceiveReduce(Input(received), Output(received), left,
                                        true));
    }
    schedules.push_back(schedule);
  }
  return schedules;
}

SimulationOptions Options(std::uint64_t message_bytes,
                          std::uint64_t subchunk_bytes, int depth) {
  SimulationOptions options;
  options.message_bytes = message_bytes;
  options.subchunk_bytes = subchunk_bytes;
  options.depth = depth;
  options.slots = 4 * depth;
  return options;
}

SimulationResult SimulateOrFail(const std::vector<Schedule>& schedules,
                                const NetworkModel& network,
                                const SimulationOptions& options) {
  const Result<SimulationResult> result = Simulate(schedules, network, options);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? result.value() : SimulationResult();
}

// 2 (p-1) (α + sβ) + (p-1) sγ.
TEST(SimulatorTest, ARingOfOneSubchunkTakesWhatTheFormulaSays) {
  constexpr double kBytes = 100000;
  for (const int size : {2, 3, 8, kLargestSize}) {
    SimulationOptions options =
        Options(static_cast<std::uint64_t>(kBytes) * size, 1 << 20, 1);
    options.slots = 2;
    const SimulationResult result =
        SimulateOrFail(RingAllReduce(size), kNetwork, options);
    const double expected = 2 * (size - 1) * (kLatency + kBytes * kWire) +
                            (size - 1) * kBytes * kReduce;
    EXPECT_NEAR(result.seconds, expected, expected * 1e-9) << size;
    EXPECT_EQ(result.messages, 2u * (size - 1) * size);
    EXPECT_EQ(result.bytes, result.messages * 100000);
  }
}

// docs/design.md: α and γ vanish once k >= 1 + (α + sγ) / (sβ).
TEST(SimulatorTest, EnoughDepthHidesLatencyAndReduction) {
  constexpr int kSize = 8;
  constexpr double kSubchunk = 10000;  // sβ = 1e-5: k >= 1 + 1 + 0.5
  constexpr int kSubchunks = 96;
  const double wire = 2 * (kSize - 1) * kSubchunks * kSubchunk * kWire;
  double seconds[7] = {};
  for (const int depth : {1, 2, 3, 6}) {
    seconds[depth] =
        SimulateOrFail(
            RingAllReduce(kSize), kNetwork,
            Options(static_cast<std::uint64_t>(kSubchunk) * kSubchunks * kSize,
                    static_cast<std::uint64_t>(kSubchunk), depth))
            .seconds;
  }
  EXPECT_GT(seconds[1], 1.2 * wire);
  EXPECT_LT(seconds[2], seconds[1]);
  EXPECT_LT(seconds[3], 1.05 * wire);
  // More buys no more.
  EXPECT_NEAR(seconds[6], seconds[3], 0.05 * wire);
  EXPECT_GE(seconds[6], wire);
}

TEST(SimulatorTest, RanksOfAHostShareItsLinks) {
  // Ranks 0 and 1 each send to a rank of the other host.
  const std::vector<Schedule> schedules = {
      {1, 0, {Transfer::Send(Input(0), 2)}},
      {1, 0, {Transfer::Send(Input(0), 3)}},
      {1, 0, {Transfer::ReceiveCopy(Output(0), 0)}},
      {1, 0, {Transfer::ReceiveCopy(Output(0), 1)}}};
  NetworkModel network = kNetwork;
  network.latency_s = 0;
  const SimulationOptions options = Options(1000, 1000, 1);
  EXPECT_DOUBLE_EQ(SimulateOrFail(schedules, network, options).seconds,
                   1000 * kWire);
  network.ranks_per_host = 2;
  EXPECT_DOUBLE_EQ(SimulateOrFail(schedules, network, options).seconds,
                   2000 * kWire);
}

TEST(SimulatorTest, AnEmptyMessageTakesItsLatencyAndTheCostOfAMessage) {
  NetworkModel network = kNetwork;
  network.message_s = 1e-6;
  EXPECT_NEAR(
      SimulateOrFail(RingAllReduce(4), network, Options(0, 1000, 1)).seconds,
      6 * (kLatency + 1e-6), 1e-12);
}

// One rank sends two messages, which cost it two times; the latencies overlap.
TEST(SimulatorTest, MessagesThatLeaveTogetherOccupyTheLinkOneAfterTheOther) {
  const std::vector<Schedule> schedules = {
      {1, 0, {Transfer::Send(Input(0), 1), Transfer::Send(Input(0), 2)}},
      {1, 0, {Transfer::ReceiveCopy(Output(0), 0)}},
      {1, 0, {Transfer::ReceiveCopy(Output(0), 0)}}};
  NetworkModel network = kNetwork;
  network.message_s = 1e-6;
  EXPECT_NEAR(
      SimulateOrFail(schedules, network, Options(1000, 1000, 1)).seconds,
      2 * (1e-6 + 1000 * kWire) + kLatency, 1e-12);
}

// Rank 0's messages go to the rank that no other sends to at that time.
TEST(SimulatorTest, ARanksMessagesLeaveInTheOrderOfItsSchedule) {
  constexpr int kSize = 5;
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < kSize; ++rank) {
    Schedule schedule = {kSize, 0, {}};
    for (int step = 1; step < kSize; ++step) {
      schedule.transfers.push_back(
          Transfer::Send(Input(rank), Modulo(rank + step, kSize)));
    }
    for (int step = 1; step < kSize; ++step) {
      const int from = Modulo(rank - step, kSize);
      schedule.transfers.push_back(Transfer::ReceiveCopy(Output(from), from));
    }
    schedules.push_back(schedule);
  }
  SimulationOptions options = Options(kSize * 1000, 1000, 1);
  options.slots = 2 * kSize;
  EXPECT_NEAR(SimulateOrFail(schedules, kNetwork, options).seconds,
              (kSize - 1) * 1000 * kWire + kLatency, 1e-12);
}

TEST(SimulatorTest, TooFewSlotsAreAnError) {
  SimulationOptions options = Options(1000, 1000, 1);
  options.slots = 1;
  EXPECT_EQ(Simulate(RingAllReduce(3), kNetwork, options).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(SimulatorTest, BadOptionsAreAnError) {
  SimulationOptions options = Options(1000, 1000, 1);
  options.subchunk_bytes = 0;
  EXPECT_EQ(Simulate(RingAllReduce(3), kNetwork, options).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Simulate({}, kNetwork, Options(1, 1, 1)).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ringpipe
