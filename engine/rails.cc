#include "engine/rails.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "memory_pool/registration.h"

namespace ringpipe {
namespace {

using Kind = verbs::DeviceRequest::Kind;

std::string NameOf(const verbs::DeviceInfo& info) {
  return info.software ? info.name + " (software device)"
                       : info.name + " port " + std::to_string(info.port);
}

// As RINGPIPE_DEVICE has it.
std::string PortName(const verbs::DeviceInfo& info) {
  return info.name + ":" + std::to_string(info.port);
}

std::int64_t MegabitsPerSecond(const verbs::DeviceInfo& info) {
  return static_cast<std::int64_t>(info.gigabits_per_second * 1000);
}

// RankRails::Ports of another rank; what is no port is left out.
std::map<std::string, std::int64_t> ParsePorts(const std::string& text) {
  std::map<std::string, std::int64_t> ports;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equal = word.find('=');
    std::int64_t speed = 0;
    if (equal != std::string::npos &&
        std::from_chars(word.data() + equal + 1, word.data() + word.size(),
                        speed)
                .ec == std::errc()) {
      ports[word.substr(0, equal)] = speed;
    }
  }
  return ports;
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

std::string RankRails::Ports() const {
  std::string text;
  for (const auto& device : devices) {
    const verbs::DeviceInfo& info = device->info();
    if (!info.software) {
      text += (text.empty() ? "" : " ") + PortName(info) + "=" +
              std::to_string(MegabitsPerSecond(info));
    }
  }
  return text;
}

void RankRails::PairWith(const std::vector<std::string>& ports_of_rank) {
  for (std::size_t peer = 0; peer < of_peer.size(); ++peer) {
    const std::map<std::string, std::int64_t> theirs =
        ParsePorts(ports_of_rank[peer]);
    // By speed, the fastest first; then by name.
    std::vector<std::tuple<std::int64_t, std::string, int>> pairs;
    for (const int rail : of_peer[peer]) {
      const verbs::DeviceInfo& info = devices[rail]->info();
      const auto found =
          info.software ? theirs.end() : theirs.find(PortName(info));
      if (found != theirs.end()) {
        pairs.emplace_back(-std::min(MegabitsPerSecond(info), found->second),
                           found->first, rail);
      }
    }
    if (pairs.empty()) {
      continue;
    }
    std::sort(pairs.begin(), pairs.end());
    of_peer[peer].clear();
    for (const auto& [speed, name, rail] : pairs) {
      of_peer[peer].push_back(rail);
    }
  }
}

Result<RankRails> OpenRails(
    const Environment& environment, int rank,
    const std::vector<std::string>& hosts, const std::vector<bool>& in_memory,
    const Result<std::shared_ptr<const verbs::Library>>& system,
    const std::shared_ptr<const verbs::Library>& soft,
    const std::string& met_at, const std::string& sysfs_class) {
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
          request,
          {environment.gid_index, environment.gid_index_variable, met_at},
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
