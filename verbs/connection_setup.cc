#include "verbs/connection_setup.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/file_descriptor.h"
#include "base/while_waiting.h"

namespace ringpipe::verbs {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause(20);
constexpr milliseconds kLongestPause(1000);
// For address and route; each is tried again until the deadline.
constexpr int kResolveMs = 2000;
// How often a ready word is looked at, which raises no event. It comes a
// round trip after ESTABLISHED.
constexpr int kWordMs = 1;
constexpr milliseconds kFirstWritePause(5);
constexpr int kIdleMs = 100;

// nullopt: none, or too short.
std::optional<HandshakeData> Parse(const void* bytes, std::size_t size) {
  if (bytes == nullptr || size < sizeof(HandshakeData)) {
    return std::nullopt;
  }
  HandshakeData data;
  std::memcpy(&data, bytes, sizeof(data));
  return data;
}

rdma_conn_param ConnectionParameters(const QueuePair& queue_pair,
                                     const HandshakeData& data) {
  rdma_conn_param param = {};
  param.private_data = &data;
  param.private_data_len = sizeof(data);
  // ringpipe reads nothing; adapters open a connection with an empty read.
  param.responder_resources = 1;
  param.initiator_depth = 1;
  param.retry_count = 7;
  param.rnr_retry_count = 7;
  // Not rdma_create_qp's, which would be on librdmacm's context: the kernel
  // finds it by number.
  param.qp_num = queue_pair.get()->qp_num;
  return param;
}

const char* EventName(rdma_cm_event_type type) {
  switch (type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
      return "RDMA_CM_EVENT_ADDR_ERROR";
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return "RDMA_CM_EVENT_ROUTE_ERROR";
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return "RDMA_CM_EVENT_CONNECT_ERROR";
    case RDMA_CM_EVENT_UNREACHABLE:
      return "RDMA_CM_EVENT_UNREACHABLE";
    case RDMA_CM_EVENT_REJECTED:
      return "RDMA_CM_EVENT_REJECTED";
    case RDMA_CM_EVENT_DISCONNECTED:
      return "RDMA_CM_EVENT_DISCONNECTED";
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return "RDMA_CM_EVENT_DEVICE_REMOVAL";
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return "RDMA_CM_EVENT_ADDR_CHANGE";
    default:
      return "an unexpected event";
  }
}

StatusCode EventCode(rdma_cm_event_type type) {
  switch (type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return StatusCode::kUnavailable;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return StatusCode::kDeviceError;
    default:
      return StatusCode::kPeerLost;
  }
}

const char* EventCause(rdma_cm_event_type type) {
  switch (type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return "can the two addresses ping each other?";
    case RDMA_CM_EVENT_REJECTED:
      return "has the peer ended, or is it of another job, or not iWARP?";
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return "has the peer ended, is a firewall between the two?";
    case RDMA_CM_EVENT_DISCONNECTED:
      return "has the peer ended?";
    default:
      return "did the device or its address go away? see the kernel's log";
  }
}

bool IsFailure(rdma_cm_event_type type) {
  switch (type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return true;
    default:
      return false;
  }
}

sockaddr* AsSockaddr(sockaddr_storage& storage) {
  return reinterpret_cast<sockaddr*>(&storage);
}

}  // namespace

ConnectionSetup::ConnectionSetup(
    const Resources& resources,
    std::span<const ConnectionManager::Connection> connections)
    : resources_(resources) {
  handshakes_.reserve(connections.size());
  for (const ConnectionManager::Connection& connection : connections) {
    Handshake handshake;
    handshake.connection = connection;
    handshake.ready_word = &resources.ready_words[1 + handshakes_.size()];
    handshake.next_try = Clock::now();
    handshake.pause = kFirstPause;
    handshakes_.push_back(std::move(handshake));
  }
}

