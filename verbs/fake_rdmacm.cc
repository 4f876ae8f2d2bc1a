#include "verbs/fake_rdmacm.h"

#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ringpipe::verbs {
namespace {

FakeRdmacm* network = nullptr;

int Fail(int error) {
  errno = error;
  return -1;
}

// 0 of an empty list.
int TakeFirst(std::deque<int>& list) {
  if (list.empty()) {
    return 0;
  }
  const int first = list.front();
  list.pop_front();
  return first;
}

rdma_event_channel* CreateEventChannel() {
  if (network->channel_errno != 0) {
    errno = network->channel_errno;
    return nullptr;
  }
  network->channel.fd = eventfd(0, EFD_SEMAPHORE);
  ++network->live_channels;
  return &network->channel;
}

void DestroyEventChannel(rdma_event_channel* channel) {
  close(channel->fd);
  --network->live_channels;
}

int CreateId(rdma_event_channel* channel, rdma_cm_id** id, void* /*context*/,
             rdma_port_space /*space*/) {
  *id = network->NewId(channel);
  return 0;
}

int DestroyId(rdma_cm_id* id) {
  network->destroyed_too_early += network->unacknowledged;
  std::erase_if(network->events,
                [id](const auto& event) { return event->verbs.id == id; });
  --network->live_ids;
  delete id;
  return 0;
}

int BindAddr(rdma_cm_id* id, sockaddr* /*address*/) {
  if (network->bind_errno != 0) {
    return Fail(network->bind_errno);
  }
  id->verbs = network->context;
  return 0;
}

int ResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* /*destination*/,
                int /*timeout_ms*/) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(source)->sin_addr, text,
            sizeof(text));
  network->source = text;
  id->verbs = network->context;
  const int status = TakeFirst(network->resolve_events);
  network->Raise(
      status == 0 ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR, id,
      status);
  return 0;
}

int ResolveRoute(rdma_cm_id* id, int /*timeout_ms*/) {
  network->Raise(RDMA_CM_EVENT_ROUTE_RESOLVED, id);
  return 0;
}

int Listen(rdma_cm_id* /*id*/, int /*backlog*/) { return 0; }

int Connect(rdma_cm_id* id, rdma_conn_param* param) {
  if (const int error = TakeFirst(network->connect_errnos); error != 0) {
    return Fail(error);
  }
  if (network->on_connect) {
    network->on_connect(id, *param);
  }
  return 0;
}

int Accept(rdma_cm_id* id, rdma_conn_param* param) {
  if (network->on_accept) {
    network->on_accept(id, *param);
  }
  return 0;
}

int Reject(rdma_cm_id* id, const void* /*data*/, std::uint8_t /*bytes*/) {
  network->rejected.push_back(id);
  return 0;
}

int GetCmEvent(rdma_event_channel* channel, rdma_cm_event** event) {
  if (network->events.empty()) {
    return Fail(EAGAIN);
  }
  std::uint64_t one = 0;
  if (read(channel->fd, &one, sizeof(one)) != sizeof(one)) {
    return -1;
  }
  *event = &network->events.front().release()->verbs;
  network->events.pop_front();
  ++network->unacknowledged;
  return 0;
}

int AckCmEvent(rdma_cm_event* event) {
  delete reinterpret_cast<FakeRdmacm::Event*>(event);  // its first member
  --network->unacknowledged;
  return 0;
}

__be16 GetSrcPort(rdma_cm_id* /*id*/) { return htons(4711); }

}  // namespace

FakeRdmacm::FakeRdmacm(ibv_context* of) : context(of) {
  network = this;
  auto library = std::make_shared<RdmacmLibrary>();
  library->create_event_channel = CreateEventChannel;
  library->destroy_event_channel = DestroyEventChannel;
  library->create_id = CreateId;
  library->destroy_id = DestroyId;
  library->bind_addr = BindAddr;
  library->resolve_addr = ResolveAddr;
  library->resolve_route = ResolveRoute;
  library->listen = Listen;
  library->connect = Connect;
  library->accept = Accept;
  library->reject = Reject;
  library->get_cm_event = GetCmEvent;
  library->ack_cm_event = AckCmEvent;
  library->get_src_port = GetSrcPort;
  library_ = std::move(library);
}

FakeRdmacm::~FakeRdmacm() { network = nullptr; }

rdma_cm_id* FakeRdmacm::NewId(rdma_event_channel* of) {
  auto* id = new rdma_cm_id{};
  id->channel = of;
  ++live_ids;
  return id;
}

void FakeRdmacm::Raise(rdma_cm_event_type type, rdma_cm_id* id, int status,
                       const void* data, std::size_t bytes) {
  auto event = std::make_unique<Event>();
  event->verbs.event = type;
  event->verbs.id = id;
  event->verbs.status = status;
  if (bytes > 0) {
    event->data.resize(bytes);
    std::memcpy(event->data.data(), data, bytes);
    event->verbs.param.conn.private_data = event->data.data();
    event->verbs.param.conn.private_data_len = static_cast<std::uint8_t>(bytes);
  }
  events.push_back(std::move(event));
  const std::uint64_t one = 1;
  if (write(channel.fd, &one, sizeof(one)) != sizeof(one)) {
    events.pop_back();
  }
}

rdma_cm_id* FakeRdmacm::Request(const void* data, std::size_t bytes) {
  rdma_cm_id* id = NewId(&channel);
  id->verbs = context;
  Raise(RDMA_CM_EVENT_CONNECT_REQUEST, id, 0, data, bytes);
  return id;
}

}  // namespace ringpipe::verbs
