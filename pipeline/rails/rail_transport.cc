#include "pipeline/rails/rail_transport.h"

#include <infiniband/verbs.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include "pipeline/rails/work_id.h"
#include "verbs/process_limits.h"

namespace ringpipe {
namespace {

// Data sends outstanding on a queue pair, where the device has room. More than
// a round's would only queue up behind the wire.
constexpr int kDataSends = 64;
// The most receives that are posted on one connection at a time. Those that
// have a slot are bounded by the slots; those that land in user memory need a
// bound of their own: as many as can wait for one sender without costing much.
constexpr int kMostReceives = 256;
static_assert(kDataSends >= DataChannel::kBatch);

// From here on a whole buffer is registered where that costs next to nothing:
// below it a copy into a slot is cheaper still.
constexpr std::size_t kLeastRegisteredBuffer = 256 * 1024;

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

// What lost the connection over TCP may lose the reason a few times, too.
constexpr std::chrono::seconds kReasonByTcp(3);

// As Connection::reason_patience.
std::optional<std::chrono::milliseconds> ReasonPatience(
    const ibv_wc& completion, const verbs::QueuePair& queue_pair) {
  if (completion.status != IBV_WC_RETRY_EXC_ERR) {
    return std::nullopt;
  }
  switch (queue_pair.Loss().kind) {
    case verbs::PeerLoss::Kind::kSilent:
      return std::chrono::milliseconds(0);
    case verbs::PeerLoss::Kind::kEnded:
      return kReasonByTcp;
    case verbs::PeerLoss::Kind::kUnknown:
      break;
  }
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<RailTransport>> RailTransport::Create(
    std::vector<std::shared_ptr<verbs::ProtectionDomain>> rails,
    const std::shared_ptr<verbs::Device>& allocator, const Options& options) {
  std::unique_ptr<RailTransport> transport(
      new RailTransport(std::move(rails), options));
  RINGPIPE_RETURN_IF_ERROR(transport->CreateMemory(allocator));
  RINGPIPE_RETURN_IF_ERROR(transport->CreateQueues());
  transport->connections_.resize(options.size);
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer != options.rank && !options.rails_of_peer[peer].empty()) {
      RINGPIPE_RETURN_IF_ERROR(transport->CreateConnection(peer));
    }
  }
  return transport;
}

// Connections first: until they are gone the devices may use the memory.
RailTransport::~RailTransport() {
  managers_.clear();
  connections_.clear();
  ReleaseRegistered(std::move(words_), std::move(words_memory_));
  ReleaseRegistered(std::move(messages_), std::move(messages_memory_));
}

Status RailTransport::CreateMemory(
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
      messages_memory_,
      allocator->Allocate(sizeof(ControlMemory::Buffer) *
                          ControlMemory::kBuffers * options_.size));
  RINGPIPE_ASSIGN_OR_RETURN(
      messages_,
      Registration::Create(rails_, messages_memory_.data(),
                           messages_memory_.bytes(), IBV_ACCESS_LOCAL_WRITE,
                           /*relaxed=*/true));
  return Status::Ok();
}

bool RailTransport::IsOn(int rail, int peer) const {
  const std::vector<int>& rails = options_.rails_of_peer[peer];
  return peer != options_.rank &&
         std::find(rails.begin(), rails.end(), rail) != rails.end();
}

int RailTransport::PeersOn(int rail) const {
  int peers = 0;
  for (int peer = 0; peer < options_.size; ++peer) {
    peers += IsOn(rail, peer) ? 1 : 0;
  }
  return peers;
}

