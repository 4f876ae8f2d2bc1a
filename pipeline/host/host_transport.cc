#include "pipeline/host/host_transport.h"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <string_view>
#include <utility>

namespace ringpipe {
namespace {

// The end of an address, which is random.
std::string_view NameOf(std::string_view address) {
  return address.size() < Grant::kNameBytes
             ? std::string_view()
             : address.substr(address.size() - Grant::kNameBytes);
}

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
      lines_(header_, waker_, options.size) {
  NameOf(address_).copy(grant_.name.data(), grant_.name.size());
  exchange_->OfferGrant(reinterpret_cast<std::uint64_t>(&grant_));
  for (int peer = 0; peer < options_.size; ++peer) {
    connections_.push_back(options_.local[peer] && peer != options_.rank
                               ? std::make_unique<HostConnection>(
                                     options_.rank, peer, own_, lines_,
                                     *options_.check, !options_.crowded)
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
    connections_[peer]->Attach(std::move(peers[peer]), NameOf(addresses[peer]));
    if (connections_[peer]->peers_end().pidfd) {
      descriptors_.push_back(
          {connections_[peer]->peers_end().pidfd.get(), POLLIN, 0});
      processes_.push_back(peer);
    }
  }
  return Status::Ok();
}

bool HostTransport::ReachesPrivateMemory() const {
  return std::all_of(
      connections_.begin(), connections_.end(), [](const auto& connection) {
        return connection == nullptr || connection->reaches_private();
      });
}

std::string HostTransport::DescribeRoute(int peer) const {
  return std::string(way()) + ": the same host" +
         (connections_[peer]->reaches_private()
              ? ""
              : ", where private memory is copied twice, because the kernel "
                "does not let the processes reach each other's");
}

void HostTransport::Begin(std::uint64_t sequence,
                          std::span<const std::span<const std::byte>> buffers) {
  grant_.ranges = {};
  for (std::size_t i = 0; i < std::min(buffers.size(), grant_.ranges.size());
       ++i) {
    grant_.ranges[i] = {reinterpret_cast<std::uint64_t>(buffers[i].data()),
                        buffers[i].size()};
  }
  grant_.call.store(sequence + 1, std::memory_order_release);
  lines_.Begin(sequence);
}

Result<bool> HostTransport::Poll(Connection::Events& events) {
  if (overdue_) {
    waker_.Settle();
  }
  bool happened = false;
  for (const int peer : lines_.readers()) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool polled,
                              connections_[peer]->Poll(events));
    happened |= polled;
  }
  if (!happened) {
    waker_.Settle();
  }
  overdue_ = !waker_.settled();
  return happened;
}

// The executor looks once more before it sleeps.
Status HostTransport::Arm() {
  LieDown(header_);
  return PeersFailure();
}

Status HostTransport::PeersFailure() const {
  for (const int peer : lines_.readers()) {
    RINGPIPE_RETURN_IF_ERROR(connections_[peer]->PeersFailure());
  }
  return Status::Ok();
}

Status HostTransport::CheckAsyncEvents(std::vector<std::string>* /*notices*/) {
  RINGPIPE_RETURN_IF_ERROR(PeersFailure());
  if (poll(descriptors_.data() + 1, processes_.size(), 0) <= 0) {
    return Status::Ok();
  }
  std::size_t dead = 0;
  while (descriptors_[dead + 1].revents == 0) {
    ++dead;
  }
  const int peer = processes_[dead];
  return {StatusCode::kPeerLost,
          "rank " + std::to_string(peer) + " (pid " +
              std::to_string(connections_[peer]->peers_end().pid) +
              ") has died"};
}

void HostTransport::Tell(const Status& reason) {
  Failure& failure = header_.failure;
  std::uint32_t none = Failure::kNone;
  if (!failure.state.compare_exchange_strong(none, Failure::kBeingWritten)) {
    return;
  }
  failure.code.store(static_cast<std::uint32_t>(reason.code()),
                     std::memory_order_relaxed);
  failure.bytes.store(static_cast<std::uint32_t>(reason.message().copy(
                          failure.text.data(), failure.text.size())),
                      std::memory_order_relaxed);
  failure.state.store(Failure::kThere, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const auto& connection : connections_) {
    if (connection != nullptr && connection->attached()) {
      connection->sleeper().Notify();
    }
  }
}

void HostTransport::ConsumeEvents() {
  GetUp(header_);
  std::byte wake;
  static_cast<void>(!recv(wakes_.own.get(), &wake, sizeof wake, MSG_DONTWAIT));
}

// From now on no peer begins to write here; who has begun is waited for. One
// that was stopped in the middle may go on whenever it is continued: it gets
// memory that is not the user's any more.
bool HostTransport::Flush(Deadline deadline) {
  const bool first = header_.revoked.exchange(1) == 0;
  grant_.call.store(0, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool safe = true;
  for (const auto& connection : connections_) {
    if (connection == nullptr) {
      continue;
    }
    while (connection->PeerWrites() && !deadline.expired()) {
      sched_yield();
    }
    if (connection->PeerWrites()) {
      safe &= !first && connection->TakeBack().ok();
    }
  }
  return safe;
}

}  // namespace ringpipe
