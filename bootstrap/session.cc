#include "bootstrap/session.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <exception>
#include <new>
#include <system_error>
#include <thread>

#include "auth/mac.h"
#include "base/exception_status.h"
#include "base/host_name.h"
#include "base/signals_blocked.h"
#include "base/thread_shortage.h"
#include "base/while_waiting.h"
#include "bootstrap/member_session.h"
#include "bootstrap/root_session.h"
#include "bootstrap/stored_root.h"

namespace ringpipe {
namespace {

namespace asio = boost::asio;

// Long enough for any process that runs to read something of what it is told,
// and to close its end.
constexpr auto kLeaveTimeout = std::chrono::milliseconds(700);
// How long who ends the job waits until the system has taken the reason: a few
// KiB, for which it has room unless a rank is stopped.
constexpr auto kTellTimeout = std::chrono::milliseconds(100);
// How long a rank that cannot take part tries to tell the others.
constexpr int64_t kTellingMs = 3000;

}  // namespace

int64_t LeftMs(Deadline deadline) {
  if (deadline.infinite()) {
    return -1;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      deadline.when() - Clock::now());
  return std::max<int64_t>(left.count(), 0);
}

Session::Session(const Bootstrap::Options& options)
    : options_(options),
      out_of_memory_(OutOfMemory().WithContext(
          "rank " + std::to_string(options.launch.rank))),
      descriptors_closed_(DescriptorsClosed().WithContext(
          "rank " + std::to_string(options.launch.rank))),
      ended_by_caller_(EndedByCaller(options.launch.rank,
                                     "a call that waited for other ranks")),
      work_(io_.get_executor()) {}

Result<std::unique_ptr<Session>> Session::Create(
    const Bootstrap::Options& options) {
  // Asio's constructors throw where descriptors have run out.
  try {
    std::unique_ptr<Session> session;
    if (options.launch.rank == 0) {
      session = std::make_unique<RootSession>(options);
    } else {
      session = std::make_unique<MemberSession>(options);
    }
    RINGPIPE_RETURN_IF_ERROR(session->MakeOwnIdentity());
    RINGPIPE_RETURN_IF_ERROR(session->StartThread());
    return session;
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const boost::system::system_error& error) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "the bootstrap cannot watch its descriptors "
                       "(epoll_create1, eventfd, timerfd_create)",
                       error.code().value());
  } catch (const std::exception& error) {
    return ExceptionStatus(error);
  }
}

Status Session::StartThread() {
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { RunThread(); });
  } catch (const std::system_error& error) {
    return ThreadShortage("starting the bootstrap's thread",
                          error.code().value());
  }
  return Status::Ok();
}

// What has ended a handler of the io thread.
Status Session::StatusOf(const std::exception& error) const {
  try {
    if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) {
      return {StatusCode::kInternal,
              std::string("the bootstrap's thread: ") + error.what()};
    }
  } catch (const std::bad_alloc&) {
    // There is no memory to say so.
  }
  return out_of_memory_;
}

// io_ is stopped by who fails the job, and by who ends the thread: either has
// said so before.
void Session::RunThread() {
  pthread_setname_np(pthread_self(), "ringpipe-boot");
  while (true) {
    io_.restart();
    if (ended_) {
      return;
    }
    if (const Status reason = failure();
        !reason.ok() && !std::exchange(failure_told_, true)) {
      OnFailed(reason);
    }
    try {
      loop_.Run();
    } catch (const std::exception& error) {
      Fail(StatusOf(error));
    }
    if (!loop_.is_intact()) {
      OnDescriptorsClosed();
      return;
    }
  }
}

