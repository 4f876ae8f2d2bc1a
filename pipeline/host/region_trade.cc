#include "pipeline/host/region_trade.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "auth/byte_stream.h"
#include "base/unix_message.h"

namespace ringpipe {
namespace {

constexpr std::string_view kRegionMessage = "ringpipeR3";
constexpr std::size_t kRankBytes = 4;
constexpr std::size_t kMostMessageBytes =
    kRankBytes + Handshake::kMostMessageBytes;

// Since Linux 6.5; older headers do not have it.
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD

bool OutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM;
}

// Whether to send to it, without waiting, can do no worse than fail. A file
// might fill up.
Result<bool> IsHarmless(const FileDescriptor& wake) {
  int type = 0;
  socklen_t bytes = sizeof type;
  if (getsockopt(wake.get(), SOL_SOCKET, SO_TYPE, &type, &bytes) == 0) {
    return type == SOCK_DGRAM;
  }
  if (errno == ENOTSOCK || errno == EBADF) {
    return false;
  }
  return ErrnoStatus(StatusCode::kResourceExhausted, "getsockopt", errno);
}

// This process has one of each other that it knows, whatever the number of its
// communicators. Holds no strong reference. Thread-safe.
class Pidfds {
 public:
  using Pidfd = std::shared_ptr<const FileDescriptor>;

  static Pidfds& OfProcess() {
    static Pidfds* const pidfds = new Pidfds;  // outlives other statics
    return *pidfds;
  }

  // That of the process which has the number now; nullptr: it is not known. A
  // number is not given again before its process has died.
  Pidfd Find(pid_t pid) {
    std::lock_guard lock(mutex_);
    const auto known = pidfds_.find({getpid(), pid});
    Pidfd pidfd = known != pidfds_.end() ? known->second.lock() : nullptr;
    pollfd death = {pidfd != nullptr ? pidfd->get() : -1, POLLIN, 0};
    return pidfd != nullptr && pidfd->IsOpen() && poll(&death, 1, 0) == 0
               ? pidfd
               : nullptr;
  }

  Pidfd Keep(pid_t pid, FileDescriptor opened) {
    auto pidfd = std::make_shared<const FileDescriptor>(std::move(opened));
    if (pid > 0) {  // otherwise its number is not seen from here
      std::lock_guard lock(mutex_);
      std::erase_if(pidfds_,
                    [](const auto& one) { return one.second.expired(); });
      pidfds_[{getpid(), pid}] = pidfd;
    }
    return pidfd;
  }

 private:
  std::mutex mutex_;
  // By this process's number, for a child of fork() begins anew, and the
  // other's.
  std::map<std::pair<pid_t, pid_t>, std::weak_ptr<const FileDescriptor>>
      pidfds_;
};

}  // namespace

Result<std::unique_ptr<RegionTrade>> RegionTrade::Connect(
    const RegionTraders& traders, int peer) {
  FileDescriptor socket(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "no socket for the exchange of host memory", errno);
  }
  auto trade = std::make_unique<RegionTrade>(traders, std::move(socket));
  trade->connector_ = true;
  trade->peer_ = peer;
  sockaddr_un address;
  const socklen_t length = AbstractAddress(traders.addresses[peer], &address);
  if (connect(trade->socket(), reinterpret_cast<sockaddr*>(&address), length) !=
      0) {
    // Nobody listens there, or somebody else, who has taken the name.
    if (errno == ECONNREFUSED || errno == EPROTOTYPE) {
      return trade->WithPeer(ErrnoStatus(
          StatusCode::kPeerLost,
          "nobody listens there for the ranks of this host. Either it has "
          "ended, or it is on another host which has the same identity (the "
          "same RINGPIPE_HOST_ID, or a copy of this machine made while it "
          "ran): set RINGPIPE_HOST_ID to another text on each host",
          errno));
    }
    if (errno != EAGAIN && errno != EINTR) {
      return trade->WithPeer(ErrnoStatus(errno == EACCES || errno == EPERM
                                             ? StatusCode::kPermissionDenied
                                             : StatusCode::kResourceExhausted,
                                         "connect", errno));
    }
    trade->state_ = State::kClosed;  // too many wait there already
    return trade;
  }
  trade->LearnProcess();
  RINGPIPE_RETURN_IF_ERROR(trade->StartHandshake(Handshake::Role::kConnector));
  ByteWriter writer;
  writer.U32(static_cast<std::uint32_t>(traders.rank));
  writer.Raw(trade->handshake_->Start());
  trade->Send(writer.bytes());
  return trade;
}

RegionTrade::RegionTrade(const RegionTraders& traders, FileDescriptor socket)
    : traders_(traders), socket_(std::move(socket)) {
  LearnProcess();
}

Status RegionTrade::Advance() {
  std::array<char, kMostMessageBytes> buffer;
  Files files;
  const ReceivedMessage received =
      ReceiveMessage(socket(), buffer,
                     proven() ? std::span(files) : std::span<FileDescriptor>());
  if (received.bytes < 0 && errno == EAGAIN) {
    return Status::Ok();
  }
  if (received.bytes < 0 && errno != ECONNRESET) {
    return WithPeer(ErrnoStatus(StatusCode::kResourceExhausted,
                                "cannot receive its shared memory", errno));
  }
  if (received.bytes <= 0 || !received.whole) {
    state_ = State::kClosed;
    return Status::Ok();
  }
  const std::string_view message(buffer.data(),
                                 static_cast<std::size_t>(received.bytes));
  if (!handshake_) {
    return TakeHello(message);
  }
  if (!proven()) {
    return TakeHandshake(message);
  }
  if (received.lost_files && received.files < files.size()) {
    return WithPeer(ErrnoStatus(StatusCode::kResourceExhausted,
                                "cannot take its shared memory", EMFILE));
  }
  return TakeRegion(message, std::move(files));
}

