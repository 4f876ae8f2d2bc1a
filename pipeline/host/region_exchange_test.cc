#include "pipeline/host/region_exchange.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "auth/byte_stream.h"
#include "auth/handshake.h"
#include "base/deadline.h"
#include "base/descriptors_in_flight.h"
#include "base/file_descriptor.h"
#include "base/liveness_bound.h"
#include "base/peer_process.h"
#include "base/status.h"
#include "base/unix_message.h"
#include "gtest/gtest.h"
#include "pipeline/host/region.h"

namespace ringpipe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kHeaderBytes = 4096;
constexpr const char* kKey = "the key of the job";

Deadline Soon() { return Deadline::After(LivenessBound(seconds(2))); }

std::atomic<int>& Word(Region& region, int index) {
  return reinterpret_cast<std::atomic<int>*>(region.header())[index];
}

using Outcome = Result<std::vector<RegionPeer>>;

// A rank that has made its region and listens.
struct Rank {
  explicit Rank(int rank, const std::string& key = kKey)
      : region(Region::Create(kHeaderBytes).value()),
        exchange(RegionExchange::Create(rank, key, region).value()) {}

  std::shared_ptr<Region> region;
  std::unique_ptr<RegionExchange> exchange;
};

// The ranks of a host, as threads of this process.
class Host {
 public:
  explicit Host(int size) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.emplace_back(rank);
      addresses_.push_back(ranks_.back().exchange->Address());
    }
  }
  ~Host() { Join(); }

  Rank& operator[](int rank) { return ranks_[rank]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<std::string>& addresses() const { return addresses_; }

  Outcome Run(int rank, Deadline deadline = Soon(), int abort_fd = -1) {
    return ranks_[rank].exchange->Run(addresses_, deadline, abort_fd);
  }
  void Start(int rank) {
    outcomes_.resize(ranks_.size());
    threads_.emplace_back([this, rank] { outcomes_[rank] = Run(rank); });
  }
  void StartAll() {
    for (int rank = 0; rank < size(); ++rank) {
      Start(rank);
    }
  }
  void Join() {
    for (std::thread& thread : threads_) {
      thread.join();
    }
    threads_.clear();
  }
  // Of a rank that was started; after Join.
  const Outcome& outcome(int rank) { return *outcomes_[rank]; }

  // Each rank has what each other has made.
  void ExpectAllHaveAll() {
    for (int rank = 0; rank < size(); ++rank) {
      ASSERT_TRUE(outcome(rank).ok()) << outcome(rank).status().ToString();
      const std::vector<RegionPeer>& peers = *outcome(rank);
      ASSERT_EQ(peers.size(), ranks_.size());
      for (int peer = 0; peer < size(); ++peer) {
        EXPECT_EQ(peers[peer].region,
                  peer == rank ? nullptr : ranks_[peer].region);
      }
    }
  }

 private:
  std::vector<Rank> ranks_;
  std::vector<std::string> addresses_;
  std::vector<std::thread> threads_;
  std::vector<std::optional<Outcome>> outcomes_;
};

// A socket, and nothing that obeys rules.
class Raw {
 public:
  explicit Raw(FileDescriptor socket) : socket_(std::move(socket)) {}

  static Raw ConnectTo(const std::string& name) {
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    const socklen_t length = AbstractAddress(name, &address);
    EXPECT_EQ(
        connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length),
        0);
    return Raw(std::move(socket));
  }

  void Send(std::string_view message) {
    EXPECT_TRUE(SendMessage(socket_.get(), message));
  }
  void SendFile(std::string_view message, int file) {
    EXPECT_TRUE(SendMessage(socket_.get(), message, {&file, 1}));
  }
  // The next message; nothing where the other end is closed. Whatever comes,
  // descriptors are counted.
  std::string Receive() {
    pollfd readable = {socket_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&readable, 1, LivenessBound(2'000)), 1);
    std::array<char, 2048> buffer;
    std::array<FileDescriptor, 3> files;
    const ReceivedMessage received =
        ReceiveMessage(socket_.get(), buffer, files);
    files_ += received.files;
    return received.bytes > 0 ? std::string(buffer.data(), received.bytes) : "";
  }
  std::size_t files() const { return files_; }

 private:
  FileDescriptor socket_;
  std::size_t files_ = 0;
};

Handshake::Options OptionsOf(const std::string& secret, int connector,
                             int acceptor, const std::string& address) {
  return {secret, "host memory",
          std::to_string(connector) + " to " + std::to_string(acceptor) +
              " at " + address};
}

FileDescriptor ListenInThePlaceOf(Host& host, int rank) {
  host[rank].exchange.reset();
  FileDescriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un name;
  const socklen_t length = AbstractAddress(host.addresses()[rank], &name);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&name), length),
            0);
  EXPECT_EQ(listen(listener.get(), SOMAXCONN), 0);
  return listener;
}

