#include "engine/checked_call.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

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

// Pieces of 4, 0 and 6 elements, so far apart.
std::vector<Buffer> ListAt(std::uintptr_t address, std::uintptr_t apart) {
  return {{At<void>(address), 4}, {nullptr, 0}, {At<void>(address + apart), 6}};
}

TEST(ListTest, HasTheElementsOfABuffer) {
  Call call = Make(Collective::kAllGather, 10);
  const std::vector<Buffer> send = ListAt(kSend, 0x1000);
  call.send = nullptr;
  call.send_list = send;
  const auto buffers = CheckCall(call, 2, 4);
  ASSERT_TRUE(buffers.ok()) << buffers.status().ToString();
  EXPECT_FALSE(buffers->in_place);
  ASSERT_NE(buffers->lists, nullptr);
  const PieceList& input = buffers->lists->input;
  ASSERT_EQ(input.pieces().size(), 2U);
  EXPECT_EQ(input.pieces()[1],
            (PieceList::Piece{96, 24, At<std::byte>(kSend + 0x1000)}));
  EXPECT_EQ(buffers->lists->output.pieces(),
            (std::vector<PieceList::Piece>{{0, 160, At<std::byte>(kReceive)}}));
}

TEST(ListTest, IsRefusedWhereItIsNoneOfTheCall) {
  const auto error = [](const Call& call) {
    return CheckCall(call, 0, 4).status().message();
  };
  Call call = Make(Collective::kAllReduce, 10);
  std::vector<Buffer> list = ListAt(kSend, 0x1000);
  call.send_list = list;
  EXPECT_NE(error(call).find("a send buffer and a list"), std::string::npos);
  call.send = nullptr;
  EXPECT_EQ(error(call), "");
  list[2].count = 5;
  EXPECT_NE(error(call).find("9 elements in all, and the call needs 10"),
            std::string::npos);
  list[2] = {nullptr, 6};
  EXPECT_NE(error(call).find("send list buffer is null"), std::string::npos);
  list[2] = {At<void>(kSend + 0x1002), 6};
  EXPECT_NE(error(call).find("not aligned"), std::string::npos);
  list[2] = {At<void>(kSend), ~std::size_t{0}};
  EXPECT_NE(error(call).find("more than memory can hold"), std::string::npos);
}

TEST(ListTest, IsInPlaceWhereEachElementIs) {
  const std::vector<Buffer> list = ListAt(kSend, 0x1000);
  Call call = {.collective = Collective::kAllReduce,
               .count = 10,
               .type = DataType::kFloat32,
               .send_list = list,
               .receive_list = list};
  EXPECT_TRUE(CheckCall(call, 0, 4)->in_place);
  // However it is cut.
  const std::vector<Buffer> cut = {{At<void>(kSend), 3},
                                   {At<void>(kSend + 12), 1},
                                   {At<void>(kSend + 0x1000), 6}};
  call.send_list = cut;
  EXPECT_TRUE(CheckCall(call, 0, 4)->in_place);
  call.collective = Collective::kAllToAll;  // has none
  call.count = 5;
  EXPECT_FALSE(CheckCall(call, 0, 2).ok());
  // Rank 1's part of the whole.
  call.collective = Collective::kAllGather;
  const std::vector<Buffer> part = {{At<void>(kSend + 0x1004), 5}};
  call.send_list = part;
  EXPECT_TRUE(CheckCall(call, 1, 2)->in_place);
  EXPECT_FALSE(CheckCall(call, 0, 2).ok());  // overlaps elsewhere
}

TEST(ListTest, WhatIsWrittenOverlapsNothing) {
  const std::vector<Buffer> apart = ListAt(kSend, 0x1000);
  const std::vector<Buffer> within = ListAt(kReceive, 8);
  Call call = {.collective = Collective::kAllReduce,
               .count = 10,
               .type = DataType::kFloat32,
               .send_list = within,
               .receive_list = apart};
  EXPECT_TRUE(CheckCall(call, 0, 4).ok());  // read twice
  std::swap(call.send_list, call.receive_list);
  EXPECT_NE(CheckCall(call, 0, 4).status().message().find("overlap"),
            std::string::npos);
  call.send_list = within;
  EXPECT_FALSE(CheckCall(call, 0, 4).ok());  // in place, too
  // Of what is read and not written, the same may be read twice: in place, and
  // by a rank that gets nothing.
  const std::vector<std::size_t> counts = {0, 2, 2};
  const std::vector<Buffer> twice = {
      {At<void>(kSend), 2}, {At<void>(kReceive), 1}, {At<void>(kReceive), 1}};
  const std::vector<Buffer> own = {{At<void>(kSend), 2}};
  Call parts = {.collective = Collective::kReduceScatter,
                .type = DataType::kFloat32,
                .send_list = twice,
                .counts = counts};
  EXPECT_TRUE(CheckCall(parts, 0, 3).ok());
  EXPECT_FALSE(CheckCall(parts, 0, 3)->in_place);
  parts.receive_list = own;
  EXPECT_TRUE(CheckCall(parts, 1, 3)->in_place);
  const std::vector<Buffer> shifted = ListAt(kSend + 4, 0x1000);
  call.send_list = apart;
  call.receive_list = shifted;
  EXPECT_FALSE(CheckCall(call, 0, 4).ok());
}

