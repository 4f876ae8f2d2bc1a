#include "verbs/device.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/thread_shortage.h"
#include "verbs/async_event.h"
#include "verbs/device_list.h"
#include "verbs/interface_address.h"
#include "verbs/port_survey.h"

namespace ringpipe::verbs {
namespace {

Status QueryLimits(const Library& library, ibv_context* context,
                   DeviceInfo& info) {
  ibv_device_attr attr = {};
  if (const int error = library.query_device(context, &attr); error != 0) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       "ibv_query_device of " + info.name, error);
  }
  info.max_qp = attr.max_qp;
  info.max_qp_wr = attr.max_qp_wr;
  info.max_cq = attr.max_cq;
  info.max_cqe = attr.max_cqe;
  info.max_mr = attr.max_mr;
  info.max_sge = attr.max_sge;
  info.max_qp_rd_atom = attr.max_qp_rd_atom;
  return Status::Ok();
}

Status QueryIwarpAddress(const Library& library, ibv_context* context,
                         const std::string& sysfs_class, DeviceInfo& info) {
  ibv_gid first = {};
  // Where it cannot be read, the interface is found without it, or not.
  library.query_gid(context, static_cast<std::uint8_t>(info.port), 0, &first);
  RINGPIPE_ASSIGN_OR_RETURN(
      const InterfaceAddress found,
      FindInterfaceAddress(sysfs_class, info.name, info.port, first));
  info.gid = found.address;
  info.interface = found.interface;
  return Status::Ok();
}

Status QueryAddress(const Library& library, ibv_context* context,
                    const ibv_port_attr& port, const AddressRequest& request,
                    const std::string& sysfs_class, DeviceInfo& info) {
  if (info.transport == Transport::kIwarp) {
    return QueryIwarpAddress(library, context, sysfs_class, info);
  }
  if (!info.ethernet && !request.gid_index) {
    // Entry 0 always exists on InfiniBand; it is needed across subnets only.
    library.query_gid(context, static_cast<std::uint8_t>(info.port), 0,
                      &info.gid);
    return Status::Ok();
  }
  const std::vector<GidEntry> table = ReadGidTable(
      library, context, info.port, port.gid_tbl_len,
      sysfs_class + "/" + info.name + "/ports/" + std::to_string(info.port));
  RINGPIPE_ASSIGN_OR_RETURN(
      const GidEntry entry,
      ChooseGid(table, request, PortName(info.name, info.port)));
  info.gid_index = entry.index;
  info.gid = entry.gid;
  info.gid_type = entry.type;
  info.interface = entry.interface;
  return Status::Ok();
}

Status NotActive(const DeviceInfo& info) {
  if (info.software) {
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) {
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         "the software device has no address: the system does "
                         "not list its network interfaces (getifaddrs, by a "
                         "netlink socket)",
                         errno);
    }
    freeifaddrs(list);
    return {StatusCode::kUnavailable,
            "the software device has no address: no network interface of this "
            "host (of those that RINGPIPE_SOCKET_IFNAME admits, if it is set) "
            "has one and is up; 'ip link set lo up' is enough for one host"};
  }
  return {StatusCode::kUnavailable,
          PortName(info.name, info.port) + " is no longer active"};
}

Status QueryPort(const Library& library, ibv_context* context,
                 const AddressRequest& address, const std::string& sysfs_class,
                 DeviceInfo& info) {
  ibv_port_attr port = {};
  if (const int error =
          library.query_port(context, static_cast<std::uint8_t>(info.port),
                             reinterpret_cast<_compat_ibv_port_attr*>(&port));
      error != 0) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       "ibv_query_port of " + info.name, error);
  }
  if (ToPortState(port.state) != PortState::kActive) {
    return NotActive(info);
  }
  info.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  info.transport = ToTransport(
      context->device->transport_type == IBV_TRANSPORT_IWARP, info.ethernet);
  if (info.gigabits_per_second == 0) {
    info.gigabits_per_second =
        ToGigabitsPerSecond(port.active_width, port.active_speed);
  }
  info.lid = port.lid;
  info.mtu = port.active_mtu;
  info.max_message_bytes = port.max_msg_sz;
  return QueryAddress(library, context, port, address, sysfs_class, info);
}

// As the survey found it; the port itself says it less exactly.
double SpeedOf(const std::vector<PortView>& ports, const PortReason& chosen) {
  for (const PortView& port : ports) {
    if (port.device == chosen.device && port.port == chosen.port) {
      return port.gigabits_per_second;
    }
  }
  return 0;
}

// NCCL's variable counts entries of an adapter's table, which this device does
// not have.
AddressRequest ForSoftware(AddressRequest request) {
  if (request.variable != AddressRequest().variable) {
    request.gid_index.reset();
  }
  return request;
}

