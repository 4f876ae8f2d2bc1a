#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "memory_pool/registered_memory.h"
#include "memory_pool/slot_list.h"
#include "memory_pool/slot_pool.h"
#include "verbs/device.h"
#include "verbs/memory_region.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe {
namespace {

std::shared_ptr<verbs::ProtectionDomain> SoftDomain() {
  auto device = verbs::Device::OpenSoftware(verbs::soft::CreateSoftLibrary({}),
                                            "the test asks for it");
  EXPECT_TRUE(device.ok()) << device.status().ToString();
  auto pd = verbs::ProtectionDomain::Create(std::move(device).value());
  EXPECT_TRUE(pd.ok()) << pd.status().ToString();
  return std::move(pd).value();
}

TEST(SlotListTest, GivesEachSlotOnceThenNone) {
  SlotList slots(3);
  std::set<int> got = {slots.Acquire(), slots.Acquire(), slots.Acquire()};
  EXPECT_EQ(got, (std::set<int>{0, 1, 2}));
  EXPECT_EQ(slots.Acquire(), SlotList::kNone);
  EXPECT_EQ(slots.counters().waits, 1U);
  EXPECT_EQ(slots.counters().high_water, 3U);
}

TEST(SlotListTest, TheSlotReleasedFirstIsAcquiredNext) {
  SlotList slots(4);
  const int first = slots.Acquire();
  const int second = slots.Acquire();
  slots.Release(second);
  slots.Release(first);
  const std::set<int> others = {slots.Acquire(), slots.Acquire()};
  EXPECT_FALSE(others.contains(first) || others.contains(second));
  // All the way round, and round again.
  for (int turn = 0; turn < 5; ++turn) {
    EXPECT_EQ(slots.Acquire(), second);
    slots.Release(second);
    EXPECT_EQ(slots.Acquire(), first);
    slots.Release(first);
  }
  EXPECT_EQ(slots.counters().in_use, 2U);
  EXPECT_EQ(slots.counters().high_water, 3U);
}

// Counts what it gives out, no more than so many bytes.
class SmallSource final : public MemorySource {
 public:
  explicit SmallSource(std::size_t most) : most_(most) {}

  Result<Allocation> Allocate(std::size_t bytes) override {
    if (given + bytes > most_) {
      return Status(StatusCode::kResourceExhausted, "the source is empty");
    }
    given += bytes;
    return Allocation(shared_from_this(), new std::byte[bytes], bytes);
  }

  std::size_t given = 0;

 private:
  void Free(std::byte* data, std::size_t bytes) noexcept override {
    given -= bytes;
    delete[] data;
  }
  void Keep(std::byte* /*data*/, std::size_t /*bytes*/) noexcept override {}

