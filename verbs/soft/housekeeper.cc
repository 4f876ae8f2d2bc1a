#include "verbs/soft/housekeeper.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <new>
#include <string>

#include "auth/local_peer.h"
#include "base/glance.h"
#include "base/signals_blocked.h"
#include "verbs/soft/context.h"

namespace ringpipe::verbs::soft {
namespace {

constexpr int kEventsAtOnce = 64;
// Of one socket: a peer that never stops must not keep the thread to itself.
constexpr int kMessagesAtOnce = 64;
// Strangers of the same user may connect too; more than peers need is refused.
constexpr std::size_t kMaxRequesters = 4096;
// A flood of strangers must not become a flood of log lines.
constexpr int kMostRefusalsLogged = 20;
// Where nothing can be done for want of memory or descriptors.
constexpr std::chrono::milliseconds kPause{10};

bool Add(int epoll, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Status Housekeeper::Start(FileDescriptor listener) {
  listener_ = std::move(listener);
  epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  spare_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  if (!epoll_ || !wake_ || !spare_ || !Add(epoll_.get(), listener_.get()) ||
      !Add(epoll_.get(), wake_.get()) ||
      (context_->port().fd() >= 0 &&
       !Add(epoll_.get(), context_->port().fd()))) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot start the housekeeper of soft0 (" +
                           std::string(!epoll_             ? "epoll_create1"
                                       : !wake_ || !spare_ ? "eventfd"
                                                           : "epoll_ctl") +
                           ")",
                       errno);
  }
  for (const FileDescriptor& tcp : context_->network().listeners()) {
    if (!Watch(tcp.get())) {
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         "cannot start the housekeeper of soft0", errno);
    }
  }
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "ringpipe-soft0");
      Run();
    });
  } catch (const std::system_error& error) {
    errno = error.code().value();  // which is what ibv_open_device tells
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "cannot start the housekeeper of soft0 (pthread_create)",
                       errno);
  }
  return Status::Ok();
}

void Housekeeper::Stop() {
  if (thread_.joinable()) {
    stop_ = true;
    Wake();
    thread_.join();
  }
}

