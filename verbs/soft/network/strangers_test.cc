// Connections to the software device's port that are not a good peer's.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "gtest/gtest.h"
#include "verbs/soft/endpoint.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/network/introduction.h"
#include "verbs/soft/network/wire.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint32_t kFakeQpn = 5;  // no context has block 0
// Of a context that is not there. The lower of two numbers connects.
constexpr std::uint32_t kHighestQpn = (1u << 24) - 1;

// A connection to the context of queue pair `qpn`, made by hand.
class RawConnection {
 public:
  explicit RawConnection(std::uint32_t qpn)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port =
        htons(static_cast<std::uint16_t>(Options().first_port + BlockOf(qpn)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address),
                      sizeof address),
              0);
  }

  void Send(std::string_view bytes) {
    // Whether it arrives is the other end's business.
    [[maybe_unused]] const ssize_t sent =
        send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // The next bytes, at most `most`; "" when the connection is closed, or after
  // 10 s of silence, which is a failure.
  std::string Receive(std::size_t most) {
    pollfd readable = {socket_.get(), POLLIN, 0};
    std::string bytes(most, '\0');
    EXPECT_EQ(poll(&readable, 1, 10'000), 1);
    const ssize_t got = recv(socket_.get(), bytes.data(), most, MSG_DONTWAIT);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  bool ClosedByPeer() {
    while (!Receive(4096).empty()) {
    }
    return !testing::Test::HasFailure();
  }

  // As a peer does it; false if the other end hangs up.
  bool Introduce(const std::string& secret, const Introduction::Claim& claim) {
    Introduction introduction =
        Introduction::ForConnector(secret, claim).value();
    Send(introduction.Start());
    while (!introduction.welcomed()) {
      const std::string bytes = Receive(introduction.wanted());
      Result<std::string> answer = introduction.Receive(bytes);
      if (bytes.empty() || !answer.ok()) {
        return false;
      }
      Send(*answer);
    }
    return true;
  }

 private:
  FileDescriptor socket_;
};

class Strangers : public testing::Test {
 protected:
  Strangers() {
    EndpointOptions here;
    here.host_id = "here";
    here.timeout = 18;
    EndpointOptions there = here;
    there.host_id = "there";
    pair_.emplace(here, there);
    victim_.emplace(here);
    Identity fake = victim_->identity();
    fake.qpn = kFakeQpn;
    victim_->Connect(fake);
  }
  // The other connection of the same process goes on.
  void Exchange() {
    ASSERT_EQ(pair_->b.Receive(1, {pair_->b.Sge(0, 1000)}), 0);
    ASSERT_EQ(pair_->a.Send(2, {pair_->a.Sge(0, 1000)}), 0);
    ASSERT_EQ(pair_->a.Poll().value().status, IBV_WC_SUCCESS);
    ASSERT_EQ(pair_->b.Poll().value().status, IBV_WC_SUCCESS);
  }
  Introduction::Claim FakeClaim() {
    Introduction::Claim claim;
    EXPECT_EQ(
        victim_->library().query_gid(victim_->context, 1, 0, &claim.from.gid),
        0);
    claim.from.qpn = kFakeQpn;
    claim.to_qpn = victim_->qp->qp_num;
    return claim;
  }
  std::optional<Pair> pair_;
  std::optional<Endpoint> victim_;
};

std::string Packet(const PacketHeader& header, std::string_view payload = "") {
  std::array<std::byte, kPacketHeaderBytes> bytes;
  EncodePacketHeader(header, bytes);
  return std::string(reinterpret_cast<const char*>(bytes.data()),
                     bytes.size()) +
         std::string(payload);
}

TEST_F(Strangers, GarbageInsteadOfAnIntroductionClosesTheConnection) {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4096, '\0'),
        std::string(4096, '\xff'), std::string("\x05\0\0\0hello", 9)}) {
    RawConnection raw(pair_->b.qp->qp_num);
    raw.Send(garbage);
    EXPECT_TRUE(raw.ClosedByPeer());
  }
  Exchange();
}

