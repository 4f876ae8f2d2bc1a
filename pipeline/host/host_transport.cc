#include "pipeline/host/host_transport.h"

#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <string_view>
#include <utility>

#include "base/pages.h"

namespace ringpipe {
namespace {

// How many times as many slots as this rank a peer may have.
constexpr std::uint64_t kMostOfOwnSlots = 16;

}  // namespace

Result<std::shared_ptr<Region>> HostTransport::CreateRegion(int rank,
                                                            int size) {
  RINGPIPE_ASSIGN_OR_RETURN(auto region,
                            Region::Create(RegionHeader::Bytes(size)));
  auto* const header = new (region->header()) RegionHeader();
  header->magic = RegionHeader::kMagic;
  header->rank = rank;
  header->size = size;
  new (region->header() + sizeof(RegionHeader)) Inbox[size];
  return region;
}

Result<std::unique_ptr<HostTransport>> HostTransport::Create(
    const Options& options, std::shared_ptr<Region> own) {
  std::array<int, 2> ends = {};
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return ErrnoStatus(StatusCode::kResourceExhausted, "socketpair", errno);
  }
  Wakes wakes = {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  RINGPIPE_ASSIGN_OR_RETURN(
      auto exchange, RegionExchange::Create(options.rank, options.job_key, own,
                                            wakes.others.get()));
  return std::unique_ptr<HostTransport>(new HostTransport(
      options, std::move(own), std::move(wakes), std::move(exchange)));
}

HostTransport::HostTransport(const Options& options,
                             std::shared_ptr<Region> own, Wakes wakes,
                             std::unique_ptr<RegionExchange> exchange)
    : options_(options),
      own_(std::move(own)),
      header_(RegionHeader::Of(*own_)),
      wakes_(std::move(wakes)),
      descriptors_({{wakes_.own.get(), POLLIN, 0}}),
      exchange_(std::move(exchange)),
      address_(exchange_->Address()),
      waker_(options.size),
      lines_(header_, waker_, *options.check, options.size) {
  for (int peer = 0; peer < options_.size; ++peer) {
    connections_.push_back(options_.local[peer] && peer != options_.rank
                               ? std::make_unique<HostConnection>(
                                     options_.rank, peer, own_, lines_)
                               : nullptr);
  }
}

HostTransport::~HostTransport() = default;

std::string HostTransport::AddressFor(int peer) const {
  return connections_[peer] != nullptr ? address_ : std::string();
}

Status HostTransport::Connect(std::span<const std::string> addresses,
                              Deadline deadline, int abort_fd) {
  RINGPIPE_ASSIGN_OR_RETURN(auto peers,
                            exchange_->Run(addresses, deadline, abort_fd));
  exchange_.reset();
  for (int peer = 0; peer < options_.size; ++peer) {
    if (connections_[peer] == nullptr) {
      continue;
    }
    Region& region = *peers[peer].region;
    const RegionHeader& header = RegionHeader::Of(region);
    if (region.header_bytes() < RegionHeader::Bytes(options_.size) ||
        header.magic != RegionHeader::kMagic ||
        header.rank != static_cast<std::uint32_t>(peer) ||
        header.size != static_cast<std::uint32_t>(options_.size)) {
      return {StatusCode::kInternal,
              "rank " + std::to_string(peer) +
                  " shares memory of another kind: do all ranks run the same "
                  "version of ringpipe?"};
    }
    connections_[peer]->other().Attach(std::move(peers[peer]));
    if (const auto& pidfd = connections_[peer]->other().end().pidfd) {
      descriptors_.push_back({pidfd->get(), POLLIN, 0});
      processes_.push_back(peer);
    }
  }
  return Status::Ok();
}

std::string HostTransport::DescribeRoute(int /*peer*/) const {
  return std::string(way()) + ": the same host";
}

Result<Reached> HostTransport::ReachOf(const UserMemory& memory) {
  const bool shared = own_->OffsetOf(memory.data, memory.bytes).has_value();
  reaches_ |= shared;
  return shared ? Reached{kReached} : Reached();
}

MemoryHandle HostTransport::HandleOf(const SlotPool& slots) {
  if (slots.memory() != nullptr &&
      header_.slots_bytes.load(std::memory_order_relaxed) == 0) {
    if (const auto offset =
            own_->OffsetOf(slots.memory(), slots.memory_bytes())) {
      header_.slots_offset.store(*offset, std::memory_order_relaxed);
      header_.slots_bytes.store(slots.memory_bytes(), kPublishes);
    }
  }
  return kSlot;
}

Transport::PeerSlots HostTransport::SlotsOf(int peer) {
  HostConnection* const connection = connections_[peer].get();
  if (connection == nullptr || !connection->other().attached()) {
    return {};
  }
  const HostPeer& other = connection->other();
  const std::uint64_t bytes =
      other.header().slots_bytes.load(std::memory_order_acquire);
  const std::uint64_t offset =
      other.header().slots_offset.load(std::memory_order_relaxed);
  const std::uint64_t own = header_.slots_bytes.load(std::memory_order_relaxed);
  // To pin what is not there would make it: a peer is not believed to have much
  // more than this rank.
  if (bytes == 0 || bytes / kMostOfOwnSlots > own || offset % kPageBytes != 0 ||
      other.end().pid == getpid()) {
    return {};
  }
  std::byte* const data = other.region().At(offset, bytes);
  return data == nullptr ? PeerSlots{}
                         : PeerSlots{other.end().region, {data, bytes}};
}

Status HostTransport::Begin(std::uint64_t sequence) {
  lines_.Begin(sequence);
  return Status::Ok();
}

Result<bool> HostTransport::Poll(Connection::Events& events) {
  if (overdue_) {
    waker_.NotifyAgain();
  }
  bool happened = false;
  for (const int peer : lines_.readers()) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool polled,
                              connections_[peer]->Poll(events));
    happened |= polled;
  }
  if (!happened) {
    waker_.NotifyAgain();
  }
  overdue_ = !waker_.settled();
  return happened;
}

