#include "pipeline/host/region.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/failing_memory.h"
#include "base/file_descriptor.h"
#include "base/pages.h"
#include "base/peer_process.h"
#include "base/shared_file.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

// Whether allocation number `which` of `f` failed; `f` does not return then.
template <typename F>
bool Fails(long which, F f) {
  return FailOne(which, [&f] {
    try {
      f();
    } catch (const std::bad_alloc&) {
      // As it is to be.
    }
  });
}

constexpr std::size_t kHeaderBytes = 2 * kPageBytes;
// Beside the header: mapped from the beginning, and all.
constexpr std::uint64_t kNearBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kMostBytes = std::uint64_t{32} << 30;

std::shared_ptr<Region> NewRegion() {
  return Region::Create(kHeaderBytes).value();
}

FileDescriptor Copy(int fd) {
  return FileDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

// For a child, which does not have the region's own.
int CopyForChild(const Region& region) {
  return fcntl(region.fd(), F_DUPFD_CLOEXEC, 0);
}

StatusCode CodeOfAttach(FileDescriptor file) {
  EXPECT_TRUE(file);
  return Region::Attach(std::move(file), kHeaderBytes).status().code();
}

bool All(const std::byte* data, std::size_t bytes, std::byte value) {
  return std::all_of(data, data + bytes,
                     [value](std::byte byte) { return byte == value; });
}

std::uint64_t BytesInMemory(const Region& region) {
  struct stat info;
  EXPECT_EQ(fstat(region.fd(), &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

// --- One that is made, and those who attach ----------------------------------

TEST(Region, HasAZeroedHeaderOfWholePages) {
  const auto region = Region::Create(kPageBytes + 1).value();
  EXPECT_EQ(region->header_bytes(), 2 * kPageBytes);
  EXPECT_EQ(BytesInMemory(*region), 2 * kPageBytes);
  EXPECT_TRUE(All(region->header(), region->header_bytes(), std::byte{0}));
}

TEST(Region, IsOneObjectForAllOfTheProcess) {
  const auto region = NewRegion();
  const auto peer = Region::Attach(Copy(region->fd()), kHeaderBytes);
  ASSERT_TRUE(peer.ok()) << peer.status().ToString();
  EXPECT_EQ(*peer, region);
  EXPECT_NE(NewRegion(), region);
}

// The child did not inherit the mapping, so that it has one of its own.
TEST(Region, GrowthIsSeenByThePeer) {
  const auto region = NewRegion();
  const int file = CopyForChild(*region);
  PeerProcess peer([&region, file](ValuePipe& pipe) {
    const auto mine =
        Region::Attach(FileDescriptor(file), kHeaderBytes).value();
    pipe.Put(true);
    const auto offset = pipe.Get<std::uint64_t>();
    std::byte* const data = mine->At(offset, kPageBytes);
    if (data == nullptr || mine == region || data[7] != std::byte{42}) {
      return false;
    }
    data[8] = std::byte{43};
    return true;
  });
  EXPECT_TRUE(peer.pipe().Get<bool>());
  std::byte* const data = region->Allocate(kPageBytes).value();
  data[7] = std::byte{42};
  peer.pipe().Put(*region->OffsetOf(data, kPageBytes));
  EXPECT_TRUE(peer.Join());
  EXPECT_EQ(data[8], std::byte{43});
}

TEST(Attach, RefusesAFileThatAPeerCouldShorten) {
  FileDescriptor file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_TRUE(SetFileBytes(file, kHeaderBytes));
  EXPECT_EQ(CodeOfAttach(std::move(file)), StatusCode::kInvalidArgument);
}

TEST(Attach, RefusesAFileThatIsTooShort) {
  EXPECT_EQ(CodeOfAttach(CreateSharedFile("test", kHeaderBytes - 1)),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOfAttach(CreateSharedFile("test", kHeaderBytes)),
            StatusCode::kOk);
}

TEST(Attach, RefusesWhatIsNoFileInMemory) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor writes(ends[1]);
  EXPECT_EQ(CodeOfAttach(FileDescriptor(ends[0])),
            StatusCode::kInvalidArgument);
  for (const char* path : {"/dev/null", "/dev/zero", "/proc/self/exe"}) {
    EXPECT_EQ(CodeOfAttach(FileDescriptor(open(path, O_RDONLY | O_CLOEXEC))),
              StatusCode::kInvalidArgument)
        << path;
  }
}

TEST(Attach, RefusesAShorterHeaderAlsoWhereItIsMappedAlready) {
  const auto region = NewRegion();
  ASSERT_TRUE(region->Allocate(4 * kPageBytes).ok());
  const auto peer = Region::Attach(Copy(region->fd()), kHeaderBytes + 1);
  EXPECT_EQ(peer.status().code(), StatusCode::kInvalidArgument);
}

// --- Offsets -----------------------------------------------------------------

TEST(OffsetOf, IsOfWhatLiesWhollyInTheMemoryThatIsThere) {
  const auto region = NewRegion();
  std::byte* const data = region->Allocate(kPageBytes).value();
  std::byte* const begin = region->header();
  EXPECT_EQ(region->OffsetOf(begin, 1), 0u);
  EXPECT_EQ(region->OffsetOf(data, kPageBytes), kHeaderBytes);
  EXPECT_EQ(region->OffsetOf(data + 1, kPageBytes - 1), kHeaderBytes + 1);
  EXPECT_EQ(region->OffsetOf(data, kPageBytes + 1), std::nullopt);
  EXPECT_EQ(region->OffsetOf(data + 1, kPageBytes), std::nullopt);
  EXPECT_EQ(region->OffsetOf(data + kPageBytes, 1), std::nullopt);
  EXPECT_EQ(region->OffsetOf(begin - 1, 1), std::nullopt);
  EXPECT_EQ(region->OffsetOf(begin - 1, 2), std::nullopt);
  EXPECT_EQ(region->OffsetOf(nullptr, 1), std::nullopt);
  EXPECT_EQ(region->OffsetOf(data, ~std::uint64_t{0}), std::nullopt);
  const int elsewhere = 0;
  EXPECT_EQ(region->OffsetOf(&elsewhere, sizeof elsewhere), std::nullopt);
}

void ExpectBounds(Region& region, std::uint64_t end) {
  EXPECT_EQ(region.At(0, end), region.header());
  EXPECT_EQ(region.At(end - 1, 1), region.header() + end - 1);
  EXPECT_EQ(region.At(end, 1), nullptr);
  EXPECT_EQ(region.At(0, end + 1), nullptr);
  EXPECT_EQ(region.At(1, end), nullptr);
  EXPECT_EQ(region.At(1, ~std::uint64_t{0}), nullptr);
  EXPECT_EQ(region.At(~std::uint64_t{0}, 1), nullptr);
  EXPECT_EQ(region.At(~std::uint64_t{0}, 2), nullptr);
}

TEST(At, IsOfWhatTheOwnerHasAllocated) {
  const auto region = NewRegion();
  ExpectBounds(*region, kHeaderBytes);
  ASSERT_TRUE(region->Allocate(kPageBytes).ok());
  ExpectBounds(*region, kHeaderBytes + kPageBytes);
}

TEST(At, IsAtAPeerOfWhatTheFileHas) {
  const FileDescriptor shared = CreateSharedFile("test", kHeaderBytes + 1);
  ExpectBounds(*Region::Attach(Copy(shared.get()), kHeaderBytes).value(),
               kHeaderBytes + 1);
}

TEST(At, OfAFileLongerThanARegionIsNothing) {
  const FileDescriptor shared = CreateSharedFile("test", kHeaderBytes);
  const std::uint64_t much = std::uint64_t{1} << 40;
  ASSERT_TRUE(SetFileBytes(shared, much));
  const auto region = Region::Attach(Copy(shared.get()), kHeaderBytes).value();
  EXPECT_EQ(region->At(much - 1, 1), nullptr);
  EXPECT_EQ(region->At(much, 1), nullptr);
  EXPECT_NE(region->At(kHeaderBytes, kPageBytes), nullptr);
}

// What a peer names may begin in what is mapped from the beginning, and end
// beyond.
TEST(At, OfWhatLiesAcrossTheTwoMappingsIsNothing) {
  const FileDescriptor shared = CreateSharedFile("test", kMostBytes);
  const auto region = Region::Attach(Copy(shared.get()), kHeaderBytes).value();
  const std::uint64_t end = kHeaderBytes + kNearBytes;
  EXPECT_EQ(region->At(end - 1, 1), region->header() + end - 1);
  EXPECT_EQ(region->At(end - 1, 2), nullptr);
  std::byte* const far = region->At(end, 1);
  ASSERT_NE(far, nullptr);
  EXPECT_NE(far, region->header() + end);
  EXPECT_EQ(region->At(end + 1, 1), far + 1);
}

// A peer has neither a descriptor nor much address space: 4,095 mappings of 32
// GiB are all that fit.
TEST(Attach, IsPossibleForThousandsOfPeers) {
  std::vector<std::shared_ptr<Region>> peers;
  for (int i = 0; i < 4200; ++i) {
    const auto peer =
        Region::Attach(CreateSharedFile("test", kHeaderBytes), kHeaderBytes);
    ASSERT_TRUE(peer.ok()) << i << ": " << peer.status().ToString();
    peers.push_back(*peer);
  }
}
// The owner goes by what it has allocated, and can still allocate.
TEST(At, OfAFileThatAPeerMadeLongerIsNothing) {
  const auto region = NewRegion();
  ASSERT_EQ(ftruncate(region->fd(), off_t{1} << 40), 0);
  EXPECT_EQ(region->At(kHeaderBytes, 1), nullptr);
  EXPECT_TRUE(region->Allocate(kPageBytes).ok());
}

// --- Memory ------------------------------------------------------------------

TEST(Allocate, GivesPagesThatAreThere) {
  const auto region = NewRegion();
  constexpr std::size_t kBytes = 3 * kHugePageBytes;
  std::byte* const data = region->Allocate(kBytes).value();
  EXPECT_GE(BytesInMemory(*region), kBytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kHugePageBytes, 0u);
  region->Free(data, kBytes);
  EXPECT_EQ(BytesInMemory(*region), kHeaderBytes);
}

TEST(Allocate, GivesZeroesAlsoWhereAPeerWroteAfterTheyWereFreed) {
  const auto region = NewRegion();
  std::byte* const data = region->Allocate(kPageBytes).value();
  std::memset(data, 1, kPageBytes);
  region->Free(data, kPageBytes);
  EXPECT_TRUE(All(data, kPageBytes, std::byte{0}));
  std::memset(data, 2, kPageBytes);
  ASSERT_EQ(region->Allocate(kPageBytes).value(), data);
  EXPECT_TRUE(All(data, kPageBytes, std::byte{0}));
}

// More than what is mapped from the beginning; the peer has no descriptor.
TEST(Allocate, GivesMuchWhichAPeerSeesToo) {
  const auto region = NewRegion();
  std::byte* const near = region->Allocate(kPageBytes).value();
  std::byte* const data = region->Allocate(kNearBytes).value();
  const std::uint64_t offset = *region->OffsetOf(data, kNearBytes);
  EXPECT_GE(offset, kNearBytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kHugePageBytes, 0u);
  EXPECT_EQ(region->At(offset, kNearBytes), data);
  EXPECT_EQ(region->OffsetOf(data, kNearBytes + 1), std::nullopt);
  // The rest of that mapping is for what is mapped already.
  std::byte* const begin = data - (offset - kHeaderBytes - kNearBytes);
  EXPECT_EQ(region->OffsetOf(begin - 1, 1), std::nullopt);
  data[7] = std::byte{42};
  const int file = CopyForChild(*region);
  PeerProcess peer([file, offset](ValuePipe&) {
    const auto mine =
        Region::Attach(FileDescriptor(file), kHeaderBytes).value();
    std::byte* const seen = mine->At(offset, kNearBytes);
    return seen != nullptr && seen[7] == std::byte{42} &&
           mine->At(offset, 1) == seen;
  });
  EXPECT_TRUE(peer.Join());
  // It can be taken back, and is given out again, as the rest is.
  ASSERT_TRUE(region->TakeBack(data, kPageBytes).ok());
  EXPECT_EQ(data[7], std::byte{42});
  region->Free(data, kNearBytes);
  EXPECT_EQ(region->Allocate(kNearBytes).value(), data);
  EXPECT_TRUE(All(data, kPageBytes, std::byte{0}));
  EXPECT_EQ(region->At(kHeaderBytes, kPageBytes), near);
}

TEST(Allocate, OfNothingOrTooMuchIsAnError) {
  const auto region = NewRegion();
  EXPECT_EQ(region->Allocate(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(region->Allocate(std::size_t{1} << 40).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(region->Allocate(~std::size_t{0}).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(region->Allocate(1).ok());
}

TEST(Allocate, ThatHasNoMemoryForItselfTakesNone) {
  const auto region = NewRegion();
  std::byte* const first = region->Allocate(kPageBytes).value();
  region->Free(first, kPageBytes);
  long which = 0;
  std::byte* again = nullptr;
  // Some are an error at once.
  const auto allocate = [&] {
    const Result<std::byte*> allocated = region->Allocate(kPageBytes);
    again = allocated.ok() ? allocated.value() : throw std::bad_alloc();
  };
  while (Fails(which, allocate)) {
    ++which;
  }
  EXPECT_GT(which, 0);
  EXPECT_EQ(again, first);
}

TEST(Allocate, BeyondTheLimitOfFileSizesIsAnErrorAndNoSignal) {
  PeerProcess process([](ValuePipe&) {
    const auto region = NewRegion();
    const rlimit limit = {8 * kPageBytes, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    const Status failed = region->Allocate(8 * kPageBytes).status();
    const bool explained =
        failed.message().find("ulimit -f") != std::string::npos;
    const bool none_to_create =
        Region::Create(9 * kPageBytes).status().code() ==
        StatusCode::kResourceExhausted;
    return failed.code() == StatusCode::kResourceExhausted && explained &&
           none_to_create &&
           // What could not be had is not lost.
           region->Allocate(4 * kPageBytes).ok();
  });
  EXPECT_TRUE(process.Join());
}

TEST(Allocate, IsForAnyThread) {
  const auto region = NewRegion();
  std::vector<std::thread> threads;
  for (int i = 1; i <= 4; ++i) {
    threads.emplace_back([&region, i] {
      for (int turn = 0; turn < 50; ++turn) {
        std::byte* const data = region->Allocate(2 * kPageBytes).value();
        EXPECT_TRUE(All(data, 2 * kPageBytes, std::byte{0}));
        std::memset(data, i, 2 * kPageBytes);
        EXPECT_TRUE(All(data, 2 * kPageBytes, static_cast<std::byte>(i)));
        region->Free(data, 2 * kPageBytes);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(BytesInMemory(*region), kHeaderBytes);
}

// --- Whom it is kept from ----------------------------------------------------

TEST(Region, IsNotInAChildWhoCanDoNothingToIt) {
  auto region = NewRegion();
  std::byte* const data = region->Allocate(kPageBytes).value();
  data[0] = std::byte{1};
  PeerProcess child([&region, data](ValuePipe&) {
    unsigned char present;
    const bool unmapped =
        mincore(data, kPageBytes, &present) != 0 && errno == ENOMEM;
    // What comes to lie in its place stays when the region goes.
    void* const place =
        mmap(data, kPageBytes, PROT_READ,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    region->Free(data, kPageBytes);
    region.reset();
    return unmapped && place == data &&
           mincore(place, kPageBytes, &present) == 0;
  });
  EXPECT_TRUE(child.Join());
  EXPECT_EQ(data[0], std::byte{1});
}

TEST(Region, IsNotPartOfCoreDumps) {
  const auto region = NewRegion();
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool found = false;
  while (std::getline(maps, line)) {
    found = found || line.find("ringpipe-host") != std::string::npos;
    if (found && line.starts_with("VmFlags:")) {
      EXPECT_NE(line.find(" dd"), std::string::npos) << line;
      return;
    }
  }
  FAIL() << "it is not among the mappings of the process";
}

// --- Memory that is taken back ---

// A peer that goes on writing, and a thread that counts in a word beside it:
// what the peer writes afterwards does not appear, and not one count is lost.
TEST(Region, WhatIsTakenBackIsOutOfThePeersReach) {
  const auto region = NewRegion();
  constexpr std::size_t kBytes = 64 * kPageBytes;
  std::byte* const data = region->Allocate(kBytes).value();
  const std::uint64_t offset = *region->OffsetOf(data, kBytes);
  const int file = CopyForChild(*region);
  PeerProcess peer([&](ValuePipe& pipe) {
    const auto attached =
        Region::Attach(FileDescriptor(file), kHeaderBytes).value();
    std::byte* const target = attached->At(offset, kBytes);
    std::memset(target + kPageBytes + 8, 1, kBytes - kPageBytes - 8);
    pipe.Put(1);
    for (;;) {
      std::memset(target + kPageBytes + 8, 2, kBytes - kPageBytes - 8);
      std::memset(target + kPageBytes + 8, 3, kBytes - kPageBytes - 8);
    }
    return true;
  });
  peer.pipe().Get<int>();
  // The first word of the second page is not the peer's.
  std::atomic_ref<std::uint64_t> word(
      *reinterpret_cast<std::uint64_t*>(data + kPageBytes));
  std::atomic<bool> stop = false;
  std::uint64_t counted = 0;
  std::thread counter([&] {
    while (!stop) {
      word.store(word.load() + 1);
      ++counted;
    }
  });
  ASSERT_TRUE(
      region->TakeBack(data + kPageBytes + 8, kBytes - kPageBytes - 8).ok());
  std::memset(data + kPageBytes + 8, 9, kBytes - kPageBytes - 8);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(
      All(data + kPageBytes + 8, kBytes - kPageBytes - 8, std::byte{9}));
  stop = true;
  counter.join();
  EXPECT_EQ(word.load(), counted);
  // And it is given out again as any other memory is.
  region->Free(data, kBytes);
  ASSERT_EQ(region->Allocate(kBytes).value(), data);
  EXPECT_TRUE(All(data + kPageBytes, kBytes - kPageBytes, std::byte{0}));
}

TEST(Region, APageThatCouldNotBeTakenBackLosesNothingAtTheNextTime) {
  const auto region = NewRegion();
  std::byte* const data = region->Allocate(kPageBytes).value();
  long which = 0;
  for (bool failed = true; failed; ++which) {
    data[0] = std::byte{1};
    failed = Fails(
        which, [&] { EXPECT_TRUE(region->TakeBack(data, kPageBytes).ok()); });
    data[0] = std::byte{2};
    EXPECT_TRUE(region->TakeBack(data, kPageBytes).ok());
    EXPECT_EQ(data[0], std::byte{2}) << "after allocation " << which;
  }
  EXPECT_GT(which, 1);
}

TEST(Region, APeerCannotKeepItsOwnerFromGrowingIt) {
  const auto region = NewRegion();
  const FileDescriptor peers = Copy(region->fd());
  EXPECT_NE(fcntl(peers.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_TRUE(region->Allocate(64 * kPageBytes).ok());
}

}  // namespace
}  // namespace ringpipe