void Housekeeper::Wake() {
  if (!IsEvent(wake_.get())) {
    return;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

void Housekeeper::NeedTimer(Clock::time_point when) {
  if (when < planned_.load(std::memory_order_seq_cst)) {
    Wake();
  }
}

bool Housekeeper::Watch(int socket) { return Add(epoll_.get(), socket); }

bool Housekeeper::WatchDatagrams() {
  return context_->datagrams().Watch(epoll_.get());
}

// Ends also where another part of the program has closed the descriptors: no
// peer can reach this process any more.
void Housekeeper::Run() {
  Clock::time_point next = Clock::time_point::max();
  while (!stop_ && listener_.IsOpen()) {
    try {
      next = Round(next);
    } catch (const std::bad_alloc&) {
      // What it was about to do is to be done later.
      context_->shared().attention = 1;
      context_->datagrams().Arm();
      next = Clock::now() + kPause;
    }
  }
}

Clock::time_point Housekeeper::Round(Clock::time_point until) {
  Wait(until);
  // While awake: whoever needs a timer now must wake the next Wait.
  planned_.store(Clock::time_point::max(), std::memory_order_seq_cst);
  Attend();
  const Clock::time_point next = context_->ProgressByTimer();
  planned_.store(next, std::memory_order_seq_cst);
  return next;
}

void Housekeeper::Wait(Clock::time_point until) {
  const Clock::duration left =
      std::clamp<Clock::duration>(until - Clock::now(), {}, kGlance);
  timespec timeout = {};
  timeout.tv_sec = left / std::chrono::seconds(1);
  timeout.tv_nsec = (left % std::chrono::seconds(1)).count();
  epoll_event events[kEventsAtOnce];
  int count =
      epoll_pwait2(epoll_.get(), events, kEventsAtOnce, &timeout, nullptr);
  // Before Linux 5.11 it is ENOSYS; containers refuse what they do not know by
  // other errors.
  if (count < 0 && errno != EINTR) {
    count = epoll_wait(epoll_.get(), events, kEventsAtOnce,
                       Deadline::After(left).PollTimeoutMs(static_cast<int>(
                           kGlance / std::chrono::milliseconds(1))));
  }
  for (int i = 0; i < count; ++i) {
    Handle(events[i].data.fd);
  }
}

void Housekeeper::Handle(int fd) {
  if (fd == wake_.get()) {
    std::uint64_t count;
    [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
  } else if (fd == context_->port().fd()) {
    context_->RefreshPort();
  } else if (context_->datagrams().Owns(fd)) {
    context_->DrainDatagrams();
  } else if (context_->datagrams().IsRoom(fd)) {
    context_->datagrams().OnRoom();  // the round goes on with who waits for it
  } else if (fd == listener_.get()) {
    Accept();
  } else if (context_->network().IsListener(fd)) {
    if (context_->network().OnListenerReadable()) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    } else {
      std::this_thread::sleep_for(kPause);
    }
  } else if (requesters_.contains(fd)) {
    HandleRequester(fd);
  } else {
    HandleResponder(fd);
  }
}

// --- Requesters: they connected to us ----------------------------------------

void Housekeeper::Accept() {
  while (true) {
    FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      OnAcceptFailed(errno);
      return;
    }
    ucred peer = {};
    const int fd = socket.get();
    if (const Status trusted = CheckLocalPeer(fd, &peer); !trusted.ok()) {
      LogRefusal(trusted.message());
    } else if (requesters_.size() < kMaxRequesters && Add(epoll_.get(), fd)) {
      requesters_[fd] = std::move(socket);
    }
  }
}

// Who waits and cannot be accepted would wake the thread again and again.
void Housekeeper::OnAcceptFailed(int error) {
  if (error == EAGAIN || error == EINTR || error == ECONNABORTED) {
    return;
  }
  bool refused = false;
  if (error == EMFILE || error == ENFILE) {
    LogNoDescriptors("a peer was refused", error);
    spare_ = FileDescriptor();
    refused = static_cast<bool>(FileDescriptor(
        accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    spare_ = FileDescriptor(eventfd(0, EFD_CLOEXEC));
  }
  if (!refused || !spare_) {
    std::this_thread::sleep_for(kPause);
  }
}

void Housekeeper::LogNoDescriptors(const std::string& consequence, int error) {
  if (!logged_no_descriptors_) {
    logged_no_descriptors_ = true;
    context_->network().LogWarning(ErrnoStatus(StatusCode::kResourceExhausted,
                                               "soft0: " + consequence, error)
                                       .message());
  }
}

void Housekeeper::LogRefusal(const std::string& reason) {
  if (++refused_ > kMostRefusalsLogged) {
    return;
  }
  context_->network().LogWarning(
      "soft0: refused a connection: " + reason +
      (refused_ == kMostRefusalsLogged ? "; further ones are not logged" : ""));
}

void Housekeeper::HandleRequester(int socket) {
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    LinkMessage message;
    LinkFiles unwanted;
    switch (ReceiveLinkMessage(socket, &message, &unwanted)) {
      case Received::kNothing:
        return;
      case Received::kClosed:
      case Received::kNoDescriptors:  // it has no reason to send any
        DropRequester(socket);
        return;
      case Received::kMessage:
        break;
    }
    // A ring only wakes: Attend looks at what there is.
    if (message.kind == LinkMessage::kAttach) {
      Answer(socket, message);
    }
  }
}

void Housekeeper::Answer(int socket, const LinkMessage& request) {
  LinkMessage answer = request;
  const std::uint32_t index = IndexOf(request.responder_qpn);
  const std::shared_ptr<QueuePair> qp = context_->FindQueuePair(index);
  if (qp == nullptr || qp->number() != request.responder_qpn) {
    answer.kind = LinkMessage::kNoSuchQueuePair;
    SendLinkMessage(socket, answer);
    return;
  }
  answer.kind = LinkMessage::kAttached;
  answer.incarnation = qp->owned().incarnation.load();
  const Context::ChannelOf channel = context_->ReceiveChannel(*qp);
  answer.channel = channel.id;
  attachments_[{index, request.requester_qpn}] = socket;
  const Segment& segment = context_->segment();
  const bool wanted = request.segment != 0;
  const bool sent =
      SendLinkMessage(socket, answer,
                      {wanted ? segment.owned_fd() : -1,
                       wanted ? segment.shared_fd() : -1, channel.fd.get()});
  if (!sent && errno == ETOOMANYREFS) {
    // The peer asks again, until its retries are used up.
    LogNoDescriptors("a peer could not be sent the segment", errno);
  }
}

void Housekeeper::DropRequester(int socket) {
  for (auto i = attachments_.begin(); i != attachments_.end();) {
    if (i->second != socket) {
      ++i;
      continue;
    }
    const auto [index, requester_qpn] = i->first;
    context_->OnRequesterGone(index, requester_qpn);
    i = attachments_.erase(i);
  }
  requesters_.erase(socket);
}

// --- Responders: we connected to them ----------------------------------------

void Housekeeper::HandleResponder(int socket) {
  const std::shared_ptr<PeerLink> link = context_->FindLink(socket);
  if (link == nullptr) {
    return;  // closed meanwhile
  }
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    LinkMessage message;
    switch (link->Receive(&message)) {
      case Received::kNothing:
        return;
      case Received::kNoDescriptors:
        LogNoDescriptors("a peer cannot be reached", EMFILE);
        [[fallthrough]];
      case Received::kClosed:
        link->MarkDead();
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
        return;
      case Received::kMessage:
        break;
    }
    if (message.kind == LinkMessage::kRing) {
      continue;
    }
    const std::shared_ptr<QueuePair> qp =
        context_->FindQueuePair(IndexOf(message.requester_qpn));
    if (qp != nullptr && qp->number() == message.requester_qpn) {
      qp->OnAttached(link, message);
    }
  }
}

// --- What peers left in the segment ------------------------------------------

void Housekeeper::Attend() {
  context_->ReportOverruns();
  if (context_->shared().attention.load(std::memory_order_relaxed) == 0 ||
      context_->shared().attention.exchange(0) == 0) {
    return;
  }
  context_->ReportSharedReceiveLimits();
  for (const std::shared_ptr<QueuePair>& qp : context_->QueuePairs()) {
    qp->HandleFault();
    if (!qp->ServeSlots()) {
      continue;
    }
    const auto requester =
        attachments_.find({qp->index(), qp->owned().dest_qpn.load()});
    if (requester != attachments_.end()) {
      LinkMessage ring;
      ring.kind = LinkMessage::kRing;
      SendLinkMessage(requester->second, ring);
    }
  }
}

}  // namespace ringpipe::verbs::soft
