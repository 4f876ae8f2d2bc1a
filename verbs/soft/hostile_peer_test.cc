// What a peer stores in the segments, or sends on the socket, in spite of all
// rules: found by fuzz/segment_fuzzer or by reading, each on its own.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "auth/confined_process.h"
#include "base/descriptors_in_flight.h"
#include "base/liveness_bound.h"
#include "base/peer_process.h"
#include "gtest/gtest.h"
#include "verbs/soft/completion_queue.h"
#include "verbs/soft/context.h"
#include "verbs/soft/endpoint.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/peer_link.h"
#include "verbs/soft/queue_pair.h"
#include "verbs/soft/receive_queue.h"
#include "verbs/soft/segment.h"
#include "verbs/soft/slot_transfer.h"

namespace ringpipe::verbs::soft {
namespace {

Options OfHost(const std::string& host) {
  Options options;
  options.host_id = host;
  return options;
}

// --- Receive completions -----------------------------------------------------

class ForgedCompletion : public testing::Test {
 protected:
  ForgedCompletion() {
    EXPECT_EQ(pair_.b.Receive(1, {pair_.b.Sge(0, 100)}), 0);
  }

  // What b polls when its peer has written this.
  ibv_wc Forge(std::uint32_t status, std::uint32_t opcode,
               std::uint32_t byte_count, std::uint32_t flags = 0) {
    QueuePair& qp = QueuePair::From(pair_.b.qp);
    ReceiveCompletion& entry =
        Context::From(pair_.b.context).shared().completions[qp.index()][0];
    entry.status = status;
    entry.opcode = opcode;
    entry.byte_count = byte_count;
    entry.flags = flags;
    qp.shared().completed = 1;
    qp.receive_queue_cq().ReceivesReady(qp.index(), /*solicited=*/false);
    const ibv_wc completion = pair_.b.Poll().value();
    EXPECT_EQ(completion.wr_id, 1u);
    EXPECT_TRUE(pair_.b.Quiet());
    return completion;
  }

  Pair pair_;
};

TEST_F(ForgedCompletion, OfMoreBytesThanThereIsRoomForIsAnError) {
  EXPECT_EQ(Forge(IBV_WC_SUCCESS, IBV_WC_RECV, 101).status, IBV_WC_GENERAL_ERR);
}

TEST_F(ForgedCompletion, OfAllTheRoomIsNone) {
  const ibv_wc completion = Forge(IBV_WC_SUCCESS, IBV_WC_RECV, 100);
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.byte_len, 100u);
}

TEST_F(ForgedCompletion, OfASendIsAnErrorOfTheReceive) {
  const ibv_wc completion = Forge(IBV_WC_SUCCESS, IBV_WC_SEND, 10);
  EXPECT_EQ(completion.status, IBV_WC_GENERAL_ERR);
  EXPECT_EQ(completion.opcode, IBV_WC_RECV);
}

TEST_F(ForgedCompletion, OfNoSuchStatusIsAnError) {
  EXPECT_EQ(Forge(77, IBV_WC_RECV, 10).status, IBV_WC_GENERAL_ERR);
}

TEST_F(ForgedCompletion, ShowsOnlyFlagsOfReceives) {
  EXPECT_EQ(Forge(IBV_WC_SUCCESS, IBV_WC_RECV, 10, ~0u).wc_flags,
            static_cast<unsigned>(IBV_WC_WITH_IMM | IBV_WC_GRH));
}

TEST(ForgedCount, OfCompletionsDoesNotPutADatagramIntoMemoryThatIsNotPosted) {
  // Not on the stack, whose alignment AddressSanitizer's does not keep.
  const auto owned = std::make_unique<OwnedQueuePair>();
  const auto shared = std::make_unique<SharedQueuePair>();
  const auto lists = std::make_unique<ScatterList[]>(4);
  const auto completions = std::make_unique<ReceiveCompletion[]>(4);
  ReceiveQueue receives({*owned, *shared, lists.get(), completions.get()},
                        0x401, 4, 1, nullptr);
  ibv_sge sge = {};
  ibv_recv_wr request = {};
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(receives.Post(&request, &bad), 0);
  shared->completed = 3;
  EXPECT_FALSE(receives.Fill(nullptr, 1, {}, DatagramHeader()));
  shared->completed = 0;
  EXPECT_TRUE(receives.Fill(nullptr, 1, {}, DatagramHeader()));
}

// --- What a requester reads of its responder ---------------------------------

class ForgedSlots : public testing::Test {
 protected:
  static constexpr std::uint32_t kBytes = 100;

