#include "verbs/soft/fuzz/hostile_peer.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace ringpipe::verbs::soft {
namespace {

constexpr std::uint32_t kReceives = 8;
constexpr std::uint32_t kRingMask = 15;
constexpr std::uint32_t kSpoiled = 16;  // entries that an input may store to
constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

void Require(bool condition, const char* what) {
  if (!condition) {
    perror(what);
    abort();
  }
}

std::byte* MapPages(std::uint64_t bytes) {
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Require(pages != MAP_FAILED, "mmap");
  return static_cast<std::byte*>(pages);
}

FileDescriptor MakeFile(unsigned flags, off_t bytes, int seals) {
  FileDescriptor file(
      memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (file && (ftruncate(file.get(), bytes) != 0 ||
               fcntl(file.get(), F_ADD_SEALS, seals) != 0)) {
    file.Close();
  }
  return file;
}

FileDescriptor MakePipe(bool is_full) {
  int ends[2];
  Require(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "pipe2");
  FileDescriptor out(ends[1]);
  if (is_full) {
    const char bytes[4096] = {};
    while (write(out.get(), bytes, sizeof bytes) > 0) {
    }
    fcntl(out.get(), F_SETFL, 0);
    return out;  // never read: the other end stays open
  }
  close(ends[0]);
  return out;
}

template <typename T>
void Zero(T* first, std::size_t count) {
  memset(static_cast<void*>(first), 0, count * sizeof(T));
}

void Reset(OwnedLayout& owned, SharedLayout& shared) {
  shared.attention = 0;
  shared.atomic_lock = 0;
  shared.atomic_lock_wanted = 0;
  Zero(shared.completion_queues, 4);
  Zero(shared.queue_pairs, 4);
  Zero(owned.queue_pairs, 4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    Zero(shared.completions[i], kSpoiled);
    Zero(owned.receives[i], kSpoiled);
  }
  SharedReceiveRing& ring = shared.receive_rings[0];
  ring.claimed = 0;
  Zero(ring.words, kSpoiled);
  OwnedReceiveRing& owned_ring = owned.receive_rings[0];
  Zero(reinterpret_cast<std::byte*>(&owned_ring),
       offsetof(OwnedReceiveRing, receives));
  Zero(owned_ring.receives, kSpoiled);
}

ibv_sge ReceiveSge(std::uint32_t number) {
  return {HostilePeer::kRegionAddress + 4096 * number, 4096,
          number % 2 == 0 ? HostilePeer::kSharedKey : HostilePeer::kPrivateKey};
}

}  // namespace

HostilePeer::HostilePeer() : private_memory_(MapPages(kRegionBytes)) {
  Result<std::shared_ptr<Segment>> segment = Segment::Create();
  Require(segment.ok(), "segment");
  segment_ = std::move(segment).value();
  const void* const shared = segment_->Allocate(kRegionBytes);
  Require(shared != nullptr, "allocate");
  shared_offset_ = segment_->OffsetOf(shared, kRegionBytes);
  Listen();
  OpenFiles();
}

// The child listens, so that the kernel names it as the peer of whoever
// connects; the connections are taken here.
void HostilePeer::Listen() {
  listener_ = FileDescriptor(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  socklen_t length;
  do {
    ++block_;
    Require(block_ < 1u << kBlockBits, "bind");
    length = ContextAddress(Options(), block_, &address);
  } while (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address),
                length) != 0);
  int ready[2];
  Require(pipe2(ready, O_CLOEXEC) == 0, "pipe2");
  StopKeeping(listener_.get(), FileOf(listener_.get()));  // the child listens
  child_ = fork();
  Require(child_ >= 0, "fork");
  if (child_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char done = listen(listener_.get(), 64) == 0 ? 1 : 0;
    if (write(ready[1], &done, sizeof done) == 1) {
      sigset_t none;
      sigemptyset(&none);
      sigsuspend(&none);  // until it is killed
    }
    _exit(1);
  }
  KeepFromChildren(listener_.get());
  char done = 0;
  Require(read(ready[0], &done, sizeof done) == 1 && done == 1, "listen");
  close(ready[0]);
  close(ready[1]);
}

void HostilePeer::OpenFiles() {
  const off_t enough = off_t{32} << 30;
  files_[kOwned] = FileDescriptor(dup(segment_->owned_fd()));
  files_[kShared] = FileDescriptor(dup(segment_->shared_fd()));
  files_[kChannel] = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  files_[kFullChannel] =
      FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  const std::uint64_t most = ~std::uint64_t{0} - 1;
  Require(write(files_[kFullChannel].get(), &most, sizeof most) == sizeof most,
          "eventfd");
  files_[kDeadPipe] = MakePipe(/*is_full=*/false);
  files_[kFullPipe] = MakePipe(/*is_full=*/true);
  files_[kNull] = FileDescriptor(open("/dev/null", O_RDWR | O_CLOEXEC));
  files_[kUnsealedFile] = MakeFile(0, enough, 0);
  files_[kTinyFile] = MakeFile(0, 4096, F_SEAL_SHRINK);
  files_[kReadOnlyFile] = MakeFile(0, enough, F_SEAL_SHRINK | F_SEAL_WRITE);
  files_[kHugePageFile] = MakeFile(MFD_HUGETLB, enough, F_SEAL_SHRINK);
}

