// Another user's process on the same host attacks a running job and one that is
// being joined: it gets nothing, the attempts are refused with the errno or the
// close that belongs to them and logged, and the job's results are right.
//
// Needs root and a second user id, so it cannot run in Bazel's sandbox, which
// has one id. Where there is none it is skipped; with CI=true it fails.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/liveness_bound.h"
#include "base/peer_process.h"
#include "base/unix_message.h"
#include "bootstrap/raw_peer.h"
#include "engine/communicator.h"
#include "gtest/gtest.h"
#include "pipeline/host/region.h"
#include "pipeline/host/region_exchange.h"
#include "tests/holdings.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"
#include "verbs/soft/datagrams.h"
#include "verbs/soft/layout.h"
#include "verbs/soft/link_message.h"
#include "verbs/soft/ud_endpoint.h"

namespace ringpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience(60);
constexpr seconds kClosesWithin = LivenessBound(seconds(2));

// No account has to exist for an id.
constexpr uid_t kRoot = 0;
constexpr uid_t kSomebody = 61001;
constexpr uid_t kAttacker = 61002;

// What a role is told by the test, besides RankProcess's variables.
constexpr const char* kUserVariable = "TEST_USER";
constexpr const char* kTargetVariable = "TEST_TARGET";

// From now on this process is that user's, and as open to that user's other
// processes as any; the kernel makes who changes its ids undumpable.
bool Become(uid_t user) {
  return setgroups(0, nullptr) == 0 && setresgid(user, user, user) == 0 &&
         setresuid(user, user, user) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
}

bool BecomeWhoTheTestSays() {
  return Become(static_cast<uid_t>(std::stoul(std::getenv(kUserVariable))));
}

// Whether there are other users to become.
bool HasOtherUsers() {
  const pid_t child = fork();
  if (child == 0) {
    _exit(Become(kAttacker) && geteuid() == kAttacker ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

// --- The job ---

// Whether the test has said that it is enough.
bool GoHasCome() {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) == 1;
}

Status WorkUntilToldToStop(Communicator& c) {
  constexpr std::size_t kCount = 100'000;
  std::vector<std::int32_t> own(kCount);
  std::vector<std::int32_t> sum(kCount);
  RINGPIPE_RETURN_IF_ERROR(
      c.Register(own.data(), kCount * sizeof(std::int32_t)));
  for (std::int32_t call = 0;; ++call) {
    for (std::size_t i = 0; i < kCount; ++i) {
      own[i] = static_cast<std::int32_t>(i) + call + c.rank();
    }
    RINGPIPE_RETURN_IF_ERROR(c.AllReduce(own.data(), sum.data(), kCount,
                                         DataType::kInt32, ReduceOp::kSum));
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto expected =
          static_cast<std::int32_t>(2 * (i + call) + 1);  // of ranks 0 and 1
      if (sum[i] != expected) {
        return {StatusCode::kInternal, "element " + std::to_string(i) +
                                           " of call " + std::to_string(call) +
                                           " is " + std::to_string(sum[i])};
      }
    }
    if (call == 3) {
      std::ostringstream text;
      text << "running " << reinterpret_cast<std::uintptr_t>(own.data());
      Print(text.str());
    }
    std::uint8_t stop = GoHasCome() ? 1 : 0;
    RINGPIPE_RETURN_IF_ERROR(
        c.AllReduce(&stop, &stop, 1, DataType::kUint8, ReduceOp::kMax));
    if (stop != 0) {
      return c.Deregister(own.data());
    }
  }
}

// A rank that calculates, checks each result, and prints "right" at its end or
// what was wrong; and all that ringpipe logs.
int Work(Way) {
  if (!BecomeWhoTheTestSays() || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) {
    return 1;
  }
  auto options = CommunicatorOptions::FromProcess();
  if (const char* limit = std::getenv("TEST_JOIN_TIMEOUT_MS")) {
    options->environment.join_timeout_ms = std::stoi(limit);
  }
  auto communicator = Communicator::Create(*options);
  if (!communicator.ok()) {
    Print("create: " + communicator.status().ToString());
    return 1;
  }
  const Status status = WorkUntilToldToStop(**communicator);
  Print(status.ok() ? "right" : status.ToString());
  return status.ok() ? 0 : 1;
}

// --- The attacker ---

// "EPERM" and the like; "done" where the attempt was not refused.
std::string Outcome(bool refused) {
  return refused ? strerrorname_np(errno) : "done";
}

// Whether any of the process's descriptors, memory files among them, can be
// opened by way of /proc.
std::string OpenDescriptors(const std::string& process) {
  DIR* const directory = opendir((process + "/fd").c_str());
  if (directory == nullptr) {
    return Outcome(true);
  }
  closedir(directory);
  return Outcome(false);
}

std::string OpenFile(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC);
  if (fd >= 0) {
    close(fd);
  }
  return Outcome(fd < 0);
}

