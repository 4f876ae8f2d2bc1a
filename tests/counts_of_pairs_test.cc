// All-to-alls in which each pair of ranks has a number of elements of its own.
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"
#include "tests/reference.h"
#include "tests/scattered.h"
#include "tests/ways.h"

namespace ringpipe::testing {
namespace {

using Matrix = std::vector<std::vector<std::size_t>>;  // [from][to]

std::vector<std::size_t> ReceivedBy(const Matrix& counts, int rank) {
  std::vector<std::size_t> received;
  for (const auto& from : counts) {
    received.push_back(from[rank]);
  }
  return received;
}

// What one rank has for another.
template <typename T>
std::vector<T> Part(int size, int from, int to, std::size_t count) {
  return Inputs<T>(from * size + to, 0, count, ReduceOp::kSum);
}

template <typename T>
void Append(std::vector<T>& all, const std::vector<T>& part) {
  all.insert(all.end(), part.begin(), part.end());
}

struct How {
  bool asynchronous = false;
  bool in_pieces = false;
};

template <typename T>
Status TestCall(Communicator& c, DataType type, const Matrix& counts,
                const How& how) {
  std::vector<T> send, expected;
  for (int peer = 0; peer < c.size(); ++peer) {
    Append(send, Part<T>(c.size(), c.rank(), peer, counts[c.rank()][peer]));
    Append(expected, Part<T>(c.size(), peer, c.rank(), counts[peer][c.rank()]));
  }
  std::vector<T> receive = Poisoned<T>(expected.size());
  std::vector<std::size_t> own = counts[c.rank()];
  std::vector<std::size_t> received = ReceivedBy(counts, c.rank());
  Scattered<T> from(send, c.rank());
  Scattered<T> to(receive, c.rank() + 1);
  const auto send_list = from.Pieces(0, send.size());
  const auto receive_list = to.Pieces(0, receive.size());
  Call call = {.collective = Collective::kAllToAll,
               .send = send.data(),
               .receive = receive.data(),
               .type = type,
               .counts = own,
               .receive_counts = received};
  if (how.in_pieces && !send_list.empty() && !receive_list.empty()) {
    call.send = call.receive = nullptr;
    call.send_list = send_list;
    call.receive_list = receive_list;
  }
  if (how.asynchronous) {
    RINGPIPE_ASSIGN_OR_RETURN(Request request, c.Start(call));
    std::fill(own.begin(), own.end(), 0);
    std::fill(received.begin(), received.end(), 0);
    RINGPIPE_RETURN_IF_ERROR(request.Wait());
  } else {
    RINGPIPE_RETURN_IF_ERROR(c.Run(call));
  }
  const std::vector<T> got =
      call.receive == nullptr ? to.Values(0, receive.size()) : receive;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!(got[i] == expected[i])) {
      return {StatusCode::kInternal, "element " + std::to_string(i) + " of " +
                                         std::to_string(expected.size()) +
                                         " is wrong"};
    }
  }
  return Status::Ok();
}

// Among them ranks with nothing, and one with much for one other.
std::vector<Matrix> MatricesOf(int size) {
  std::vector<Matrix> all(4, Matrix(size, std::vector<std::size_t>(size)));
  std::mt19937_64 random(size);
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      all[1][from][to] = from == 0 && to == size - 1 ? 100'000 : 0;
      all[2][from][to] = random() % 3 == 0 ? 0 : random() % 50;
      all[3][from][to] = from == size / 2 ? 0 : random() % 3000;
    }
  }
  return all;
}

