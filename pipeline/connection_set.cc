#include "pipeline/connection_set.h"

#include <infiniband/verbs.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "pipeline/work_id.h"
#include "verbs/process_limits.h"

namespace ringpipe {
namespace {

// Data sends outstanding on a queue pair, where the device has room. More than
// a round's would only queue up behind the wire.
constexpr int kDataSends = 64;
static_assert(kDataSends >= DataChannel::kBatch);

// A connection has at most two queue pairs on a rail.
constexpr int kQueuePairs = 2;
// For a queue pair that rdma_cm connects: see ConnectAll.
constexpr int kManagerSends = verbs::ConnectionManager::kReadyWrites;

// What the software device opens to reach a peer of this host: a socket that it
// connects, one that it accepts, the peer's completion channel and a file of
// its memory; and for a moment another one. And what it maps of it where that
// is limited. Another host's is one connection.
constexpr int kDescriptorsOfLocalPeer = 4;
constexpr int kDescriptorsInPassing = 1;
constexpr std::uint64_t kAddressSpaceOfLocalPeer = std::uint64_t{3} << 30;

}  // namespace

Result<std::unique_ptr<ConnectionSet>> ConnectionSet::Create(
    std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails,
    const std::shared_ptr<verbs::Device>& allocator, const Options& options) {
  std::unique_ptr<ConnectionSet> set(
      new ConnectionSet(std::move(rails), options));
  RINGPIPE_RETURN_IF_ERROR(set->CreateMemory(allocator));
  RINGPIPE_RETURN_IF_ERROR(set->CreateQueues());
  set->connections_.resize(options.size);
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer != options.rank) {
      RINGPIPE_RETURN_IF_ERROR(set->CreateConnection(peer));
    }
  }
  return set;
}

// Connections first: until they are gone the devices may use the memory.
ConnectionSet::~ConnectionSet() {
  managers_.clear();
  connections_.clear();
  ReleaseRegistered(std::move(words_), std::move(words_memory_));
  ReleaseRegistered(std::move(messages_), std::move(messages_memory_));
}

Status ConnectionSet::CreateMemory(
    const std::shared_ptr<verbs::Device>& allocator) {
  RINGPIPE_ASSIGN_OR_RETURN(
      words_memory_,
      allocator->Allocate(sizeof(ControlMemory::CreditWord) * options_.size));
  // Watched for a change: never an old value after a new one.
  RINGPIPE_ASSIGN_OR_RETURN(
      words_,
      Registration::Create(rails_, words_memory_.data(), words_memory_.bytes(),
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                           /*relaxed=*/false));
  RINGPIPE_ASSIGN_OR_RETURN(
      messages_memory_, allocator->Allocate(sizeof(ControlMessage) *
                                            kControlReceives * options_.size));
  RINGPIPE_ASSIGN_OR_RETURN(
      messages_,
      Registration::Create(rails_, messages_memory_.data(),
                           messages_memory_.bytes(), IBV_ACCESS_LOCAL_WRITE,
                           /*relaxed=*/true));
  return Status::Ok();
}

bool ConnectionSet::IsOn(int rail, int peer) const {
  const std::vector<int>& rails = options_.rails_of_peer[peer];
  return peer != options_.rank &&
         std::find(rails.begin(), rails.end(), rail) != rails.end();
}

int ConnectionSet::PeersOn(int rail) const {
  int peers = 0;
  for (int peer = 0; peer < options_.size; ++peer) {
    peers += IsOn(rail, peer) ? 1 : 0;
  }
  return peers;
}

// From what the device has room for. All queue pairs of a rail share one
// completion queue, which has to hold a completion of everything that is
// outstanding: each request has one when it fails.
Result<ConnectionSet::Depths> ConnectionSet::DepthsOn(int rail) const {
  const verbs::DeviceInfo& info = device(rail).info();
  Depths depths;
  depths.data_receives = std::max(options_.receives, DataChannel::kBatch);
  const int peers = std::max(PeersOn(rail), 1);
  const int fixed = ControlChannel::kMaxSends + kControlReceives +
                    kQueuePairs * kManagerSends + depths.data_receives;
  depths.data_sends = std::min({kDataSends, info.max_qp_wr - kManagerSends,
                                info.max_cqe / peers - fixed});
  if (depths.data_sends < DataChannel::kBatch) {
    return Status(StatusCode::kResourceExhausted,
                  info.name + " has completion queues of at most " +
                      std::to_string(info.max_cqe) +
                      " entries and queue pairs of " +
                      std::to_string(info.max_qp_wr) + ": too few for " +
                      std::to_string(peers) +
                      " peers; lower RINGPIPE_DEPTH or the number of ranks");
  }
  return depths;
}