// From what the device has room for. All queue pairs of a rail share one
// completion queue, which has to hold a completion of everything that is
// outstanding: each request has one when it fails.
Result<RailTransport::Depths> RailTransport::DepthsOn(int rail) const {
  const verbs::DeviceInfo& info = device(rail).info();
  Depths depths;
  depths.data_receives =
      std::clamp(options_.receives, DataChannel::kBatch, kMostReceives);
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
Status RailTransport::CheckLimits(int rail) const {
  const int local = std::min(options_.local_peers, PeersOn(rail));
  RINGPIPE_RETURN_IF_ERROR(
      verbs::CheckDescriptors(kDescriptorsOfLocalPeer * local + PeersOn(rail) -
                              local + kDescriptorsInPassing));
  return verbs::CheckAddressSpace(kAddressSpaceOfLocalPeer * local);
}

Status RailTransport::CreateQueues() {
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

Result<std::unique_ptr<verbs::QueuePair>> RailTransport::CreateQueuePair(
    int rail, int sends, int receives, int pieces, int inline_bytes) {
  verbs::QueuePair::Options options;
  if (device(rail).info().software) {
    // 1.07 s for peers on this host; between hosts TCP decides.
    options.timeout = 16;
    options.retry_count = 3;
  }
  options.timeout = options_.timeout.value_or(options.timeout);
  options.retry_count = options_.retry_count.value_or(options.retry_count);
  options.service_level = options_.service_level;
  options.traffic_class = options_.traffic_class;
  options.max_send = sends + kManagerSends;
  options.max_receive = receives;
  options.max_send_sge = pieces;
  options.max_inline_bytes = inline_bytes;
  return verbs::QueuePair::Create(rails_[rail], queues_[rail], options);
}

Result<std::unique_ptr<verbs::QueuePair>> RailTransport::CreateControlQueuePair(
    int rail) {
  constexpr int kLeast = sizeof(ControlHeader);
  for (const int inline_bytes : {kInlineBytes, kLeast}) {
    RINGPIPE_ASSIGN_OR_RETURN(
        auto queue_pair,
        CreateQueuePair(rail, ControlChannel::kMaxSends, kControlReceives,
                        /*pieces=*/2, inline_bytes));
    if (queue_pair->max_inline_bytes() >= kLeast) {
      return queue_pair;
    }
  }
  return Status(StatusCode::kUnavailable,
                device(rail).info().name + " cannot send " +
                    std::to_string(kLeast) +
                    " bytes inline, which ringpipe needs: choose another "
                    "device with RINGPIPE_DEVICE");
}

std::uint32_t RailTransport::KindOf(const verbs::DeviceInfo& info) {
  return info.software ? 0 : 1 + static_cast<std::uint32_t>(info.transport);
}

Status RailTransport::CreateConnection(int peer) {
  const std::vector<int>& rails = options_.rails_of_peer[peer];
  RINGPIPE_ASSIGN_OR_RETURN(auto queue_pair, CreateControlQueuePair(rails[0]));
  auto* words =
      reinterpret_cast<ControlMemory::CreditWord*>(words_memory_.data());
  auto* buffers =
      reinterpret_cast<ControlMemory::Buffer*>(messages_memory_.data());
  ControlMemory memory;
  memory.word = new (&words[peer]) ControlMemory::CreditWord;
  memory.word_rkey = words_.rkey(rails[0]);
  memory.buffers = &buffers[peer * ControlMemory::kBuffers];
  memory.lkey = messages_.lkeys()[rails[0]];
  auto control =
      std::make_unique<ControlChannel>(std::move(queue_pair), peer, memory);
  for (int i = 0; i < kControlReceives; ++i) {
    RINGPIPE_RETURN_IF_ERROR(control->PostReceive(i));
  }
  std::vector<RailConnection::Rail> rails_of_connection;
  for (std::size_t i = 0; i < rails.size(); ++i) {
    const int rail = rails[i];
    const Depths& depths = depths_[rail];
    const verbs::DeviceInfo& info = device(rail).info();
    RINGPIPE_ASSIGN_OR_RETURN(
        auto data,
        CreateQueuePair(rail, depths.data_sends, depths.data_receives,
                        std::min(DataChannel::kMostPieces, info.max_sge)));
    RailConnection::Address::RailAddress own;
    own.data = data->endpoint();
    own.word_rkey = words_.rkey(rail);
    own.megabits_per_second =
        static_cast<std::uint32_t>(info.gigabits_per_second * 1000);
    own.kind = KindOf(info);
    const bool iwarp = info.transport == verbs::Transport::kIwarp;
    if (iwarp) {
      own.manager = managers_[rail]->address();
    }
    rails_of_connection.push_back(
        {rail, own,
         std::make_unique<DataChannel>(std::move(data), peer,
                                       static_cast<int>(i), rail,
                                       depths.data_sends, depths.data_receives,
                                       /*completes_every_send=*/iwarp)});
  }
  const Memory nothing = {memory.buffers->data(), 1, &messages_.lkeys()};
  connections_[peer] = std::make_unique<RailConnection>(
      peer, std::move(control), std::move(rails_of_connection), nothing,
      *options_.check);
  return Status::Ok();
}

std::string RailTransport::AddressFor(int peer) const {
  if (connections_[peer] == nullptr) {
    return {};
  }
  return connections_[peer]->address().Serialize();
}

Status RailTransport::Connect(std::span<const std::string> addresses,
                              Deadline deadline, int abort_fd) {
  std::vector<RailConnection::Address> remotes(options_.size);
  for (const auto& connection : connections_) {
    if (connection == nullptr) {
      continue;
    }
    const int peer = connection->peer();
    auto remote = RailConnection::Address::Parse(addresses[peer]);
    if (!remote.ok()) {
      return remote.status().WithContext("rank " + std::to_string(peer));
    }
    remotes[peer] = *remote;
    RINGPIPE_RETURN_IF_ERROR(connection->SetRemote(*remote));
    // A connection's rails are of one kind.
    if (managers_[connection->rails()[0].index] == nullptr) {
      RINGPIPE_RETURN_IF_ERROR(connection->Connect(*remote));
    }
  }
  return ConnectByManager(remotes, deadline, abort_fd);
}

Status RailTransport::ConnectByManager(
    const std::vector<RailConnection::Address>& remotes, Deadline deadline,
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

// --- Memory ------------------------------------------------------------------

Result<Reached> RailTransport::ReachOf(const UserMemory& memory) {
  CallBuffer& buffer = buffers_[memory.written ? 1 : 0];
  buffer.registration = Registration();
  bool writable = false;
  if (const auto found =
          options_.memory == nullptr
              ? std::nullopt
              : options_.memory->Find(memory.data, memory.bytes)) {
    buffer.lkeys = found->lkeys;
    writable = found->writable;
  } else if (!memory.written && options_.registers_buffers &&
             memory.bytes >= kLeastRegisteredBuffer) {
    auto registered = Registration::Create(rails_, memory.data, memory.bytes, 0,
                                           /*relaxed=*/true);
    if (registered.status().code() == StatusCode::kResourceExhausted) {
      return Reached();  // it is copied
    }
    RINGPIPE_RETURN_IF_ERROR(registered.status());
    buffer.registration = std::move(registered).value();
    buffer.lkeys = buffer.registration.lkeys();
  } else {
    return Reached{
        {.sends = memory.message_bytes >= options_.registered_sends_from
                      ? Reach::Sends::kAfterRegistering
                      : Reach::Sends::kNo}};
  }
  reaches_ = true;
  return Reached{{Reach::Sends::kAtOnce, writable}, &buffer.lkeys};
}

Result<MemoryHandle> RailTransport::Register(const Memory& piece) {
  auto place = std::find_if(pieces_.begin(), pieces_.end(),
                            [](const Registration& one) { return !one; });
  if (place == pieces_.end()) {
    place = pieces_.emplace(pieces_.end());
  }
  RINGPIPE_ASSIGN_OR_RETURN(
      *place, Registration::Create(rails_, piece.data, piece.bytes, 0,
                                   /*relaxed=*/true));
  return MemoryHandle(&place->lkeys());
}

Status RailTransport::Deregister(MemoryHandle registered) {
  const auto place = std::find_if(
      pieces_.begin(), pieces_.end(),
      [&](const Registration& one) { return &one.lkeys() == registered; });
  Status status = place->Release();
  held_ |= !status.ok();
  return status;
}

void RailTransport::End() {
  if (std::exchange(reaches_, false)) {
    for (CallBuffer& buffer : buffers_) {
      buffer.registration = Registration();
    }
  }
}

// --- Completions -------------------------------------------------------------

Result<int> RailTransport::PollQueues() {
  std::size_t found = 0;
  const std::span<ibv_wc> out(completions_);
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

Status RailTransport::Begin(std::uint64_t /*sequence*/) {
  for (const auto& connection : connections_) {
    if (connection != nullptr) {
      RINGPIPE_RETURN_IF_ERROR(connection->TakeEarly());
    }
  }
  return Status::Ok();
}

// An answer to a probe is nothing that has happened; what lies behind it is,
// and raises no event any more.
Result<bool> RailTransport::Poll(Connection::Events& events) {
  bool happened = false;
  int count = 0;
  do {
    RINGPIPE_ASSIGN_OR_RETURN(count, PollQueues());
    RINGPIPE_RETURN_IF_ERROR(HandleAll(count, events, happened));
  } while (count > 0 && !happened);
  return happened;
}

Status RailTransport::HandleAll(int count, Connection::Events& events,
                                bool& happened) {
  Status status;
  for (int i = 0; i < count; ++i) {
    if (status.ok()) {
      // The others must not be lost: the end of the collective waits for them.
      try {
        status = Handle(completions_[i], events, happened);
      } catch (const std::bad_alloc&) {
        status = OutOfMemory();
      }
    } else {
      Discard(completions_[i]);
    }
  }
  return status;
}

Status RailTransport::Handle(const ibv_wc& completion,
                             Connection::Events& events, bool& happened) {
  if (completion.status != IBV_WC_SUCCESS) {
    Discard(completion);  // first: what follows may lack memory
    return Failed(completion, happened);
  }
  const WorkId id = WorkId::Unpack(completion.wr_id);
  RailConnection& connection = *connections_[id.peer];
  if (id.channel == WorkId::kControl) {
    if (id.receive) {
      happened = true;
      return connection.ControlReceived(static_cast<int>(id.number),
                                        completion.byte_len);
    }
    happened |= connection.control().SendCompleted(id.number);
    return Status::Ok();
  }
  DataChannel& channel = *connection.rails()[id.channel].channel;
  if (id.receive) {
    happened = true;
    const auto [instance, data] = channel.ReceiveCompleted();
    return events.Arrived(instance, data, completion.byte_len);
  }
  Status status;
  channel.SendCompleted(id.number, [&](Instance instance) {
    happened = true;
    const Status sent = events.Sent(instance);
    status = status.ok() ? sent : status;
  });
  return status;
}

// What a peer that goes has sent is there already, and a call that waits for
// nothing else of it may end: that is for others to see.
Status RailTransport::Failed(const ibv_wc& completion, bool& happened) {
  if (completion.wr_id == verbs::ConnectionManager::kReadyWriteId) {
    return FailureOf(completion);
  }
  RailConnection& connection =
      *connections_[WorkId::Unpack(completion.wr_id).peer];
  if (!connection.failure().ok()) {
    return Status::Ok();  // the consequences
  }
  Status failure = FailureOf(completion);
  if (failure.code() != StatusCode::kPeerLost) {
    return failure;
  }
  connection.Lost(failure, ReasonPatience(completion, QueuePairOf(completion)));
  happened = true;
  return Status::Ok();
}

void RailTransport::Discard(const ibv_wc& completion) {
  if (completion.wr_id == verbs::ConnectionManager::kReadyWriteId) {
    return;
  }
  const WorkId id = WorkId::Unpack(completion.wr_id);
  RailConnection& connection = *connections_[id.peer];
  if (id.channel == WorkId::kControl) {
    if (id.receive) {
      connection.control().CountReceive();
    }
    return;
  }
  DataChannel& channel = *connection.rails()[id.channel].channel;
  if (!id.receive) {
    channel.SendCompleted(id.number, [&](Instance) { connection.LoseSend(); });
  } else if (channel.HasReceive()) {
    channel.ReceiveCompleted();
  }
}

const verbs::QueuePair& RailTransport::QueuePairOf(
    const ibv_wc& completion) const {
  const WorkId id = WorkId::Unpack(completion.wr_id);
  RailConnection& connection = *connections_[id.peer];
  return id.channel == WorkId::kControl
             ? connection.control().queue_pair()
             : connection.rails()[id.channel].channel->queue_pair();
}

Status RailTransport::FailureOf(const ibv_wc& completion) const {
  if (completion.wr_id == verbs::ConnectionManager::kReadyWriteId) {
    return {StatusCode::kPeerLost,
            "a connection failed while it was made: " +
                verbs::DescribeCompletion(completion.status)};
  }
  const WorkId id = WorkId::Unpack(completion.wr_id);
  RailConnection& connection = *connections_[id.peer];
  // What Linux's siw also says of a connection that the peer has closed.
  const int rail =
      connection.rails()[id.channel == WorkId::kControl ? 0 : id.channel].index;
  const bool closed = completion.status == IBV_WC_LOC_QP_OP_ERR &&
                      device(rail).info().transport == verbs::Transport::kIwarp;
  const bool local = completion.status == IBV_WC_LOC_PROT_ERR ||
                     completion.status == IBV_WC_LOC_QP_OP_ERR ||
                     completion.status == IBV_WC_LOC_LEN_ERR;
  return {local && !closed ? StatusCode::kDeviceError : StatusCode::kPeerLost,
          "the connection of rank " + std::to_string(options_.rank) +
              " to rank " + std::to_string(id.peer) + " failed: " +
              QueuePairOf(completion).DescribeFailure(completion)};
}

Status RailTransport::Arm() {
  for (const auto& queue : queues_) {
    RINGPIPE_RETURN_IF_ERROR(queue->Arm());
  }
  return Status::Ok();
}

void RailTransport::ConsumeEvents() {
  for (const auto& queue : queues_) {
    queue->ConsumeEvents();
  }
}

RailConnection* RailTransport::OwnerOf(int rail, std::uint32_t qp_number) {
  for (const auto& connection : connections_) {
    if (connection != nullptr && connection->Has(rail, qp_number)) {
      return connection.get();
    }
  }
  return nullptr;
}

std::string RailTransport::RanksOn(int rail) const {
  std::string ranks;
  for (int peer = 0; peer < options_.size; ++peer) {
    if (IsOn(rail, peer)) {
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(peer);
    }
  }
  return "rank(s) " + ranks;
}

Status RailTransport::CheckAsyncEvents(std::vector<std::string>* notices) {
  for (int rail = 0; rail < static_cast<int>(rails_.size()); ++rail) {
    std::uint32_t qp_number = 0;
    const Status status = device(rail).CheckAsyncEvents(notices, &qp_number);
    if (status.ok()) {
      continue;
    }
    RailConnection* const owner = OwnerOf(rail, qp_number);
    const std::string unreachable = " can no longer be reached from rank " +
                                    std::to_string(options_.rank) + ": " +
                                    status.message();
    if (owner == nullptr) {
      return {status.code(), RanksOn(rail) + unreachable};
    }
    // Linux's siw says so of a connection that the peer has closed.
    const bool closed =
        device(rail).info().transport == verbs::Transport::kIwarp;
    owner->Lost({closed ? StatusCode::kPeerLost : status.code(),
                 "rank " + std::to_string(owner->peer()) + unreachable});
  }
  return Status::Ok();
}

// --- The end

void RailTransport::FinishSending(Deadline deadline) {
  const auto is_out = [](const auto& connection) {
    return connection == nullptr || !connection->failure().ok() ||
           connection->control().outstanding() == 0;
  };
  while (!std::all_of(connections_.begin(), connections_.end(), is_out) &&
         !deadline.expired()) {
    for (const auto& connection : connections_) {
      if (!is_out(connection) && !connection->control().SignalLast().ok()) {
        connection->Lost({StatusCode::kPeerLost, "the peer has gone"});
      }
    }
    const Result<int> polled = PollQueues();
    for (int i = 0; i < (polled.ok() ? polled.value() : 0); ++i) {
      const ibv_wc& completion = completions_[i];
      const WorkId id = WorkId::Unpack(completion.wr_id);
      if (completion.status == IBV_WC_SUCCESS && !id.receive &&
          id.channel == WorkId::kControl) {
        connections_[id.peer]->control().SendCompleted(id.number);
        continue;
      }
      Discard(completion);
      if (bool happened = false; completion.status != IBV_WC_SUCCESS) {
        static_cast<void>(Failed(completion, happened));
      }
    }
    if (polled.ok() && polled.value() == 0) {
      sched_yield();
    }
  }
}

void RailTransport::Stop() {
  stopped_ = true;
  for (const auto& connection : connections_) {
    stopped_ &= connection == nullptr || connection->Fail().ok();
  }
}

// An iWARP device flushes before Fail returns, and gives no completion of what
// is posted later.
bool RailTransport::DevicesHoldMemory() const {
  return std::any_of(
      connections_.begin(), connections_.end(), [&](const auto& connection) {
        return connection != nullptr && connection->DeviceHoldsMemory() &&
               managers_[connection->rails()[0].index] == nullptr;
      });
}

bool RailTransport::TakeFlushed(Deadline deadline) {
  while (true) {
    const Result<int> polled = PollQueues();
    const int count = polled.ok() ? polled.value() : 0;
    for (int i = 0; i < count; ++i) {
      Discard(completions_[i]);
    }
    if (count == 0) {
      if (!DevicesHoldMemory() || deadline.expired()) {
        return !DevicesHoldMemory();
      }
      sched_yield();
    }
  }
}

bool RailTransport::DeregisterAll() {
  for (Registration& piece : pieces_) {
    held_ |= !piece.Release().ok();
  }
  for (CallBuffer& buffer : buffers_) {
    held_ |= !buffer.registration.Release().ok();
  }
  return !held_;
}

// Memory that is not registered is out of the devices' reach, whatever they
// still do to the slots.
bool RailTransport::Flush(Deadline deadline) {
  const bool flushed = TakeFlushed(deadline) && stopped_;
  return DeregisterAll() && (flushed || !reaches_);
}

std::string RailTransport::DescribeRoute(int peer) const {
  std::string text;
  for (const RailConnection::Rail& rail : connections_[peer]->rails()) {
    const verbs::DeviceInfo& info = device(rail.index).info();
    text += (text.empty() ? "" : " and ") +
            rail.channel->queue_pair().DescribePath();
    if (rail.own.megabits_per_second > 0) {
      text += " at " +
              std::to_string(static_cast<int>(info.gigabits_per_second)) +
              " Gbit/s";
    }
  }
  return options_.reasons.empty() ? text : text + ": " + options_.reasons[peer];
}

}  // namespace ringpipe
