#include "engine/rails.h"

#include <algorithm>
#include <utility>

#include "memory_pool/registration.h"

namespace ringpipe {
namespace {

using Kind = verbs::DeviceRequest::Kind;

std::string NameOf(const verbs::DeviceInfo& info) {
  return info.software ? info.name + " (software device)"
                       : info.name + " port " + std::to_string(info.port);
}

// Everyone by the one software device.
RankRails Software(std::shared_ptr<verbs::Device> device, std::size_t size) {
  RankRails rails;
  rails.reason.assign(size, device->info().reason);
  rails.devices.push_back(std::move(device));
  rails.of_peer.assign(size, {0});
  return rails;
}

}  // namespace

const std::shared_ptr<verbs::Device>& RankRails::allocator() const {
  const auto software =
      std::find_if(devices.begin(), devices.end(),
                   [](const auto& device) { return device->info().software; });
  return software != devices.end() ? *software : devices.front();
}

std::string RankRails::kind() const {
  if (devices.empty()) {
    return "none";
  }
  const verbs::DeviceInfo& info = devices.front()->info();
  return info.software ? "software device"
                       : verbs::TransportName(info.transport);
}

std::string RankRails::Describe() const {
  std::string text;
  for (const auto& device : devices) {
    text += (text.empty() ? "" : "; ") + NameOf(device->info()) + ": " +
            device->info().reason;
  }
  return text;
}

Result<RankRails> OpenRails(
    const Environment& environment, int rank,
    const std::vector<std::string>& hosts, const std::vector<bool>& in_memory,
    const Result<std::shared_ptr<const verbs::Library>>& system,
    const std::shared_ptr<const verbs::Library>& soft,
    const std::string& sysfs_class) {
  RINGPIPE_ASSIGN_OR_RETURN(
      const verbs::DeviceRequest request,
      verbs::DeviceRequest::Parse(environment.device,
                                  environment.device_variable));
  RankRails rails;
  if (std::count(in_memory.begin(), in_memory.end(), false) == 0) {
    rails.of_peer.resize(hosts.size());
    rails.reason.resize(hosts.size());
    return rails;
  }
  const std::string& host = hosts[rank];
  const auto same = std::count(hosts.begin(), hosts.end(), host);
  const bool all_here = same == static_cast<std::ptrdiff_t>(hosts.size());
  // Whether ranks on this host may be reached without the network.
  const bool direct =
      request.kind != Kind::kNamed && !request.software_excluded;
  if (all_here && direct && request.kind != Kind::kSoftware) {
    RINGPIPE_ASSIGN_OR_RETURN(
        auto device,
        verbs::Device::OpenSoftware(soft, "all ranks are on this host"));
    return Software(std::move(device), hosts.size());
  }
  RINGPIPE_ASSIGN_OR_RETURN(
      rails.devices,
      verbs::Device::Open(
          request, {environment.gid_index, environment.gid_index_variable},
          system, soft, sysfs_class));
  if (rails.devices.front()->info().software) {
    return Software(std::move(rails.devices.front()), hosts.size());
  }
  // One is kept for the software device. They come fastest first.
  rails.devices.resize(
      std::min<std::size_t>(rails.devices.size(), kMaxRails - 1));
  std::vector<int> network;
  for (std::size_t i = 0; i < rails.devices.size(); ++i) {
    network.push_back(static_cast<int>(i));
  }
  rails.of_peer.assign(hosts.size(), network);
  rails.reason.assign(hosts.size(), rails.devices.front()->info().reason);
  if (direct && same > 1 && !in_memory[rank]) {
    const std::string reason = "the same host";
    RINGPIPE_ASSIGN_OR_RETURN(auto device,
                              verbs::Device::OpenSoftware(soft, reason));
    for (std::size_t peer = 0; peer < hosts.size(); ++peer) {
      if (hosts[peer] == host) {
        rails.of_peer[peer] = {static_cast<int>(rails.devices.size())};
        rails.reason[peer] = reason;
      }
    }
    rails.devices.push_back(std::move(device));
  }
  return rails;
}

}  // namespace ringpipe