Status Session::Join() {
  obstacle_ = FindObstacle();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    call_ = Gathering::kJoin;
  }
  asio::post(io_, [this] {
    int64_t left_ms = LeftMs(options_.deadline);
    if (!obstacle_.ok()) {
      left_ms = left_ms < 0 ? kTellingMs : std::min(left_ms, kTellingMs);
      options_.logger.Info("only to tell the other ranks: " +
                           obstacle_.ToString());
    }
    ArmTimeout(Gathering::kJoin, left_ms);
    StartJoin();
  });
  if (options_.store != nullptr && rank() == 0 && size() > 1) {
    try {
      TellByStore();
    } catch (const std::bad_alloc&) {
      Fail(out_of_memory_);
    }
  }
  const Status joined = WaitForCall().status();
  return obstacle_.ok() ? joined : obstacle_;
}

// Also what it does not live to see: who comes is told why.
void Session::TellByStore() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (WaitUntil(changed_, lock, Deadline::Infinite(), [this] {
        return !listens_at_.empty() || call_result_;
      }) == Waited::kEnded) {
    lock.unlock();
    Fail(ended_by_caller_);
    return;
  }
  StoredRoot root = {listens_at_, ""};
  lock.unlock();
  if (root.addresses.empty()) {
    return;
  }
  if (options_.has_made_secret) {
    root.secret = options_.secret;
  }
  if (const Status put = root.Put(*options_.store, options_.launch);
      !put.ok()) {
    Fail(put);
  }
}

void Session::NoteListening(const Result<std::vector<std::string>>& addresses) {
  if (!addresses.ok()) {
    Fail(addresses.status());
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  listens_at_ = *addresses;
  changed_.notify_all();
}

Result<std::vector<std::string>> Session::Gather(Gathering gathering,
                                                 const std::string& blob,
                                                 Deadline deadline) {
  if (blob.size() > kMostBlobBytes) {
    return Status(StatusCode::kInvalidArgument,
                  "a bootstrap all-gather takes at most 1 MiB from each rank, "
                  "not " +
                      std::to_string(blob.size()) + " bytes");
  }
  uint64_t sequence = 0;
  const bool can_post = CanPost();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!can_post || !failure_.ok()) {
      return failure_.ok() ? descriptors_closed_ : failure_;
    }
    if (call_) {
      return Status(StatusCode::kInvalidArgument,
                    "another thread is in a bootstrap all-gather or barrier "
                    "of this rank: one call at a time");
    }
    if (!departed_.empty()) {
      return DepartedStatus(gathering);
    }
    call_ = gathering;
    sequence = ++sequence_;
  }
  try {
    asio::post(io_, [this, sequence, gathering, blob, deadline] {
      if (failed() || !WaitsFor(sequence)) {
        return;
      }
      // Who leaves gives up alone, and lets the others go on.
      const int64_t left_ms =
          gathering == Gathering::kLeave ? -1 : LeftMs(deadline);
      ArmTimeout(gathering, left_ms);
      Contribute({sequence, gathering, left_ms, blob});
    });
  } catch (const std::bad_alloc&) {
    if (gathering == Gathering::kLeave) {
      // It leaves alone, which the others see: no call of theirs needs it.
      const std::lock_guard<std::mutex> lock(mutex_);
      call_.reset();
      return OutOfMemory();
    }
    Fail(out_of_memory_);  // the others wait for this rank's blob
  }
  return WaitForCall(gathering == Gathering::kLeave ? deadline
                                                    : Deadline::Infinite());
}

bool Session::WaitsFor(uint64_t sequence) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return call_ && !call_result_ && sequence_ == sequence;
}

// Mostly without a deadline: ArmTimeout has it, and the io thread never blocks.
Result<std::vector<std::string>> Session::WaitForCall(Deadline deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto ended = [this] { return call_result_.has_value(); };
  const Waited waited = WaitUntil(changed_, lock, deadline, ended);
  if (waited != Waited::kDone && call_ == Gathering::kLeave) {
    call_result_ =
        waited == Waited::kExpired
            ? Status(StatusCode::kTimeout, "not all ranks leave")
            : Status(StatusCode::kInterrupted, ended_by_caller_.message());
  } else if (waited == Waited::kEnded) {
    lock.unlock();
    Fail(ended_by_caller_);
    lock.lock();
    changed_.wait(lock, ended);
  }
  Result<std::vector<std::string>> result = *std::move(call_result_);
  call_result_.reset();
  call_.reset();
  return result;
}