ConnectionSetup::~ConnectionSetup() {
  for (Handshake& handshake : handshakes_) {
    if (handshake.stage != Stage::kReady) {
      (void)handshake.connection.queue_pair->Fail();
    }
    if (handshake.id != nullptr) {
      resources_.library.destroy_id(handshake.id);
    }
  }
}

Status ConnectionSetup::Run(Deadline deadline, int abort_fd) {
  while (true) {
    RINGPIPE_RETURN_IF_ERROR(StartDue(deadline));
    RINGPIPE_RETURN_IF_ERROR(HandleEvents(deadline));
    RINGPIPE_RETURN_IF_ERROR(LookAtReadyWords());
    if (AllReady()) {
      return Status::Ok();
    }
    if (deadline.expired()) {
      return TimedOut();
    }
    RINGPIPE_RETURN_IF_ERROR(Wait(deadline, abort_fd));
  }
}

std::vector<rdma_cm_id*> ConnectionSetup::TakeIds() {
  std::vector<rdma_cm_id*> ids;
  ids.reserve(handshakes_.size());
  for (Handshake& handshake : handshakes_) {
    if (handshake.id != nullptr) {
      ids.push_back(std::exchange(handshake.id, nullptr));
    }
  }
  return ids;
}

bool ConnectionSetup::AllReady() const {
  return std::all_of(handshakes_.begin(), handshakes_.end(),
                     [](const Handshake& handshake) {
                       return handshake.stage == Stage::kReady;
                     });
}

Status ConnectionSetup::StartDue(Deadline deadline) {
  for (Handshake& handshake : handshakes_) {
    if (handshake.connection.active && handshake.stage == Stage::kIdle &&
        Clock::now() >= handshake.next_try) {
      RINGPIPE_RETURN_IF_ERROR(Start(handshake, deadline));
    }
  }
  return Status::Ok();
}

Status ConnectionSetup::Start(Handshake& handshake, Deadline deadline) {
  const ConnectionManagerAddress& remote = handshake.connection.remote;
  if (resources_.library.create_id(resources_.channel, &handshake.id, nullptr,
                                   RDMA_PS_TCP) != 0) {
    handshake.id = nullptr;
    return resources_.device.CallFailed("rdma_create_id", errno);
  }
  handshake.stage = Stage::kAddress;
  // The source is bound: routing alone might leave through another device.
  sockaddr_storage source = resources_.own.ip.SocketAddress(0);
  sockaddr_storage destination = remote.ip.SocketAddress(remote.port);
  if (resources_.library.resolve_addr(
          handshake.id, AsSockaddr(source), AsSockaddr(destination),
          deadline.PollTimeoutMs(kResolveMs)) == 0) {
    return Status::Ok();
  }
  return TryAgain(
      handshake,
      ErrnoStatus(StatusCode::kUnavailable,
                  Name(handshake) +
                      ": rdma_resolve_addr (can the two addresses ping each "
                      "other?)",
                  errno));
}

Status ConnectionSetup::LookAtReadyWords() {
  for (Handshake& handshake : handshakes_) {
    if (handshake.stage != Stage::kWord) {
      continue;
    }
    if (std::atomic_ref<std::uint64_t>(*handshake.ready_word)
            .load(std::memory_order_acquire) != 0) {
      handshake.stage = Stage::kReady;
      if (!handshake.connection.active) {
        RINGPIPE_RETURN_IF_ERROR(WriteReadyWord(handshake));
      }
    } else if (handshake.connection.active &&
               handshake.writes < ConnectionManager::kReadyWrites &&
               Clock::now() >= handshake.next_try) {
      RINGPIPE_RETURN_IF_ERROR(WriteReadyWord(handshake));
    }
  }
  return Status::Ok();
}

