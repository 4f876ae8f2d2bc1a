// More elements than 32 bits count, over a mapping that repeats one small file,
// so that it costs address space and not memory.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"
#include "tests/reference.h"

namespace ringpipe::testing {
namespace {

constexpr int kRanks = 2;
constexpr std::size_t kElements = (1ULL << 31) + 12'345;
// Pages, a prime number: an offset that lost its upper bits is another place.
constexpr std::size_t kPeriod = 1021ULL * 4096;

// `bytes` of address space in which the same kPeriod bytes repeat. Only around
// the powers of two that 32 bits hold, and at the end, there is memory that
// nothing else writes.
class RepeatingMemory {
 public:
  explicit RepeatingMemory(std::size_t bytes)
      : bytes_((bytes + kPeriod - 1) / kPeriod * kPeriod) {
    const int fd = memfd_create("repeating", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, kPeriod), 0);
    data_ = static_cast<std::uint8_t*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    EXPECT_NE(data_, MAP_FAILED);
    for (std::size_t at = 0; at < bytes_; at += kPeriod) {
      if (at == 0 || !IsItsOwn(at)) {
        EXPECT_NE(mmap(data_ + at, kPeriod, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0),
                  MAP_FAILED);
      }
      if (at == 0 || IsItsOwn(at)) {
        distinct_.push_back(at);
      }
    }
    close(fd);
  }
  ~RepeatingMemory() { munmap(data_, bytes_); }
  RepeatingMemory(const RepeatingMemory&) = delete;
  RepeatingMemory& operator=(const RepeatingMemory&) = delete;

  std::uint8_t* data() const { return data_; }

  // Of an element, given its place modulo the period.
  using Value = std::function<std::uint8_t(std::size_t)>;

  void Fill(const Value& value) {
    for (const std::size_t begin : distinct_) {
      for (std::size_t i = 0; i < kPeriod; ++i) {
        data_[begin + i] = value(i);
      }
    }
  }

  Status Compare(std::size_t count, const Value& expected) const {
    for (const std::size_t begin : distinct_) {
      for (std::size_t i = 0; i < kPeriod && begin + i < count; ++i) {
        if (data_[begin + i] != expected(i)) {
          return {StatusCode::kInternal,
                  "element " + std::to_string(begin + i) + " is " +
                      std::to_string(data_[begin + i]) + ", not " +
                      std::to_string(expected(i))};
        }
      }
    }
    return Status::Ok();
  }

 private:
  bool IsItsOwn(std::size_t begin) const {
    const auto holds = [begin](std::size_t place) {
      return begin <= place && place < begin + kPeriod;
    };
    return holds(1ULL << 31) || holds(1ULL << 32) || holds(bytes_ - 1);
  }

  std::size_t bytes_;
  std::uint8_t* data_;
  std::vector<std::size_t> distinct_;  // where periods begin
};

std::uint8_t InputOf(int rank, std::size_t place) {
  return InputValue<std::uint8_t>(rank, place % kPeriod, ReduceOp::kSum);
}

std::uint8_t SumOf(std::size_t place) {
  return ExpectedValue<std::uint8_t>(kRanks, place % kPeriod, ReduceOp::kSum);
}

// Longer than a call takes on a machine that does much else.
constexpr std::chrono::minutes kTimeout(8);

class LargeCountTest : public ::testing::TestWithParam<Way> {
 protected:
  // What `call` makes of `send`, whose elements are `input`.
  struct Case {
    std::size_t send_elements = kElements;
    std::size_t receive_elements = kElements;
    std::function<std::uint8_t(int rank, std::size_t place)> input;
    std::function<std::uint8_t(int rank, std::size_t place)> result;
    std::function<Status(Communicator&, const void* send, void* receive)> call;
  };

