#include "info/json.h"

#include <sys/resource.h>

#include "nlohmann/json.hpp"

namespace ringpipe::info {
namespace {

using Json = nlohmann::ordered_json;

Json ErrorOf(const Status& status) {
  return status.ok() ? Json(nullptr)
                     : Json({{"code", StatusCodeName(status.code())},
                             {"message", status.message()}});
}

const char* StateName(verbs::PortState state) {
  switch (state) {
    case verbs::PortState::kDown:
      return "down";
    case verbs::PortState::kNotReady:
      return "not_ready";
    case verbs::PortState::kActive:
      return "active";
  }
  return "unknown";
}

Json OfPort(const PortReport& port) {
  Json gids = Json::array();
  for (const verbs::GidEntry& entry : port.gids) {
    gids.push_back({{"index", entry.index},
                    {"gid", verbs::GidText(entry.gid)},
                    {"type", entry.type},
                    {"interface", entry.interface},
                    {"used", port.used_gid_index == entry.index}});
  }
  return {{"port", port.view.port},
          {"state", StateName(port.view.state)},
          {"physical_state", port.physical_state},
          {"transport", verbs::TransportName(port.view.transport)},
          {"lid", port.lid},
          {"gigabits_per_second", port.view.gigabits_per_second},
          {"active_mtu_bytes", port.active_mtu_bytes},
          {"max_mtu_bytes", port.max_mtu_bytes},
          {"gids", gids},
          {"used", port.used},
          {"reason", port.reason}};
}

Json OfLimits(const Limits& limits) {
  return {{"queue_pairs", limits.queue_pairs},
          {"queue_pair_work_requests", limits.queue_pair_work_requests},
          {"scatter_gather_entries", limits.scatter_gather_entries},
          {"reads_outstanding", limits.reads_outstanding},
          {"completion_queues", limits.completion_queues},
          {"completion_queue_entries", limits.completion_queue_entries},
          {"memory_regions", limits.memory_regions},
          {"memory_region_bytes", limits.memory_region_bytes}};
}

Json OfDevice(const DeviceReport& device) {
  Json ports = Json::array();
  for (const PortReport& port : device.ports) {
    ports.push_back(OfPort(port));
  }
  return {{"name", device.name},
          {"transport", verbs::TransportName(device.transport)},
          {"type", device.type},
          {"firmware", device.firmware},
          {"error", ErrorOf(device.opened)},
          {"limits", device.limits ? OfLimits(*device.limits) : Json(nullptr)},
          {"ports", ports}};
}

Json OfMemlock(const MemlockReport& memlock) {
  return {{"limit_bytes", memlock.limit_bytes == RLIM_INFINITY
                              ? Json(nullptr)
                              : Json(memlock.limit_bytes)},
          {"pinned_bytes", memlock.pinned_bytes},
          {"exempt", memlock.exempt},
          {"needed_bytes", memlock.needed_bytes},
          {"error", ErrorOf(memlock.enough)}};
}

Json OfHostMemory(const HostMemoryReport& memory) {
  return {{"used", memory.used}, {"reason", memory.reason}};
}

Json OfGpus(const GpuReport& report) {
  Json gpus = Json::array();
  for (const SurveyedGpu& gpu : report.gpus) {
    gpus.push_back(
        {{"device", "cuda:" + std::to_string(gpu.ordinal)},
         {"name", gpu.name},
         {"compute_capability",
          gpu.major == 0 ? Json(nullptr)
                         : Json({{"major", gpu.major}, {"minor", gpu.minor}})},
         {"state", GpuStateName(gpu.state)},
         {"error", ErrorOf(gpu.usable)}});
  }
  Json paths = Json::array();
  for (const GpuPath& path : GpuPaths()) {
    const char* const obstacle = report.ObstacleTo(path);
    paths.push_back(
        {{"path", path.name},
         {"there", obstacle == nullptr},
         {"obstacle", obstacle == nullptr ? Json(nullptr) : Json(obstacle)}});
  }
  return {{"driver_version", report.driver_version == 0
                                 ? Json(nullptr)
                                 : Json(report.driver_version)},
          {"driver_error", ErrorOf(report.driver)},
          {"no_gpu", ErrorOf(report.none)},
          {"devices", gpus},
          {"kernels", DescribeKernels()},
          {"paths", paths}};
}

Json OfUsed(const verbs::DeviceInfo& info) {
  return {{"device", info.name},
          {"port", info.port},
          {"software", info.software},
          {"transport", verbs::TransportName(info.transport)},
          {"gigabits_per_second", info.gigabits_per_second},
          {"lid", info.lid},
          {"gid_index", info.gid_index},
          {"address", AddressText(info.gid)},
          {"interface", info.interface},
          {"reason", info.reason}};
}

}  // namespace

std::string ToJson(const Report& report) {
  Json devices = Json::array();
  for (const DeviceReport& device : report.devices) {
    devices.push_back(OfDevice(device));
  }
  Json variables = Json::object();
  for (const VariableReport& variable : report.variables) {
    variables[variable.name] = variable.value;
  }
  Json used = Json::array();
  for (const verbs::DeviceInfo& info : report.used) {
    used.push_back(OfUsed(info));
  }
  const Json all = {{"libibverbs_error", ErrorOf(report.library)},
                    {"fork", report.fork},
                    {"devices", devices},
                    {"memlock", OfMemlock(report.memlock)},
                    {"host_memory", OfHostMemory(report.host_memory)},
                    {"gpu", OfGpus(report.gpus)},
                    {"variables", variables},
                    {"would_use", used},
                    {"error", ErrorOf(report.usable)}};
  // What came from sysfs or the environment may be any bytes.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ringpipe::info
