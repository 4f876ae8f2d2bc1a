#include "pipeline/host/cache_lines.h"

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace ringpipe {
namespace {

constexpr std::size_t kPage = 4096;

// Two pages, of which the second may not be written; what does so is seen.
class Pages {
 public:
  Pages()
      : data_(static_cast<std::byte*>(
            mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    for (std::size_t i = 0; i < 2 * kPage; ++i) {
      data_[i] = static_cast<std::byte>(i * 37);
    }
    mprotect(data_ + kPage, kPage, PROT_READ);
  }
  ~Pages() { munmap(data_, 2 * kPage); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* end() const { return data_ + kPage; }
  bool IsAsBefore() const {
    for (std::size_t i = 0; i < 2 * kPage; ++i) {
      if (data_[i] != static_cast<std::byte>(i * 37)) {
        return false;
      }
    }
    return true;
  }

 private:
  std::byte* const data_;
};

TEST(CacheLinesTest, WhatIsClaimedStaysAsItIs) {
  const Pages pages;
  for (std::size_t bytes = 0; bytes < 300; ++bytes) {
    ClaimLines(pages.end() - kPage / 2 - bytes % 64, bytes);
  }
  ClaimLines(pages.end() - kPage, kPage);
  EXPECT_TRUE(pages.IsAsBefore());
}

// The next page may be a peer's that nobody writes, or none at all.
TEST(CacheLinesTest, NothingBehindTheEndIsWritten) {
  const Pages pages;
  for (std::size_t bytes = 0; bytes < 300; ++bytes) {
    ClaimLines(pages.end() - bytes, bytes);
  }
  EXPECT_TRUE(pages.IsAsBefore());
}

TEST(CacheLinesTest, ItPaysOnProcessorsOfAmd) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(ClaimingPays(), text.find("AuthenticAMD") != std::string::npos);
}

#if !defined(__SANITIZE_THREAD__)
// A store, whatever the value: a page of zeroes that was only read has no
// memory of its own before.
TEST(CacheLinesTest, EachLineIsWritten) {
  constexpr std::size_t kPages = 8;
  void* const mapped = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  madvise(mapped, kPages * kPage, MADV_NOHUGEPAGE);
  auto* const data = static_cast<std::byte*>(mapped);
  const auto private_pages = [&] {
    // A write makes a page private to the process; mincore() counts those that
    // are there, the page of zeroes not among them.
    std::array<unsigned char, kPages> resident = {};
    mincore(mapped, kPages * kPage, resident.data());
    std::size_t count = 0;
    for (const unsigned char page : resident) {
      count += page & 1;
    }
    return count;
  };
  EXPECT_EQ(private_pages(), 0U);
  ClaimLines(data, kPages * kPage);
  EXPECT_EQ(private_pages(), kPages);
  munmap(mapped, kPages * kPage);
}
#endif

}  // namespace
}  // namespace ringpipe