  Step Run() {
    const iovec local = {memory_.data(), kBytes};
    Operation operation;
    operation.opcode = IBV_WR_RDMA_READ;
    operation.bytes = operation.message_bytes = kBytes;
    operation.local = {&local, 1};
    const RemoteRange remote = {0x1000, kBytes, 0x101, 0, {}};
    bool wake;
    return transfer_.Run(operation, {&remote, 1}, &wake);
  }

  OwnedQueuePair owned_ = {};
  SharedQueuePair shared_ = {};
  std::unique_ptr<SlotTransfer::Slot[]> slots_ =
      std::make_unique<SlotTransfer::Slot[]>(kSlots);
  std::array<std::byte, 2 * kBytes> memory_ = {};
  SlotTransfer transfer_{owned_, shared_, slots_.get()};
};

TEST_F(ForgedSlots, OfNoBytesEndTheReadAllTheSame) {
  ASSERT_EQ(Run(), Step::kInFlight);
  shared_.slots[0].bytes = 0;
  owned_.slots_done = 0x7fffffff;  // as many to look at, one by one
  EXPECT_EQ(Run(), Step::kDone);
}

TEST_F(ForgedSlots, DoNotMakeItReadBeyondThem) {
  ASSERT_EQ(Run(), Step::kInFlight);
  memset(slots_.get(), 1, kBytes);
  shared_.slots[0].bytes = 0xffffffff;
  shared_.slots_filled = 77;
  owned_.slots_done = 1;
  EXPECT_EQ(Run(), Step::kDone);
  EXPECT_EQ(memory_[kBytes - 1], std::byte{1});
  EXPECT_EQ(memory_[kBytes], std::byte{0});
}

TEST(ForgedRegion, ThatIsNotAlignedTakesNoAtomic) {
  Pair pair;
  Context::From(pair.b.context).owned().regions[pair.b.mr->rkey >> 8].offset +=
      4;
  ASSERT_EQ(pair.a.FetchAdd(1, {pair.a.Sge(0, 8)}, pair.b.identity(), 0, 1), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(FullChannel, DoesNotHoldTheRequesterUp) {
  Pair pair;
  const std::uint64_t most = ~std::uint64_t{0} - 1;
  ASSERT_EQ(write(pair.b.channel->fd, &most, sizeof most),
            static_cast<ssize_t>(sizeof most));
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 0), 0);
  ASSERT_EQ(pair.b.Receive(1, {pair.b.Sge(0, 8)}), 0);
  ASSERT_EQ(pair.a.Send(2, {pair.a.Sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.Poll().value().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.Poll().value().status, IBV_WC_SUCCESS);
}

// --- A third process ---------------------------------------------------------

// What a context answers to who asks to be attached.
// A socket on which the queue pair's context has been asked for its segment;
// none where it cannot be.
FileDescriptor AskForSegment(std::uint32_t qpn) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t length =
      ContextAddress(DeviceOptions(EndpointOptions()), BlockOf(qpn), &address);
  LinkMessage message;
  message.kind = LinkMessage::kAttach;
  message.responder_qpn = qpn;
  message.segment = 1;
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) !=
          0 ||
      !SendLinkMessage(socket.get(), message)) {
    return FileDescriptor();
  }
  return socket;
}

