#include "engine/checked_call.h"

#include <cstdint>
#include <string>

#include "engine/send_receive.h"
#include "gtest/gtest.h"

namespace ringpipe {
namespace {

// Never dereferenced.
template <typename T>
T* At(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

constexpr std::uintptr_t kSend = 0x10000;
constexpr std::uintptr_t kReceive = 0x900000;

Call Make(Collective collective, std::size_t count) {
  return {collective, At<const void>(kSend), At<void>(kReceive),
          count,      DataType::kFloat32,    ReduceOp::kSum};
}

TEST(CallTest, AnAllGathersSendBufferIsOneChunkOfTheMessage) {
  const auto buffers = CheckCall(Make(Collective::kAllGather, 10), 2, 4);
  ASSERT_TRUE(buffers.ok()) << buffers.status().ToString();
  EXPECT_EQ(buffers->elements, 40U);
  EXPECT_EQ(buffers->send_bytes, 40U);
  EXPECT_EQ(buffers->receive_bytes, 160U);
  EXPECT_EQ(buffers->input_base, kSend - 80);
  EXPECT_EQ(buffers->output_base, kReceive);
  EXPECT_FALSE(buffers->in_place);
}

TEST(CallTest, AReduceScattersReceiveBufferIsOneChunkOfTheMessage) {
  const auto buffers = CheckCall(Make(Collective::kReduceScatter, 10), 3, 4);
  ASSERT_TRUE(buffers.ok()) << buffers.status().ToString();
  EXPECT_EQ(buffers->elements, 40U);
  EXPECT_EQ(buffers->input_base, kSend);
  EXPECT_EQ(buffers->output_base, kReceive - 120);
}

TEST(CallTest, InPlaceIsWhereEachCollectiveHasIt) {
  Call call = Make(Collective::kAllGather, 10);
  call.send = At<const void>(kReceive + 80);
  EXPECT_TRUE(CheckCall(call, 2, 4)->in_place);
  EXPECT_FALSE(CheckCall(call, 1, 4).ok());  // overlaps elsewhere
  call = Make(Collective::kReduceScatter, 10);
  call.receive = At<void>(kSend + 40);
  EXPECT_TRUE(CheckCall(call, 1, 4)->in_place);
  EXPECT_FALSE(CheckCall(call, 2, 4).ok());
}

TEST(CallTest, OnlyTheRootOfABroadcastReadsItsSendBuffer) {
  Call call = Make(Collective::kBroadcast, 10);
  call.send = nullptr;
  call.root = 1;
  EXPECT_TRUE(CheckCall(call, 0, 4).ok());
  EXPECT_FALSE(CheckCall(call, 1, 4).ok());
}

TEST(CallTest, APartnerThatHasNoNumberIsRefused) {
  constexpr int kSize = 65'536;
  Call call = Make(Collective::kSendReceive, 0);
  call.partners = {kLastPartner, kLastPartner - 1};
  ASSERT_TRUE(CheckCall(call, 0, kSize).ok());
  EXPECT_EQ(PartnersOf(AsRoot(call.partners)), call.partners);
  for (const Partners& partners :
       {Partners{kLastPartner + 1, 1}, Partners{1, kSize - 1}}) {
    call.partners = partners;
    const Status status = CheckCall(call, 0, kSize).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("only ranks 0 to 32766"), std::string::npos)
        << status.ToString();
  }
}

TEST(CallTest, CountsPastThirtyTwoBitsAreKept) {
  Call call = Make(Collective::kAllGather, (1ULL << 33) + 1);
  call.receive = At<void>(1ULL << 46);
  const auto buffers = CheckCall(call, 1, 2);
  ASSERT_TRUE(buffers.ok()) << buffers.status().ToString();
  EXPECT_EQ(buffers->elements, (1ULL << 34) + 2);
  EXPECT_EQ(buffers->receive_bytes, (1ULL << 36) + 8);
}

TEST(CallTest, ADigestFromAPeerIsDescribedWhateverItHolds) {
  Digest digest;
  digest.collective = 77;
  digest.type = 88;
  digest.op = 99;
  EXPECT_NE(Describe(digest).find("collective 77"), std::string::npos);
}

TEST(CallTest, AnAlgorithmIsNamed) {
  Digest digest;
  for (const AlgorithmInfo& info : Algorithms()) {
    EXPECT_EQ(AlgorithmName(digest), info.name);
    ++digest.algorithm;
  }
  EXPECT_EQ(AlgorithmName(digest), std::to_string(digest.algorithm));
  digest.collective = static_cast<std::uint32_t>(Collective::kSendReceive);
  EXPECT_EQ(AlgorithmName(digest), "direct");
}

}  // namespace
}  // namespace ringpipe
