#include "pipeline/host/host_transport.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace ringpipe {

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
  FileDescriptor wakes(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakes) {
    return ErrnoStatus(StatusCode::kResourceExhausted, "eventfd", errno);
  }
  RINGPIPE_ASSIGN_OR_RETURN(
      auto exchange,
      RegionExchange::Create(options.rank, options.job_key, own, wakes.get()));
  return std::unique_ptr<HostTransport>(new HostTransport(
      options, std::move(own), std::move(wakes), std::move(exchange)));
}

HostTransport::HostTransport(const Options& options,
                             std::shared_ptr<Region> own, FileDescriptor wakes,
                             std::unique_ptr<RegionExchange> exchange)
    : options_(options),
      own_(std::move(own)),
      header_(RegionHeader::Of(*own_)),
      wakes_(std::move(wakes)),
      descriptor_{wakes_.get(), POLLIN, 0},
      exchange_(std::move(exchange)),
      lines_(header_, options.size) {
  for (int peer = 0; peer < options_.size; ++peer) {
    connections_.push_back(
        options_.local[peer] && peer != options_.rank
            ? std::make_unique<HostConnection>(options_.rank, peer, own_,
                                               lines_, *options_.check)
            : nullptr);
  }
}

HostTransport::~HostTransport() = default;

std::string HostTransport::AddressFor(int peer) const {
  return connections_[peer] != nullptr ? exchange_->Address() : std::string();
}

Status HostTransport::Connect(std::span<const std::string> addresses,
                              Deadline deadline, int abort_fd) {
  RINGPIPE_ASSIGN_OR_RETURN(auto peers,
                            exchange_->Run(addresses, deadline, abort_fd));
  for (int peer = 0; peer < options_.size; ++peer) {
    if (connections_[peer] == nullptr) {
      continue;
    }
    Region& region = *peers[peer].region;
    const RegionHeader& header = RegionHeader::Of(region);
    if (region.header_bytes() < RegionHeader::Bytes(options_.size) ||
        header.magic != RegionHeader::kMagic ||
        header.rank != static_cast<std::uint32_t>(peer)) {
      return {StatusCode::kInternal,
              "rank " + std::to_string(peer) +
                  " shares memory of another kind: do all ranks run the same "
                  "version of ringpipe?"};
    }
    lines_.Attach(peer, RegionHeader::Of(region));
    connections_[peer]->Attach(std::move(peers[peer].region),
                               std::move(peers[peer].wake));
  }
  return Status::Ok();
}

std::string HostTransport::DescribeRoute(int /*peer*/) const {
  return std::string(way());
}

Result<bool> HostTransport::Poll(Connection::Events& events) {
  bool happened = false;
  for (const int peer : lines_.readers()) {
    RINGPIPE_ASSIGN_OR_RETURN(const bool polled,
                              connections_[peer]->Poll(events));
    happened |= polled;
  }
  return happened;
}

// The executor looks once more before it sleeps: see
// HostConnection::NotifyPeer.
Status HostTransport::Arm() {
  header_.asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return Status::Ok();
}

void HostTransport::ConsumeEvents() {
  header_.asleep.store(0, std::memory_order_relaxed);
  std::uint64_t wakes = 0;
  static_cast<void>(!read(wakes_.get(), &wakes, sizeof wakes));
}

// From now on no peer begins to write here; who has begun is waited for.
bool HostTransport::Flush(Deadline deadline) {
  header_.revoked.store(1, std::memory_order_seq_cst);
  const auto writes = [](const std::unique_ptr<HostConnection>& connection) {
    return connection != nullptr && connection->PeerWrites();
  };
  while (std::any_of(connections_.begin(), connections_.end(), writes)) {
    if (deadline.expired()) {
      return false;
    }
    sched_yield();
  }
  return true;
}

}  // namespace ringpipe