class CountsOfPairsTest : public ::testing::TestWithParam<Way> {
 protected:
  static void Expect(int size, const char* algorithm, bool smallest) {
    SCOPED_TRACE(std::to_string(size) + " ranks, " + algorithm +
                 (smallest ? ", smallest" : ""));
    ExpectRanks(
        GetParam(), size,
        [](Communicator& c) -> Status {
          std::size_t turn = 0;
          for (const Matrix& counts : MatricesOf(c.size())) {
            for (const How& how :
                 {How(), How{.asynchronous = true}, How{.in_pieces = true}}) {
              const DataType type = kDataTypes[turn++ % kDataTypes.size()];
              RINGPIPE_RETURN_IF_ERROR(WithType(type, [&]<typename T>() {
                return TestCall<T>(c, type, counts, how);
              }));
            }
          }
          return Status::Ok();
        },
        [&](int /*rank*/, CommunicatorOptions& options) {
          options.environment.algorithm = algorithm;
          if (smallest) {
            options.environment.subchunk_bytes = 256;
            options.environment.depth = 1;
            options.environment.spin_us = 0;
          }
        });
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, CountsOfPairsTest,
                         ::testing::ValuesIn(WaysOf("counts_of_pairs_test")),
                         NameOfWay);

TEST_P(CountsOfPairsTest, AreRightForAnyNumberOfRanks) {
  for (const int size : {1, 2, 3, 5, 8}) {
    Expect(size, "", false);
    Expect(size, "", true);
  }
}

// One that passes chunks on would have to know all ranks' counts: another is
// taken.
TEST_P(CountsOfPairsTest, AreRightWhateverTheAlgorithm) {
  for (const char* algorithm : {"all-to-all:bruck", "all-to-all:all_at_once",
                                "all-to-all:pairwise", "mpich"}) {
    Expect(4, algorithm, false);
  }
}

TEST_P(CountsOfPairsTest, ByNameIsTheSameCall) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    const std::vector<std::size_t> counts = {1, 2};
    const std::vector<std::size_t> receive_counts(
        2, counts[static_cast<std::size_t>(c.rank())]);
    const std::vector<std::int32_t> send = {10 + c.rank(), 20 + c.rank(),
                                            30 + c.rank()};
    std::vector<std::int32_t> receive(2 * receive_counts[0]);
    RINGPIPE_RETURN_IF_ERROR(c.AllToAllV(send.data(), counts, receive.data(),
                                         receive_counts, DataType::kInt32));
    const std::vector<std::int32_t> expected =
        c.rank() == 0 ? std::vector<std::int32_t>{10, 11}
                      : std::vector<std::int32_t>{20, 30, 21, 31};
    EXPECT_EQ(receive, expected);
    return Status::Ok();
  });
}

// Between two other ranks.
TEST_P(CountsOfPairsTest, APairThatDisagreesIsNamedWithItsCounts) {
  const auto statuses = RunRanks(GetParam(), 3, [](Communicator& c) -> Status {
    const std::vector<std::size_t> counts(3, 5);
    std::vector<std::size_t> receive_counts(3, 5);
    receive_counts[1] = c.rank() == 2 ? 700 : 5;
    std::vector<float> send(15);
    std::vector<float> receive(1500);
    return c.AllToAllV(send.data(), counts, receive.data(), receive_counts,
                       DataType::kFloat32);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.ToString();
    EXPECT_NE(status.message().find("differs in the counts of a pair"),
              std::string::npos)
        << status.ToString();
    EXPECT_NE(status.message().find("700"), std::string::npos)
        << status.ToString();
  }
}

TEST_P(CountsOfPairsTest, AnAllToAllWithoutCountsIsAnother) {
  const auto statuses = RunRanks(GetParam(), 2, [](Communicator& c) -> Status {
    const std::vector<std::size_t> counts(2, 5);
    std::vector<float> send(10);
    std::vector<float> receive(10);
    return c.rank() == 0
               ? c.AllToAllV(send.data(), counts, receive.data(), counts,
                             DataType::kFloat32)
               : c.AllToAll(send.data(), receive.data(), 5, DataType::kFloat32);
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.ToString();
    EXPECT_NE(status.message().find("all-to-all(counts by pair, float32"),
              std::string::npos)
        << status.ToString();
  }
}

}  // namespace
}  // namespace ringpipe::testing