TEST(CountsTest, SayWhereEachPartIs) {
  const std::vector<std::size_t> counts = {3, 0, 5, 2};
  Call call = Make(Collective::kAllGather, 0);
  call.counts = counts;
  const auto buffers = CheckCall(call, 2, 4);
  ASSERT_TRUE(buffers.ok()) << buffers.status().ToString();
  EXPECT_EQ(buffers->elements, 10U);
  EXPECT_EQ(*buffers->borders, (std::vector<std::uint64_t>{0, 3, 3, 8, 10}));
  EXPECT_EQ(buffers->send_bytes, 20U);
  EXPECT_EQ(buffers->receive_bytes, 40U);
  EXPECT_EQ(buffers->input_base, kSend - 12);
  // Who gives nothing needs no buffer, wherever it points to.
  call.send = nullptr;
  EXPECT_TRUE(CheckCall(call, 1, 4).ok());
  call.send = At<const void>(kReceive + 8);
  EXPECT_TRUE(CheckCall(call, 1, 4).ok());
  EXPECT_FALSE(CheckCall(call, 2, 4).ok());
  call.send = At<const void>(kReceive + 12);
  EXPECT_TRUE(CheckCall(call, 2, 4)->in_place);
}

TEST(CountsTest, AreRefusedWhereTheyAreNoneOfTheCall) {
  const auto error = [](const Call& call) {
    return CheckCall(call, 0, 3).status().message();
  };
  std::vector<std::size_t> counts = {1, 2, 3};
  Call call = Make(Collective::kAllReduce, 0);
  call.counts = counts;
  EXPECT_NE(error(call).find("give a count"), std::string::npos);
  call.collective = Collective::kGather;
  EXPECT_EQ(error(call), "");
  call.count = 1;
  EXPECT_NE(error(call).find("a count and counts"), std::string::npos);
  call.count = 0;
  counts[1] = ~std::size_t{0} / 4;
  EXPECT_NE(error(call).find("more than memory can hold"), std::string::npos);
  counts.pop_back();
  call.counts = counts;
  EXPECT_NE(error(call).find("2 counts and 3 ranks"), std::string::npos);
}

TEST(CountsTest, OfPairsAreThoseSentAndThoseReceived) {
  const std::vector<std::size_t> counts = {3, 0, 5};
  std::vector<std::size_t> received = {1, 0, 0};
  Call call = Make(Collective::kAllToAll, 0);
  call.counts = counts;
  call.receive_counts = received;
  const auto buffers = CheckCall(call, 1, 3);
  ASSERT_TRUE(buffers.ok()) << buffers.status().ToString();
  EXPECT_EQ(buffers->send_bytes, 32U);
  EXPECT_EQ(buffers->receive_bytes, 4U);
  EXPECT_EQ(*buffers->borders, (std::vector<std::uint64_t>{0, 3, 3, 8}));
  EXPECT_EQ(*buffers->receive_borders,
            (std::vector<std::uint64_t>{0, 1, 1, 1}));
  const auto error = [&](int rank) {
    return CheckCall(call, rank, 3).status().message();
  };
  EXPECT_NE(error(0).find("rank 0 has 3 elements for itself and takes 1"),
            std::string::npos);
  call.receive_counts = {};
  EXPECT_NE(error(1).find("0 receive counts and 3 ranks"), std::string::npos);
  received[1] = ~std::size_t{0} / 4;
  call.receive_counts = received;
  EXPECT_NE(error(1).find("the receive counts are more than memory can hold"),
            std::string::npos);
  call.counts = {};
  EXPECT_NE(error(1).find("0 counts and 3 ranks"), std::string::npos);
  call = Make(Collective::kAllGather, 0);
  call.counts = counts;
  call.receive_counts = counts;
  EXPECT_NE(error(1).find("which only an all-to-all has"), std::string::npos);
}

TEST(ScaleTest, IsOfFloatingPointTypesThatAreReduced) {
  const auto error = [](const Call& call) {
    return CheckCall(call, 0, 3).status().message();
  };
  Call call = Make(Collective::kReduce, 10);
  call.prescale = 0;
  call.postscale = -2;
  EXPECT_EQ(error(call), "");
  call.type = DataType::kInt32;
  EXPECT_NE(error(call).find("int32 cannot be scaled"), std::string::npos);
  call.type = DataType::kFloat16;
  call.postscale = std::numeric_limits<double>::infinity();
  EXPECT_NE(error(call).find("postscale is not a finite number"),
            std::string::npos);
  call.postscale = 1;
  call.prescale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(error(call).find("prescale is not a finite number"),
            std::string::npos);
  call = Make(Collective::kBroadcast, 10);
  call.prescale = 2;
  EXPECT_NE(error(call).find("reduces nothing"), std::string::npos);
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
  digest.collective = static_cast<std::uint16_t>(Collective::kSendReceive);
  EXPECT_EQ(AlgorithmName(digest), "direct");
}

}  // namespace
}  // namespace ringpipe