std::vector<std::string> Session::AskAll(Deadline deadline) {
  if (!CanPost()) {
    return std::vector<std::string>(size());
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (asks_) {
    return std::vector<std::string>(size());
  }
  asks_ = true;
  replies_.clear();
  lock.unlock();
  asio::post(io_, [this] {
    if (!failed() && !leaving()) {
      Ask();
    }
  });
  lock.lock();
  changed_.wait_until(lock, deadline.when(),
                      [this] { return !replies_.empty() || !failure_.ok(); });
  asks_ = false;
  std::vector<std::string> replies = std::move(replies_);
  replies.resize(size());
  return replies;
}

void Session::CompleteAsking(const std::vector<std::string>& replies) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (asks_) {
    replies_ = replies;
    changed_.notify_all();
  }
}

std::string Session::OwnReply() const {
  return options_.reply ? options_.reply() : "here";
}

Status Session::Abort(const Status& reason) {
  Fail(reason.ok() ? Status(StatusCode::kAborted, "aborted without a reason")
                   : reason);
  // The process may end right after this, and only what the system has by then
  // reaches the others.
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, kTellTimeout,
                    [this] { return failure_.ok() || has_told_; });
  return failure_;
}

Status Session::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

std::vector<int> Session::departed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> ranks;
  for (const auto& [rank, calls] : departed_) {
    ranks.push_back(rank);
  }
  return ranks;
}

bool Session::anybody_departed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !departed_.empty();
}

bool Session::HasDeparted(int rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return departed_.count(rank) != 0;
}

bool Session::HasLeftInOrder(int rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto departed = departed_.find(rank);
  return departed != departed_.end() && departed->second == Departure::kInOrder;
}

void Session::Leave() {
  try {
    if (CanPost()) {
      LeaveInOrder();
    }
  } catch (const std::exception&) {
    // Out of memory: without a word.
  }
  // What is still pending is dropped with io_: its sockets are closed then.
  ended_ = true;
  if (loop_.is_intact()) {
    io_.stop();
  }
  thread_.join();
}

void Session::Exit(uint64_t calls, bool lives_on) {
  if (!CanPost()) {
    return;
  }
  try {
    const Departure own = {static_cast<uint32_t>(rank()), calls, lives_on};
    asio::post(io_, [this, own] { BeginLeaving(own); });
    std::unique_lock<std::mutex> lock(mutex_);
    departed_.emplace(rank(), calls);
    EndCallOfTheDeparted();
    AwaitLeaving(lock, has_sent_last_);
  } catch (const std::exception&) {
    // Out of memory: without a word.
  }
}

void Session::BeginLeaving(const Departure& own) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leaving_has_begun_ = true;
    changed_.notify_all();
  }
  // Asio may run this after the stop that the failure has caused.
  if (const Status reason = failure();
      !reason.ok() && !std::exchange(failure_told_, true)) {
    OnFailed(reason);
  }
  if (std::exchange(leaving_, true)) {
    return;
  }
  DisarmTimeout();
  StartLeaving(own);
  GoOnLeaving();
}

void Session::GoOnLeaving() {
  if (failure_told_) {
    NoteTold();
  }
  if (!leaving()) {
    return;
  }
  const bool has_sent_last = HasSentLast();
  const bool is_alone = IsAlone();
  const std::lock_guard<std::mutex> lock(mutex_);
  has_sent_last_ = has_sent_last;
  left_ = left_ || is_alone;
  changed_.notify_all();
}

void Session::NoteSent() {
  if (leaving()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++sent_;
  }
  GoOnLeaving();
}

// Until `done`, or until no rank has taken anything for kLeaveTimeout: one that
// is slow, or far away, gets all of it.
void Session::AwaitLeaving(std::unique_lock<std::mutex>& lock,
                           const bool& done) {
  uint64_t sent = 0;
  do {
    sent = sent_;
    changed_.wait_for(lock, kLeaveTimeout,
                      [&] { return done || sent_ != sent; });
  } while (!done && sent_ != sent);
}