// Of this process, for the software device.
Status ConnectionSet::CheckLimits(int rail) const {
  const int local = std::min(options_.local_peers, PeersOn(rail));
  RINGPIPE_RETURN_IF_ERROR(
      verbs::CheckDescriptors(kDescriptorsOfLocalPeer * local + PeersOn(rail) -
                              local + kDescriptorsInPassing));
  return verbs::CheckAddressSpace(kAddressSpaceOfLocalPeer * local);
}

Status ConnectionSet::CreateQueues() {
  managers_.resize(rails_.size());
  for (int rail = 0; rail < static_cast<int>(rails_.size()); ++rail) {
    RINGPIPE_ASSIGN_OR_RETURN(const Depths depths, DepthsOn(rail));
    depths_.push_back(depths);
    const int each = ControlChannel::kMaxSends + kControlReceives +
                     kQueuePairs * kManagerSends + depths.data_sends +
                     depths.data_receives;
    RINGPIPE_ASSIGN_OR_RETURN(
        auto queue,
        verbs::CompletionQueue::Create(rails_[rail]->device(),
                                       each * std::max(PeersOn(rail), 1)));
    descriptors_.push_back({queue->fd(), POLLIN, 0});
    descriptors_.push_back({device(rail).async_fd(), POLLIN, 0});
    queues_.push_back(std::move(queue));
    if (!device(rail).info().pins_memory) {
      RINGPIPE_RETURN_IF_ERROR(CheckLimits(rail));
    }
    if (device(rail).info().transport == verbs::Transport::kIwarp) {
      verbs::IpAddress ip;
      std::copy(std::begin(device(rail).info().gid.raw),
                std::end(device(rail).info().gid.raw), ip.bytes);
      RINGPIPE_ASSIGN_OR_RETURN(
          managers_[rail], verbs::ConnectionManager::Create(rails_[rail], ip));
    }
  }
  return Status::Ok();
}

Result<std::unique_ptr<verbs::QueuePair>> ConnectionSet::CreateQueuePair(
    int rail, int sends, int receives) {
  verbs::QueuePair::Options options;
  if (device(rail).info().software) {
    // Over TCP, which repeats by itself: 1.07 s until a peer is given up, so
    // that all ranks know of a dead link within 3 s, also those that learn it
    // only by asking.
    options.timeout = 16;
    options.retry_count = 3;
  }
  options.timeout = options_.timeout.value_or(options.timeout);
  options.retry_count = options_.retry_count.value_or(options.retry_count);
  options.service_level = options_.service_level;
  options.traffic_class = options_.traffic_class;
  options.max_send = sends + kManagerSends;
  options.max_receive = receives;
  options.max_inline_bytes = sizeof(ControlMessage);
  return verbs::QueuePair::Create(rails_[rail], queues_[rail], options);
}

std::uint32_t ConnectionSet::KindOf(const verbs::DeviceInfo& info) {
  return info.software ? 0 : 1 + static_cast<std::uint32_t>(info.transport);
}

