#include "verbs/device_choice.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace ringpipe::verbs {
namespace {

constexpr char kSoftwareName[] = "soft";

bool IsDeviceName(std::string_view name) {
  // What the kernel accepts is wider; what drivers and udev produce is not.
  return !name.empty() && name.size() < 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

Status BadRequest(const std::string& text) {
  return {StatusCode::kInvalidArgument,
          "RINGPIPE_DEVICE='" + text +
              "' is none of: 'soft' (the software device), 'mlx5_0' (a device "
              "by name), 'mlx5_0:1' (its port 1), '^mlx5_0' (any but this), "
              "empty (by what the machine has)"};
}

std::string PortName(const PortView& port) {
  return port.device + " port " + std::to_string(port.port);
}

const char* Words(PortState state) {
  switch (state) {
    case PortState::kDown:
      return "is down";
    case PortState::kNotReady:
      return "has a link but is not active (is a subnet manager running?)";
    case PortState::kActive:
      return "is active";
  }
  return "is in an unknown state";
}

std::string Describe(const PortView& port) {
  return PortName(port) + " " + Words(port.state);
}

std::string DescribeAll(const std::vector<PortView>& ports) {
  std::string text;
  for (const PortView& port : ports) {
    text += (text.empty() ? "" : ", ") + Describe(port);
  }
  return text;
}

// Why `port` cannot be used; ok if it can.
Status CheckUsable(const PortView& port) {
  if (port.state != PortState::kActive) {
    return {StatusCode::kUnavailable, Describe(port)};
  }
  return port.obstacle;
}

Result<DeviceChoice> ChooseNamed(const DeviceRequest& request,
                                 const std::vector<PortView>& ports,
                                 const std::string& absence) {
  const std::string asked =
      "RINGPIPE_DEVICE=" + request.name +
      (request.port != 0 ? ":" + std::to_string(request.port) : "");
  Status obstacle;
  for (const PortView& port : ports) {
    if (port.device != request.name ||
        (request.port != 0 && port.port != request.port)) {
      continue;
    }
    const Status usable = CheckUsable(port);
    if (usable.ok()) {
      return DeviceChoice{false, port.device, port.port,
                          asked + " asks for it"};
    }
    if (obstacle.ok()) {
      obstacle = usable;
    }
  }
  if (!obstacle.ok()) {
    return obstacle.WithContext(asked);
  }
  return Status(StatusCode::kUnavailable,
                asked + ": there is no such device or port; this machine has " +
                    (ports.empty() ? "no RDMA device (" + absence + ")"
                                   : DescribeAll(ports)) +
                    " and the software device, 'soft'");
}

// The machine's ports without those of the device that is not wanted.
std::vector<PortView> Candidates(const DeviceRequest& request,
                                 const std::vector<PortView>& ports) {
  std::vector<PortView> candidates;
  for (const PortView& port : ports) {
    if (request.kind != DeviceRequest::Kind::kExcluded ||
        port.device != request.name) {
      candidates.push_back(port);
    }
  }
  return candidates;
}

Result<DeviceChoice> ChooseAutomatic(const DeviceRequest& request,
                                     const std::vector<PortView>& ports,
                                     const std::string& absence) {
  const bool excludes = request.kind == DeviceRequest::Kind::kExcluded;
  const std::vector<PortView> candidates = Candidates(request, ports);
  for (const PortView& port : candidates) {
    if (CheckUsable(port).ok()) {
      return DeviceChoice{false, port.device, port.port, Describe(port)};
    }
  }
  for (const PortView& port : candidates) {
    if (port.state != PortState::kDown) {
      // Somebody paid for this port: never run beside it without a word.
      return Status(CheckUsable(port).code(),
                    CheckUsable(port).message() +
                        "; to do without this device set RINGPIPE_DEVICE=^" +
                        port.device + " or RINGPIPE_DEVICE=soft");
    }
  }
  std::string reason = "no RDMA device (" + absence + ")";
  if (!candidates.empty()) {
    reason = DescribeAll(candidates);
  } else if (!ports.empty()) {
    reason = "no RDMA device but the excluded " + request.name;
  }
  if (excludes && request.name == kSoftwareName) {
    return Status(
        StatusCode::kUnavailable,
        "RINGPIPE_DEVICE=^soft rules the software device out, and " + reason);
  }
  return DeviceChoice{true, "", 1, reason};
}

}  // namespace

Result<DeviceRequest> DeviceRequest::Parse(const std::string& text) {
  if (text.empty()) {
    return DeviceRequest{};
  }
  if (text == kSoftwareName) {
    return DeviceRequest{Kind::kSoftware, "", 0};
  }
  if (text.front() == '^') {
    const std::string name = text.substr(1);
    if (!IsDeviceName(name)) {
      return BadRequest(text);
    }
    return DeviceRequest{Kind::kExcluded, name, 0};
  }
  const std::size_t colon = text.find(':');
  DeviceRequest request{Kind::kNamed, text.substr(0, colon), 0};
  if (colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [stop, error] =
        std::from_chars(text.data() + colon + 1, end, request.port);
    // Ports are numbered from 1 in eight bits.
    if (error != std::errc() || stop != end || request.port < 1 ||
        request.port > 255) {
      return BadRequest(text);
    }
  }
  if (!IsDeviceName(request.name) || request.name == kSoftwareName) {
    return BadRequest(text);
  }
  return request;
}

Result<DeviceChoice> ChooseDevice(const DeviceRequest& request,
                                  const std::vector<PortView>& ports,
                                  const std::string& absence) {
  switch (request.kind) {
    case DeviceRequest::Kind::kSoftware:
      return DeviceChoice{true, "", 1, "RINGPIPE_DEVICE=soft asks for it"};
    case DeviceRequest::Kind::kNamed:
      return ChooseNamed(request, ports, absence);
    case DeviceRequest::Kind::kAutomatic:
    case DeviceRequest::Kind::kExcluded:
      break;
  }
  return ChooseAutomatic(request, ports, absence);
}

}  // namespace ringpipe::verbs