// What rank `rank` says first to `acceptor`.
std::string Hello(int rank, Handshake& handshake) {
  ByteWriter writer;
  writer.U32(static_cast<std::uint32_t>(rank));
  writer.Raw(handshake.Start());
  return writer.Take();
}

// --- Ranks -------------------------------------------------------------------

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, GetEachOthersMemory) {
  Host host(GetParam());
  host.StartAll();
  host.Join();
  host.ExpectAllHaveAll();
  for (int rank = 0; rank < host.size(); ++rank) {
    for (int peer = 0; peer < host.size(); ++peer) {
      if (peer != rank) {
        const RegionPeer& other = (*host.outcome(rank))[peer];
        Word(*other.region, rank) = 100 * rank + peer;
        // Ranks of one process die together.
        EXPECT_EQ(other.pid, getpid());
        EXPECT_EQ(other.pidfd, nullptr);
      }
    }
  }
  for (int rank = 0; rank < host.size(); ++rank) {
    EXPECT_EQ(host[rank].exchange->strangers(), 0u);
    for (int peer = 0; peer < host.size(); ++peer) {
      EXPECT_EQ(Word(*host[rank].region, peer),
                peer == rank ? 0 : 100 * peer + rank);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Ranks, testing::Values(2, 8, 32),
                         testing::PrintToStringParamName());

using AddressText = std::array<char, 64>;

AddressText TextOf(const std::string& address) {
  AddressText text = {};
  address.copy(text.data(), text.size() - 1);
  return text;
}

bool IsReadable(const FileDescriptor& fd, int timeout_ms) {
  pollfd readable = {fd.get(), POLLIN, 0};
  return poll(&readable, 1, timeout_ms) == 1;
}

// What a rank in a process of its own does; whether all was well.
bool RunInChild(int rank, ValuePipe& pipe) {
  const Rank own(rank);
  pipe.Put(TextOf(own.exchange->Address()));
  std::vector<std::string> addresses(2);
  addresses[1 - rank] = pipe.Get<AddressText>().data();
  const Outcome outcome = own.exchange->Run(addresses, Soon(), -1);
  if (!outcome.ok()) {
    return false;
  }
  const RegionPeer& parent = (*outcome)[1 - rank];
  Word(*parent.region, rank) = 5;
  pipe.Put(true);
  pipe.Get<bool>();
  return parent.pid == getppid() && parent.pidfd != nullptr &&
         !IsReadable(*parent.pidfd, 0) && Word(*own.region, 1 - rank) == 6;
}

class Processes : public testing::TestWithParam<int> {};

TEST_P(Processes, GetEachOthersMemoryAndProcessIds) {
  const int rank = GetParam();
  PeerProcess child(
      [rank](ValuePipe& pipe) { return RunInChild(1 - rank, pipe); });
  const Rank own(rank);
  std::vector<std::string> addresses(2);
  addresses[1 - rank] = child.pipe().Get<AddressText>().data();
  child.pipe().Put(TextOf(own.exchange->Address()));
  const Outcome outcome = own.exchange->Run(addresses, Soon(), -1);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  const RegionPeer& peer = (*outcome)[1 - rank];
  EXPECT_EQ(peer.pid, child.pid());
  ASSERT_NE(peer.pidfd, nullptr);
  EXPECT_FALSE(IsReadable(*peer.pidfd, 0));
  Word(*peer.region, rank) = 6;
  child.pipe().Get<bool>();
  EXPECT_EQ(Word(*own.region, 1 - rank), 5);
  child.pipe().Put(true);
  EXPECT_TRUE(child.Join());
  EXPECT_TRUE(IsReadable(*peer.pidfd, LivenessBound(2'000)));
}

// However many communicators they have: and no descriptor of the memory.
TEST(Process, HasOneDescriptorOfAnotherProcess) {
  PeerProcess child([](ValuePipe& pipe) {
    return RunInChild(1, pipe) && RunInChild(1, pipe);
  });
  std::vector<RegionPeer> peers;
  for (int communicator = 0; communicator < 2; ++communicator) {
    const Rank own(0);
    const std::vector<std::string> addresses = {
        "", child.pipe().Get<AddressText>().data()};
    child.pipe().Put(TextOf(own.exchange->Address()));
    Outcome outcome = own.exchange->Run(addresses, Soon(), -1);
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    peers.push_back(std::move((*outcome)[1]));
    Word(*peers.back().region, 0) = 6;
    child.pipe().Get<bool>();
    child.pipe().Put(true);
  }
  EXPECT_TRUE(child.Join());
  EXPECT_EQ(peers[0].pidfd, peers[1].pidfd);
  EXPECT_NE(peers[0].region, peers[1].region);
  EXPECT_LT(peers[0].region->fd(), 0);
}

INSTANTIATE_TEST_SUITE_P(Rank, Processes, testing::Values(0, 1),
                         testing::PrintToStringParamName());

TEST(RegionExchange, LeavesOutRanksOfOtherHosts) {
  Host host(3);
  std::vector<std::string> addresses = host.addresses();
  addresses[1].clear();
  std::thread first(
      [&] { EXPECT_TRUE(host[0].exchange->Run(addresses, Soon(), -1).ok()); });
  const Outcome outcome = host[2].exchange->Run(addresses, Soon(), -1);
  first.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_EQ((*outcome)[0].region, host[0].region);
  EXPECT_EQ((*outcome)[1].region, nullptr);
  EXPECT_EQ((*outcome)[2].region, nullptr);
}

// Two ranks, and what each sends for the other to wake it.
std::pair<Outcome, Outcome> TradeWakes(int first, int second) {
  const auto regions = std::array{Region::Create(kHeaderBytes).value(),
                                  Region::Create(kHeaderBytes).value()};
  const auto one = RegionExchange::Create(0, kKey, regions[0], first).value();
  const auto other =
      RegionExchange::Create(1, kKey, regions[1], second).value();
  const std::vector<std::string> addresses = {one->Address(), other->Address()};
  std::pair<Outcome, Outcome> outcomes = {Status(), Status()};
  std::thread thread([&] { outcomes.first = one->Run(addresses, Soon(), -1); });
  outcomes.second = other->Run(addresses, Soon(), -1);
  thread.join();
  return outcomes;
}

std::array<FileDescriptor, 2> SocketPair(int type) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

TEST(Wake, OfEachRankIsTheOthers) {
  const auto first = SocketPair(SOCK_DGRAM);
  const auto second = SocketPair(SOCK_DGRAM);
  const auto [one, other] = TradeWakes(first[1].get(), second[1].get());
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_FALSE(IsReadable(second[0], 0));
  EXPECT_EQ(send((*one)[1].wake.get(), "", 1, MSG_DONTWAIT), 1);
  EXPECT_TRUE(IsReadable(second[0], 0));
  EXPECT_FALSE(IsReadable(first[0], 0));
  EXPECT_EQ(send((*other)[0].wake.get(), "", 1, MSG_DONTWAIT), 1);
  EXPECT_TRUE(IsReadable(first[0], 0));
}

TEST(Wake, ThatIsNoDatagramSocketOrIsMissingIsRefused) {
  const auto wake = SocketPair(SOCK_DGRAM);
  const auto stream = SocketPair(SOCK_STREAM);
  const FileDescriptor event(eventfd(0, EFD_CLOEXEC));
  for (const int bad : {event.get(), stream[0].get(), -1}) {
    EXPECT_EQ(TradeWakes(wake[1].get(), bad).first.status().code(),
              StatusCode::kMismatch);
  }
}

// --- Strangers ---------------------------------------------------------------

TEST(Stranger, WithAnotherKeyGetsNothingAndTheRanksGetTheirs) {
  Host host(2);
  host.Start(1);
  Rank impostor(0, "another key");
  const Outcome stolen = impostor.exchange->Run(
      host.addresses(), Deadline::After(milliseconds(100)), -1);
  EXPECT_EQ(stolen.status().code(), StatusCode::kTimeout);
  host.Start(0);
  host.Join();
  host.ExpectAllHaveAll();
  EXPECT_GT(host[1].exchange->strangers(), 0u);
}

TEST(Stranger, WithAWrongProofGetsNoDescriptor) {
  Host host(2);
  host.Start(1);
  Raw stranger = Raw::ConnectTo(host.addresses()[1]);
  Handshake handshake =
      Handshake::Create(Handshake::Role::kConnector,
                        OptionsOf("guess", 0, 1, host.addresses()[1]))
          .value();
  stranger.Send(Hello(0, handshake));
  stranger.Send(handshake.Receive(stranger.Receive()).value());
  EXPECT_EQ(stranger.Receive(), "");
  EXPECT_EQ(stranger.files(), 0u);
  host.Start(0);
  host.Join();
  host.ExpectAllHaveAll();
  EXPECT_EQ(host[1].exchange->strangers(), 1u);
}

TEST(Stranger, WhoListensInARanksPlaceGetsNoDescriptor) {
  Host host(2);
  const std::string address = host.addresses()[1];
  const FileDescriptor listener = ListenInThePlaceOf(host, 1);
  host.Start(0);
  Raw stranger{FileDescriptor(accept(listener.get(), nullptr, nullptr))};
  Handshake handshake = Handshake::Create(Handshake::Role::kAcceptor,
                                          OptionsOf("guess", 0, 1, address))
                            .value();
  stranger.Send(
      handshake.Receive(std::string_view(stranger.Receive()).substr(4))
          .value());
  EXPECT_NE(stranger.Receive(), "");
  stranger.Send("ringpipeP1" + std::string(32, 'x'));
  EXPECT_EQ(stranger.Receive(), "");
  EXPECT_EQ(stranger.files(), 0u);
  host.Join();
  EXPECT_EQ(host.outcome(0).status().code(), StatusCode::kPermissionDenied);
  EXPECT_NE(host.outcome(0).status().message().find("rank 1"),
            std::string::npos);
}

// Each is what no rank would say first.
TEST(Stranger, WhoSaysAnythingElseIsClosed) {
  Host host(2);
  host.Start(1);
  Handshake handshake =
      Handshake::Create(Handshake::Role::kConnector,
                        OptionsOf(kKey, 0, 1, host.addresses()[1]))
          .value();
  const std::string hello = Hello(0, handshake);
  std::vector<std::string> sayings = {"x",
                                      "GET / HTTP/1.1\r\n",
                                      std::string(2048, 'x'),
                                      std::string(5000, 'x'),
                                      hello.substr(0, hello.size() - 1),
                                      hello + "x"};
  for (const int rank : {1, 2, 1000, -1}) {
    Handshake other =
        Handshake::Create(Handshake::Role::kConnector,
                          OptionsOf(kKey, rank, 1, host.addresses()[1]))
            .value();
    sayings.push_back(Hello(rank, other));
  }
  // What is good for another exchange.
  Handshake elsewhere =
      Handshake::Create(Handshake::Role::kConnector,
                        OptionsOf(kKey, 0, 1, host.addresses()[0]))
          .value();
  sayings.push_back(Hello(0, elsewhere));
  for (const std::string& saying : sayings) {
    Raw stranger = Raw::ConnectTo(host.addresses()[1]);
    stranger.Send(saying);
    EXPECT_EQ(stranger.Receive(), "") << saying.substr(0, 20);
  }
  host.Start(0);
  host.Join();
  host.ExpectAllHaveAll();
  EXPECT_EQ(host[1].exchange->strangers(), sayings.size());
}

// More than there are places for, and all before the first rank.
TEST(Strangers, WhoAreSilentKeepNobodyWaiting) {
  constexpr int kMany = 300;
  Host host(3);
  std::vector<Raw> strangers;
  for (int i = 0; i < kMany; ++i) {
    strangers.push_back(Raw::ConnectTo(host.addresses()[2]));
  }
  host.StartAll();
  host.Join();
  host.ExpectAllHaveAll();
  EXPECT_EQ(host[2].exchange->strangers(), std::uint64_t{kMany});
}

// No more than `more` descriptors for this process.
void AllowDescriptors(int more) {
  const FileDescriptor next(open("/dev/null", O_RDONLY | O_CLOEXEC));
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(next.get() + more);
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(Strangers, WhoTakeAllDescriptorsKeepNobodyWaiting) {
  PeerProcess child([](ValuePipe& pipe) {
    AllowDescriptors(24);
    return RunInChild(1, pipe);
  });
  const Rank own(0);
  const std::vector<std::string> addresses = {
      "", child.pipe().Get<AddressText>().data()};
  std::vector<Raw> strangers;
  for (int i = 0; i < 50; ++i) {
    strangers.push_back(Raw::ConnectTo(addresses[1]));
  }
  child.pipe().Put(TextOf(own.exchange->Address()));
  const Outcome outcome = own.exchange->Run(addresses, Soon(), -1);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  Word(*(*outcome)[1].region, 0) = 6;
  child.pipe().Get<bool>();
  child.pipe().Put(true);
  EXPECT_TRUE(child.Join());
}

std::string TimeoutMessage(Host& host, int rank) {
  const Outcome outcome = host.Run(rank, Deadline::After(seconds(1)));
  EXPECT_EQ(outcome.status().code(), StatusCode::kTimeout);
  return outcome.status().message();
}

// A rank may be missing because of them.
TEST(Strangers, AreCountedByUserInTheErrorOfARankThatWaits) {
  Host host(2);
  std::vector<Raw> strangers;
  for (int i = 0; i < 3; ++i) {
    strangers.push_back(Raw::ConnectTo(host.addresses()[1]));
  }
  strangers.back().Send("garbage");
  EXPECT_EQ(TimeoutMessage(host, 1),
            "no shared host memory in time from rank 0 of this host; 3 "
            "connections to this rank proved nothing (of user " +
                std::to_string(geteuid()) + ": 3)");
}

TEST(Strangers, AreSuspectedWhereARankClosesConnections) {
  Host host(2);
  const FileDescriptor listener = ListenInThePlaceOf(host, 1);
  std::thread rank([&listener] {
    while (FileDescriptor(accept(listener.get(), nullptr, nullptr))) {
    }
  });
  const std::string message = TimeoutMessage(host, 0);
  shutdown(listener.get(), SHUT_RDWR);
  rank.join();
  EXPECT_NE(message.find("from rank 1 of this host, which closed "),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("because of strangers"), std::string::npos) << message;
}

TEST(Strangers, OfManyUsersAreSaidInShort) {
  Strangers strangers;
  EXPECT_EQ(strangers.Describe(), "");
  for (uid_t user = 0; user < 1000; ++user) {
    strangers.Count(user % 500);
  }
  EXPECT_EQ(strangers.count(), 1000u);
  EXPECT_EQ(strangers.Describe(),
            "; 1000 connections to this rank proved nothing (of user 0: 2; of "
            "user 1: 2; of user 2: 2; of user 3: 2; of user 4: 2; of other "
            "users: 990)");
}

// A process that connects and connects, and keeps all it can.
bool Flood(ValuePipe& pipe) {
  const AddressText address = pipe.Get<AddressText>();
  std::vector<FileDescriptor> sockets;
  sockaddr_un name;
  const socklen_t length = AbstractAddress(address.data(), &name);
  for (std::size_t i = 0;; ++i) {
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect(socket.get(), reinterpret_cast<sockaddr*>(&name), length) !=
        0) {
      continue;
    }
    SendMessage(socket.get(), i % 2 == 0 ? "garbage" : "");
    if (sockets.size() < 500) {
      sockets.push_back(std::move(socket));
    } else {
      sockets[i % 500] = std::move(socket);
    }
    if (i == 100) {
      pipe.Put(true);
    }
  }
}

TEST(Strangers, WhoFloodKeepNobodyWaiting) {
  PeerProcess flood(Flood);
  Host host(8);
  flood.pipe().Put(TextOf(host.addresses()[7]));
  flood.pipe().Get<bool>();
  host.StartAll();
  host.Join();
  host.ExpectAllHaveAll();
  EXPECT_GT(host[7].exchange->strangers(), 0u);
}

// --- What ends it early ------------------------------------------------------

TEST(RegionExchange, NamesTheRanksThatDoNotCome) {
  const auto kBothCome = LivenessBound(seconds(1));
  Host host(4);
  Outcome first = Status();
  std::thread thread([&] { first = host.Run(0, Deadline::After(kBothCome)); });
  const Outcome second = host.Run(2, Deadline::After(kBothCome));
  thread.join();
  EXPECT_EQ(first.status().code(), StatusCode::kTimeout);
  EXPECT_NE(first.status().message().find("from ranks 1, 3 of this host"),
            std::string::npos)
      << first.status().ToString();
  EXPECT_EQ(second.status().code(), StatusCode::kTimeout);
  EXPECT_NE(second.status().message().find("from ranks 1, 3 of this host"),
            std::string::npos)
      << second.status().ToString();
}

class DescriptorsInFlightTest : public testing::TestWithParam<int> {};

// The rank is not slow, nor is its peer.
TEST_P(DescriptorsInFlightTest, AreNamedWhereTheyKeepARankFromSendingItsOwn) {
  const int rank = GetParam();
  PeerProcess child([rank](ValuePipe& pipe) {
    const Rank own(rank);
    pipe.Put(TextOf(own.exchange->Address()));
    std::vector<std::string> addresses(2);
    addresses[1 - rank] = pipe.Get<AddressText>().data();
    const DescriptorsInFlight in_flight(/*limit=*/64);
    const Status status = own.exchange->Run(addresses, Soon(), -1).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("(ETOOMANYREFS); raise 'ulimit -n', or run "
                                    "fewer ranks on this host"),
              std::string::npos)
        << status.ToString();
    EXPECT_EQ(status.message().find("strangers"), std::string::npos)
        << status.ToString();
    return !testing::Test::HasFailure();
  });
  const Rank own(1 - rank);
  std::vector<std::string> addresses(2);
  addresses[rank] = child.pipe().Get<AddressText>().data();
  child.pipe().Put(TextOf(own.exchange->Address()));
  const FileDescriptor abort(eventfd(0, EFD_CLOEXEC));
  std::thread thread([&] {
    EXPECT_TRUE(child.Join());
    const std::uint64_t one = 1;
    EXPECT_EQ(write(abort.get(), &one, sizeof one), 8);
  });
  EXPECT_FALSE(own.exchange->Run(addresses, Soon(), abort.get()).ok());
  thread.join();
}

INSTANTIATE_TEST_SUITE_P(Rank, DescriptorsInFlightTest, testing::Values(0, 1),
                         testing::PrintToStringParamName());

TEST(RegionExchange, EndsWhereARankListensNoMore) {
  Host host(2);
  host[1].exchange.reset();
  const Outcome outcome = host.Run(0, Deadline::Infinite());
  EXPECT_EQ(outcome.status().code(), StatusCode::kPeerLost);
  EXPECT_NE(outcome.status().message().find("rank 1"), std::string::npos);
}

TEST(RegionExchange, EndsAtAnAbort) {
  for (const int rank : {0, 1}) {
    Host host(2);
    const FileDescriptor abort(eventfd(0, EFD_CLOEXEC));
    std::thread thread([&abort] {
      const std::uint64_t one = 1;
      EXPECT_EQ(write(abort.get(), &one, sizeof one), 8);
    });
    const Outcome outcome = host.Run(rank, Deadline::Infinite(), abort.get());
    thread.join();
    EXPECT_EQ(outcome.status().code(), StatusCode::kAborted);
  }
}

TEST(RegionExchange, RefusesWhatIsNoAddress) {
  Host host(2);
  const std::vector<std::string> addresses = {"", std::string(108, 'x')};
  EXPECT_EQ(host[0]
                .exchange->Run(addresses, Deadline::Infinite(), -1)
                .status()
                .code(),
            StatusCode::kMismatch);
}

// A rank of the job that sends another file.
TEST(RegionExchange, NamesARankThatSendsNoRegion) {
  Host host(2);
  host.Start(1);
  Raw rank = Raw::ConnectTo(host.addresses()[1]);
  Handshake handshake =
      Handshake::Create(Handshake::Role::kConnector,
                        OptionsOf(kKey, 0, 1, host.addresses()[1]))
          .value();
  rank.Send(Hello(0, handshake));
  rank.Send(handshake.Receive(rank.Receive()).value());
  EXPECT_TRUE(handshake.Receive(rank.Receive()).ok());
  EXPECT_TRUE(handshake.done());
  const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::string region = "ringpipeR3";
  rank.SendFile(region, null.get());
  EXPECT_EQ(rank.Receive(), region);
  EXPECT_EQ(rank.files(), 1u);
  host.Join();
  EXPECT_EQ(host.outcome(1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(host.outcome(1).status().message().find("rank 0 (pid "),
            std::string::npos)
      << host.outcome(1).status().ToString();
}

TEST(RegionExchange, IsForOneRun) {
  Host host(1);
  EXPECT_TRUE(host.Run(0).ok());
  EXPECT_EQ(host.Run(0).status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace ringpipe