// Events are taken until there are none, by whichever thread: no call may
// block.
Status MakeNonBlocking(int fd, const std::string& device) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       "O_NONBLOCK on the asynchronous events of " + device,
                       errno);
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<std::shared_ptr<Device>>> Device::Open(
    const DeviceRequest& request, const AddressRequest& address,
    const Result<std::shared_ptr<const Library>>& system,
    const std::shared_ptr<const Library>& soft,
    const std::string& sysfs_class) {
  std::vector<std::shared_ptr<Device>> devices;
  if (request.kind == DeviceRequest::Kind::kSoftware) {
    // Who asks for it gets it without a look at the hardware.
    RINGPIPE_ASSIGN_OR_RETURN(
        std::shared_ptr<Device> device,
        OpenSoftware(soft, request.ToString() + " asks for it",
                     ForSoftware(address)));
    devices.push_back(std::move(device));
    return devices;
  }
  const DeviceList list(system);
  const std::vector<PortView> ports = SurveyPorts(sysfs_class, list, address);
  RINGPIPE_ASSIGN_OR_RETURN(const DeviceChoice choice,
                            ChooseDevices(request, ports, list.absence()));
  if (choice.software) {
    RINGPIPE_ASSIGN_OR_RETURN(
        std::shared_ptr<Device> device,
        OpenSoftware(soft, choice.reason, ForSoftware(address)));
    device->info_.left_out = choice.LeftOutText();
    devices.push_back(std::move(device));
    return devices;
  }
  for (const PortReason& port : choice.ports) {
    DeviceInfo info;
    info.name = port.device;
    info.port = port.port;
    info.reason = port.reason;
    info.left_out = choice.LeftOutText();
    info.gigabits_per_second = SpeedOf(ports, port);
    RINGPIPE_ASSIGN_OR_RETURN(std::shared_ptr<Device> device,
                              OpenPort(system.value(), list.Find(port.device),
                                       info, address, sysfs_class));
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<std::shared_ptr<Device>> Device::OpenSoftware(
    const std::shared_ptr<const Library>& soft, std::string reason,
    const AddressRequest& address) {
  const DeviceList list{Result<std::shared_ptr<const Library>>(soft)};
  if (list.first() == nullptr) {
    return ErrnoStatus(StatusCode::kUnavailable,
                       "the software device cannot be used",
                       list.error() != 0 ? list.error() : ENODEV);
  }
  DeviceInfo info;
  info.software = true;
  info.pins_memory = false;
  info.name = soft->get_device_name(list.first());
  info.reason = std::move(reason);
  return OpenPort(soft, list.first(), info, address, "");
}

namespace {

// What the software device lacks is this process's own.
Status SoftwareOpenFailure(int error) {
  const auto exhausted = [error](const std::string& what) {
    return ErrnoStatus(StatusCode::kResourceExhausted,
                       "the software device: " + what, error);
  };
  switch (error) {
    case EMFILE:
    case ENFILE:
      return exhausted("no descriptors are left");
    case EAGAIN:
      return ThreadShortage("the software device: starting a thread", error);
    case EFBIG:
      return exhausted(
          "its memory files may not be as large as they must; raise 'ulimit "
          "-f'");
    case ENOMEM:
      return exhausted(
          "no memory, or no address space (it needs 3 GiB for each rank of the "
          "host); raise 'ulimit -v'");
    case EADDRINUSE:
      return exhausted(
          "no TCP port is free; free some, or set RINGPIPE_SOFT_PORTS");
    case EPERM:
    case ENOSYS:
      // The log has the name of the call.
      return exhausted("a system call that it needs");
    default:
      return ErrnoStatus(StatusCode::kUnavailable, "the software device",
                         error);
  }
}

}  // namespace

Result<std::shared_ptr<Device>> Device::OpenPort(
    std::shared_ptr<const Library> library, ibv_device* device, DeviceInfo info,
    const AddressRequest& address, const std::string& sysfs_class) {
  // First what closes it.
  std::shared_ptr<Device> opened(
      new Device(std::move(library), std::move(info)));
  errno = 0;
  ibv_context* const context = opened->library_->open_device(device);
  if (context == nullptr) {
    const int error = errno != 0 ? errno : ENODEV;
    return opened->info_.pins_memory ? OpenFailure(opened->info_.name, error)
                                     : SoftwareOpenFailure(error);
  }
  opened->context_ = context;
  RINGPIPE_RETURN_IF_ERROR(
      QueryLimits(*opened->library_, context, opened->info_));
  RINGPIPE_RETURN_IF_ERROR(QueryPort(*opened->library_, context, address,
                                     sysfs_class, opened->info_));
  if (context->async_fd >= 0) {
    RINGPIPE_RETURN_IF_ERROR(
        MakeNonBlocking(context->async_fd, opened->info_.name));
  }
  return opened;
}

Device::Device(std::shared_ptr<const Library> library, DeviceInfo info)
    : library_(std::move(library)), info_(std::move(info)) {}

Device::~Device() {
  if (context_ != nullptr) {
    library_->close_device(context_);
  }
  for (const std::span<std::byte> pages : kept_) {
    munmap(pages.data(), pages.size());
  }
}

Status Device::CheckAsyncEvents(std::vector<std::string>* notices,
                                std::uint32_t* qp_number) {
  return TakeAsyncEvents(*library_, context_, info_, notices, qp_number);
}

Status Device::CallFailed(const std::string& what, int error) const {
  StatusCode code = StatusCode::kDeviceError;
  switch (error) {
    case ENOMEM:
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
      code = StatusCode::kResourceExhausted;
      break;
    case EACCES:
    case EPERM:
      code = StatusCode::kPermissionDenied;
      break;
    default:
      break;
  }
  return ErrnoStatus(code, info_.name + ": " + what, error);
}

}  // namespace ringpipe::verbs