Status RegionTrade::StartHandshake(Handshake::Role role) {
  const int acceptor = connector_ ? peer_ : traders_.rank;
  const int connector = connector_ ? traders_.rank : peer_;
  Handshake::Options options;
  options.secret = traders_.job_key;
  options.purpose = "host memory";
  options.job_id = std::to_string(connector) + " to " +
                   std::to_string(acceptor) + " at " +
                   traders_.addresses[acceptor];
  Result<Handshake> handshake = Handshake::Create(role, options);
  RINGPIPE_RETURN_IF_ERROR(handshake.status());
  handshake_ = std::move(handshake).value();
  return Status::Ok();
}

Status RegionTrade::TakeHello(std::string_view message) {
  ByteReader reader(message);
  const std::uint32_t rank = reader.U32();
  // The lower rank connects.
  if (!reader.ok() || rank >= static_cast<std::uint32_t>(traders_.rank) ||
      traders_.addresses[rank].empty()) {
    state_ = State::kClosed;
    return Status::Ok();
  }
  peer_ = static_cast<int>(rank);
  RINGPIPE_RETURN_IF_ERROR(StartHandshake(Handshake::Role::kAcceptor));
  return TakeHandshake(message.substr(kRankBytes));
}

Status RegionTrade::TakeHandshake(std::string_view message) {
  const Result<std::string> answer = handshake_->Receive(message);
  if (!answer.ok()) {
    // Who connects may be anybody. Who listens at a rank's address should be
    // that rank; where it is not, the rank is gone.
    if (connector_ || answer.status().code() == StatusCode::kUnavailable) {
      return WithPeer(answer.status());
    }
    state_ = State::kClosed;
    return Status::Ok();
  }
  // Before the next message to the peer, which it answers: so it lives now, and
  // the process that is found by its number is the peer, not a later one. That
  // is, the connector's before its proof, the acceptor's before its own.
  if (connector_ ? !proven() : proven()) {
    RINGPIPE_RETURN_IF_ERROR(OpenPidfd());
  }
  if (!answer->empty()) {
    Send(*answer);
  }
  if (proven() && state_ == State::kWaiting) {
    SendRegion();
  }
  return Status::Ok();
}

Status RegionTrade::TakeRegion(std::string_view message, Files files) {
  auto& [file, wake] = files;
  const bool wakes = traders_.wake >= 0;
  const Result<bool> harmless = wakes ? IsHarmless(wake) : true;
  if (!harmless.ok()) {
    return WithPeer(harmless.status());
  }
  if (message != kRegionMessage || !file || !*harmless) {
    return WithPeer({StatusCode::kMismatch,
                     "it did not send its shared memory; do all ranks run the "
                     "same version of ringpipe?"});
  }
  Result<std::shared_ptr<Region>> region =
      Region::Attach(std::move(file), traders_.region->header_bytes());
  if (!region.ok()) {
    return WithPeer(region.status());
  }
  result_.region = std::move(region).value();
  if (wakes) {
    result_.wake = std::move(wake);
  }
  state_ = State::kDone;
  return Status::Ok();
}

Status RegionTrade::OpenPidfd() {
  if (result_.pid == getpid()) {
    return Status::Ok();
  }
  result_.pidfd = Pidfds::OfProcess().Find(result_.pid);
  if (result_.pidfd != nullptr) {
    return Status::Ok();
  }
  int pidfd = -1;
  socklen_t bytes = sizeof pidfd;
  if (getsockopt(socket(), SOL_SOCKET, kPeerPidfd, &pidfd, &bytes) != 0) {
    pidfd = -1;
    if (!OutOfDescriptors(errno) && result_.pid > 0) {
      pidfd = static_cast<int>(syscall(SYS_pidfd_open, result_.pid, 0));
    }
    if (pidfd < 0 && OutOfDescriptors(errno)) {
      return WithPeer(ErrnoStatus(StatusCode::kResourceExhausted,
                                  "no pidfd to notice its death", errno));
    }
  }
  if (pidfd >= 0) {
    result_.pidfd =
        Pidfds::OfProcess().Keep(result_.pid, FileDescriptor(pidfd));
  }
  return Status::Ok();
}

// The kernel's word: of who connected, or who called listen().
void RegionTrade::LearnProcess() {
  ucred process;
  socklen_t bytes = sizeof process;
  if (getsockopt(socket(), SOL_SOCKET, SO_PEERCRED, &process, &bytes) == 0) {
    result_.pid = process.pid;
    user_ = process.uid;
  }
}

// Where the message does not go out, the connector tries again on another
// socket.
void RegionTrade::Send(std::string_view message) {
  if (!SendMessage(socket(), message)) {
    state_ = State::kClosed;
  }
}

void RegionTrade::SendRegion() {
  const std::array<int, 2> files = {traders_.region->fd(), traders_.wake};
  if (!SendMessage(socket(), kRegionMessage,
                   {files.data(), traders_.wake >= 0 ? 2u : 1u})) {
    if (errno == ETOOMANYREFS) {
      shortage_ = WithPeer(ErrnoStatus(
          StatusCode::kResourceExhausted,
          "too many descriptors are on their way between this user's processes",
          errno));
    }
    state_ = State::kClosed;
  }
}

// What this rank lacks is not what the peer lacks.
Status RegionTrade::WithPeer(const Status& status) const {
  const bool own = status.code() != StatusCode::kPeerLost &&
                   status.code() != StatusCode::kMismatch;
  return status.WithContext(
      (own ? "to share memory with rank " : "rank ") + std::to_string(peer_) +
      (result_.pid > 0 ? " (pid " + std::to_string(result_.pid) + ")" : ""));
}

}  // namespace ringpipe
