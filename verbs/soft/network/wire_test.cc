#include "verbs/soft/network/wire.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "verbs/soft/network/packet_reader.h"

namespace ringpipe::verbs::soft {
namespace {

using Bytes = std::array<std::byte, kPacketHeaderBytes>;

Bytes Encode(const PacketHeader& header) {
  Bytes bytes;
  EncodePacketHeader(header, bytes);
  return bytes;
}

bool Decodes(const Bytes& bytes) {
  PacketHeader header;
  return DecodePacketHeader(bytes, &header);
}

PacketHeader Write() {
  PacketHeader header;
  header.opcode = IBV_WR_RDMA_WRITE;
  header.psn = 0xabcdef;
  header.rkey = 0x12345678;
  header.remote_address = 0x7000'1234'5678;
  header.offset = 131072;
  header.message_bytes = 200'000;
  header.payload_bytes = 68'928;
  return header;
}

TEST(Wire, HeaderComesBackAsItWas) {
  PacketHeader header = Write();
  header.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  header.solicited = true;
  header.immediate = 0xa1b2c3d4;
  PacketHeader back;
  ASSERT_TRUE(DecodePacketHeader(Encode(header), &back));
  EXPECT_EQ(Encode(back), Encode(header));
  EXPECT_EQ(back.psn, 0xabcdefu);
  EXPECT_EQ(back.remote_address, 0x7000'1234'5678u);
  EXPECT_EQ(back.immediate, 0xa1b2c3d4u);
  EXPECT_TRUE(back.solicited);
}

TEST(Wire, FieldsAreLittleEndianAtTheirPlaces) {
  const Bytes bytes = Encode(Write());
  EXPECT_EQ(bytes[8], std::byte{0xef});
  EXPECT_EQ(bytes[10], std::byte{0xab});
  EXPECT_EQ(bytes[12], std::byte{0x78});
  EXPECT_EQ(bytes[15], std::byte{0x12});
}

TEST(Wire, AnotherMagicOrVersionIsRefused) {
  for (const std::size_t at : {0, 1}) {
    Bytes bytes = Encode(Write());
    ASSERT_TRUE(Decodes(bytes));
    bytes[at] ^= std::byte{1};
    EXPECT_FALSE(Decodes(bytes));
  }
}

TEST(Wire, ReservedBitsAreRefused) {
  for (const std::size_t at : {3, 6, 7, 11}) {
    Bytes bytes = Encode(Write());
    bytes[at] |= std::byte{0x80};
    EXPECT_FALSE(Decodes(bytes)) << at;
  }
}

TEST(Wire, SizesThatDoNotFitAreRefused) {
  const std::vector<std::function<void(PacketHeader&)>> mistakes = {
      [](PacketHeader& h) { h.payload_bytes = kMaxPayloadBytes + 1; },
      [](PacketHeader& h) { h.payload_bytes += 1; },
      [](PacketHeader& h) { h.payload_bytes = 0; },
      [](PacketHeader& h) { h.offset = 200'001; },
      [](PacketHeader& h) { h.offset = ~std::uint64_t{0}; },
      [](PacketHeader& h) { h.message_bytes = kMaxMessageBytes + 1; },
      [](PacketHeader& h) { h.remote_address = ~std::uint64_t{0} - 5; },
      [](PacketHeader& h) { h.opcode = IBV_WR_RDMA_READ; },
      [](PacketHeader& h) { h.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD; },
      [](PacketHeader& h) { h.opcode = IBV_WR_LOCAL_INV; },
      [](PacketHeader& h) { h.opcode = 255; },
      [](PacketHeader& h) { h.kind = PacketKind{0}; },
      [](PacketHeader& h) { h.kind = PacketKind{6}; },
      [](PacketHeader& h) { h.kind = PacketKind::kAck; },
      [](PacketHeader& h) {
        h.kind = PacketKind::kNak;
        h.payload_bytes = 0;
        h.opcode = 3;
        h.detail = IBV_WC_SUCCESS;
      },
  };
  for (std::size_t i = 0; i < mistakes.size(); ++i) {
    PacketHeader header = Write();
    mistakes[i](header);
    EXPECT_FALSE(Decodes(Encode(header))) << i;
  }
}

TEST(PacketReader, PacketsComeOutWholeHoweverTheBytesCameIn) {
  PacketHeader header = Write();
  header.offset = 0;
  header.message_bytes = header.payload_bytes = 300;
  std::vector<std::byte> stream;
  for (int i = 0; i < 5; ++i) {
    const Bytes bytes = Encode(header);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    stream.insert(stream.end(), 300, static_cast<std::byte>(i));
  }
  for (const std::size_t step : {1, 63, 64, 65, 364, 1000, 5000}) {
    PacketReader reader;
    int packets = 0;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      const std::size_t bytes = std::min(step, stream.size() - at);
      memcpy(reader.Space().data(), stream.data() + at, bytes);
      reader.Commit(bytes);
      PacketHeader got;
      std::span<const std::byte> payload;
      while (reader.Next(&got, &payload) == PacketReader::Outcome::kPacket) {
        ASSERT_EQ(payload.size(), 300u);
        EXPECT_EQ(payload[0], static_cast<std::byte>(packets));
        EXPECT_EQ(payload[299], static_cast<std::byte>(packets));
        ++packets;
      }
    }
    EXPECT_EQ(packets, 5) << step;
  }
}

TEST(PacketReader, SpaceForTheLargestPacketIsAlwaysLeft) {
  PacketHeader header = Write();
  header.offset = 0;
  header.message_bytes = header.payload_bytes = kMaxPayloadBytes;
  const Bytes bytes = Encode(header);
  PacketReader reader;
  PacketHeader got;
  std::span<const std::byte> payload;
  std::size_t fed = 0;
  for (int packets = 0; packets < 20;) {
    const std::span<std::byte> space = reader.Space();
    ASSERT_FALSE(space.empty());
    for (std::byte& byte : space) {
      const std::size_t at = fed++ % (kPacketHeaderBytes + kMaxPayloadBytes);
      byte = at < bytes.size() ? bytes[at] : std::byte{7};
    }
    reader.Commit(space.size());
    while (reader.Next(&got, &payload) == PacketReader::Outcome::kPacket) {
      ++packets;
    }
  }
}

TEST(PacketReader, GarbageIsFound) {
  PacketReader reader;
  memset(reader.Space().data(), 'x', kPacketHeaderBytes);
  reader.Commit(kPacketHeaderBytes);
  PacketHeader header;
  std::span<const std::byte> payload;
  EXPECT_EQ(reader.Next(&header, &payload), PacketReader::Outcome::kGarbage);
}

}  // namespace
}  // namespace ringpipe::verbs::soft