// Whether the endpoint does at an address of this host that is no interface's.
bool ListensEverywhere(const Endpoint& endpoint) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(
      Options().first_port + BlockOf(endpoint.qp->qp_num)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  return connect(socket.get(), reinterpret_cast<sockaddr*>(&address),
                 sizeof address) == 0;
}

TEST(Listeners, AreAtTheAdmittedInterfacesAlone) {
  EndpointOptions options;
  options.secret = "of two hosts";
  EXPECT_TRUE(ListensEverywhere(Endpoint(options)));
  options.interfaces =
      NameFilter::Parse("=lo", NameFilter::Ports::kNone).value();
  const Endpoint endpoint(options);
  EXPECT_FALSE(ListensEverywhere(endpoint));
  RawConnection at_loopback(endpoint.qp->qp_num);
}

// In a bounded number of lines: strangers choose how many they are.
TEST(StrangersAreLogged, WhereTheUserSeesIt) {
  std::vector<std::string> lines;
  std::mutex mutex;
  EndpointOptions options;
  options.host_id = "here";
  options.logger =
      Logger(LogLevel::kWarning, [&](LogLevel level, std::string_view line) {
        EXPECT_EQ(level, LogLevel::kWarning);
        std::lock_guard lock(mutex);
        lines.emplace_back(line);
      });
  {
    Endpoint victim(options);
    for (int i = 0; i < 15; ++i) {
      RawConnection raw(victim.qp->qp_num);
      raw.Send("GET / HTTP/1.1\r\n\r\n");
      EXPECT_TRUE(raw.ClosedByPeer());
    }
  }
  ASSERT_EQ(lines.size(), 10U);
  EXPECT_NE(lines.front().find("refused a connection over TCP"),
            std::string::npos)
      << lines.front();
  EXPECT_NE(lines.back().find("further ones are not logged"), std::string::npos)
      << lines.back();
}

// As a peer does whose job has ended, or who has waited for too long.
TEST(StrangersAreLogged, ButNotWhoGoesWithoutHavingSaidAnythingWrong) {
  std::vector<std::string> lines;
  std::mutex mutex;
  EndpointOptions options;
  options.host_id = "here";
  options.logger =
      Logger(LogLevel::kWarning, [&](LogLevel, std::string_view line) {
        std::lock_guard lock(mutex);
        lines.emplace_back(line);
      });
  {
    Endpoint victim(options);
    for (int i = 0; i < 5; ++i) {
      RawConnection raw(victim.qp->qp_num);
      Introduction introduction =
          Introduction::ForConnector(kTestKey, {}).value();
      raw.Send(introduction.Start());
      EXPECT_FALSE(raw.Receive(introduction.wanted()).empty());
    }
    RawConnection raw(victim.qp->qp_num);
    raw.Send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(raw.ClosedByPeer());
  }
  ASSERT_EQ(lines.size(), 1U) << lines.front();
  EXPECT_EQ(lines.front().find("End of file"), std::string::npos);
}

