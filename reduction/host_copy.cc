// The kernel is compiled once for each instruction set below, by including this
// file again and again (foreach_target.h); the best that the CPU has is chosen
// at run time.
#include "reduction/host_copy.h"

#include <atomic>
#include <cstdint>
#include <cstring>

// As in host_reduction.cc.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/host_copy.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ringpipe {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of 64 bytes are no faster, and each unaligned one lies in two cache
// lines.
using Vector = hn::CappedTag<std::uint8_t, 32>;

constexpr std::size_t kLine = 64;

// What the stores are: ordinary ones, or non-temporal ones, which fill whole
// cache lines.
enum class Stores { kOrdinary, kNonTemporal };

// Whether a copy from the begin up would write what it reads later. It does if
// the ranges overlap like that. To the CPU it seems to if the target begins a
// little past the source in its page: it first compares the address of a load
// with those of the stores before it by their places in the page, and delays
// the load if they are equal. From the end down neither is so.
HWY_INLINE bool IsAhead(std::uintptr_t target, std::uintptr_t source,
                        std::size_t bytes) {
  constexpr std::uintptr_t kPage = 4096;
  const std::uintptr_t ahead = (target - source) % kPage;
  const bool overlaps = target - source < bytes || source - target < bytes;
  return overlaps ? target > source : ahead > 0 && ahead < kPage / 2;
}

// A copy that is under way: where its next bytes are. It goes up from the begin
// of both ranges, or down from their ends.
template <bool kUp>
struct RunningCopy {
  std::uint8_t* to;
  const std::uint8_t* from;

  // An aligned vector.
  HWY_INLINE void OneVector() {
    Step(hn::Lanes(Vector()), [](std::uint8_t* target, const std::uint8_t* at) {
      hn::Store(hn::LoadU(Vector(), at), Vector(), target);
    });
  }

  // Four aligned vectors. The fence, which binds the compiler and is no
  // instruction, keeps all loads before the stores.
  template <Stores kStores>
  HWY_INLINE void FourVectors() {
    const std::size_t lanes = hn::Lanes(Vector());
    Step(4 * lanes, [lanes](std::uint8_t* target, const std::uint8_t* at) {
      const Vector d;
      const auto v0 = hn::LoadU(d, at);
      const auto v1 = hn::LoadU(d, at + lanes);
      const auto v2 = hn::LoadU(d, at + 2 * lanes);
      const auto v3 = hn::LoadU(d, at + 3 * lanes);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      StoreVector<kStores>(v0, target);
      StoreVector<kStores>(v1, target + lanes);
      StoreVector<kStores>(v2, target + 2 * lanes);
      StoreVector<kStores>(v3, target + 3 * lanes);
    });
  }

  // `bytes`, less than a vector, in pieces that are powers of two. Smallest
  // first leads to an aligned target, largest first leads on from there: no
  // store crosses a page, which takes as long as hundreds of bytes do.
  HWY_INLINE void SmallestFirst(std::size_t bytes) {
    Piece<1>(bytes);
    Piece<2>(bytes);
    Piece<4>(bytes);
    Piece<8>(bytes);
    Piece<16>(bytes);
  }
  HWY_INLINE void LargestFirst(std::size_t bytes) {
    Piece<16>(bytes);
    Piece<8>(bytes);
    Piece<4>(bytes);
    Piece<2>(bytes);
    Piece<1>(bytes);
  }

 private:
  template <Stores kStores>
  static HWY_INLINE void StoreVector(hn::Vec<Vector> v, std::uint8_t* target) {
    if constexpr (kStores == Stores::kNonTemporal) {
      hn::Stream(v, Vector(), target);
    } else {
      hn::Store(v, Vector(), target);
    }
  }

  // A load and a store: memcpy of a constant size is no call.
  template <std::size_t kBytes>
  HWY_INLINE void Piece(std::size_t bytes) {
    if ((bytes & kBytes) != 0) {
      Step(kBytes, [](std::uint8_t* target, const std::uint8_t* at) {
        std::uint8_t piece[kBytes];
        std::memcpy(piece, at, kBytes);
        std::memcpy(target, piece, kBytes);
      });
    }
  }

