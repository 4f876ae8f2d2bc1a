#include "verbs/device.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "verbs/async_event.h"
#include "verbs/gid_choice.h"
#include "verbs/port_survey.h"

namespace ringpipe::verbs {
namespace {

// The devices that a library lists, for as long as they are looked at.
class DeviceList {
 public:
  // `library` may be nullptr: no devices.
  explicit DeviceList(const Library* library) : library_(library) {
    if (library_ != nullptr) {
      errno = 0;
      devices_ = library_->get_device_list(&count_);
      error_ = devices_ == nullptr ? errno : 0;
    }
  }
  ~DeviceList() {
    if (devices_ != nullptr) {
      library_->free_device_list(devices_);
    }
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  ibv_device** get() const { return devices_; }
  ibv_device* first() const { return count_ > 0 ? devices_[0] : nullptr; }
  int error() const { return error_; }  // errno of a list that failed

  ibv_device* Find(const std::string& name) const {
    for (int i = 0; i < count_; ++i) {
      if (name == library_->get_device_name(devices_[i])) {
        return devices_[i];
      }
    }
    return nullptr;
  }

 private:
  const Library* library_;
  ibv_device** devices_ = nullptr;
  int count_ = 0;
  int error_ = 0;
};

// Why the system may have no device to offer.
std::string Absence(const Result<std::shared_ptr<const Library>>& system,
                    const DeviceList& list) {
  if (!system.ok()) {
    return system.status().message();
  }
  return list.error() == 0 ? "libibverbs.so.1 lists none"
                           : ErrnoStatus(StatusCode::kUnavailable,
                                         "ibv_get_device_list", list.error())
                                 .message();
}

Status QueryLimits(const Library& library, ibv_context* context,
                   DeviceInfo& info) {
  ibv_device_attr attr = {};
  if (const int error = library.query_device(context, &attr); error != 0) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       "ibv_query_device of " + info.name, error);
  }
  info.max_qp_wr = attr.max_qp_wr;
  info.max_cqe = attr.max_cqe;
  info.max_sge = attr.max_sge;
  return Status::Ok();
}

Status QueryAddress(const Library& library, ibv_context* context,
                    const ibv_port_attr& port, const std::string& sysfs_class,
                    DeviceInfo& info) {
  if (!info.ethernet) {
    // Entry 0 always exists on InfiniBand; it is needed across subnets only.
    library.query_gid(context, static_cast<std::uint8_t>(info.port), 0,
                      &info.gid);
    return Status::Ok();
  }
  const auto choice = ChooseGid(
      library, context, info.port, port.gid_tbl_len,
      sysfs_class + "/" + info.name + "/ports/" + std::to_string(info.port));
  if (!choice.has_value()) {
    return {StatusCode::kUnavailable,
            info.name + " port " + std::to_string(info.port) +
                " has no GID: give its network interface an IP address"};
  }
  info.gid_index = choice->index;
  info.gid = choice->gid;
  return Status::Ok();
}

Status QueryPort(const Library& library, ibv_context* context,
                 const std::string& sysfs_class, DeviceInfo& info) {
  ibv_port_attr port = {};
  if (const int error =
          library.query_port(context, static_cast<std::uint8_t>(info.port),
                             reinterpret_cast<_compat_ibv_port_attr*>(&port));
      error != 0) {
    return ErrnoStatus(StatusCode::kDeviceError,
                       "ibv_query_port of " + info.name, error);
  }
  if (ToPortState(port.state) != PortState::kActive) {
    return {StatusCode::kUnavailable, info.name + " port " +
                                          std::to_string(info.port) +
                                          " is no longer active"};
  }
  info.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  info.lid = port.lid;
  info.mtu = port.active_mtu;
  info.max_message_bytes = port.max_msg_sz;
  return QueryAddress(library, context, port, sysfs_class, info);
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

Result<std::shared_ptr<Device>> Device::Open(
    const DeviceRequest& request,
    const Result<std::shared_ptr<const Library>>& system,
    const std::shared_ptr<const Library>& soft,
    const std::string& sysfs_class) {
  // Who asks for the software device gets it without a look at the hardware.
  const bool look = request.kind != DeviceRequest::Kind::kSoftware;
  const Library* library = look && system.ok() ? system->get() : nullptr;
  const DeviceList list(library);
  const std::string absence = Absence(system, list);
  std::vector<PortView> ports;
  if (look) {
    ports = SurveyPorts(sysfs_class, library, list.get(), absence);
  }
  RINGPIPE_ASSIGN_OR_RETURN(const DeviceChoice choice,
                            ChooseDevice(request, ports, absence));
  DeviceInfo info;
  info.software = choice.software;
  info.pins_memory = !choice.software;
  info.port = choice.port;
  info.reason = choice.reason;
  if (!choice.software) {
    info.name = choice.name;
    return OpenPort(system.value(), list.Find(choice.name), info, sysfs_class);
  }
  const DeviceList soft_list(soft.get());
  if (soft_list.first() == nullptr) {
    return ErrnoStatus(StatusCode::kUnavailable,
                       "the software device cannot be used",
                       soft_list.error() != 0 ? soft_list.error() : ENODEV);
  }
  info.name = soft->get_device_name(soft_list.first());
  return OpenPort(soft, soft_list.first(), info, sysfs_class);
}

Result<std::shared_ptr<Device>> Device::OpenPort(
    std::shared_ptr<const Library> library, ibv_device* device, DeviceInfo info,
    const std::string& sysfs_class) {
  errno = 0;
  ibv_context* context = library->open_device(device);
  if (context == nullptr) {
    return OpenFailure(info.name, errno != 0 ? errno : ENODEV);
  }
  // From here on the destructor closes it.
  std::shared_ptr<Device> opened(
      new Device(std::move(library), context, std::move(info)));
  RINGPIPE_RETURN_IF_ERROR(
      QueryLimits(*opened->library_, context, opened->info_));
  RINGPIPE_RETURN_IF_ERROR(
      QueryPort(*opened->library_, context, sysfs_class, opened->info_));
  if (context->async_fd >= 0) {
    RINGPIPE_RETURN_IF_ERROR(
        MakeNonBlocking(context->async_fd, opened->info_.name));
  }
  return opened;
}

Device::Device(std::shared_ptr<const Library> library, ibv_context* context,
               DeviceInfo info)
    : library_(std::move(library)), context_(context), info_(std::move(info)) {}

Device::~Device() { library_->close_device(context_); }

Status Device::CheckAsyncEvents(std::vector<std::string>* notices) {
  return TakeAsyncEvents(*library_, context_, info_, notices);
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