Received AskForSegment(std::uint32_t qpn, LinkFiles* files) {
  const FileDescriptor socket = AskForSegment(qpn);
  LinkMessage message;
  pollfd readable = {socket.get(), POLLIN, 0};
  if (!socket || poll(&readable, 1, 10'000) != 1) {
    return Received::kNothing;
  }
  return ReceiveLinkMessage(socket.get(), &message, files);
}

// Attached to a context like any other, whose queue pairs are not its business.
class ThirdProcess {
 public:
  explicit ThirdProcess(std::uint32_t qpn) {
    EXPECT_EQ(AskForSegment(qpn, &files_), Received::kMessage);
  }

  // Replaces `word` wherever it can at the beginning of what it was given;
  // returns how often it saw it.
  int Replace(std::uint64_t word, std::uint64_t by) {
    int seen = 0;
    for (const FileDescriptor& file : files_) {
      const std::string path = "/proc/self/fd/" + std::to_string(file.get());
      const FileDescriptor again(open(path.c_str(), O_RDWR | O_CLOEXEC));
      seen += Replace(file.get(), PROT_READ | PROT_WRITE, word, by) +
              Replace(again.get(), PROT_READ | PROT_WRITE, word, by) +
              Replace(file.get(), PROT_READ, word, by);
    }
    return seen;
  }

 private:
  static constexpr std::size_t kBytes = 4 << 20;  // all of the regions

  static int Replace(int file, int protection, std::uint64_t word,
                     std::uint64_t by) {
    void* const pages = mmap(nullptr, kBytes, protection, MAP_SHARED, file, 0);
    if (pages == MAP_FAILED) {
      return 0;
    }
    auto* const words = static_cast<std::uint64_t*>(pages);
    int seen = 0;
    for (std::size_t i = 0; i < kBytes / sizeof word; ++i) {
      if (words[i] == word) {
        ++seen;
        if ((protection & PROT_WRITE) != 0) {
          words[i] = by;
        }
      }
    }
    munmap(pages, kBytes);
    return seen;
  }

  LinkFiles files_;
};

// What a requester does on the responder's behalf goes by where the responder
// says that its memory is: nobody else may say so.
TEST(ThirdProcess, CannotTurnAWriteToMemoryThatWasNotGiven) {
  struct Places {
    std::uint64_t given;
    std::uint64_t own;
  };
  EndpointOptions options;
  options.private_memory = true;
  PeerProcess responder([&](ValuePipe& pipe) {
    static volatile std::uint64_t own = 1;
    Endpoint endpoint(options);
    pipe.Put(endpoint.identity());
    pipe.Put(Places{reinterpret_cast<std::uint64_t>(endpoint.data()),
                    reinterpret_cast<std::uint64_t>(&own)});
    endpoint.Connect(pipe.Get<Identity>());
    pipe.Put(true);
    pipe.Get<bool>();  // they have done what they could
    std::uint64_t given;
    memcpy(&given, endpoint.data(), sizeof given);
    return own == 1 && given == 2;
  });
  Endpoint requester(options);
  const auto identity = responder.pipe().Get<Identity>();
  const auto places = responder.pipe().Get<Places>();
  responder.pipe().Put(requester.identity());
  requester.Connect(identity);
  responder.pipe().Get<bool>();

  ThirdProcess third(identity.qpn);
  EXPECT_GT(third.Replace(places.given, places.own), 0) << "looked elsewhere";
  const std::uint64_t word = 2;
  memcpy(requester.data(), &word, sizeof word);
  ASSERT_EQ(requester.Write(1, {requester.Sge(0, sizeof word)}, identity, 0),
            0);
  EXPECT_EQ(requester.Poll().value().status, IBV_WC_SUCCESS);
  responder.pipe().Put(true);
  EXPECT_TRUE(responder.Join());
}

// --- The same user in another user namespace ---------------------------------

// What a process may be that is in a user namespace of its own.
struct Confined {
  bool may_be_traced;
  bool has_id;  // one of that namespace; else it is nobody there
};

bool Write(const char* path, const std::string& text) {
  const FileDescriptor file(open(path, O_WRONLY | O_CLOEXEC));
  return write(file.get(), text.data(), text.size()) ==
         static_cast<ssize_t>(text.size());
}

// Runs `f` in such a child process; -1 where there can be none.
pid_t StartConfined(const Confined& confined, const std::function<int()>& f) {
  // Not as our own namespace may map them: see security.md.
  const std::string user = "1234 " + std::to_string(geteuid()) + " 1";
  const std::string group = "1234 " + std::to_string(getegid()) + " 1";
  const pid_t child = ForkIntoUserNamespace();
  if (child == 0) {
    if (confined.has_id && !(Write("/proc/self/uid_map", user) &&
                             Write("/proc/self/setgroups", "deny") &&
                             Write("/proc/self/gid_map", group))) {
      _exit(2);
    }
    prctl(PR_SET_DUMPABLE, confined.may_be_traced ? 1 : 0);
    _exit(f());
  }
  return child;
}

// What it returned.
int Join(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class UserNamespace : public testing::TestWithParam<Confined> {};

INSTANTIATE_TEST_SUITE_P(Confined, UserNamespace,
                         testing::Values(Confined{false, false},
                                         Confined{true, false},
                                         Confined{false, true},
                                         Confined{true, true}));

TEST_P(UserNamespace, ThatIsAnotherOneGetsNothing) {
  Endpoint endpoint;
  const std::uint32_t qpn = endpoint.identity().qpn;
  const pid_t child = StartConfined(GetParam(), [qpn] {
    LinkFiles files;
    return AskForSegment(qpn, &files) == Received::kMessage || files[0] ? 1 : 0;
  });
  if (child < 0) {
    return SkipWithoutUserNamespaces();
  }
  EXPECT_EQ(Join(child), 0);
  LinkFiles files;
  EXPECT_EQ(AskForSegment(qpn, &files), Received::kMessage);
}

TEST_P(UserNamespace, ThatIsAnotherOneIsNotTakenForAResponder) {
  const std::string host = "elsewhere " + std::to_string(getpid());
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = StartConfined(GetParam(), [&] {
    const FileDescriptor listener(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    const socklen_t length = ContextAddress(OfHost(host), 1, &address);
    const bool listens =
        bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) ==
            0 &&
        listen(listener.get(), 1) == 0 && write(ready[1], "", 1) == 1;
    pollfd readable = {listener.get(), POLLIN, 0};
    return listens && poll(&readable, 1, 10'000) == 1 ? 0 : 1;
  });
  close(ready[1]);
  if (child < 0) {
    close(ready[0]);
    return SkipWithoutUserNamespaces();
  }
  char done;
  if (read(ready[0], &done, 1) == 1) {
    EXPECT_EQ(PeerLink::Connect(OfHost(host), 1), nullptr);
  }
  close(ready[0]);
  EXPECT_EQ(Join(child), 0);
}

// --- What comes on the socket ------------------------------------------------

// The kernel drops a descriptor for which this process has no number left, and
// the message must not be taken for one that came without.
TEST(DroppedDescriptor, IsNoticed) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor sender(ends[0]), receiver(ends[1]);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  for (const bool is_room : {false, true}) {
    ASSERT_TRUE(SendLinkMessage(sender.get(), {}, {sender.get()}));
    const FileDescriptor next(dup(sender.get()));  // the lowest free number
    const rlimit none = {static_cast<rlim_t>(next.get()) + 1, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, is_room ? &limit : &none), 0);
    LinkMessage message;
    LinkFiles files;
    EXPECT_EQ(ReceiveLinkMessage(receiver.get(), &message, &files),
              is_room ? Received::kMessage : Received::kNoDescriptors);
    EXPECT_EQ(static_cast<bool>(files[0]), is_room);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
}

// Nor may who asks for them wait without a word, while this process can send
// none.
TEST(DescriptorsInFlight, AreNamedWhereTheyKeepAPeerOut) {
  PeerProcess responder([](ValuePipe& /*pipe*/) {
    std::promise<std::string> logged;
    std::once_flag first;
    EndpointOptions options;
    options.logger =
        Logger(LogLevel::kWarning, [&](LogLevel, std::string_view line) {
          std::call_once(first, [&] { logged.set_value(std::string(line)); });
        });
    auto in_flight = std::make_optional<ringpipe::DescriptorsInFlight>(64);
    const Endpoint endpoint(options);
    const FileDescriptor asks = AskForSegment(endpoint.identity().qpn);
    auto line = logged.get_future();
    const bool said = line.wait_for(LivenessBound(std::chrono::seconds(2))) ==
                      std::future_status::ready;
    EXPECT_TRUE(said);
    if (said) {
      EXPECT_NE(line.get().find("(ETOOMANYREFS); raise 'ulimit -n'"),
                std::string::npos);
    }
    in_flight.reset();
    LinkFiles files;
    // Those that other processes of this user have sent count, too.
    Received received = Received::kNothing;
    for (int i = 0; i < 5 && received != Received::kMessage; ++i) {
      received = AskForSegment(endpoint.identity().qpn, &files);
    }
    EXPECT_EQ(received, Received::kMessage);
    return !testing::Test::HasFailure();
  });
  EXPECT_TRUE(responder.Join());
}

// A responder's end of a link, by hand.
class FakeResponder : public testing::Test {
 protected:
  FakeResponder()
      : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address;
    // No context of this host id is there to take the block.
    const std::string host = "hostile " + std::to_string(getpid());
    const socklen_t length = ContextAddress(OfHost(host), 1, &address);
    EXPECT_EQ(
        bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length),
        0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    link_ = PeerLink::Connect(OfHost(host), 1);
    socket_ = FileDescriptor(
        accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    segment_ = Segment::Create().value();
  }

  // What the link makes of an answer with these descriptors.
  Received Attach(std::initializer_list<int> segment, int channel,
                  std::uint32_t channel_id) {
    LinkMessage message;
    message.kind = LinkMessage::kAttached;
    message.segment = segment.size() != 0 ? 1 : 0;
    message.channel = channel_id;
    const bool sent = segment.size() == 0
                          ? SendLinkMessage(socket_.get(), message, {channel})
                          : SendLinkMessage(socket_.get(), message,
                                            {segment.begin()[0],
                                             segment.begin()[1], channel});
    EXPECT_TRUE(sent);
    return link_->Receive(&message);
  }
  Received Attach(int channel, std::uint32_t channel_id) {
    return Attach({segment_->owned_fd(), segment_->shared_fd()}, channel,
                  channel_id);
  }

  FileDescriptor listener_;
  FileDescriptor socket_;
  std::shared_ptr<PeerLink> link_;
  std::shared_ptr<Segment> segment_;
  FileDescriptor channel_{eventfd(0, EFD_CLOEXEC)};
};

TEST_F(FakeResponder, MayGiveASegmentAndAnEventDescriptor) {
  EXPECT_EQ(Attach(channel_.get(), 1), Received::kMessage);
  EXPECT_GE(link_->ChannelFd(1), 0);
}

// To write to it would raise SIGPIPE.
TEST_F(FakeResponder, IsClosedWhenItsChannelIsAPipe) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  const FileDescriptor out(ends[1]);
  EXPECT_EQ(Attach(out.get(), 1), Received::kClosed);
}

TEST_F(FakeResponder, IsClosedWhenItsChannelIsAFile) {
  EXPECT_EQ(Attach(segment_->shared_fd(), 1), Received::kClosed);
}

TEST_F(FakeResponder, IsClosedBeforeItsChannelsTakeAllDescriptors) {
  ASSERT_EQ(Attach(channel_.get(), 1), Received::kMessage);
  std::uint32_t id = 2;
  while (id < 1000 && Attach({}, channel_.get(), id) == Received::kMessage) {
    ++id;
  }
  EXPECT_LT(id, 1000u);
}

// Its pages would be a SIGBUS where the system has none to give.
TEST_F(FakeResponder, IsClosedWhenItsSegmentIsOfHugePages) {
  const FileDescriptor file(
      memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!file || ftruncate(file.get(), off_t{32} << 30) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    GTEST_SKIP() << "this kernel has no such files";
  }
  EXPECT_EQ(Attach({file.get(), segment_->shared_fd()}, channel_.get(), 1),
            Received::kClosed);
  EXPECT_EQ(Attach({segment_->owned_fd(), file.get()}, channel_.get(), 1),
            Received::kClosed);
}

}  // namespace
}  // namespace ringpipe::verbs::soft