std::string Copy(pid_t pid, std::uintptr_t address, bool write) {
  std::uint64_t word = 0;
  const iovec local = {&word, sizeof word};
  const iovec remote = {reinterpret_cast<void*>(address), sizeof word};
  return Outcome((write ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
                        : process_vm_readv(pid, &local, 1, &remote, 1, 0)) < 0);
}

std::string TakeDescriptor(pid_t pid, int number) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  const bool refused =
      process < 0 || syscall(SYS_pidfd_getfd, process, number, 0) < 0;
  return Outcome(refused);
}

std::string Trace(pid_t pid) {
  return Outcome(ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) < 0);
}

void AttackMemory(pid_t pid, std::uintptr_t address) {
  const std::string process = "/proc/" + std::to_string(pid);
  Print("descriptors " + OpenDescriptors(process));
  for (int fd = 0; fd < 64; ++fd) {
    const std::string opened =
        OpenFile(process + "/fd/" + std::to_string(fd), O_RDWR);
    if (opened != "EACCES") {
      Print("descriptor " + opened);
    }
    const std::string taken = TakeDescriptor(pid, fd);
    if (taken != "EPERM") {
      Print("getfd " + taken);
    }
  }
  Print("maps " + OpenFile(process + "/maps", O_RDONLY));
  Print("mem " + OpenFile(process + "/mem", O_RDWR));
  Print("writev " + Copy(pid, address, true));
  Print("readv " + Copy(pid, address, false));
  Print("ptrace " + Trace(pid));
}

// What a context of the device answers to who asks for its segment: nothing,
// not even that it has no such queue pair.
std::string AskForSegment(const std::string& name, std::uint32_t index) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
    return Outcome(true);
  }
  verbs::soft::LinkMessage message;
  message.kind = verbs::soft::LinkMessage::kAttach;
  message.responder_qpn = index;
  message.requester_qpn = 1U << verbs::soft::kIndexBits | index;
  message.segment = 1;
  verbs::soft::SendLinkMessage(fd, message);
  pollfd readable = {fd, POLLIN, 0};
  if (poll(&readable, 1, milliseconds(kClosesWithin).count()) != 1) {
    return "silent";
  }
  verbs::soft::LinkFiles files;
  const verbs::soft::Received received =
      verbs::soft::ReceiveLinkMessage(fd, &message, &files);
  close(fd);
  if (received == verbs::soft::Received::kClosed) {
    return "closed";
  }
  return files[0] ? "segment" : "answer";
}

// For each name of the device's in TEST_TARGET.
int AttackDevice(Way) {
  if (!BecomeWhoTheTestSays()) {
    return 1;
  }
  std::istringstream names(std::getenv(kTargetVariable));
  for (std::string name; names >> name;) {
    for (std::uint32_t index = 0; index < 4; ++index) {
      Print("device " + AskForSegment(name, index));
    }
  }
  Print("end");
  return 0;
}

// The process and the address in TEST_TARGET.
int AttackProcess(Way) {
  if (!BecomeWhoTheTestSays()) {
    return 1;
  }
  std::istringstream target(std::getenv(kTargetVariable));
  pid_t pid = 0;
  std::uintptr_t address = 0;
  target >> pid >> address;
  AttackMemory(pid, address);
  Print("end");
  return 0;
}