// A context of this host whose socket is not there, or is somebody else's, is
// not looked for at a TCP port that anybody may have taken.
TEST(LocalPeers, AreNotLookedForOverTcp) {
  const FileDescriptor listener(
      socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(
      static_cast<std::uint16_t>(Options().first_port + BlockOf(kHighestQpn)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address),
                 sizeof address),
            0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  Endpoint endpoint;
  Identity absent = endpoint.identity();
  absent.qpn = kHighestQpn;
  endpoint.Connect(absent);
  ASSERT_EQ(endpoint.Send(1, {endpoint.Sge(0, 8)}), 0);
  EXPECT_EQ(endpoint.Poll().value().status, IBV_WC_RETRY_EXC_ERR);
  pollfd connection = {listener.get(), POLLIN, 0};
  EXPECT_EQ(poll(&connection, 1, 0), 0);
}

TEST_F(Strangers, ThoseWhoSayNothingDoNotKeepPeersOut) {
  std::vector<RawConnection> silent;
  for (int i = 0; i < 200; ++i) {
    silent.emplace_back(victim_->qp->qp_num);
  }
  RawConnection peer(victim_->qp->qp_num);
  EXPECT_TRUE(peer.Introduce(kTestKey, FakeClaim()));
  EXPECT_TRUE(silent.front().ClosedByPeer());
  Exchange();
}

TEST_F(Strangers, WrongSecretOrClaimIsNotWelcome) {
  const Introduction::Claim good = FakeClaim();
  EXPECT_FALSE(RawConnection(victim_->qp->qp_num).Introduce("wrong", good));
  for (int i = 0; i < 5; ++i) {
    Introduction::Claim claim = good;
    claim.from.gid.raw[15] ^= i == 0 ? 1 : 0;
    claim.from.qpn ^= i == 1 ? 1 : 0;
    claim.to_qpn ^= i == 2 ? 1 : 0;  // one that does not exist
    claim.to_qpn ^= i == 3 ? 0xff000000 : 0;
    claim.type = i == 4 ? IBV_QPT_UC : IBV_QPT_RC;
    EXPECT_FALSE(RawConnection(victim_->qp->qp_num).Introduce(kTestKey, claim))
        << i;
  }
  EXPECT_TRUE(RawConnection(victim_->qp->qp_num).Introduce(kTestKey, good));
  Exchange();
}

TEST_F(Strangers, GarbageOfAPeerClosesItsConnectionOnly) {
  PacketHeader past_the_end;
  past_the_end.opcode = IBV_WR_SEND;
  past_the_end.message_bytes = past_the_end.payload_bytes = 10;
  past_the_end.offset = 1;
  PacketHeader unasked;  // data that nobody has asked for
  unasked.kind = PacketKind::kReadResponse;
  unasked.message_bytes = unasked.payload_bytes = 8;
  PacketHeader early;  // acknowledges what has not been sent
  early.kind = PacketKind::kAck;
  early.psn = 1;
  for (const std::string& garbage :
       {std::string(4096, 'x'), Packet(past_the_end, "0123456789"),
        Packet(unasked, "01234567"), Packet(early)}) {
    RawConnection raw(victim_->qp->qp_num);
    ASSERT_TRUE(raw.Introduce(kTestKey, FakeClaim()));
    raw.Send(garbage);
    EXPECT_TRUE(raw.ClosedByPeer());
    EXPECT_EQ(victim_->State(), IBV_QPS_RTS);
    Exchange();
  }
}

TEST_F(Strangers, MoreReadsThanAllowedCloseTheConnection) {
  RawConnection raw(victim_->qp->qp_num);
  ASSERT_TRUE(raw.Introduce(kTestKey, FakeClaim()));
  PacketHeader read;
  read.opcode = IBV_WR_RDMA_READ;
  read.rkey = victim_->identity().rkey;
  read.remote_address = victim_->identity().address;
  read.message_bytes = 1 << 20;
  std::string all;
  for (std::uint32_t i = 0; i < 100; ++i) {
    read.psn = i;
    all += Packet(read);
  }
  raw.Send(all);
  EXPECT_TRUE(raw.ClosedByPeer());
  EXPECT_EQ(victim_->State(), IBV_QPS_RTS);
  Exchange();
}

TEST_F(Strangers, RequestIsAnsweredOnceHoweverOftenItComes) {
  RawConnection raw(victim_->qp->qp_num);
  ASSERT_TRUE(raw.Introduce(kTestKey, FakeClaim()));
  ASSERT_EQ(victim_->Receive(1, {victim_->Sge(0, 8)}), 0);
  ASSERT_EQ(victim_->Receive(2, {victim_->Sge(0, 8)}), 0);
  PacketHeader header;
  header.opcode = IBV_WR_SEND;
  header.message_bytes = header.payload_bytes = 4;
  for (int i = 0; i < 3; ++i) {
    raw.Send(Packet(header, "data"));
    EXPECT_EQ(raw.Receive(kPacketHeaderBytes).size(), kPacketHeaderBytes);
  }
  EXPECT_EQ(victim_->Poll().value().wr_id, 1u);
  EXPECT_TRUE(victim_->Quiet());
}

}  // namespace
}  // namespace ringpipe::verbs::soft