void Session::LeaveInOrder() {
  asio::post(io_, [this] { BeginLeaving({static_cast<uint32_t>(rank())}); });
  std::unique_lock<std::mutex> lock(mutex_);
  // The thread may be in a callback of the user's.
  changed_.wait(lock, [this] { return leaving_has_begun_; });
  AwaitLeaving(lock, left_);
  left_ = true;
}

Status Session::RankLost(const std::string& who, const Status& reason) {
  if (reason.code() == StatusCode::kResourceExhausted) {
    return reason.WithContext("the bootstrap connection to " + who);
  }
  return {StatusCode::kPeerLost,
          who +
              (reason.code() == StatusCode::kPeerLost
                   ? " has ended, or cannot be reached: its bootstrap "
                     "connection closed ("
                   : " was disconnected because of what it sent over its "
                     "bootstrap connection (") +
              reason.message() + ")"};
}

void Session::Fail(const Status& reason) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok() || left_) {
      return;
    }
    failure_ = reason;
    if (call_ && !call_result_) {
      call_result_ = reason;
    }
    changed_.notify_all();
  }
  // To post a handler would allocate. On the io thread, whoever found the
  // failure finishes first.
  if (loop_.is_intact()) {
    io_.stop();
  }
}

bool Session::CanPost() noexcept {
  const bool can = loop_.is_intact();
  if (!can) {
    Fail(descriptors_closed_);
  }
  return can;
}

// Nobody can be told, and need not be: the connections closed with the
// descriptors.
void Session::OnDescriptorsClosed() noexcept {
  Fail(descriptors_closed_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leaving_has_begun_ = has_sent_last_ = has_told_ = left_ = true;
    changed_.notify_all();
  }
  if (const Status reason = failure();
      !reason.ok() && !std::exchange(failure_told_, true)) {
    TellUser(reason);
  }
}

void Session::OnFailed(const Status& reason) noexcept {
  DisarmTimeout();
  try {
    TellFailure(reason);
  } catch (const std::bad_alloc&) {
    CutOff();
  }
  NoteTold();
  TellUser(reason);
}

void Session::NoteTold() {
  const bool has_told = HasSentLast();
  const std::lock_guard<std::mutex> lock(mutex_);
  has_told_ = has_told_ || has_told;
  changed_.notify_all();
}

void Session::TellUser(const Status& reason) noexcept {
  if (!joined_) {
    return;
  }
  try {
    if (options_.on_failure) {
      options_.on_failure(reason);
    }
    options_.logger.Info("the job failed: " + reason.ToString());
  } catch (const std::bad_alloc&) {
    // It is not logged.
  }
}

void Session::CompleteJoin(std::vector<std::string> identities) {
  if (failed()) {
    return;
  }
  std::vector<Identity> decoded;
  for (const std::string& bytes : identities) {
    Result<Identity> identity = Identity::Decode(bytes);
    if (!identity.ok()) {
      Fail({StatusCode::kInternal,
            "rank 0 sent a list of ranks that cannot be read"});
      return;
    }
    decoded.push_back(*std::move(identity));
  }
  if (const Status made = MakeJobKey(identities); !made.ok()) {
    Fail(made);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (address_.empty()) {  // of rank 0's host, by way of loopback
      address_ = decoded[0].contact;
    }
    identities_ = std::move(decoded);
  }
  joined_ = true;
  CompleteCall(std::move(identities));
}

void Session::CompleteCall(Result<std::vector<std::string>> result) {
  DisarmTimeout();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (call_ && !call_result_) {
    call_result_ = std::move(result);
    changed_.notify_all();
  }
}

