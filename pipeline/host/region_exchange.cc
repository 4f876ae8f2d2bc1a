#include "pipeline/host/region_exchange.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "auth/mac.h"
#include "base/unix_message.h"
#include "base/while_waiting.h"

namespace ringpipe {
namespace {

// Connections of this rank's making at a time: enough to keep the others busy,
// few enough for processes that may have few descriptors.
constexpr std::size_t kMostConnecting = 8;
// Accepted in a row, before those that are here get their turn.
constexpr int kMostAccepted = 64;
// A rank that closed the connection, or has no room for one more, is tried
// again after the first, then after twice that, and so on up to the second.
constexpr std::chrono::milliseconds kFirstRetry(1);
constexpr std::chrono::milliseconds kLastRetry(16);
constexpr int kMostPollMs = 1000;

// Without a proof, each rank of the host has at most one; so with more than
// twice as many and some, strangers have more than all ranks.
std::size_t MostUnproven(std::size_t ranks) { return 2 * ranks + 64; }

std::string RandomName(const Nonce& nonce) {
  constexpr char kDigits[] = "0123456789abcdef";
  constexpr std::size_t kNameBytes = 16;
  std::string name = "ringpipe-host/";
  for (std::size_t i = 0; i < kNameBytes; ++i) {
    const auto byte = static_cast<unsigned char>(nonce[i]);
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

bool IsUnproven(const std::unique_ptr<RegionTrade>& trade) {
  return !trade->is_connector() && !trade->proven();
}

}  // namespace

Result<std::unique_ptr<RegionExchange>> RegionExchange::Create(
    int rank, std::string job_key, std::shared_ptr<Region> own, int wake) {
  RINGPIPE_ASSIGN_OR_RETURN(const Nonce nonce, RandomNonce());
  const std::string name = RandomName(nonce);
  FileDescriptor listener(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, &address);
  if (!listener ||
      bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) !=
          0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot listen for the ranks of this host", errno);
  }
  return std::unique_ptr<RegionExchange>(new RegionExchange(
      RegionTraders{rank, std::move(job_key), std::move(own), wake, {}}, name,
      std::move(listener)));
}

RegionExchange::RegionExchange(RegionTraders traders, std::string address,
                               FileDescriptor listener)
    : traders_(std::move(traders)),
      address_(std::move(address)),
      listener_(std::move(listener)) {}

Result<std::vector<RegionPeer>> RegionExchange::Run(
    std::span<const std::string> addresses, Deadline deadline, int abort_fd) {
  Result<bool> more = true;
  if (Status status = SetPeers(addresses); !status.ok()) {
    more = std::move(status);
  }
  while (more.ok() && *more) {
    more = Step(deadline, abort_fd);
  }
  Finish();
  if (!more.ok()) {
    return more.status();
  }
  return std::move(peers_);
}

Status RegionExchange::SetPeers(std::span<const std::string> addresses) {
  if (!listener_) {
    return {StatusCode::kInternal, "RegionExchange::Run was called twice"};
  }
  traders_.addresses.assign(addresses.begin(), addresses.end());
  attempts_.resize(addresses.size());
  peers_.resize(addresses.size());
  most_unproven_ = MostUnproven(addresses.size());
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    if (addresses[rank].size() > kMostAbstractNameBytes) {
      return {StatusCode::kMismatch,
              "what rank " + std::to_string(rank) +
                  " sent is no address for ranks of its host; do all ranks run "
                  "the same version of ringpipe?"};
    }
    if (static_cast<int>(rank) == traders_.rank) {
      traders_.addresses[rank] = address_;
    } else if (!addresses[rank].empty()) {
      attempts_[rank].missing = true;
      ++missing_;
    }
  }
  return Status::Ok();
}

// Returns whether there is more to do.
Result<bool> RegionExchange::Step(Deadline deadline, int abort_fd) {
  RINGPIPE_RETURN_IF_ERROR(ConnectToSome());
  if (missing_ == 0) {
    return false;
  }
  waits_.clear();
  waits_.push_back({abort_fd, POLLIN, 0});
  waits_.push_back({listener_.get(), POLLIN, 0});
  for (const auto& trade : trades_) {
    waits_.push_back({trade->socket(), POLLIN, 0});
  }
  const int ready = poll(waits_.data(), waits_.size(),
                         BlockingCall::PollTimeoutMs(PollTimeoutMs(deadline)));
  const int error = ready < 0 ? errno : 0;
  if (BlockingCall::EndsAfterPoll(error == EINTR)) {
    return EndedByCaller(traders_.rank, "the creation of the communicator");
  }
  if (ready < 0) {
    if (error != EINTR) {
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         "poll for the ranks of this host", error);
    }
    waits_.clear();
  }
  if (!waits_.empty() && (waits_[0].revents & POLLNVAL) != 0) {
    return DescriptorsClosed();
  }
  if (!waits_.empty() && waits_[0].revents != 0) {
    return Status(StatusCode::kAborted,
                  "the exchange of host memory was ended by an abort");
  }
  if (deadline.expired()) {
    return TimedOut();
  }
  RINGPIPE_RETURN_IF_ERROR(AdvanceSome());
  RINGPIPE_RETURN_IF_ERROR(AcceptSome());
  return missing_ > 0;
}

