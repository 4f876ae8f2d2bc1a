#include "verbs/device_choice.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace ringpipe::verbs {
namespace {

constexpr char kSoftwareName[] = "soft";
constexpr char kOwnVariable[] = "RINGPIPE_DEVICE";

Status BadRequest(const std::string& variable, const std::string& text,
                  const std::string& why) {
  return {StatusCode::kInvalidArgument,
          variable + "='" + text +
              "' is none of: 'soft' (the software device), 'mlx5_0' (devices "
              "whose name starts so), '=mlx5_0' (this device), 'mlx5_0:1' (its "
              "port 1), '^mlx5_0' and '^=mlx5_0' (any but these), a list of "
              "such with commas, empty (by what the machine has): " +
              why};
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

std::string Speed(double gigabits_per_second) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g Gbit/s", gigabits_per_second);
  return text;
}

std::string Name(const PortView& port) {
  return PortName(port.device, port.port);
}

std::string DescribeAll(const std::vector<const PortView*>& ports) {
  std::string text;
  for (const PortView* port : ports) {
    text += (text.empty() ? "" : ", ") + Describe(*port);
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

// The same, as what follows the port's name.
std::string WhyNotUsable(const PortView& port) {
  return port.state != PortState::kActive ? Words(port.state)
                                          : port.obstacle.message();
}

// Those that can be used, the fastest first.
std::vector<const PortView*> Usable(const std::vector<const PortView*>& ports) {
  std::vector<const PortView*> usable;
  for (const PortView* port : ports) {
    if (CheckUsable(*port).ok()) {
      usable.push_back(port);
    }
  }
  std::stable_sort(usable.begin(), usable.end(),
                   [](const PortView* a, const PortView* b) {
                     return a->gigabits_per_second > b->gigabits_per_second;
                   });
  return usable;
}

// Splits `ports` into those of `fastest`'s transport and the rest. `why` is the
// reason for which a port is used.
template <typename Why>
DeviceChoice ChooseRails(const DeviceRequest& request,
                         const std::vector<PortView>& ports,
                         const std::vector<const PortView*>& usable, Why why) {
  DeviceChoice choice;
  const PortView& fastest = *usable.front();
  for (const PortView* port : usable) {
    if (port->transport == fastest.transport) {
      choice.ports.push_back({port->device, port->port, why(*port)});
    }
  }
  choice.reason = choice.ports.front().reason;
  for (const PortView& port : ports) {
    std::string reason = WhyNotUsable(port);
    if (!request.filter.Admits(port.device, port.port)) {
      reason =
          request.ToString() +
          (request.filter.excludes() ? " excludes it" : " does not name it");
    } else if (CheckUsable(port).ok()) {
      if (port.transport == fastest.transport) {
        continue;
      }
      reason = std::string("is of ") + TransportName(port.transport) +
               ", which is not mixed with the " +
               TransportName(fastest.transport) + " of " + Name(fastest) +
               ", the fastest port";
    }
    choice.left_out.push_back({port.device, port.port, reason});
  }
  return choice;
}

// Why none of `ports`, all that an entry matches, serves; `usable` are those of
// them that could be used with a communicator of their own.
Status CheckEntry(const DeviceRequest& request, const NameFilter::Entry& entry,
                  const std::vector<PortView>& ports, const PortView& fastest,
                  const std::string& absence) {
  std::vector<const PortView*> all;
  std::vector<const PortView*> matches;
  for (const PortView& port : ports) {
    all.push_back(&port);
    if (request.filter.Matches(entry, port.device, port.port)) {
      matches.push_back(&port);
    }
  }
  const std::string asked = request.ToString();
  if (matches.empty()) {
    return {StatusCode::kUnavailable,
            asked + ": there is no such device or port as '" +
                entry.ToString() + "'; this machine has " +
                (all.empty() ? "no RDMA device (" + absence + ")"
                             : DescribeAll(all)) +
                " and the software device, RINGPIPE_DEVICE=soft"};
  }
  const std::vector<const PortView*> usable = Usable(matches);
  if (usable.empty()) {
    // Why an active one cannot be used says more than that another is down.
    const auto active = std::find_if(
        matches.begin(), matches.end(),
        [](const PortView* port) { return port->state == PortState::kActive; });
    return CheckUsable(active != matches.end() ? **active : *matches.front())
        .WithContext(asked);
  }
  if (std::none_of(usable.begin(), usable.end(), [&](const PortView* port) {
        return port->transport == fastest.transport;
      })) {
    return {StatusCode::kInvalidArgument,
            asked + ": " + Name(fastest) + " is of " +
                TransportName(fastest.transport) + " and " +
                Name(*usable.front()) + " of " +
                TransportName(usable.front()->transport) +
                ", which cannot be mixed: name ports of one of the two"};
  }
  return Status::Ok();
}

Result<DeviceChoice> ChooseNamed(const DeviceRequest& request,
                                 const std::vector<PortView>& ports,
                                 const std::string& absence) {
  std::vector<const PortView*> named;
  for (const PortView& port : ports) {
    if (request.filter.Admits(port.device, port.port)) {
      named.push_back(&port);
    }
  }
  const std::vector<const PortView*> usable = Usable(named);
  // Without any usable port, the first entry fails whatever is the fastest.
  const PortView fastest = usable.empty() ? PortView() : *usable.front();
  for (const NameFilter::Entry& entry : request.filter.entries()) {
    RINGPIPE_RETURN_IF_ERROR(
        CheckEntry(request, entry, ports, fastest, absence));
  }
  return ChooseRails(request, ports, usable, [&](const PortView&) {
    return request.ToString() + " asks for it";
  });
}

DeviceChoice Software(const std::vector<PortView>& ports,
                      const DeviceRequest& request, const std::string& reason) {
  DeviceChoice choice;
  choice.software = true;
  choice.reason = reason;
  for (const PortView& port : ports) {
    std::string why = WhyNotUsable(port);
    if (request.kind == DeviceRequest::Kind::kSoftware) {
      why = request.ToString() + " asks for the software device";
    } else if (!request.filter.Admits(port.device, port.port)) {
      why = request.ToString() + " excludes it";
    }
    choice.left_out.push_back({port.device, port.port, why});
  }
  return choice;
}

Result<DeviceChoice> ChooseAutomatic(const DeviceRequest& request,
                                     const std::vector<PortView>& ports,
                                     const std::string& absence) {
  std::vector<const PortView*> candidates;
  for (const PortView& port : ports) {
    if (request.filter.Admits(port.device, port.port)) {
      candidates.push_back(&port);
    }
  }
  const std::vector<const PortView*> usable = Usable(candidates);
  if (!usable.empty()) {
    const PortView* fastest = usable.front();
    return ChooseRails(request, ports, usable, [fastest](const PortView& port) {
      return Describe(port) +
             (&port == fastest
                  ? ""
                  : ", of the same transport as " + Name(*fastest));
    });
  }
  for (const PortView* port : candidates) {
    if (port->state != PortState::kDown) {
      // Somebody paid for this port: never run beside it without a word.
      return Status(CheckUsable(*port).code(),
                    CheckUsable(*port).message() +
                        "; to do without this device set RINGPIPE_DEVICE=^=" +
                        port->device + " or RINGPIPE_DEVICE=soft");
    }
  }
  std::string reason = "no RDMA device (" + absence + ")";
  if (!candidates.empty()) {
    reason = DescribeAll(candidates);
  } else if (!ports.empty()) {
    reason =
        "no RDMA device but those that " + request.ToString() + " excludes";
  }
  if (request.software_excluded) {
    return Status(
        StatusCode::kUnavailable,
        request.ToString() +
            " rules the software device out, and there is no other: " + reason);
  }
  return Software(ports, request, reason);
}

}  // namespace

const char* TransportName(Transport transport) {
  switch (transport) {
    case Transport::kInfiniBand:
      return "InfiniBand";
    case Transport::kRoce:
      return "RoCE";
    case Transport::kIwarp:
      return "iWARP";
  }
  return "an unknown transport";
}

std::string PortName(const std::string& device, int port) {
  return device + " port " + std::to_string(port);
}

std::string Describe(const PortView& port) {
  std::string text = Name(port) + " " + Words(port.state);
  if (port.state == PortState::kActive) {
    text += std::string(" (") + TransportName(port.transport);
    if (port.gigabits_per_second > 0) {
      text += ", " + Speed(port.gigabits_per_second);
    }
    text += ")";
  }
  return text;
}

std::string DeviceChoice::LeftOutText() const {
  std::string text;
  for (const PortReason& port : left_out) {
    text += (text.empty() ? "" : "; ") + PortName(port.device, port.port) +
            ": " + port.reason;
  }
  return text;
}

Result<DeviceRequest> DeviceRequest::Parse(const std::string& text,
                                           const std::string& variable) {
  DeviceRequest request;
  request.variable = variable;
  request.text = text;
  const bool own = variable == kOwnVariable;
  if (text.empty()) {
    return request;
  }
  if (own && text == kSoftwareName) {
    request.kind = Kind::kSoftware;
    return request;
  }
  auto filter = NameFilter::Parse(text, NameFilter::Ports::kAllowed);
  if (!filter.ok()) {
    return BadRequest(variable, text, filter.status().message());
  }
  request.filter = std::move(filter).value();
  request.kind = request.filter.excludes() ? Kind::kExcluded : Kind::kNamed;
  for (const NameFilter::Entry& entry : request.filter.entries()) {
    if (own && entry.name == kSoftwareName) {
      if (request.kind == Kind::kNamed || entry.port != 0) {
        return BadRequest(
            variable, text,
            "'soft' stands alone, without a port or another device");
      }
      request.software_excluded = true;
    }
  }
  return request;
}

Result<DeviceChoice> ChooseDevices(const DeviceRequest& request,
                                   const std::vector<PortView>& ports,
                                   const std::string& absence) {
  switch (request.kind) {
    case DeviceRequest::Kind::kSoftware:
      return Software(ports, request, request.ToString() + " asks for it");
    case DeviceRequest::Kind::kNamed:
      return ChooseNamed(request, ports, absence);
    case DeviceRequest::Kind::kAutomatic:
    case DeviceRequest::Kind::kExcluded:
      break;
  }
  return ChooseAutomatic(request, ports, absence);
}

}  // namespace ringpipe::verbs