Status ConnectionSetup::Wait(Deadline deadline, int abort_fd) const {
  int most_ms = kIdleMs;
  for (const Handshake& handshake : handshakes_) {
    if (handshake.stage == Stage::kWord) {
      most_ms = std::min(most_ms, kWordMs);
    } else if (handshake.connection.active && handshake.stage == Stage::kIdle) {
      most_ms = Deadline::At(handshake.next_try).PollTimeoutMs(most_ms);
    }
  }
  // poll() passes over a negative descriptor.
  pollfd fds[2] = {{resources_.channel->fd, POLLIN, 0}, {abort_fd, POLLIN, 0}};
  const int count = poll(
      fds, 2, BlockingCall::PollTimeoutMs(deadline.PollTimeoutMs(most_ms)));
  const int error = count < 0 ? errno : 0;
  if (BlockingCall::EndsAfterPoll(error == EINTR)) {
    return EndedByCaller(resources_.own_rank,
                         "the creation of the communicator");
  }
  if (count < 0 && error != EINTR) {
    return resources_.device.CallFailed("poll for connection events", error);
  }
  if (count > 0 && ((fds[0].revents | fds[1].revents) & POLLNVAL) != 0) {
    return DescriptorsClosed();
  }
  if (count > 0 && fds[1].revents != 0) {
    return {StatusCode::kAborted,
            resources_.device.info().name + ": aborted while connecting"};
  }
  return Status::Ok();
}

Status ConnectionSetup::HandleEvents(Deadline deadline) {
  Event event;
  while (TakeEvent(&event)) {
    RINGPIPE_RETURN_IF_ERROR(Handle(event, deadline));
  }
  return Status::Ok();
}

bool ConnectionSetup::TakeEvent(Event* event) {
  rdma_cm_event* taken = nullptr;
  if (resources_.library.get_cm_event(resources_.channel, &taken) != 0) {
    return false;  // EAGAIN; whatever else it was, the deadline ends
  }
  event->type = taken->event;
  event->id = taken->id;
  // A negative errno value; the reason of an InfiniBand reject is positive.
  event->error = taken->status < 0 ? -taken->status : 0;
  const bool has_data = taken->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
                        taken->event == RDMA_CM_EVENT_ESTABLISHED;
  event->data = has_data ? Parse(taken->param.conn.private_data,
                                 taken->param.conn.private_data_len)
                         : std::nullopt;
  // At once: an id cannot be destroyed while an event of it is not.
  resources_.library.ack_cm_event(taken);
  return true;
}

Status ConnectionSetup::Handle(const Event& event, Deadline deadline) {
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
    return HandleRequest(event);
  }
  Handshake* handshake = Find(event.id);
  if (handshake == nullptr) {
    // The listener's, or of an id that was given up since.
    return event.type == RDMA_CM_EVENT_DEVICE_REMOVAL
               ? Status(StatusCode::kDeviceError,
                        resources_.device.info().name +
                            " was removed while connecting")
               : Status::Ok();
  }
  if (IsFailure(event.type)) {
    return HandleFailure(*handshake, event);
  }
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return ResolveRoute(*handshake, deadline);
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return Connect(*handshake);
    case RDMA_CM_EVENT_ESTABLISHED:
      return Established(*handshake, event);
    default:
      return Status::Ok();
  }
}

Status ConnectionSetup::HandleFailure(Handshake& handshake,
                                      const Event& event) {
  const std::string what = Name(handshake) + ": " + EventName(event.type) +
                           " (" + EventCause(event.type) + ")";
  const StatusCode code = EventCode(event.type);
  Status failure = event.error == 0 ? Status(code, what)
                                    : ErrnoStatus(code, what, event.error);
  if (handshake.stage == Stage::kReady) {
    return failure;
  }
  const bool resolving =
      handshake.stage == Stage::kAddress || handshake.stage == Stage::kRoute;
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL ||
      (!resolving && QueuePairState(handshake) != IBV_QPS_INIT)) {
    // A queue pair that took part in a handshake is of no use for another.
    return failure;
  }
  return TryAgain(handshake, std::move(failure));
}

