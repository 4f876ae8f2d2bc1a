// One message between the ranks of each pair, over every way to a peer.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

constexpr std::int64_t kUntouched = -1;

std::int64_t ValueOf(int sender, std::size_t element) {
  return sender * 1'000'000'000LL + static_cast<std::int64_t>(element);
}

struct Buffers {
  Buffers(int rank, std::size_t count)
      : send(count + 1), receive(count + 1, kUntouched) {
    for (std::size_t i = 0; i < count; ++i) {
      send[i] = ValueOf(rank, i);
    }
  }
  std::vector<std::int64_t> send;
  std::vector<std::int64_t> receive;
};

// Makes the call, and checks that what `from` sent is there and nothing else
// was written.
Status Transmit(Communicator& communicator, int to, int from,
                std::size_t count) {
  Buffers buffers(communicator.rank(), count);
  RINGPIPE_RETURN_IF_ERROR(
      communicator.SendReceive(buffers.send.data(), to, buffers.receive.data(),
                               from, count, DataType::kInt64));
  for (std::size_t i = 0; i <= count; ++i) {
    const std::int64_t expected =
        from < 0 || i == count ? kUntouched : ValueOf(from, i);
    if (buffers.receive[i] != expected) {
      return {StatusCode::kInternal, "element " + std::to_string(i) + " is " +
                                         std::to_string(buffers.receive[i]) +
                                         " instead of " +
                                         std::to_string(expected)};
    }
  }
  return Status::Ok();
}

class SendReceiveTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, SendReceiveTest,
                         ::testing::ValuesIn(WaysOf("send_receive_test")),
                         NameOfWay);

constexpr std::size_t kCounts[] = {0, 1, 500, 100'001};

TEST_P(SendReceiveTest, EveryShiftArrives) {
  for (const int size : {2, 3, 5}) {
    ExpectRanks(GetParam(), size, [&](Communicator& communicator) -> Status {
      const int rank = communicator.rank();
      for (int distance = 1; distance < size; ++distance) {
        for (const std::size_t count : kCounts) {
          RINGPIPE_RETURN_IF_ERROR(
              Transmit(communicator, (rank + distance) % size,
                       (rank + size - distance) % size, count));
        }
      }
      return Status::Ok();
    });
  }
}

TEST_P(SendReceiveTest, OnePairTalksAndTheOthersHaveNothingToDo) {
  constexpr int kSize = 4;
  ExpectRanks(GetParam(), kSize, [&](Communicator& communicator) -> Status {
    const int rank = communicator.rank();
    for (int from = 0; from < kSize; ++from) {
      for (int to = 0; to < kSize; ++to) {
        for (const std::size_t count : kCounts) {
          if (from == to) {
            continue;
          }
          RINGPIPE_RETURN_IF_ERROR(Transmit(communicator,
                                            rank == from ? to : -1,
                                            rank == to ? from : -1, count));
        }
      }
    }
    return communicator.Barrier();
  });
}

// Back to back, with collectives between: neither's first messages are taken
// for the other's.
TEST_P(SendReceiveTest, PairsThatExchangeManyTimesKeepUpWithCollectives) {
  ExpectRanks(GetParam(), 4, [&](Communicator& communicator) -> Status {
    const int peer = communicator.rank() ^ 1;
    for (int turn = 0; turn < 300; ++turn) {
      RINGPIPE_RETURN_IF_ERROR(
          Transmit(communicator, peer, peer, 1 + turn % 3));
      if (turn % 7 == 0) {
        RINGPIPE_RETURN_IF_ERROR(communicator.Barrier());
      }
    }
    return Status::Ok();
  });
}

TEST_P(SendReceiveTest, APartnerThatIsNoOtherRankIsRefused) {
  ExpectRanks(GetParam(), 2, [&](Communicator& communicator) -> Status {
    for (const int partner : {communicator.rank(), 2, -2}) {
      for (const bool sends : {false, true}) {
        Buffers buffers(communicator.rank(), 1);
        const Status status = communicator.SendReceive(
            buffers.send.data(), sends ? partner : -1, buffers.receive.data(),
            sends ? -1 : partner, 1, DataType::kInt64);
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_NE(status.message().find("send-receive: rank"),
                  std::string::npos)
            << status.message();
      }
    }
    return communicator.Barrier();
  });
}

TEST_P(SendReceiveTest, DifferentLengthsAreAMismatchAtBothEnds) {
  const std::vector<Status> ended =
      RunRanks(GetParam(), 2, [&](Communicator& communicator) -> Status {
        const int rank = communicator.rank();
        Buffers buffers(rank, 100);
        return communicator.SendReceive(
            buffers.send.data(), rank == 0 ? 1 : -1, buffers.receive.data(),
            rank == 1 ? 0 : -1, rank == 0 ? 100 : 99, DataType::kInt64);
      });
  for (const Status& status : ended) {
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.ToString();
  }
}

TEST_P(SendReceiveTest, AMismatchNamesIt) {
  for (const Status& status :
       RunRanks(GetParam(), 2, [&](Communicator& communicator) -> Status {
         Buffers buffers(communicator.rank(), 1);
         return communicator.rank() == 0
                    ? communicator.Barrier()
                    : communicator.SendReceive(buffers.send.data(), 0,
                                               buffers.receive.data(), 0, 1,
                                               DataType::kInt64);
       })) {
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.ToString();
    EXPECT_NE(status.message().find("send-receive(count 1"), std::string::npos)
        << status.ToString();
  }
}

}  // namespace
}  // namespace ringpipe::testing
