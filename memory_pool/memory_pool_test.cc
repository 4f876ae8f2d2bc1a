#include <cstring>
#include <memory>
#include <set>

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

TEST(SlotListTest, TheSlotReleasedLastIsAcquiredNext) {
  SlotList slots(4);
  const int first = slots.Acquire();
  const int second = slots.Acquire();
  slots.Release(first);
  slots.Release(second);
  EXPECT_EQ(slots.Acquire(), second);
  EXPECT_EQ(slots.counters().in_use, 1U);
  EXPECT_EQ(slots.counters().high_water, 2U);
}

TEST(SlotPoolTest, SlotsDoNotOverlapAndAreWritable) {
  const auto pd = SoftDomain();
  auto pool = SlotPool::Create(pd, 4096, 8);
  ASSERT_TRUE(pool.ok()) << pool.status().ToString();
  for (int slot = 0; slot < 8; ++slot) {
    std::memset((*pool)->data(slot), slot, 4096);
  }
  for (int slot = 0; slot < 8; ++slot) {
    EXPECT_EQ((*pool)->data(slot)[0], std::byte(slot));
    EXPECT_EQ((*pool)->data(slot)[4095], std::byte(slot));
  }
}

TEST(RegisteredMemoryTest, FindsWhatLiesInsideABufferAlone) {
  RegisteredMemory memory(SoftDomain());
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
  RegisteredMemory memory(SoftDomain());
  EXPECT_EQ(memory.Allocate(0).status().code(), StatusCode::kInvalidArgument);
  int elsewhere = 0;
  EXPECT_EQ(memory.Free(&elsewhere).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ringpipe