void HostilePeer::SetVictim(std::uint32_t block, const Segment& segment) {
  victim_block_ = block;
  files_[kVictimsOwned] = FileDescriptor(dup(segment.owned_fd()));
  files_[kVictimsShared] = FileDescriptor(dup(segment.shared_fd()));
  datagrams_ = FileDescriptor(
      socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// --- The segment -------------------------------------------------------------

void HostilePeer::ResetSegment() {
  Reset(owned(), shared());
  for (const std::uint32_t key : {kPrivateKey, kSharedKey}) {
    OwnedRegion& region = owned().regions[key >> 8];
    region.key = key;
    region.pd = kPd;
    region.access = kAllAccess;
    region.iova = kRegionAddress;
    region.address = reinterpret_cast<std::uint64_t>(private_memory_);
    region.bytes = kRegionBytes;
    region.offset = key == kSharedKey ? shared_offset_ : kPrivateMemory;
  }
  PostSharedReceives();
}

void HostilePeer::PostSharedReceives() {
  OwnedReceiveRing& ring = owned().receive_rings[0];
  ring.pd = kPd;
  ring.mask = kRingMask;
  for (std::uint32_t i = 0; i < kReceives; ++i) {
    ring.receives[i].count = 1;
    ring.receives[i].sges[0] = ReceiveSge(i);
    shared().receive_rings[0].words[i] = std::uint64_t{i} << 32 | i << 16;
  }
  ring.posted = kReceives;
}

void HostilePeer::AddQueuePair(std::uint32_t index, ibv_qp_type type,
                               std::uint32_t requester_qpn,
                               bool shared_receives) {
  OwnedQueuePair& qp = owned().queue_pairs[index];
  qp.state = IBV_QPS_RTS;
  qp.incarnation = 1;
  qp.dest_qpn = requester_qpn;
  qp.pd = kPd;
  qp.access = kAllAccess;
  qp.type = type;
  qp.ring_mask = kRingMask;
  qp.max_dest_rd_atomic = 4;
  qp.shared_receives = shared_receives ? 1 : 0;
  if (!shared_receives) {
    for (std::uint32_t i = 0; i < kReceives; ++i) {
      owned().receives[index][i].count = 1;
      owned().receives[index][i].sges[0] = ReceiveSge(i);
    }
    qp.posted = kReceives;
  }
}

// --- Sockets -----------------------------------------------------------------

void HostilePeer::Accept() {
  while (true) {
    FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      return;
    }
    accepted_.push_back(std::move(socket));
  }
}

void HostilePeer::AnswerAll() {
  Accept();
  std::erase_if(accepted_, [this](const FileDescriptor& socket) {
    while (true) {
      LinkMessage message;
      LinkFiles files;
      switch (ReceiveLinkMessage(socket.get(), &message, &files)) {
        case Received::kNothing:
          return false;
        case Received::kClosed:
        case Received::kNoDescriptors:
          return true;
        case Received::kMessage:
          break;
      }
      if (message.kind == LinkMessage::kAttach) {
        message.kind = LinkMessage::kAttached;
        message.incarnation = 1;
        message.channel = 1;
        const bool wanted = message.segment != 0;
        SendLinkMessage(
            socket.get(), message,
            {wanted ? files_[kOwned].get() : -1,
             wanted ? files_[kShared].get() : -1, files_[kChannel].get()});
      }
    }
  });
}

// Throws away what has come.
void HostilePeer::Drain(int socket) {
  LinkMessage message;
  LinkFiles files;
  while (ReceiveLinkMessage(socket, &message, &files) == Received::kMessage) {
  }
}

void HostilePeer::SendAsResponder(std::span<const std::uint8_t> bytes,
                                  const Files& files) {
  Accept();
  for (const FileDescriptor& socket : accepted_) {
    Drain(socket.get());
    Send(socket.get(), bytes, files);
  }
}

void HostilePeer::SendAsRequester(std::span<const std::uint8_t> bytes,
                                  const Files& files) {
  if (!to_victim_) {
    to_victim_ = FileDescriptor(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address;
    const socklen_t length = ContextAddress(Options(), victim_block_, &address);
    Require(connect(to_victim_.get(), reinterpret_cast<sockaddr*>(&address),
                    length) == 0,
            "connect");
  }
  Drain(to_victim_.get());
  Send(to_victim_.get(), bytes, files);
}

void HostilePeer::Send(int socket, std::span<const std::uint8_t> bytes,
                       const Files& files) {
  iovec data = {const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  int fds[kMaxLinkFiles];
  int count = 0;
  for (const File file : files) {
    if (files_[file % kFiles]) {
      fds[count++] = files_[file % kFiles].get();
    }
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  if (count > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
  }
  sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void HostilePeer::SendDatagram(std::span<const std::uint8_t> bytes) {
  sockaddr_un address;
  const socklen_t length = DatagramAddress(Options(), victim_block_, &address);
  sendto(datagrams_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL,
         reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace ringpipe::verbs::soft