void Session::NoteEarlyDeparture(const Departure& departure) {
  const auto& [number, calls, lives_on] = departure;
  const int rank = static_cast<int>(number);
  const bool exits = calls != Departure::kInOrder && rank != this->rank();
  if (exits && !HasDeparted(rank) && options_.on_exit) {
    options_.on_exit(
        {StatusCode::kPeerLost,
         DescribeRank(rank) + (lives_on ? " has destroyed its communicator"
                                        : " has ended without destroying its "
                                          "communicator")},
        calls);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  departed_.emplace(rank, calls);
}

void Session::NoteDeparture(const Departure& departure) {
  NoteEarlyDeparture(departure);
  DisarmTimeout();  // no gathering can complete, whoever waits for it
  const std::lock_guard<std::mutex> lock(mutex_);
  EndCallOfTheDeparted();
}

void Session::EndCallOfTheDeparted() {
  if (call_ && !call_result_) {
    call_result_ = DepartedStatus(*call_);
    changed_.notify_all();
  }
}

Status Session::DepartedStatus(Gathering gathering) const {
  std::set<int> ranks;
  for (const auto& [rank, calls] : departed_) {
    ranks.insert(rank);
  }
  return {StatusCode::kPeerLost, std::string("the bootstrap's ") +
                                     GatheringName(gathering) +
                                     " cannot complete: rank(s) " +
                                     FormatRanks(ranks) + " have left the job"};
}

void Session::ArmTimeout(Gathering gathering, int64_t left_ms) {
  timeout_.Arm(left_ms,
               [this, gathering] { Fail(DescribeTimeout(gathering)); });
}

void Session::NoteOwnSide(const Endpoint& own_side) {
  if (address_.empty() && !IsLocal(own_side)) {
    address_ = AddressOf(own_side);
  }
}

std::string Session::DescribeRank(int rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string name = "rank " + std::to_string(rank);
  return static_cast<size_t>(rank) < identities_.size()
             ? name + " (" + identities_[rank].ToString() + ")"
             : name;
}

Identity Session::IdentityOf(int rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return identities_[rank];
}

Handshake::Options Session::handshake_options() const {
  return {options_.secret, "bootstrap", options_.launch.job_id,
          kBootstrapVersion};
}

Status Session::MakeOwnIdentity() {
  RINGPIPE_ASSIGN_OR_RETURN(const Nonce nonce, RandomNonce());
  own_identity_.pid = static_cast<uint32_t>(getpid());
  own_identity_.host = HostName();
  own_identity_.nonce = nonce;
  return Status::Ok();
}

Status Session::MakeJobKey(const std::vector<std::string>& identities) {
  std::string all;
  for (const std::string& identity : identities) {
    all += identity;
  }
  RINGPIPE_ASSIGN_OR_RETURN(
      const Mac key, ComputeMac(options_.secret,
                                {"key of a job", options_.launch.job_id, all}));
  job_key_ = AsBytes(key);
  return Status::Ok();
}

Result<std::vector<Address>> Session::RootAddresses() const {
  std::vector<std::string> texts = options_.stored_addresses;
  if (texts.empty()) {
    texts.push_back(options_.launch.root);
  }
  std::vector<Address> addresses;
  for (const std::string& text : texts) {
    RINGPIPE_ASSIGN_OR_RETURN(Address address,
                              options_.store != nullptr && rank() == 0
                                  ? Address::ParseListening(text)
                                  : Address::Parse(text));
    addresses.push_back(std::move(address));
  }
  return addresses;
}

Status Session::FindObstacle() const {
  RINGPIPE_RETURN_IF_ERROR(options_.obstacle);
  if (size() == 1 || !options_.secret.empty()) {
    return Status::Ok();
  }
  RINGPIPE_ASSIGN_OR_RETURN(const std::vector<Address> roots, RootAddresses());
  return roots.front().unix_socket
             ? Status::Ok()
             : Status(StatusCode::kInvalidArgument,
                      roots.front().ToString() +
                          " is TCP, where anybody could join: set "
                          "RINGPIPE_SECRET to the same value on all ranks; or, "
                          "where all are on one host, let them meet at a unix "
                          "socket (RINGPIPE_ROOT=unix:@NAME)");
}

}  // namespace ringpipe