  const std::size_t most_;
};

// Writes each slot of the kind in use to its end, then reads all.
void ExpectSlotsOf(const SlotPool& pool, std::size_t bytes) {
  ASSERT_EQ(pool.slot_bytes(), bytes);
  for (int slot = 0; slot < 8; ++slot) {
    std::memset(pool.data(slot), slot, bytes);
  }
  for (int slot = 0; slot < 8; ++slot) {
    EXPECT_EQ(pool.data(slot)[0], std::byte(slot));
    EXPECT_EQ(pool.data(slot)[bytes - 1], std::byte(slot));
  }
}

constexpr std::size_t kLongSlot = 65'536;

TEST(SlotPoolTest, SlotsDoNotOverlapAndAreWritable) {
  const auto pd = SoftDomain();
  const std::vector rails = {pd};
  auto pool = SlotPool::Create(rails, *pd->device(), 4096, 8);
  ASSERT_TRUE(pool.ok()) << pool.status().ToString();
  ExpectSlotsOf(**pool, 4096);
}

TEST(SlotPoolTest, WithRailsAllIsThereAtOnce) {
  const auto pd = SoftDomain();
  const std::vector rails = {pd};
  auto pool = SlotPool::Create(rails, *pd->device(), kLongSlot, 8);
  ASSERT_TRUE(pool.ok()) << pool.status().ToString();
  std::byte* const memory = (*pool)->memory();
  ASSERT_TRUE((*pool)->Use(1).ok());
  EXPECT_EQ((*pool)->data(0), memory);
  ExpectSlotsOf(**pool, kLongSlot);
}

TEST(SlotPoolTest, WithoutRailsEachKindTakesMemoryAtItsFirstUse) {
  const auto source = std::make_shared<SmallSource>(1 << 20);
  {
    const auto pool = SlotPool::Create({}, *source, kLongSlot, 8).value();
    EXPECT_EQ(source->given, 0U);
    ASSERT_TRUE(pool->Use(SlotPool::kShortBytes).ok());
    EXPECT_EQ(source->given, 8 * SlotPool::kShortBytes);
    EXPECT_EQ(pool->memory(), nullptr);
    ExpectSlotsOf(*pool, SlotPool::kShortBytes);
    ASSERT_TRUE(pool->Use(SlotPool::kShortBytes + 1).ok());
    ExpectSlotsOf(*pool, kLongSlot);
    EXPECT_EQ(pool->memory(), pool->data(0));
    ASSERT_TRUE(pool->Use(8).ok());
    ExpectSlotsOf(*pool, SlotPool::kShortBytes);
    EXPECT_EQ(source->given, 8 * (SlotPool::kShortBytes + kLongSlot));
  }
  EXPECT_EQ(source->given, 0U);
}

TEST(SlotPoolTest, SaysWhichSlotsThereIsNoMemoryFor) {
  const auto source = std::make_shared<SmallSource>(100'000);
  const auto pool = SlotPool::Create({}, *source, kLongSlot, 8).value();
  EXPECT_TRUE(pool->Use(8).ok());
  const Status status = pool->UseLong();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "8 slots of 65536 bytes (RINGPIPE_SLOTS, RINGPIPE_SUBCHUNK_BYTES "
            "lower them): the source is empty");
}

TEST(RegisteredMemoryTest, FindsWhatLiesInsideABufferAlone) {
  const auto pd = SoftDomain();
  RegisteredMemory memory({pd}, pd->device());
  auto buffer = memory.Allocate(10'000);
  ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
  auto* data = static_cast<std::byte*>(*buffer);
  EXPECT_TRUE(memory.Find(data, 10'000));
  EXPECT_TRUE(memory.Find(data + 4000, 6000));
  EXPECT_FALSE(memory.Find(data + 4000, 1 << 20));
  EXPECT_FALSE(memory.Find(data - 1, 1));
  int elsewhere = 0;
  EXPECT_FALSE(memory.Find(&elsewhere, sizeof elsewhere));
  EXPECT_TRUE(memory.Free(data).ok());
  EXPECT_FALSE(memory.Find(data, 1));
}

TEST(RegisteredMemoryTest, RefusesZeroBytesAndForeignMemory) {
  const auto pd = SoftDomain();
  RegisteredMemory memory({pd}, pd->device());
  EXPECT_EQ(memory.Allocate(0).status().code(), StatusCode::kInvalidArgument);
  int elsewhere = 0;
  EXPECT_EQ(memory.Free(&elsewhere).code(), StatusCode::kInvalidArgument);
}

TEST(RegisteredMemoryTest, TheUsersOwnMemoryIsFoundUntilItIsDeregistered) {
  const auto pd = SoftDomain();
  RegisteredMemory memory({pd}, pd->device());
  std::vector<std::byte> own(10'000);
  ASSERT_TRUE(memory.Register(own.data(), own.size()).ok());
  const auto found = memory.Find(own.data() + 1, own.size() - 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->writable);
  EXPECT_EQ(memory.Free(own.data()).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(memory.Deregister(own.data()).ok());
  EXPECT_FALSE(memory.Find(own.data(), 1));
  EXPECT_EQ(memory.Deregister(own.data()).code(), StatusCode::kInvalidArgument);
}

TEST(RegisteredMemoryTest, RefusesToRegisterNothingAndAnythingTwice) {
  const auto pd = SoftDomain();
  RegisteredMemory memory({pd}, pd->device());
  std::vector<std::byte> own(100);
  EXPECT_EQ(memory.Register(nullptr, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(memory.Register(own.data(), 0).code(),
            StatusCode::kInvalidArgument);
  ASSERT_TRUE(memory.Register(own.data() + 10, 50).ok());
  for (const auto& [begin, bytes] :
       {std::pair(10, 50), std::pair(0, 11), std::pair(59, 1),
        std::pair(0, 100), std::pair(20, 5)}) {
    EXPECT_EQ(memory.Register(own.data() + begin, bytes).code(),
              StatusCode::kInvalidArgument)
        << begin;
  }
  EXPECT_TRUE(memory.Register(own.data(), 10).ok());
  EXPECT_TRUE(memory.Register(own.data() + 60, 40).ok());
}

TEST(RegisteredMemoryTest, ABufferHasAKeyForEveryRail) {
  const auto first = SoftDomain();
  const auto second = SoftDomain();
  RegisteredMemory memory({first, second}, first->device());
  std::vector<std::byte> own(100);
  ASSERT_TRUE(memory.Register(own.data(), own.size()).ok());
  const RailKeys lkeys = memory.Find(own.data(), 1)->lkeys;
  EXPECT_NE(lkeys[0], 0U);
  EXPECT_NE(lkeys[1], 0U);
}

}  // namespace
}  // namespace ringpipe
