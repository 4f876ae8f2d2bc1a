#include "verbs/soft/fuzz/seeds.h"

#include <array>
#include <cstddef>

#include "verbs/soft/fuzz/packets_fuzzer.h"
#include "verbs/soft/network/introduction.h"
#include "verbs/soft/network/wire.h"

namespace ringpipe::verbs::soft {
namespace {

std::string Packet(const PacketHeader& header) {
  std::array<std::byte, kPacketHeaderBytes> bytes;
  EncodePacketHeader(header, bytes);
  return std::string(reinterpret_cast<const char*>(bytes.data()),
                     bytes.size()) +
         std::string(header.payload_bytes, 'p');
}

PacketHeader Request(ibv_wr_opcode opcode, std::uint32_t psn,
                     std::uint32_t bytes) {
  PacketHeader header;
  header.opcode = static_cast<std::uint8_t>(opcode);
  header.psn = psn;
  header.message_bytes = bytes;
  if (!IsSend(opcode)) {
    header.rkey = kOwnKey;
    header.remote_address = kRegionAddress + 64;
  }
  if (IsSend(opcode) || IsWrite(opcode)) {
    header.payload_bytes = bytes;
  }
  return header;
}

PacketHeader Answer(PacketKind kind, std::uint32_t psn) {
  PacketHeader header;
  header.kind = kind;
  header.psn = psn;
  return header;
}

PacketHeader Nak(NakReason reason, std::uint32_t psn, std::uint8_t detail) {
  PacketHeader header = Answer(PacketKind::kNak, psn);
  header.opcode = static_cast<std::uint8_t>(reason);
  header.detail = detail;
  return header;
}

// The requests of one peer, one after the other.
std::string AllRequests() {
  std::string all;
  std::uint32_t psn = 0;
  all += Packet(Request(IBV_WR_SEND, psn++, 300));
  all += Packet(Request(IBV_WR_RDMA_WRITE, psn++, 100));
  all += Packet(Request(IBV_WR_RDMA_READ, psn++, 5000));
  all += Packet(Request(IBV_WR_ATOMIC_FETCH_AND_ADD, psn++, 8));
  all += Packet(Request(IBV_WR_ATOMIC_CMP_AND_SWP, psn++, 8));
  all += Packet(Request(IBV_WR_RDMA_WRITE_WITH_IMM, psn++, 1));
  all += Packet(Request(IBV_WR_SEND_WITH_IMM, psn++, 0));  // no receive left
  return all;
}

std::string Fragments(ibv_wr_opcode opcode, int repeats) {
  std::string all;
  for (int i = 0; i < repeats; ++i) {
    PacketHeader header = Request(opcode, 0, 900);
    header.payload_bytes = 300;
    for (header.offset = 0; header.offset < 900; header.offset += 300) {
      all += Packet(header);
    }
  }
  return all;
}

// The answers to what packets_fuzzer.cc posts.
std::string AllAnswers() {
  PacketHeader read = Answer(PacketKind::kReadResponse, 1);
  read.message_bytes = 1000;
  read.payload_bytes = 500;
  std::string all = Packet(Answer(PacketKind::kAck, 1)) + Packet(read);
  read.offset = 500;
  all += Packet(read);
  PacketHeader atomic = Answer(PacketKind::kAtomicResponse, 2);
  atomic.swap = 77;
  return all + Packet(atomic) + Packet(Answer(PacketKind::kAck, 4));
}

}  // namespace

std::vector<std::string> PacketSeeds() {
  std::vector<std::string> seeds;
  for (const std::string& stream :
       {AllRequests(), AllAnswers(), AllAnswers() + AllRequests(),
        Fragments(IBV_WR_SEND, 1), Fragments(IBV_WR_SEND, 2),
        Fragments(IBV_WR_RDMA_WRITE, 2),
        Packet(Request(IBV_WR_RDMA_READ, 0, 1'000'000)),
        AllRequests() + AllRequests(),
        Packet(Nak(NakReason::kNoReceive, 0, 1)) + AllAnswers(),
        Packet(Nak(NakReason::kNotReady, 0, 0)),
        Packet(Nak(NakReason::kFailed, 0, IBV_WC_REM_ACCESS_ERR))}) {
    // All at once with room for all, and in small pieces through a narrow
    // socket.
    seeds.push_back(std::string("\x0f\x11", 2) + stream);
    seeds.push_back(std::string("\x02\x05", 2) + stream);
  }
  return seeds;
}

std::vector<std::string> IntroductionSeeds() {
  const auto start = [](Result<Introduction> introduction) {
    return introduction->Start();
  };
  std::string hello =
      start(Introduction::ForConnector("secret", Introduction::Claim()));
  Introduction acceptor = Introduction::ForAcceptor("secret").value();
  Introduction connector =
      Introduction::ForConnector("secret", Introduction::Claim()).value();
  std::string to_acceptor = connector.Start();
  std::string to_connector;
  const auto feed = [](Introduction& to, std::string_view bytes) {
    std::string answer;
    while (!bytes.empty()) {
      const std::string_view next = bytes.substr(0, to.wanted());
      bytes.remove_prefix(next.size());
      Result<std::string> more = to.Receive(next);
      answer += more.ok() ? *more : "";
    }
    return answer;
  };
  const std::string challenge = feed(acceptor, to_acceptor);
  const std::string proof = feed(connector, challenge);
  const std::string own_proof = feed(acceptor, proof);
  const std::string claim = feed(connector, own_proof);
  return {std::string(1, '\0') + hello,
          std::string(1, '\0') + to_acceptor + proof + claim,
          std::string(1, '\1') + challenge + own_proof};
}

}  // namespace ringpipe::verbs::soft
