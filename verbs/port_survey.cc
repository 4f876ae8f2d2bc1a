#include "verbs/port_survey.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "base/list_directory.h"
#include "verbs/interface_address.h"

namespace ringpipe::verbs {
namespace {

// Of a file such as ports/1/state, "4: ACTIVE", or ports/1/rate, "2.5 Gb/sec
// (1X SDR)", the number; 0 if it cannot be read.
template <typename Number>
Number ReadLeadingNumber(const std::filesystem::path& path) {
  std::ifstream file(path);
  Number number = 0;
  return file >> number ? number : 0;
}

// Of node_type, "4: RNIC".
constexpr int kNodeTypeRnic = 4;

std::vector<PortView> PortsFromSysfs(const std::string& sysfs_class,
                                     const std::string& device) {
  std::vector<PortView> ports;
  const auto device_folder = std::filesystem::path(sysfs_class) / device;
  const bool iwarp =
      ReadLeadingNumber<int>(device_folder / "node_type") == kNodeTypeRnic;
  for (const std::string& name : ListDirectory(device_folder / "ports")) {
    int port = 0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data(), end, port);
    if (error != std::errc() || stop != end || port < 1 || port > 255) {
      continue;
    }
    const std::filesystem::path folder = device_folder / "ports" / name;
    std::ifstream file(folder / "link_layer");
    std::string link_layer;
    std::getline(file, link_layer);
    PortView view;
    view.device = device;
    view.port = port;
    view.state = ToPortState(ReadLeadingNumber<int>(folder / "state"));
    view.transport = ToTransport(iwarp, link_layer == "Ethernet");
    view.gigabits_per_second = ReadLeadingNumber<double>(folder / "rate");
    ports.push_back(view);
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
    PortView view = {name, port, PortState::kActive, Status()};
    if (error != 0) {
      view.obstacle = ErrnoStatus(StatusCode::kDeviceError,
                                  "ibv_query_port of " + name, error);
    } else {
      view.state = ToPortState(port_attr.state);
      view.transport =
          ToTransport(device->transport_type == IBV_TRANSPORT_IWARP,
                      port_attr.link_layer == IBV_LINK_LAYER_ETHERNET);
      view.gigabits_per_second =
          ToGigabitsPerSecond(port_attr.active_width, port_attr.active_speed);
    }
    ports.push_back(view);
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
  return {StatusCode::kUnavailable,
          device +
              " is not an InfiniBand, RoCE or iWARP device: it may have no "
              "reliable connected queue pairs, on which ringpipe is built"};
}

void SetObstacles(std::vector<PortView>& ports, const Status& obstacle) {
  for (PortView& port : ports) {
    port.obstacle = obstacle;
  }
}

// Whether the port can be addressed, as far as sysfs knows without opening it.
Status CheckAddress(const std::string& sysfs_class, const PortView& port,
                    const AddressRequest& address) {
  const auto table = ReadGidTable(sysfs_class + "/" + port.device + "/ports/" +
                                  std::to_string(port.port));
  if (port.transport == Transport::kIwarp) {
    const ibv_gid first =
        table && !table->empty() ? table->front().gid : ibv_gid{};
    return FindInterfaceAddress(sysfs_class, port.device, port.port, first)
        .status();
  }
  if (port.transport == Transport::kInfiniBand || !table ||
      address.gid_index.has_value()) {
    return Status::Ok();
  }
  return ChooseGid(*table, address, PortName(port.device, port.port)).status();
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

Transport ToTransport(bool iwarp, bool ethernet) {
  if (iwarp) {
    return Transport::kIwarp;
  }
  return ethernet ? Transport::kRoce : Transport::kInfiniBand;
}

double ToGigabitsPerSecond(int active_width, int active_speed) {
  constexpr std::pair<int, int> kLanes[] = {
      {1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  constexpr std::pair<int, double> kGigabitsPerLane[] = {
      {1, 2.5}, {2, 5},   {4, 10},    {8, 10},   {16, 14},
      {32, 25}, {64, 50}, {128, 100}, {256, 200}};
  const auto* lanes =
      std::find_if(std::begin(kLanes), std::end(kLanes),
                   [&](const auto& one) { return one.first == active_width; });
  const auto* speed =
      std::find_if(std::begin(kGigabitsPerLane), std::end(kGigabitsPerLane),
                   [&](const auto& one) { return one.first == active_speed; });
  return lanes == std::end(kLanes) || speed == std::end(kGigabitsPerLane)
             ? 0
             : lanes->second * speed->second;
}

std::vector<PortView> SurveyPorts(const std::string& sysfs_class,
                                  const DeviceList& listed,
                                  const AddressRequest& address) {
  std::vector<std::string> unlisted = ListDirectory(sysfs_class);
  std::vector<PortView> all;
  ibv_device** const devices = listed.get();
  for (int i = 0; devices != nullptr && devices[i] != nullptr; ++i) {
    const std::string name = listed.library()->get_device_name(devices[i]);
    std::erase(unlisted, name);
    std::vector<PortView> ports = PortsFromSysfs(sysfs_class, name);
    if (ports.empty()) {
      ports = PortsFromDevice(*listed.library(), devices[i]);
    }
    if (devices[i]->transport_type != IBV_TRANSPORT_IB &&
        devices[i]->transport_type != IBV_TRANSPORT_IWARP) {
      SetObstacles(ports, NotReliableConnected(name));
    }
    for (PortView& port : ports) {
      if (port.state == PortState::kActive && port.obstacle.ok()) {
        port.obstacle = CheckAddress(sysfs_class, port, address);
      }
    }
    all.insert(all.end(), ports.begin(), ports.end());
  }
  for (const std::string& name : unlisted) {
    std::vector<PortView> ports = PortsFromSysfs(sysfs_class, name);
    SetObstacles(ports, NotListed(name, listed.absence()));
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
      return ErrnoStatus(StatusCode::kResourceExhausted, what, error);
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