Status ConnectionSet::CreateConnection(int peer) {
  const std::vector<int>& rails = options_.rails_of_peer[peer];
  RINGPIPE_ASSIGN_OR_RETURN(
      auto queue_pair,
      CreateQueuePair(rails[0], ControlChannel::kMaxSends, kControlReceives));
  if (queue_pair->max_inline_bytes() <
      static_cast<int>(sizeof(ControlMessage))) {
    return {StatusCode::kUnavailable,
            device(rails[0]).info().name + " cannot send " +
                std::to_string(sizeof(ControlMessage)) +
                " bytes inline, which ringpipe needs: choose another device "
                "with RINGPIPE_DEVICE"};
  }
  auto* words =
      reinterpret_cast<ControlMemory::CreditWord*>(words_memory_.data());
  auto* messages = reinterpret_cast<ControlMessage*>(messages_memory_.data());
  ControlMemory memory;
  memory.word = new (&words[peer]) ControlMemory::CreditWord;
  memory.word_rkey = words_.rkey(rails[0]);
  memory.received = &messages[peer * kControlReceives];
  memory.received_lkey = messages_.lkeys()[rails[0]];
  auto control =
      std::make_unique<ControlChannel>(std::move(queue_pair), peer, memory);
  for (int i = 0; i < kControlReceives; ++i) {
    RINGPIPE_RETURN_IF_ERROR(control->PostReceive(i));
  }
  std::vector<PeerConnection::Rail> rails_of_connection;
  for (std::size_t i = 0; i < rails.size(); ++i) {
    const int rail = rails[i];
    const Depths& depths = depths_[rail];
    RINGPIPE_ASSIGN_OR_RETURN(
        auto data,
        CreateQueuePair(rail, depths.data_sends, depths.data_receives));
    rails_of_connection.push_back(
        {rail, words_.rkey(rail),
         static_cast<std::uint32_t>(device(rail).info().gigabits_per_second *
                                    1000),
         KindOf(device(rail).info()),
         std::make_unique<DataChannel>(
             std::move(data), peer, static_cast<int>(i), depths.data_sends,
             depths.data_receives,
             device(rail).info().transport == verbs::Transport::kIwarp
                 ? DataChannel::Completions::kEverySend
                 : DataChannel::Completions::kLastOfList)});
  }
  connections_[peer] = std::make_unique<PeerConnection>(
      peer, std::move(control), std::move(rails_of_connection));
  return Status::Ok();
}

PeerConnection::Address ConnectionSet::AddressFor(int peer) const {
  const PeerConnection& connection = *connections_[peer];
  PeerConnection::Address address = connection.address();
  for (std::size_t i = 0; i < connection.rails().size(); ++i) {
    const auto& manager = managers_[connection.rails()[i].index];
    if (manager != nullptr) {
      address.rail[i].manager = manager->address();
    }
  }
  return address;
}

Status ConnectionSet::Connect(std::span<const PeerConnection::Address> remotes,
                              Deadline deadline, int abort_fd) {
  for (int peer = 0; peer < options_.size; ++peer) {
    if (peer == options_.rank) {
      continue;
    }
    PeerConnection& connection = at(peer);
    RINGPIPE_RETURN_IF_ERROR(connection.SetRemote(remotes[peer]));
    // A connection's rails are of one kind.
    if (managers_[connection.rails()[0].index] == nullptr) {
      RINGPIPE_RETURN_IF_ERROR(connection.Connect(remotes[peer]));
    }
  }
  return ConnectByManager(remotes, deadline, abort_fd);
}

Status ConnectionSet::ConnectByManager(
    std::span<const PeerConnection::Address> remotes, Deadline deadline,
    int abort_fd) {
  for (int rail = 0; rail < static_cast<int>(rails_.size()); ++rail) {
    if (managers_[rail] == nullptr) {
      continue;
    }
    std::vector<verbs::ConnectionManager::Connection> wanted;
    for (const auto& connection : connections_) {
      if (connection == nullptr) {
        continue;
      }
      const int peer = connection->peer();
      for (std::size_t i = 0; i < connection->rails().size(); ++i) {
        if (connection->rails()[i].index != rail) {
          continue;
        }
        const auto add = [&](verbs::QueuePair& queue_pair, std::uint32_t id) {
          wanted.push_back({&queue_pair, id, peer, options_.rank < peer,
                            remotes[peer].rail[i].manager});
        };
        add(connection->rails()[i].channel->queue_pair(),
            static_cast<std::uint32_t>(i));
        if (i == 0) {
          add(connection->control().queue_pair(), WorkId::kControl);
        }
      }
    }
    RINGPIPE_RETURN_IF_ERROR(
        managers_[rail]->ConnectAll(options_.rank, wanted, deadline, abort_fd));
  }
  return Status::Ok();
}

// --- Completions
// --------------------------------------------------------------

Result<int> ConnectionSet::Poll(std::span<ibv_wc> out) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < queues_.size() && found < out.size(); ++i) {
    const std::size_t rail = (next_poll_ + i) % queues_.size();
    const int count = queues_[rail]->Poll(out.subspan(found));
    if (count < 0) {
      return Status(StatusCode::kDeviceError,
                    "polling the completion queue of " +
                        device(static_cast<int>(rail)).info().name + " failed");
    }
    found += count;
  }
  // A busy rail must not keep the others from being heard.
  next_poll_ = (next_poll_ + 1) % queues_.size();
  return static_cast<int>(found);
}

