#include "info/text.h"

#include <sys/resource.h>

#include <cstdio>
#include <iterator>
#include <sstream>

namespace ringpipe::info {
namespace {

// Where the second column begins.
constexpr std::size_t kColumn = 14;

std::string Label(const std::string& label) {
  return label +
         std::string(label.size() < kColumn ? kColumn - label.size() : 1, ' ');
}

std::string Number(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

// "2.25 MiB"
std::string Bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (number >= 1024 && unit + 1 < std::size(kUnits)) {
    number /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g %s", number, kUnits[unit]);
  return text;
}

const char* StateText(verbs::PortState state) {
  switch (state) {
    case verbs::PortState::kDown:
      return "down";
    case verbs::PortState::kNotReady:
      return "not ready";
    case verbs::PortState::kActive:
      return "active";
  }
  return "unknown";
}

void WritePort(const PortReport& port, std::ostream& out) {
  out << Label("  port " + std::to_string(port.view.port))
      << StateText(port.view.state);
  if (!port.physical_state.empty()) {
    out << " (" << port.physical_state << ")";
  }
  out << ", "
      << (port.view.transport == verbs::Transport::kInfiniBand ? "InfiniBand"
                                                               : "Ethernet");
  if (port.view.transport == verbs::Transport::kInfiniBand) {
    out << " LID " << port.lid;
  }
  out << ", "
      << (port.rate.empty() ? Number(port.view.gigabits_per_second) + " Gb/sec"
                            : port.rate);
  if (port.active_mtu_bytes != 0) {
    out << ", MTU " << port.active_mtu_bytes << " of " << port.max_mtu_bytes;
  }
  out << "\n"
      << Label(port.used ? "    used" : "    not used") << port.reason << "\n";
  for (const verbs::GidEntry& entry : port.gids) {
    const bool used = port.used_gid_index == entry.index;
    out << Label("    GID " + std::to_string(entry.index) + (used ? " *" : ""))
        << verbs::GidText(entry.gid);
    for (const std::string& more : {entry.type, entry.interface}) {
      out << (more.empty() ? "" : ", ") << more;
    }
    out << "\n";
  }
}

void WriteDevice(const DeviceReport& device, std::ostream& out) {
  out << Label(device.name) << verbs::TransportName(device.transport);
  if (!device.type.empty()) {
    out << ", " << device.type;
  }
  if (!device.firmware.empty()) {
    out << ", firmware " << device.firmware;
  }
  out << "\n";
  for (const PortReport& port : device.ports) {
    WritePort(port, out);
  }
  if (!device.limits) {
    out << Label("  limits") << "not known: " << device.opened.message()
        << "\n\n";
    return;
  }
  const Limits& limits = *device.limits;
  out << Label("  limits") << limits.queue_pairs << " queue pairs of "
      << limits.queue_pair_work_requests << " work requests of "
      << limits.scatter_gather_entries << " pieces, "
      << limits.reads_outstanding << " reads each\n"
      << Label("") << limits.completion_queues << " completion queues of "
      << limits.completion_queue_entries << " entries\n"
      << Label("") << limits.memory_regions << " memory regions of "
      << (limits.memory_region_bytes == ~std::uint64_t{0}
              ? "any size"
              : Bytes(limits.memory_region_bytes))
      << "\n\n";
}

void WriteMemlock(const MemlockReport& memlock, std::ostream& out) {
  out << Label("memlock");
  if (memlock.limit_bytes == RLIM_INFINITY) {
    out << "unlimited";
  } else {
    out << "limit " << Bytes(memlock.limit_bytes)
        << (memlock.exempt ? ", not enforced (CAP_IPC_LOCK)" : "");
  }
  out << "; " << Bytes(memlock.pinned_bytes) << " pinned\n" << Label("");
  if (memlock.needed_bytes == 0) {
    out << "enough: ringpipe pins nothing on the software device\n";
  } else if (memlock.enough.ok()) {
    out << "enough: a communicator pins " << Bytes(memlock.needed_bytes)
        << " and more with many ranks\n";
  } else {
    out << "too small: " << memlock.enough.message() << "\n";
  }
}

void WriteHostMemory(const HostMemoryReport& memory, std::ostream& out) {
  out << Label("one host");
  if (!memory.used) {
    out << "ranks of one host use devices like others: " << memory.reason
        << "\n";
    return;
  }
  out << "ranks of one host share memory\n";
}

// "12.4" of 12040.
std::string CudaVersion(int version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

std::string Capability(const SurveyedGpu& gpu) {
  return std::to_string(gpu.major) + "." + std::to_string(gpu.minor);
}

void WriteGpu(const SurveyedGpu& gpu, std::ostream& out) {
  out << Label("cuda:" + std::to_string(gpu.ordinal))
      << (gpu.name.empty() ? "the driver does not say what it is" : gpu.name);
  if (gpu.major > 0) {
    out << ", compute capability " << Capability(gpu);
  }
  out << "\n" << Label("  " + std::string(GpuStateName(gpu.state)));
  if (gpu.usable.ok()) {
    out << "kernels: " << DescribeKernels()
        << ", which the driver has compiled for " << Capability(gpu) << "\n";
  } else {
    out << gpu.usable.message() << "\n";
  }
}

void WriteGpus(const GpuReport& gpus, std::ostream& out) {
  out << Label("GPU driver");
  if (gpus.driver_version != 0) {
    out << "CUDA " << CudaVersion(gpus.driver_version)
        << (gpus.driver.ok() ? "" : ", cannot be used: ");
  }
  out << gpus.driver.message() << "\n";
  if (!gpus.none.ok()) {
    out << Label("GPUs") << "none: " << gpus.none.message() << "\n";
  }
  for (const SurveyedGpu& gpu : gpus.gpus) {
    WriteGpu(gpu, out);
  }
  std::string label = "GPU memory";
  for (const GpuPath& path : GpuPaths()) {
    const char* const obstacle = gpus.ObstacleTo(path);
    out << Label(label) << (obstacle == nullptr ? "by " : "not by ")
        << path.name;
    if (obstacle != nullptr) {
      out << ": " << obstacle;
    }
    out << "\n";
    label.clear();
  }
}

void WriteUsed(const Report& report, std::ostream& out) {
  for (const verbs::DeviceInfo& info : report.used) {
    out << Label("would use") << verbs::PortName(info.name, info.port) << ", "
        << (info.software ? "the software device"
                          : verbs::TransportName(info.transport));
    if (!info.software && info.gigabits_per_second > 0) {
      out << " at " << Number(info.gigabits_per_second) << " Gbit/s";
    }
    if (info.ethernet && info.transport != verbs::Transport::kIwarp) {
      out << ", GID " << info.gid_index << " (" << AddressText(info.gid)
          << (info.gid_type.empty() ? "" : ", ") << info.gid_type << ")";
    } else if (info.ethernet) {
      out << ", address " << AddressText(info.gid) << " of " << info.interface;
    } else {
      out << ", LID " << info.lid;
    }
    out << "\n" << Label("") << "because " << info.reason << "\n";
  }
  if (!report.usable.ok()) {
    out << Label("error") << report.usable.ToString() << "\n";
  }
}

}  // namespace

std::string ToText(const Report& report) {
  std::ostringstream out;
  out << Label("libibverbs")
      << (report.library.ok() ? "loaded" : report.library.message()) << "\n";
  if (!report.fork.empty()) {
    out << Label("fork") << report.fork << "\n";
  }
  out << "\n";
  for (const DeviceReport& device : report.devices) {
    WriteDevice(device, out);
  }
  if (report.devices.empty()) {
    out << Label("devices") << "none\n\n";
  }
  WriteMemlock(report.memlock, out);
  std::string label = "variables";
  for (const VariableReport& variable : report.variables) {
    out << Label(label) << variable.name << "=" << variable.value << "\n";
    label.clear();
  }
  if (report.variables.empty()) {
    out << Label(label) << "none of ringpipe's is set\n";
  }
  WriteHostMemory(report.host_memory, out);
  WriteUsed(report, out);
  out << "\n";
  WriteGpus(report.gpus, out);
  return out.str();
}

}  // namespace ringpipe::info