// Begins with the next higher rank, so that not all call the same one first.
Status RegionExchange::ConnectToSome() {
  const Clock::time_point now = Clock::now();
  for (std::size_t rank = static_cast<std::size_t>(traders_.rank) + 1;
       rank < attempts_.size() && connecting_ < kMostConnecting; ++rank) {
    Attempt& attempt = attempts_[rank];
    if (!attempt.missing || attempt.open || attempt.not_before > now) {
      continue;
    }
    Result<std::unique_ptr<RegionTrade>> trade =
        RegionTrade::Connect(traders_, static_cast<int>(rank));
    RINGPIPE_RETURN_IF_ERROR(trade.status());
    if (trade.value()->state() == RegionTrade::State::kClosed) {
      Delay(attempt);
      continue;
    }
    attempt.open = true;
    ++connecting_;
    trades_.push_back(std::move(trade).value());
  }
  return Status::Ok();
}

// Until the deadline, or until somebody is to be tried again.
int RegionExchange::PollTimeoutMs(Deadline deadline) const {
  const int most = deadline.PollTimeoutMs(kMostPollMs);
  if (connecting_ >= kMostConnecting) {
    return most;
  }
  Clock::time_point next = Clock::time_point::max();
  for (std::size_t rank = static_cast<std::size_t>(traders_.rank) + 1;
       rank < attempts_.size(); ++rank) {
    if (attempts_[rank].missing && !attempts_[rank].open) {
      next = std::min(next, attempts_[rank].not_before);
    }
  }
  return Deadline::At(next).PollTimeoutMs(most);
}

Status RegionExchange::AcceptSome() {
  if (waits_.empty() || waits_[1].revents == 0) {
    return Status::Ok();
  }
  for (int i = 0; i < kMostAccepted; ++i) {
    FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EMFILE || errno == ENFILE)) {
      const int error = errno;
      if (!AllowFewerStrangers()) {
        return ErrnoStatus(StatusCode::kResourceExhausted,
                           "no descriptor for a rank of this host", error);
      }
      continue;
    }
    if (!socket) {
      return Status::Ok();
    }
    trades_.push_back(
        std::make_unique<RegionTrade>(traders_, std::move(socket)));
    CloseTooManyStrangers();
  }
  return Status::Ok();
}

// Half as many as there are: what they leave is for the ranks' descriptors.
// False where it is not they who have taken them all.
bool RegionExchange::AllowFewerStrangers() {
  const auto unproven = static_cast<std::size_t>(
      std::count_if(trades_.begin(), trades_.end(), IsUnproven));
  if (unproven < 2) {
    return false;
  }
  most_unproven_ = unproven / 2;
  CloseTooManyStrangers();
  return true;
}