void ConnectionSet::Discard(const ibv_wc& completion) {
  if (completion.wr_id == verbs::ConnectionManager::kReadyWriteId) {
    return;
  }
  const WorkId id = WorkId::Unpack(completion.wr_id);
  PeerConnection& connection = at(id.peer);
  if (id.channel == WorkId::kControl) {
    if (id.receive) {
      connection.control().CountReceive();
    }
    return;
  }
  DataChannel& channel = *connection.rails()[id.channel].channel;
  if (!id.receive) {
    channel.SendCompleted(id.number, [](Instance) {});
  } else if (channel.HasReceive()) {
    channel.ReceiveCompleted();
  }
}

std::string ConnectionSet::DescribeFailure(const ibv_wc& completion) {
  const WorkId id = WorkId::Unpack(completion.wr_id);
  if (completion.wr_id == verbs::ConnectionManager::kReadyWriteId) {
    return "a connection failed while it was made: " +
           verbs::DescribeCompletion(completion.status);
  }
  PeerConnection& connection = at(id.peer);
  const verbs::QueuePair& queue_pair =
      id.channel == WorkId::kControl
          ? connection.control().queue_pair()
          : connection.rails()[id.channel].channel->queue_pair();
  return "the connection of rank " + std::to_string(options_.rank) +
         " to rank " + std::to_string(id.peer) +
         " failed: " + queue_pair.DescribeFailure(completion);
}

Status ConnectionSet::Arm() {
  for (const auto& queue : queues_) {
    RINGPIPE_RETURN_IF_ERROR(queue->Arm());
  }
  return Status::Ok();
}

void ConnectionSet::ConsumeEvents() {
  for (const auto& queue : queues_) {
    queue->ConsumeEvents();
  }
}

std::string ConnectionSet::RanksOn(int rail) const {
  std::string ranks;
  for (int peer = 0; peer < options_.size; ++peer) {
    if (IsOn(rail, peer)) {
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(peer);
    }
  }
  return ranks;
}

Status ConnectionSet::CheckAsyncEvents(std::vector<std::string>* notices) {
  for (int rail = 0; rail < static_cast<int>(rails_.size()); ++rail) {
    const Status status = device(rail).CheckAsyncEvents(notices);
    if (!status.ok()) {
      return {status.code(), "rank(s) " + RanksOn(rail) +
                                 " can no longer be reached from rank " +
                                 std::to_string(options_.rank) + ": " +
                                 status.message()};
    }
  }
  return Status::Ok();
}

// --- The end
// -------------------------------------------------------------------

bool ConnectionSet::Flush(Deadline deadline) {
  bool all_in_error = true;
  for (const auto& connection : connections_) {
    all_in_error &= connection == nullptr || connection->Fail().ok();
  }
  std::array<ibv_wc, 32> completions;
  while (true) {
    const Result<int> polled = Poll(completions);
    const int count = polled.ok() ? polled.value() : 0;
    for (int i = 0; i < count; ++i) {
      Discard(completions[i]);
    }
    const bool held = std::any_of(
        connections_.begin(), connections_.end(), [&](const auto& connection) {
          // An iWARP device flushes before Fail returns, and gives no
          // completion of what is posted later.
          return connection != nullptr && connection->DeviceHoldsMemory() &&
                 (count > 0 ||
                  managers_[connection->rails()[0].index] == nullptr);
        });
    if (!held) {
      return all_in_error;
    }
    if (deadline.expired()) {
      return false;
    }
    if (count == 0) {
      sched_yield();
    }
  }
}

std::string ConnectionSet::DescribeRoute(int peer) const {
  std::string text;
  for (const PeerConnection::Rail& rail : connections_[peer]->rails()) {
    const verbs::DeviceInfo& info = device(rail.index).info();
    text += (text.empty() ? "" : " and ") +
            rail.channel->queue_pair().DescribePath();
    if (rail.megabits_per_second > 0) {
      text += " at " +
              std::to_string(static_cast<int>(info.gigabits_per_second)) +
              " Gbit/s";
    }
  }
  return text;
}

}  // namespace ringpipe