  template <class CopyPart>
  HWY_INLINE void Step(std::size_t bytes, CopyPart copy_part) {
    if constexpr (kUp) {
      copy_part(to, from);
      to += bytes;
      from += bytes;
    } else {
      to -= bytes;
      from -= bytes;
      copy_part(to, from);
    }
  }
};

// `bytes` is at least kLine; kLine - 1 lead to an aligned target at most.
template <Stores kStores, bool kUp>
HWY_INLINE void CopyAlong(RunningCopy<kUp> copy, std::size_t bytes) {
  const std::size_t lanes = hn::Lanes(Vector());
  const std::size_t block = 4 * lanes;
  const std::size_t alignment = kStores == Stores::kOrdinary ? lanes : kLine;
  const auto at = reinterpret_cast<std::uintptr_t>(copy.to);
  const std::size_t lead = (kUp ? -at : at) % alignment;
  copy.SmallestFirst(lead % lanes);
  for (std::size_t left = lead / lanes; left > 0; --left) {
    copy.OneVector();
  }
  bytes -= lead;
  for (; bytes >= block; bytes -= block) {
    copy.template FourVectors<kStores>();
  }
  for (; bytes >= lanes; bytes -= lanes) {
    copy.OneVector();
  }
  copy.LargestFirst(bytes);
}

template <Stores kStores>
void Copy(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  if (IsAhead(reinterpret_cast<std::uintptr_t>(to),
              reinterpret_cast<std::uintptr_t>(from), bytes)) {
    CopyAlong<kStores>(RunningCopy<false>{to + bytes, from + bytes}, bytes);
  } else {
    CopyAlong<kStores>(RunningCopy<true>{to, from}, bytes);
  }
}

// Functions of their own, because HWY_EXPORT takes no template.
void CopyOrdinary(std::uint8_t* to, const std::uint8_t* from,
                  std::size_t bytes) {
  Copy<Stores::kOrdinary>(to, from, bytes);
}
void CopyNonTemporal(std::uint8_t* to, const std::uint8_t* from,
                     std::size_t bytes) {
  Copy<Stores::kNonTemporal>(to, from, bytes);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace ringpipe
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ringpipe {
namespace {

HWY_EXPORT(CopyOrdinary);
HWY_EXPORT(CopyNonTemporal);

// Less than this is copied right here.
constexpr std::size_t kLeast = 64;

// Sanitizers see ordinary stores alone.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kNonTemporalStores = false;
#else
constexpr bool kNonTemporalStores = true;
#endif

// The first and the last kBytes of kBytes to 2 * kBytes, which may overlap. All
// are read before any is written.
template <std::size_t kBytes>
void CopyEnds(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  std::uint8_t first[kBytes];
  std::uint8_t last[kBytes];
  std::memcpy(first, from, kBytes);
  std::memcpy(last, from + bytes - kBytes, kBytes);
  std::memcpy(to, first, kBytes);
  std::memcpy(to + bytes - kBytes, last, kBytes);
}

void CopyShort(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  if (bytes >= 32) {
    CopyEnds<32>(to, from, bytes);
  } else if (bytes >= 16) {
    CopyEnds<16>(to, from, bytes);
  } else if (bytes >= 8) {
    CopyEnds<8>(to, from, bytes);
  } else if (bytes >= 4) {
    CopyEnds<4>(to, from, bytes);
  } else if (bytes >= 2) {
    CopyEnds<2>(to, from, bytes);
  } else if (bytes == 1) {
    *to = *from;
  }
}

}  // namespace

void HostCopy(void* target, const void* source, std::size_t bytes) {
  auto* const to = static_cast<std::uint8_t*>(target);
  const auto* const from = static_cast<const std::uint8_t*>(source);
  if (bytes < kLeast) {
    CopyShort(to, from, bytes);
  } else {
    HWY_DYNAMIC_DISPATCH(CopyOrdinary)(to, from, bytes);
  }
}

void NonTemporalCopy(void* target, const void* source, std::size_t bytes) {
  if (!kNonTemporalStores || bytes < kLeast) {
    HostCopy(target, source, bytes);
  } else {
    HWY_DYNAMIC_DISPATCH(CopyNonTemporal)
    (static_cast<std::uint8_t*>(target),
     static_cast<const std::uint8_t*>(source), bytes);
  }
}

}  // namespace ringpipe
#endif  // HWY_ONCE