// Sends a datagram with its user's number to the queue pair in TEST_TARGET.
int SendDatagram(Way) {
  if (!BecomeWhoTheTestSays()) {
    return 1;
  }
  verbs::soft::UdEndpoint endpoint;
  const uid_t user = geteuid();
  std::memcpy(endpoint.buffer.data(), &user, sizeof user);
  const int posted = endpoint.Send(
      endpoint.PathTo(endpoint),
      static_cast<std::uint32_t>(std::stoul(std::getenv(kTargetVariable))), 0,
      sizeof user);
  Print(posted == 0 && endpoint.Poll() ? "sent" : "not sent");
  return 0;
}

// Says which user's datagrams come, until the test says that it is enough.
int ReceiveDatagrams(Way) {
  if (!BecomeWhoTheTestSays()) {
    return 1;
  }
  verbs::soft::UdEndpoint endpoint;
  for (int i = 0; i < 4; ++i) {
    endpoint.Receive(i, 0, verbs::soft::UdEndpoint::kBufferBytes);
  }
  Print(std::to_string(endpoint.qp->qp_num));
  while (!GoHasCome()) {
    if (endpoint.Poll(milliseconds(10))) {
      uid_t user = 0;
      std::memcpy(&user, endpoint.buffer.data() + verbs::soft::kGrhBytes,
                  sizeof user);
      Print("from " + std::to_string(user));
    }
  }
  Print("end");
  return 0;
}

// Wants to be rank 1 at the bootstrap's address in TEST_TARGET.
int AttackJoin(Way) {
  if (!BecomeWhoTheTestSays()) {
    return 1;
  }
  const std::string job = std::getenv(kTargetVariable);
  RawPeer peer(job);
  const bool joined = peer.Authenticate({.secret = "",
                                         .purpose = "bootstrap",
                                         .job_id = job,
                                         .version = kBootstrapVersion});
  Print(joined ? "join done" : "join closed");
  Print(peer.WaitForClose() ? "closed" : "open");
  Print("end");
  return 0;
}

// Listens at the bootstrap's address before rank 0 does. Says what who connects
// tells it.
int SquatJoin(Way) {
  if (!BecomeWhoTheTestSays()) {
    return 1;
  }
  const std::string job = std::getenv(kTargetVariable);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, job.data(), job.size());
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + job.size());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      listen(listener, 8) != 0) {
    return 1;
  }
  Print("listens");
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  char text[256];
  Print("heard " + std::to_string(recv(fd, text, sizeof text, 0)) + " bytes");
  Print("end");
  return 0;
}

constexpr int kCrowd = 100;

