// More elements than 32 bits count, over a mapping that repeats one small file,
// so that it costs address space and not memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "tests/rank_threads.h"

namespace ringpipe::testing {
namespace {

constexpr std::size_t kPeriod = 4 << 20;
constexpr std::size_t kElements = (1ULL << 31) + 12'345;

// `bytes` of address space in which the same kPeriod bytes repeat.
class AliasedMapping {
 public:
  explicit AliasedMapping(std::size_t bytes)
      : bytes_((bytes + kPeriod - 1) / kPeriod * kPeriod) {
    const int fd = memfd_create("aliased", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, kPeriod), 0);
    data_ = static_cast<std::uint8_t*>(
        mmap(nullptr, bytes_, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t at = 0; at < bytes_; at += kPeriod) {
      EXPECT_NE(mmap(data_ + at, kPeriod, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, fd, 0),
                MAP_FAILED);
    }
    close(fd);
  }
  ~AliasedMapping() { munmap(data_, bytes_); }
  AliasedMapping(const AliasedMapping&) = delete;
  AliasedMapping& operator=(const AliasedMapping&) = delete;

  std::uint8_t* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::uint8_t* data_;
};

class LargeCountTest : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, LargeCountTest,
                         ::testing::ValuesIn(WaysOf("large_count_test")),
                         NameOfWay);

// Element i depends on i modulo the period alone, so that the result of every
// place that shares a byte is the same.
TEST_P(LargeCountTest, AllReduceOfMoreThanTwoToTheThirtyOneElementsIsRight) {
  ExpectRanks(GetParam(), 2, [](Communicator& c) -> Status {
    const AliasedMapping send(kElements);
    const AliasedMapping receive(kElements);
    for (std::size_t i = 0; i < kPeriod; ++i) {
      send.data()[i] = static_cast<std::uint8_t>(i * 31 + c.rank() * 7);
    }
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(send.data(), receive.data(), kElements,
                                         DataType::kUint8, ReduceOp::kSum));
    for (std::size_t i = 0; i < kPeriod; ++i) {
      const auto expected = static_cast<std::uint8_t>(2 * i * 31 + 7);
      if (receive.data()[i] != expected) {
        return {StatusCode::kInternal, "element " + std::to_string(i) + " is " +
                                           std::to_string(receive.data()[i])};
      }
    }
    return Status::Ok();
  });
}

}  // namespace
}  // namespace ringpipe::testing
