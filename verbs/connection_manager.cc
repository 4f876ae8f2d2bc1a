#include "verbs/connection_manager.h"

#include <fcntl.h>
#include <sys/random.h>

#include <cerrno>
#include <utility>

#include "verbs/connection_setup.h"

namespace ringpipe::verbs {
namespace {

// Requests that the kernel keeps for a rank that is not yet in ConnectAll; more
// than the kernel's own limit (net.rdma_ucm.max_backlog: 1024) is cut to that.
constexpr int kBacklog = 1024;

Status ChannelFailure(const std::string& device, int error) {
  const bool denied = error == EACCES || error == EPERM;
  return ErrnoStatus(
      denied ? StatusCode::kPermissionDenied : StatusCode::kUnavailable,
      device +
          ": /dev/infiniband/rdma_cm cannot be used, by which an iWARP device "
          "is connected (is the kernel module rdma_ucm loaded? in a container, "
          "was the file passed in, readable and writable?)",
      error);
}

Status MakeNonBlocking(int fd, const std::string& device) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       device + ": O_NONBLOCK on the connection events", errno);
  }
  return Status::Ok();
}

}  // namespace

std::string ConnectionManagerAddress::Text() const {
  const std::string text = ip.Text();
  return (ip.is_ipv4() ? text : "[" + text + "]") + ":" + std::to_string(port);
}

Result<std::unique_ptr<ConnectionManager>> ConnectionManager::Create(
    std::shared_ptr<ProtectionDomain> pd, const IpAddress& ip) {
  auto library = LoadRdmacmLibrary();
  if (!library.ok()) {
    return library.status().WithContext(pd->device()->info().name);
  }
  return Create(std::move(library).value(), std::move(pd), ip);
}

Result<std::unique_ptr<ConnectionManager>> ConnectionManager::Create(
    std::shared_ptr<const RdmacmLibrary> library,
    std::shared_ptr<ProtectionDomain> pd, const IpAddress& ip) {
  const Device& device = *pd->device();
  if (device.context()->device->transport_type != IBV_TRANSPORT_IWARP) {
    return Status(StatusCode::kInvalidArgument,
                  device.info().name +
                      " is no iWARP device: its queue pairs are connected by "
                      "QueuePair::Connect");
  }
  // From here on the destructor gives back.
  std::unique_ptr<ConnectionManager> manager(
      new ConnectionManager(std::move(library), std::move(pd)));
  RINGPIPE_RETURN_IF_ERROR(manager->Listen(ip));
  return manager;
}

ConnectionManager::~ConnectionManager() {
  // rdma_destroy_id waits for an event that was taken and not acknowledged, of
  // which there is none.
  for (rdma_cm_id* id : ids_) {
    library_->destroy_id(id);
  }
  StopListening();
  if (channel_ != nullptr) {
    library_->destroy_event_channel(channel_);
  }
}

Status ConnectionManager::Listen(const IpAddress& ip) {
  const std::string& name = device().info().name;
  errno = 0;
  channel_ = library_->create_event_channel();
  if (channel_ == nullptr) {
    return ChannelFailure(name, errno != 0 ? errno : ENODEV);
  }
  RINGPIPE_RETURN_IF_ERROR(MakeNonBlocking(channel_->fd, name));
  if (library_->create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0) {
    listener_ = nullptr;
    return device().CallFailed("rdma_create_id", errno);
  }
  sockaddr_storage where = ip.SocketAddress(0);
  if (library_->bind_addr(listener_, reinterpret_cast<sockaddr*>(&where)) !=
      0) {
    return ErrnoStatus(StatusCode::kUnavailable,
                       name + ": rdma_bind_addr to " + ip.Text() +
                           " (is it an address of the device's network "
                           "interface, and is that up?)",
                       errno);
  }
  // Of another device, its queue pairs would be looked for there.
  if (listener_->verbs != nullptr &&
      name != device().library().get_device_name(listener_->verbs->device)) {
    return {StatusCode::kUnavailable,
            name + ": the address " + ip.Text() + " is one of " +
                device().library().get_device_name(listener_->verbs->device)};
  }
  if (library_->listen(listener_, kBacklog) != 0) {
    return device().CallFailed("rdma_listen at " + ip.Text(), errno);
  }
  address_.ip = ip;
  address_.port = ntohs(library_->get_src_port(listener_));
  if (getrandom(&address_.token, sizeof(address_.token), 0) !=
      sizeof(address_.token)) {
    return ErrnoStatus(StatusCode::kUnavailable, "getrandom", errno);
  }
  return Status::Ok();
}

Status ConnectionManager::RegisterReadyWords(std::size_t connections) {
  ready_words_.assign(1 + connections, 0);
  ready_words_[0] = 1;
  auto region = MemoryRegion::Register(
      pd_, ready_words_.data(), ready_words_.size() * sizeof(std::uint64_t),
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!region.ok()) {
    return region.status();
  }
  ready_region_ = std::move(region).value();
  return Status::Ok();
}

void ConnectionManager::StopListening() {
  if (listener_ != nullptr) {
    library_->destroy_id(listener_);
    listener_ = nullptr;
  }
}

Status ConnectionManager::ConnectAll(int own_rank,
                                     std::span<const Connection> connections,
                                     Deadline deadline, int abort_fd) {
  if (std::exchange(used_, true)) {
    return {StatusCode::kInvalidArgument,
            "ConnectionManager::ConnectAll is for once"};
  }
  for (const Connection& connection : connections) {
    if (connection.queue_pair->get()->pd != pd_->get()) {
      return {StatusCode::kInvalidArgument,
              "a queue pair of another protection domain"};
    }
  }
  if (connections.empty()) {
    StopListening();
    return Status::Ok();
  }
  RINGPIPE_RETURN_IF_ERROR(RegisterReadyWords(connections.size()));
  ConnectionSetup setup({.library = *library_,
                         .device = device(),
                         .channel = channel_,
                         .own_rank = own_rank,
                         .own = address_,
                         .ready_words = ready_words_,
                         .lkey = ready_region_.lkey(),
                         .rkey = ready_region_.rkey()},
                        connections);
  Status status = setup.Run(deadline, abort_fd);
  strangers_ = setup.strangers();
  ids_ = setup.TakeIds();
  // Nobody else is expected: later strangers meet a closed port.
  StopListening();
  return status;
}

}  // namespace ringpipe::verbs