Status ConnectionSetup::ResolveRoute(Handshake& handshake, Deadline deadline) {
  const std::string& own = resources_.device.info().name;
  const std::string chosen =
      resources_.device.library().get_device_name(handshake.id->verbs->device);
  if (chosen != own) {
    return {StatusCode::kUnavailable,
            Name(handshake) + ": the address belongs to " + chosen};
  }
  handshake.stage = Stage::kRoute;
  if (resources_.library.resolve_route(
          handshake.id, deadline.PollTimeoutMs(kResolveMs)) == 0) {
    return Status::Ok();
  }
  return TryAgain(handshake, ErrnoStatus(StatusCode::kUnavailable,
                                         Name(handshake) +
                                             ": rdma_resolve_route (can the "
                                             "two addresses ping each other?)",
                                         errno));
}

Status ConnectionSetup::Connect(Handshake& handshake) {
  const ConnectionManager::Connection& connection = handshake.connection;
  const HandshakeData data = OwnData(handshake, connection.remote.token);
  rdma_conn_param param = ConnectionParameters(*connection.queue_pair, data);
  handshake.stage = Stage::kConnect;
  if (resources_.library.connect(handshake.id, &param) == 0) {
    return Status::Ok();
  }
  return TryAgain(
      handshake,
      ErrnoStatus(StatusCode::kPeerLost,
                  Name(handshake) +
                      ": rdma_connect (has the peer ended, is a firewall "
                      "between the two?)",
                  errno));
}

Status ConnectionSetup::Established(Handshake& handshake, const Event& event) {
  const ConnectionManager::Connection& connection = handshake.connection;
  handshake.stage = Stage::kWord;
  if (!connection.active) {
    return Status::Ok();
  }
  const std::optional<HandshakeData>& data = event.data;
  if (!data.has_value() || data->token != connection.remote.token ||
      data->id != connection.id || data->rank != connection.peer) {
    return {StatusCode::kMismatch,
            Name(handshake) +
                ": somebody else answers at this address (do all ranks run "
                "the same version?)"};
  }
  handshake.remote_word = data->word;
  handshake.remote_rkey = data->rkey;
  handshake.pause = kFirstWritePause;
  return WriteReadyWord(handshake);
}

Status ConnectionSetup::WriteReadyWord(Handshake& handshake) {
  ibv_sge piece = {
      reinterpret_cast<std::uint64_t>(resources_.ready_words.data()),
      sizeof(std::uint64_t), resources_.lkey};
  ibv_send_wr request = {};
  request.wr_id = ConnectionManager::kReadyWriteId;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = handshake.remote_word;
  request.wr.rdma.rkey = handshake.remote_rkey;
  ibv_send_wr* bad = nullptr;
  const int error =
      ibv_post_send(handshake.connection.queue_pair->get(), &request, &bad);
  if (error != 0) {
    return resources_.device.CallFailed(
        "ibv_post_send of the first write to rank " +
            std::to_string(handshake.connection.peer),
        error);
  }
  ++handshake.writes;
  handshake.next_try = Clock::now() + handshake.pause;
  handshake.pause *= 8;
  return Status::Ok();
}

Status ConnectionSetup::HandleRequest(const Event& event) {
  const std::optional<HandshakeData>& data = event.data;
  Handshake* handshake = data.has_value() && data->token == resources_.own.token
                             ? FindPassive(data->rank, data->id)
                             : nullptr;
  if (handshake == nullptr || handshake->stage != Stage::kIdle) {
    Refuse(event.id);
    return Status::Ok();
  }
  handshake->id = event.id;
  handshake->remote_word = data->word;
  handshake->remote_rkey = data->rkey;
  return Accept(*handshake);
}

Status ConnectionSetup::Accept(Handshake& handshake) {
  const HandshakeData data = OwnData(handshake, resources_.own.token);
  rdma_conn_param param =
      ConnectionParameters(*handshake.connection.queue_pair, data);
  handshake.stage = Stage::kAccept;
  if (resources_.library.accept(handshake.id, &param) == 0) {
    return Status::Ok();
  }
  // The active end's queue pair is lost by this: no other try.
  return ErrnoStatus(
      StatusCode::kPeerLost,
      Name(handshake) +
          ": rdma_accept (has the peer given up, did a port go down?)",
      errno);
}