// The executor looks once more before it sleeps.
Status HostTransport::Arm() {
  LieDown(header_);
  return Status::Ok();
}

Status HostTransport::CheckAsyncEvents(std::vector<std::string>* /*notices*/) {
  if (poll(descriptors_.data() + 1, processes_.size(), 0) <= 0) {
    return Status::Ok();
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if ((descriptors_[i + 1].revents & POLLIN) != 0) {
      connections_[processes_[i]]->other().NoteDeath();
      descriptors_[i + 1] = {-1, 0, 0};  // which poll() passes over
    }
  }
  return Status::Ok();
}

void HostTransport::Tell(const Status& reason, std::uint64_t first) {
  HostPeer::Tell(header_, reason, first);
  for (const auto& connection : connections_) {
    if (connection != nullptr && connection->other().attached()) {
      connection->other().sleeper().Notify();
    }
  }
}

std::optional<std::uint64_t> HostTransport::GpuOf(int peer) const {
  HostConnection* const connection = connections_[peer].get();
  return connection != nullptr && connection->other().attached()
             ? std::optional(connection->other().header().gpu.load())
             : std::nullopt;
}

void HostTransport::ConsumeEvents() {
  GetUp(header_);
  static_cast<void>(!recv(wakes_.own.get(), nullptr, 0, MSG_DONTWAIT));
}

void HostTransport::Stop() {
  header_.revoked.store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool HostTransport::Flush(Deadline deadline) {
  bool safe = true;
  for (const auto& connection : connections_) {
    if (connection == nullptr) {
      continue;
    }
    while (connection->other().Writes() && !deadline.expired()) {
      sched_yield();
    }
    if (connection->other().Writes()) {
      safe &= connection->stream().TakeBack().ok();
    }
  }
  return safe || !reaches_;
}

}  // namespace ringpipe
