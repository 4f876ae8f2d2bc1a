#include "reduction/host_copy.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "reduction/instruction_sets.h"

namespace ringpipe {
namespace {

using Copy = void (*)(void*, const void*, std::size_t);
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kPage = 4096;
const std::size_t kOffsets[] = {0, 1, 4, 16, 17, 31, 32, 48, 63, 64, 4080};

// Of all lengths up to some blocks of vectors, and of a few longer ones.
std::vector<std::size_t> Lengths() {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i <= 300; ++i) {
    lengths.push_back(i);
  }
  lengths.insert(lengths.end(), {2047, 2048, 4096, 8191, 3 * kPage + 5});
  return lengths;
}

// No two bytes that are less than 251 apart are equal.
Bytes Pattern(std::size_t bytes) {
  Bytes pattern(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<std::uint8_t>(i % 251);
  }
  return pattern;
}

// Memory that begins and ends at pages that may not be touched.
class Fenced {
 public:
  explicit Fenced(std::size_t pages)
      : bytes_(pages * kPage),
        memory_(static_cast<std::uint8_t*>(
            mmap(nullptr, bytes_ + 2 * kPage, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    mprotect(begin(), bytes_, PROT_READ | PROT_WRITE);
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() { munmap(memory_, bytes_ + 2 * kPage); }

  std::uint8_t* begin() const { return memory_ + kPage; }
  std::uint8_t* end() const { return begin() + bytes_; }

 private:
  const std::size_t bytes_;
  std::uint8_t* const memory_;
};

class HostCopyTest : public testing::TestWithParam<Copy> {};

TEST_P(HostCopyTest, CopiesAllAndWritesNothingElseAtAnyOffsets) {
  const std::size_t room = 5 * kPage;
  const Fenced source(room / kPage);
  const Fenced target(room / kPage);
  const Bytes pattern = Pattern(room);
  std::copy(pattern.begin(), pattern.end(), source.begin());
  ForEachInstructionSet([&](const char* name) {
    for (const std::size_t from : kOffsets) {
      for (const std::size_t to : kOffsets) {
        for (const std::size_t bytes : Lengths()) {
          if (std::max(from, to) + bytes > room) {
            continue;
          }
          std::memset(target.begin(), 0xff, room);
          GetParam()(target.begin() + to, source.begin() + from, bytes);
          Bytes expected(room, 0xff);
          std::copy_n(pattern.begin() + from, bytes, expected.begin() + to);
          ASSERT_TRUE(
              std::equal(expected.begin(), expected.end(), target.begin()))
              << name << ", " << bytes << " bytes from " << from << " to "
              << to;
        }
      }
    }
  });
}

TEST_P(HostCopyTest, TouchesNothingBesideItsRanges) {
  const Fenced source(4);
  const Fenced target(4);
  ForEachInstructionSet([&](const char* name) {
    SCOPED_TRACE(name);
    for (const std::size_t bytes : Lengths()) {
      GetParam()(target.begin(), source.end() - bytes, bytes);
      GetParam()(target.end() - bytes, source.begin(), bytes);
    }
  });
}

TEST_P(HostCopyTest, RangesMayOverlap) {
  const std::size_t room = 4 * kPage;
  const Bytes pattern = Pattern(room);
  const std::size_t shifts[] = {0,  1,  7,    31,   32,   33,  64,
                                65, 96, 4000, 4096, 4100, 6200};
  ForEachInstructionSet([&](const char* name) {
    for (const std::size_t shift : shifts) {
      for (const std::size_t bytes : Lengths()) {
        if (shift + bytes > room) {
          continue;
        }
        for (const bool up : {false, true}) {
          const std::size_t from = up ? 0 : shift;
          const std::size_t to = up ? shift : 0;
          Bytes copied = pattern;
          Bytes expected = pattern;
          GetParam()(copied.data() + to, copied.data() + from, bytes);
          std::memmove(expected.data() + to, expected.data() + from, bytes);
          ASSERT_EQ(copied, expected) << name << ", " << bytes << " bytes from "
                                      << from << " to " << to;
        }
      }
    }
  });
}

TEST_P(HostCopyTest, NoBytesMayHaveNoAddress) {
  GetParam()(nullptr, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Of, HostCopyTest,
                         testing::Values(&HostCopy, &NonTemporalCopy),
                         [](const testing::TestParamInfo<Copy>& info) {
                           return std::string(info.param == &HostCopy
                                                  ? "OrdinaryStores"
                                                  : "NonTemporalStores");
                         });

}  // namespace
}  // namespace ringpipe