  static void Expect(const Case& own) {
    ExpectRanks(GetParam(), kRanks, [&own](Communicator& c) -> Status {
      RepeatingMemory send(own.send_elements);
      const RepeatingMemory receive(own.receive_elements);
      send.Fill([&](std::size_t i) { return own.input(c.rank(), i); });
      RINGPIPE_RETURN_IF_ERROR(own.call(c, send.data(), receive.data()));
      return receive.Compare(own.receive_elements, [&](std::size_t i) {
        return own.result(c.rank(), i);
      });
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, LargeCountTest,
                         ::testing::ValuesIn(WaysOf("large_count_test")),
                         NameOfWay);

TEST_P(LargeCountTest, AllReduceOfMoreThanTwoToTheThirtyOneElementsIsRight) {
  Expect({.input = InputOf,
          .result = [](int, std::size_t place) { return SumOf(place); },
          .call =
              [](Communicator& c, const void* send, void* receive) {
                return c.AllReduce(send, receive, kElements, DataType::kUint8,
                                   ReduceOp::kSum, kTimeout);
              }});
}

TEST_P(LargeCountTest, ReduceScatterIsRight) {
  Expect({.send_elements = kRanks * kElements,
          .input = InputOf,
          .result =
              [](int rank, std::size_t place) {
                return SumOf(rank * kElements + place);
              },
          .call =
              [](Communicator& c, const void* send, void* receive) {
                return c.ReduceScatter(send, receive, kElements,
                                       DataType::kUint8, ReduceOp::kSum,
                                       kTimeout);
              }});
}

// The result is made of the elements' places alone, whosever they are.
TEST_P(LargeCountTest, AllGatherIsRight) {
  Expect({.receive_elements = kRanks * kElements,
          .input =
              [](int rank, std::size_t place) {
                return InputOf(0, rank * kElements + place);
              },
          .result = [](int, std::size_t place) { return InputOf(0, place); },
          .call =
              [](Communicator& c, const void* send, void* receive) {
                return c.AllGather(send, receive, kElements, DataType::kUint8,
                                   kTimeout);
              }});
}

TEST_P(LargeCountTest, BroadcastIsRight) {
  Expect({.input = InputOf,
          .result = [](int, std::size_t place) { return InputOf(1, place); },
          .call =
              [](Communicator& c, const void* send, void* receive) {
                return c.Broadcast(send, receive, kElements, DataType::kUint8,
                                   /*root=*/1, kTimeout);
              }});
}

TEST_P(LargeCountTest, SendReceiveIsRight) {
  Expect({.input = InputOf,
          .result = [](int rank,
                       std::size_t place) { return InputOf(1 - rank, place); },
          .call =
              [](Communicator& c, const void* send, void* receive) {
                return c.SendReceive(send, 1 - c.rank(), receive, 1 - c.rank(),
                                     kElements, DataType::kUint8, kTimeout);
              }});
}

// Rank 0 alone has memory that peers reach where it lies: 4 GiB, so that the
// last places of its second buffer are past 32 bits.
TEST_P(LargeCountTest, MemoryOfTheCommunicatorIsReachedToItsEnd) {
  if (std::getenv("TEST_ALLOCATES") == nullptr) {
    GTEST_SKIP() << "4 GiB of memory: //tests:large_count_long_test";
  }
  ExpectRanks(GetParam(), kRanks, [](Communicator& c) -> Status {
    RepeatingMemory input(kElements);
    RepeatingMemory output(kElements);
    input.Fill([&](std::size_t i) { return InputOf(c.rank(), i); });
    void* send = input.data();
    void* receive = output.data();
    if (c.rank() == 0) {
      RINGPIPE_ASSIGN_OR_RETURN(send, c.Allocate(kElements));
      RINGPIPE_ASSIGN_OR_RETURN(receive, c.Allocate(kElements));
      std::memcpy(send, input.data(), kElements);
    }
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(
        send, receive, kElements, DataType::kUint8, ReduceOp::kSum, kTimeout));
    if (c.rank() == 0) {
      input.Fill(SumOf);
      return std::memcmp(receive, input.data(), kElements) == 0
                 ? Status::Ok()
                 : Status(StatusCode::kInternal, "a wrong sum");
    }
    return output.Compare(kElements, SumOf);
  });
}

}  // namespace
}  // namespace ringpipe::testing