// Connects to the host memory's socket in TEST_TARGET, each time as another
// process, of as many users in turn as it says there, and keeps the
// connections.
int Crowd(Way) {
  std::istringstream target(std::getenv(kTargetVariable));
  std::string name;
  int users = 0;
  target >> name >> users;
  sockaddr_un address;
  const socklen_t bytes = AbstractAddress(name, &address);
  for (int i = 0; i < kCrowd; ++i) {
    // The child's, too; stays open.
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const pid_t child = fork();
    if (child == 0) {
      const bool connected =
          Become(kAttacker + i % users) &&
          connect(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0;
      _exit(connected ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) {
      return 1;
    }
  }
  Print("there");
  AwaitGo();
  return 0;
}

// --- The tests ---

class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

// Over rails alone: the attacks are on what the software device opens.
RankProcess StartAs(uid_t user, const std::string& role, int rank,
                    const std::string& job, const std::string& target = "") {
  const Variable who(kUserVariable, std::to_string(user));
  const Variable whom(kTargetVariable, target);
  return RankProcess(Way::kRails, role, rank, 2, job);
}

// The lines until one that begins with `last`, which is the last of them.
std::vector<std::string> ReadUntil(RankProcess& process,
                                   const std::string& last) {
  std::vector<std::string> lines;
  do {
    lines.push_back(process.ReadLine(kPatience));
  } while (!lines.back().empty() && !lines.back().starts_with(last));
  EXPECT_TRUE(lines.back().starts_with(last))
      << "no \"" << last << "\" after " << ::testing::PrintToString(lines);
  return lines;
}

bool HasLine(const std::vector<std::string>& lines, const std::string& text) {
  for (const std::string& line : lines) {
    if (line.find(text) != std::string::npos) {
      return true;
    }
  }
  return false;
}

// Ends a test that cannot be run.
void RequireOtherUsers() {
  if (!HasOtherUsers()) {
    const char* const ci = std::getenv("CI");
    ASSERT_FALSE(ci != nullptr && std::string_view(ci) == "true")
        << "this must run as root, outside of the sandbox, with more than "
           "one user id";
    GTEST_SKIP() << "no other user can be had: this needs root, and more "
                    "than one user id";
  }
}

class OtherUserTest : public ::testing::TestWithParam<uid_t> {
 protected:
  void SetUp() override { RequireOtherUsers(); }

  // Both ranks, when they are at work. Where rank 0's buffer is: in address_.
  std::vector<RankProcess> StartJob() {
    std::vector<RankProcess> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.push_back(StartAs(GetParam(), "work", rank, job_));
    }
    for (RankProcess& rank : ranks) {
      const std::string line = ReadUntil(rank, "running").back();
      addresses_.push_back(line.substr(line.find(' ') + 1));
    }
    return ranks;
  }

  // Lets the ranks end, which must be right; returns what they have logged.
  std::vector<std::string> End(std::vector<RankProcess>& ranks) {
    ranks[0].Go();
    std::vector<std::string> logged;
    for (RankProcess& rank : ranks) {
      const std::vector<std::string> lines = ReadUntil(rank, "right");
      logged.insert(logged.end(), lines.begin(), lines.end());
      EXPECT_EQ(rank.Wait(kPatience), 0);
    }
    return logged;
  }

  const std::string job_ = NewJob();
  std::vector<std::string> addresses_;
};

TEST_P(OtherUserTest, GetsNothingFromTheDevicesSockets) {
  std::vector<RankProcess> ranks = StartJob();
  std::string names;
  for (const std::string& name :
       UnixNames(Footprint({ranks[0].pid(), ranks[1].pid()}))) {
    if (name.starts_with("@ringpipe-soft/")) {
      names += name + " ";
    }
  }
  ASSERT_NE(names, "");
  RankProcess attacker = StartAs(kAttacker, "attack device", 0, job_, names);
  std::vector<std::string> got = ReadUntil(attacker, "end");
  got.pop_back();
  EXPECT_EQ(got, std::vector<std::string>(8, "device closed"));
  EXPECT_TRUE(HasLine(End(ranks),
                      "soft0: refused a connection: it belongs to "
                      "another user (uid 61002)"));
}

// The same user's arrives, and the other's, which was sent first, does not.
TEST_P(OtherUserTest, SendsNoDatagramThatArrives) {
  RankProcess receiver = StartAs(GetParam(), "receive datagrams", 0, job_);
  const std::string target = receiver.ReadLine(kPatience);
  for (const uid_t user : {kAttacker, GetParam()}) {
    RankProcess sender = StartAs(user, "send datagram", 1, job_, target);
    EXPECT_EQ(sender.ReadLine(kPatience), "sent");
  }
  EXPECT_EQ(receiver.ReadLine(kPatience), "from " + std::to_string(GetParam()));
  receiver.Go();
  EXPECT_EQ(receiver.ReadLine(kPatience), "end");
}

TEST_P(OtherUserTest, GetsNothingFromTheRanksMemoryAndDescriptors) {
  std::vector<RankProcess> ranks = StartJob();
  for (int rank = 0; rank < 2; ++rank) {
    RankProcess attacker =
        StartAs(kAttacker, "attack process", rank, job_,
                std::to_string(ranks[rank].pid()) + " " + addresses_[rank]);
    EXPECT_EQ(ReadUntil(attacker, "end"),
              std::vector<std::string>({"descriptors EACCES", "maps EACCES",
                                        "mem EACCES", "writev EPERM",
                                        "readv EPERM", "ptrace EPERM", "end"}));
  }
  End(ranks);
}

TEST_P(OtherUserTest, CannotJoin) {
  std::vector<RankProcess> ranks;
  ranks.push_back(StartAs(GetParam(), "work", 0, job_));
  RankProcess attacker = StartAs(kAttacker, "attack join", 1, job_, job_);
  EXPECT_EQ(ReadUntil(attacker, "end"),
            std::vector<std::string>({"join closed", "closed", "end"}));
  ranks.push_back(StartAs(GetParam(), "work", 1, job_));
  EXPECT_TRUE(HasLine(ReadUntil(ranks[0], "running"),
                      "refused a connection at unix:@" + job_ +
                          ": it belongs to another user"));
  End(ranks);
}

TEST_P(OtherUserTest, IsNotTakenForRankZero) {
  RankProcess squatter = StartAs(kAttacker, "squat join", 0, job_, job_);
  EXPECT_EQ(squatter.ReadLine(kPatience), "listens");
  const Variable limit("TEST_JOIN_TIMEOUT_MS", "5000");
  RankProcess rank = StartAs(GetParam(), "work", 1, job_);
  const std::vector<std::string> said = ReadUntil(rank, "create: ");
  EXPECT_TRUE(HasLine({said.back()},
                      "a stranger listens there: it belongs to another user"))
      << said.back();
  EXPECT_EQ(ReadUntil(squatter, "end"),
            std::vector<std::string>({"heard 0 bytes", "end"}));
}

INSTANTIATE_TEST_SUITE_P(Jobs, OtherUserTest,
                         ::testing::Values(kSomebody, kRoot),
                         [](const ::testing::TestParamInfo<uid_t>& info) {
                           return info.param == kRoot ? "OfRoot" : "OfSomebody";
                         });

// --- Host memory, with a crowd at its socket ---

struct Job {
  const char* name;
  uid_t connector;  // rank 0's user; rank 1, whose socket it is, is root's
  int strangers;    // users in the crowd
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

// An end of an exchange of host memory between ranks 0 and 1.
struct Trader {
  explicit Trader(int rank)
      : region(Region::Create(4096).value()),
        exchange(
            RegionExchange::Create(rank, "the job's key", region).value()) {}

  using Address = std::array<char, kMostAbstractNameBytes + 1>;

  Address address() const {
    Address text = {};
    exchange->Address().copy(text.data(), text.size() - 1);
    return text;
  }
  Status Run(int rank, const Address& other) const {
    std::vector<std::string> addresses(2);
    addresses[1 - rank] = other.data();
    return exchange->Run(addresses, Deadline::After(kClosesWithin), -1)
        .status();
  }

  std::shared_ptr<Region> region;
  std::unique_ptr<RegionExchange> exchange;
};

class CrowdTest : public ::testing::TestWithParam<Job> {
 protected:
  void SetUp() override { RequireOtherUsers(); }
};

// The crowd has all places before rank 0 comes.
TEST_P(CrowdTest, KeepsNoRankOut) {
  PeerProcess connector([](ValuePipe& pipe) {
    const bool changed = Become(GetParam().connector);
    const Trader trader(0);
    pipe.Put(trader.address());
    const auto other = pipe.Get<Trader::Address>();
    const Status status = trader.Run(0, other);
    if (!status.ok()) {
      Print(status.ToString());
    }
    return changed && status.ok();
  });
  const auto other = connector.pipe().Get<Trader::Address>();
  const Trader trader(1);
  RankProcess crowd = StartAs(
      kRoot, "crowd", 0, NewJob(),
      trader.exchange->Address() + " " + std::to_string(GetParam().strangers));
  EXPECT_EQ(crowd.ReadLine(kPatience), "there");
  connector.pipe().Put(trader.address());
  const Status status = trader.Run(1, other);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(connector.Join());
  EXPECT_EQ(trader.exchange->strangers(), std::uint64_t{kCrowd});
}

INSTANTIATE_TEST_SUITE_P(
    Of, CrowdTest,
    ::testing::Values(Job{"OneUser", kRoot, 1}, Job{"ManyUsers", kRoot, kCrowd},
                      Job{"OneUserWhereRanksAreOfTwo", kSomebody, 1}),
    [](const ::testing::TestParamInfo<Job>& info) { return info.param.name; });

}  // namespace
}  // namespace ringpipe::testing

int main(int argc, char** argv) {
  using namespace ringpipe::testing;  // NOLINT(google-build-using-namespace)
  return RunRoleOrTests(argc, argv,
                        {{"work", &Work},
                         {"attack device", &AttackDevice},
                         {"attack process", &AttackProcess},
                         {"attack join", &AttackJoin},
                         {"crowd", &Crowd},
                         {"send datagram", &SendDatagram},
                         {"receive datagrams", &ReceiveDatagrams},
                         {"squat join", &SquatJoin}});
}
