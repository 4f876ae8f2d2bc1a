#include "verbs/port_survey.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace ringpipe::verbs {
namespace {

// The names in a directory; none if it is not there.
std::vector<std::string> ListDirectory(const std::filesystem::path& path) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(path, error);
  while (!error && entry != std::filesystem::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(error);
  }
  return names;
}

// Of a file such as ports/1/state, "4: ACTIVE": 4; 0 if it cannot be read.
int ReadLeadingNumber(const std::filesystem::path& path) {
  std::ifstream file(path);
  int number = 0;
  return file >> number ? number : 0;
}

std::vector<PortView> PortsFromSysfs(const std::string& sysfs_class,
                                     const std::string& device) {
  std::vector<PortView> ports;
  const std::filesystem::path folder =
      std::filesystem::path(sysfs_class) / device / "ports";
  for (const std::string& name : ListDirectory(folder)) {
    int port = 0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data(), end, port);
    if (error == std::errc() && stop == end && port >= 1 && port <= 255) {
      const int state = ReadLeadingNumber(folder / name / "state");
      ports.push_back({device, port, ToPortState(state), Status()});
    }
  }
  return ports;
}

// For a listed device that sysfs does not know: by opening it.
std::vector<PortView> PortsFromDevice(const Library& library,
                                      ibv_device* device) {
  const std::string name = library.get_device_name(device);
  ibv_context* context = library.open_device(device);
  if (context == nullptr) {
    // Whether a port is active cannot be known, so it must not be passed over.
    return {{name, 1, PortState::kActive, OpenFailure(name, errno)}};
  }
  std::vector<PortView> ports;
  ibv_device_attr attr = {};
  if (const int error = library.query_device(context, &attr); error != 0) {
    ports.push_back({name, 1, PortState::kActive,
                     ErrnoStatus(StatusCode::kDeviceError,
                                 "ibv_query_device of " + name, error)});
  }
  for (int port = 1; port <= attr.phys_port_cnt; ++port) {
    ibv_port_attr port_attr = {};
    const int error = library.query_port(
        context, static_cast<std::uint8_t>(port),
        reinterpret_cast<_compat_ibv_port_attr*>(&port_attr));
    ports.push_back(
        {name, port,
         error == 0 ? ToPortState(port_attr.state) : PortState::kActive,
         error == 0 ? Status()
                    : ErrnoStatus(StatusCode::kDeviceError,
                                  "ibv_query_port of " + name, error)});
  }
  library.close_device(context);
  return ports;
}

Status NotListed(const std::string& device, const std::string& absence) {
  return {StatusCode::kUnavailable,
          device + " has an active port, but libibverbs does not offer it (" +
              absence +
              "): install libibverbs1 and ibverbs-providers; in a container "
              "pass --device=/dev/infiniband"};
}

Status NotReliableConnected(const std::string& device) {
  return {
      StatusCode::kUnavailable,
      device +
          " is not an InfiniBand or RoCE device: ringpipe connects reliable "
          "queue pairs itself, which iWARP and others do not allow"};
}

void SetObstacles(std::vector<PortView>& ports, const Status& obstacle) {
  for (PortView& port : ports) {
    port.obstacle = obstacle;
  }
}

}  // namespace

PortState ToPortState(int state) {
  switch (state) {
    case IBV_PORT_ACTIVE:
    case IBV_PORT_ACTIVE_DEFER:
      return PortState::kActive;
    case IBV_PORT_INIT:
    case IBV_PORT_ARMED:
      return PortState::kNotReady;
    default:
      return PortState::kDown;
  }
}

std::vector<PortView> SurveyPorts(const std::string& sysfs_class,
                                  const Library* library, ibv_device** listed,
                                  const std::string& absence) {
  std::vector<std::string> unlisted = ListDirectory(sysfs_class);
  std::vector<PortView> all;
  for (int i = 0; listed != nullptr && listed[i] != nullptr; ++i) {
    const std::string name = library->get_device_name(listed[i]);
    std::erase(unlisted, name);
    std::vector<PortView> ports = PortsFromSysfs(sysfs_class, name);
    if (ports.empty()) {
      ports = PortsFromDevice(*library, listed[i]);
    }
    if (listed[i]->transport_type != IBV_TRANSPORT_IB) {
      SetObstacles(ports, NotReliableConnected(name));
    }
    all.insert(all.end(), ports.begin(), ports.end());
  }
  for (const std::string& name : unlisted) {
    std::vector<PortView> ports = PortsFromSysfs(sysfs_class, name);
    SetObstacles(ports, NotListed(name, absence));
    all.insert(all.end(), ports.begin(), ports.end());
  }
  std::sort(all.begin(), all.end(), [](const PortView& a, const PortView& b) {
    // Numbers by value: mlx5_2 before mlx5_10.
    const int order = strverscmp(a.device.c_str(), b.device.c_str());
    return order != 0 ? order < 0 : a.port < b.port;
  });
  return all;
}

Status OpenFailure(const std::string& device, int error) {
  const std::string what = "ibv_open_device of " + device;
  switch (error) {
    case EACCES:
    case EPERM:
      return ErrnoStatus(
          StatusCode::kPermissionDenied,
          what +
              " (may this user open /dev/infiniband/uverbs*? in a container "
              "pass --device=/dev/infiniband)",
          error);
    case EMFILE:
    case ENFILE:
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         what + " (raise 'ulimit -n')", error);
    case ENOMEM:
    case EAGAIN:
      return ErrnoStatus(StatusCode::kResourceExhausted,
                         what + " (raise 'ulimit -l', locked memory)", error);
    default:
      return ErrnoStatus(StatusCode::kUnavailable,
                         what +
                             " (is /dev/infiniband there? in a container pass "
                             "--device=/dev/infiniband)",
                         error);
  }
}

}  // namespace ringpipe::verbs