// Each time the oldest connection, of those without a proof, of the user who
// has most of them. Not of the process: a stranger can fork one for each. The
// first ones of this rank's user do not count, as many as there are ranks: a
// stranger with many user ids has few of each.
void RegionExchange::CloseTooManyStrangers() {
  std::map<uid_t, std::ptrdiff_t> connections;
  std::size_t unproven = 0;
  for (const auto& trade : trades_) {
    if (IsUnproven(trade)) {
      ++connections[trade->user()];
      ++unproven;
    }
  }
  const auto counted = [this, own = geteuid()](const auto& of) {
    return of.second - (of.first == own ? std::ssize(attempts_) : 0);
  };
  for (; unproven > most_unproven_; --unproven) {
    const auto most =
        std::max_element(connections.begin(), connections.end(),
                         [&counted](const auto& one, const auto& other) {
                           return counted(one) < counted(other);
                         });
    const uid_t user = most->first;
    if (--most->second == 0) {
      connections.erase(most);
    }
    strangers_.Count(user);
    trades_.erase(
        std::find_if(trades_.begin(), trades_.end(), [user](const auto& trade) {
          return IsUnproven(trade) && trade->user() == user;
        }));
  }
}

// Those whose socket has something.
Status RegionExchange::AdvanceSome() {
  for (std::size_t i = 0; i < trades_.size() && i + 2 < waits_.size(); ++i) {
    if (waits_[i + 2].revents != 0) {
      RINGPIPE_RETURN_IF_ERROR(trades_[i]->Advance());
      NoteOutcome(*trades_[i]);
    }
  }
  std::erase_if(trades_, [](const std::unique_ptr<RegionTrade>& trade) {
    return trade->state() != RegionTrade::State::kWaiting;
  });
  return Status::Ok();
}

// Notes what has become of a trade.
void RegionExchange::NoteOutcome(RegionTrade& trade) {
  if (trade.state() == RegionTrade::State::kWaiting) {
    return;
  }
  if (trade.is_connector()) {
    attempts_[trade.peer()].open = false;
    Delay(attempts_[trade.peer()]);
    --connecting_;
  } else if (!trade.proven()) {
    strangers_.Count(trade.user());
  }
  if (!trade.shortage().ok()) {
    attempts_[trade.peer()].shortage = trade.shortage();
  }
  if (trade.state() == RegionTrade::State::kDone &&
      attempts_[trade.peer()].missing) {
    attempts_[trade.peer()].missing = false;
    peers_[trade.peer()] = trade.TakeResult();
    --missing_;
  }
}

void RegionExchange::Delay(Attempt& attempt) {
  ++attempt.closed;
  attempt.retry_after = std::clamp<Clock::duration>(2 * attempt.retry_after,
                                                    kFirstRetry, kLastRetry);
  attempt.not_before = Clock::now() + attempt.retry_after;
}

// What has kept the missing ranks out may be a shortage of descriptors, or
// strangers, here or with them.
Status RegionExchange::TimedOut() {
  Finish();
  Status shortage;
  constexpr int kMostNamed = 8;
  std::string ranks;
  int named = 0;
  int closed = 0;
  for (std::size_t rank = 0; rank < attempts_.size(); ++rank) {
    if (!attempts_[rank].missing) {
      continue;
    }
    if (attempts_[rank].shortage.ok()) {
      closed += attempts_[rank].closed;
    } else {
      shortage = attempts_[rank].shortage;
    }
    if (++named <= kMostNamed) {
      ranks += (named == 1 ? "" : ", ") + std::to_string(rank);
    }
  }
  if (named > kMostNamed) {
    ranks += " and " + std::to_string(named - kMostNamed) + " more";
  }
  std::string why = strangers_.Describe();
  if (closed > 0) {
    why = ", which closed " + std::to_string(closed) +
          " connections of this rank's (because of strangers, or for want of "
          "descriptors)" +
          why;
  }
  if (!shortage.ok()) {
    why += "; " + shortage.message();
  }
  return {shortage.ok() ? StatusCode::kTimeout : shortage.code(),
          "no shared host memory in time from rank" +
              std::string(named == 1 ? " " : "s ") + ranks + " of this host" +
              why};
}

void RegionExchange::Finish() {
  for (const auto& trade : trades_) {
    if (IsUnproven(trade)) {
      strangers_.Count(trade->user());
    }
  }
  trades_.clear();
  listener_.Close();
}

}  // namespace ringpipe