void ConnectionSetup::Refuse(rdma_cm_id* id) {
  ++strangers_;
  resources_.library.reject(id, nullptr, 0);
  resources_.library.destroy_id(id);
}

Status ConnectionSetup::TryAgain(Handshake& handshake, Status failure) {
  // Linux's siw says RESET where it means INIT.
  if (const ibv_qp_state state = QueuePairState(handshake);
      state != IBV_QPS_INIT && state != IBV_QPS_RESET) {
    return failure;
  }
  if (handshake.id != nullptr) {
    resources_.library.destroy_id(std::exchange(handshake.id, nullptr));
  }
  handshake.stage = Stage::kIdle;
  handshake.last_failure = failure.message();
  handshake.next_try = Clock::now() + handshake.pause;
  handshake.pause = std::min(2 * handshake.pause, kLongestPause);
  return Status::Ok();
}

ibv_qp_state ConnectionSetup::QueuePairState(const Handshake& handshake) const {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  const int error = resources_.device.library().query_qp(
      handshake.connection.queue_pair->get(), &attr, IBV_QP_STATE, &init);
  return error == 0 ? attr.qp_state : IBV_QPS_UNKNOWN;
}

ConnectionSetup::Handshake* ConnectionSetup::Find(const rdma_cm_id* id) {
  const auto found = std::find_if(handshakes_.begin(), handshakes_.end(),
                                  [id](const Handshake& handshake) {
                                    return id != nullptr && handshake.id == id;
                                  });
  return found == handshakes_.end() ? nullptr : &*found;
}

ConnectionSetup::Handshake* ConnectionSetup::FindPassive(int peer,
                                                         std::uint32_t id) {
  const auto found = std::find_if(handshakes_.begin(), handshakes_.end(),
                                  [peer, id](const Handshake& handshake) {
                                    return !handshake.connection.active &&
                                           handshake.connection.peer == peer &&
                                           handshake.connection.id == id;
                                  });
  return found == handshakes_.end() ? nullptr : &*found;
}

HandshakeData ConnectionSetup::OwnData(const Handshake& handshake,
                                       std::uint64_t token) const {
  HandshakeData data = {};
  data.token = token;
  data.word = reinterpret_cast<std::uint64_t>(handshake.ready_word);
  data.rkey = resources_.rkey;
  data.id = handshake.connection.id;
  data.rank = resources_.own_rank;
  return data;
}

std::string ConnectionSetup::Name(const Handshake& handshake) const {
  const ConnectionManager::Connection& connection = handshake.connection;
  return resources_.device.info().name + ": the iWARP connection " +
         (connection.active ? "to" : "from") + " rank " +
         std::to_string(connection.peer) + " (" +
         (connection.active ? resources_.own.ip.Text()
                            : connection.remote.ip.Text()) +
         " to " +
         (connection.active ? connection.remote.Text()
                            : resources_.own.Text()) +
         ")";
}

Status ConnectionSetup::TimedOut() const {
  const auto waiting = [](const Handshake& handshake) {
    return handshake.stage != Stage::kReady;
  };
  const auto missing =
      std::count_if(handshakes_.begin(), handshakes_.end(), waiting);
  const Handshake& first =
      *std::find_if(handshakes_.begin(), handshakes_.end(), waiting);
  std::string cause;
  if (!first.last_failure.empty()) {
    cause = "; the last try: " + first.last_failure;
  } else if (!first.connection.active && first.stage == Stage::kIdle) {
    cause = "; it has not asked (does it run, and does it reach this address?)";
  } else {
    cause = "; it does not answer (does it run?)";
  }
  return {StatusCode::kTimeout, Name(first) + " was not made in time, nor " +
                                    std::to_string(missing - 1) + " of " +
                                    std::to_string(handshakes_.size() - 1) +
                                    " others" + cause};
}

}  // namespace ringpipe::verbs
