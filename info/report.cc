#include "info/report.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "verbs/device_list.h"
#include "verbs/port_survey.h"
#include "verbs/soft/soft_library.h"

namespace ringpipe::info {
namespace {

constexpr char kSecret[] = "RINGPIPE_SECRET";

// A driver that nobody keeps initialised (nvidia-persistenced) takes seconds
// for each GPU.
constexpr std::chrono::seconds kDriverPatience(30);

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "LinkUp" of sysfs's "5: LinkUp".
std::string BehindColon(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

int MtuBytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0;
}

// What a communicator registers at least: the data slots that the engine gives
// it for few ranks. More ranks need more.
std::uint64_t SlotBytes(const Environment& environment) {
  const std::int64_t slots =
      environment.slots > 0 ? environment.slots : 4 * environment.depth + 2;
  return static_cast<std::uint64_t>(slots * environment.subchunk_bytes);
}

PortReport FromSysfs(const std::string& sysfs_class,
                     const verbs::PortView& view) {
  const std::string folder =
      sysfs_class + "/" + view.device + "/ports/" + std::to_string(view.port);
  PortReport port;
  port.view = view;
  port.physical_state = BehindColon(FirstLine(folder + "/phys_state"));
  port.rate = FirstLine(folder + "/rate");
  port.lid = static_cast<int>(
      std::strtol(FirstLine(folder + "/lid").c_str(), nullptr, 16));
  port.gids =
      verbs::ReadGidTable(folder).value_or(std::vector<verbs::GidEntry>());
  port.reason = view.obstacle.message();
  return port;
}

// What only the open device knows.
void AddFromDevice(const verbs::Library& library, ibv_context* context,
                   const std::string& sysfs_class, PortReport& port) {
  ibv_port_attr attr = {};
  const auto number = static_cast<std::uint8_t>(port.view.port);
  if (library.query_port(context, number,
                         reinterpret_cast<_compat_ibv_port_attr*>(&attr)) !=
      0) {
    return;
  }
  port.lid = attr.lid;
  port.active_mtu_bytes = MtuBytes(attr.active_mtu);
  port.max_mtu_bytes = MtuBytes(attr.max_mtu);
  if (port.gids.empty()) {
    port.gids =
        verbs::ReadGidTable(library, context, port.view.port, attr.gid_tbl_len,
                            sysfs_class + "/" + port.view.device + "/ports/" +
                                std::to_string(port.view.port));
  }
}

// Opens the device, if the library lists it, for its limits.
void AskDevice(const verbs::DeviceList& list, const std::string& sysfs_class,
               DeviceReport& device) {
  ibv_device* found = list.Find(device.name);
  if (found == nullptr) {
    device.opened =
        Status(StatusCode::kUnavailable,
               "libibverbs does not offer it (" + list.absence() + ")");
    return;
  }
  const verbs::Library& library = *list.library();
  errno = 0;
  ibv_context* context = library.open_device(found);
  if (context == nullptr) {
    device.opened =
        verbs::OpenFailure(device.name, errno != 0 ? errno : ENODEV);
    return;
  }
  ibv_device_attr attr = {};
  if (const int error = library.query_device(context, &attr); error != 0) {
    device.opened = ErrnoStatus(StatusCode::kDeviceError,
                                "ibv_query_device of " + device.name, error);
  } else {
    device.limits =
        Limits{attr.max_qp, attr.max_qp_wr, attr.max_sge, attr.max_qp_rd_atom,
               attr.max_cq, attr.max_cqe,   attr.max_mr,  attr.max_mr_size};
  }
  for (PortReport& port : device.ports) {
    AddFromDevice(library, context, sysfs_class, port);
  }
  library.close_device(context);
}

std::vector<DeviceReport> ReportDevices(const Sources& sources,
                                        const verbs::DeviceList& list,
                                        const verbs::AddressRequest& address) {
  std::vector<DeviceReport> devices;
  const std::string& sysfs_class = sources.sysfs_class;
  for (const verbs::PortView& view :
       verbs::SurveyPorts(sysfs_class, list, address)) {
    if (devices.empty() || devices.back().name != view.device) {
      DeviceReport device;
      device.name = view.device;
      device.transport = view.transport;
      device.type = FirstLine(sysfs_class + "/" + view.device + "/hca_type");
      device.firmware = FirstLine(sysfs_class + "/" + view.device + "/fw_ver");
      devices.push_back(std::move(device));
    }
    devices.back().ports.push_back(FromSysfs(sysfs_class, view));
  }
  for (DeviceReport& device : devices) {
    AskDevice(list, sysfs_class, device);
  }
  return devices;
}

MemlockReport ReportMemlock(const Sources& sources,
                            const Environment& environment, bool pins) {
  MemlockReport memlock;
  memlock.limit_bytes = sources.memlock_limit_bytes;
  memlock.pinned_bytes = sources.memlock_use.pinned_bytes;
  memlock.exempt = sources.memlock_use.exempt;
  memlock.needed_bytes = pins ? SlotBytes(environment) : 0;
  if (pins && !memlock.exempt) {
    memlock.enough = verbs::CheckMemlock(
        memlock.needed_bytes, memlock.pinned_bytes, memlock.limit_bytes);
  }
  return memlock;
}

HostMemoryReport ReportHostMemory(const Environment& environment) {
  HostMemoryReport report;
  report.used = environment.shares_host_memory();
  if (!report.used) {
    report.reason = environment.host_memory == "never"
                        ? "RINGPIPE_HOST_MEMORY=never"
                        : "RINGPIPE_DEVICE=soft";
  }
  return report;
}

// Marks the ports that `choice` and `used` speak of.
void MarkPorts(const verbs::DeviceChoice& choice,
               const std::vector<verbs::DeviceInfo>& used,
               std::vector<DeviceReport>& devices) {
  const auto same = [](const PortReport& port, const std::string& name,
                       int number) {
    return port.view.device == name && port.view.port == number;
  };
  for (DeviceReport& device : devices) {
    for (PortReport& port : device.ports) {
      for (const verbs::PortReason& left_out : choice.left_out) {
        if (same(port, left_out.device, left_out.port)) {
          port.reason = left_out.reason;
        }
      }
      for (const verbs::DeviceInfo& info : used) {
        if (!info.software && same(port, info.name, info.port)) {
          port.used = true;
          port.reason = info.reason;
          if (info.transport != verbs::Transport::kIwarp) {
            port.used_gid_index = info.gid_index;
          }
        }
      }
    }
  }
}

// Chooses and opens as a communicator does.
Status Choose(const Sources& sources, const verbs::DeviceList& list,
              const verbs::AddressRequest& address,
              const Environment& environment, Report& report) {
  RINGPIPE_ASSIGN_OR_RETURN(
      const verbs::DeviceRequest request,
      verbs::DeviceRequest::Parse(environment.device,
                                  environment.device_variable));
  RINGPIPE_ASSIGN_OR_RETURN(
      const verbs::DeviceChoice choice,
      verbs::ChooseDevices(
          request, verbs::SurveyPorts(sources.sysfs_class, list, address),
          list.absence()));
  const auto devices = verbs::Device::Open(request, address, sources.system,
                                           sources.soft, sources.sysfs_class);
  if (devices.ok()) {
    for (const auto& device : devices.value()) {
      report.used.push_back(device->info());
    }
  }
  MarkPorts(choice, report.used, report.devices);
  return devices.status();
}

std::vector<VariableReport> ReportVariables(const Environment::Getter& get) {
  std::vector<VariableReport> variables;
  for (const std::string_view name : Environment::VariableNames()) {
    if (const std::optional<std::string> value = get(name)) {
      variables.push_back(
          {std::string(name), name == kSecret ? "(set)" : *value});
    }
  }
  return variables;
}

}  // namespace

Sources Sources::OfThisMachine() {
  const auto get = [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
  // First: libraries may start threads.
  GpuReport gpus = AskAboutGpus(kDriverPatience);
  Sources sources = {get, Environment::FromProcess(),
                     verbs::LoadSystemLibrary()};
  sources.gpus = std::move(gpus);
  if (sources.environment.ok()) {
    sources.soft = verbs::soft::CreateSoftLibrary(
        verbs::soft::Options::From(sources.environment.value()));
  }
  rlimit limit = {};
  sources.memlock_limit_bytes =
      getrlimit(RLIMIT_MEMLOCK, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
  std::ifstream file("/proc/self/status");
  sources.memlock_use =
      verbs::ParseMemlockUse(std::string((std::istreambuf_iterator<char>(file)),
                                         std::istreambuf_iterator<char>()));
  return sources;
}

Report MakeReport(const Sources& sources) {
  Report report;
  report.library = sources.system.status();
  report.gpus = sources.gpus;
  report.variables = ReportVariables(sources.variable);
  // What is wrong with the variables is the error; the rest is shown all the
  // same, by the defaults.
  const Environment environment =
      sources.environment.ok() ? sources.environment.value() : Environment();
  const verbs::AddressRequest address = {environment.gid_index,
                                         environment.gid_index_variable};
  const verbs::DeviceList list(sources.system);
  report.devices = ReportDevices(sources, list, address);
  if (!report.devices.empty() && sources.system.ok()) {
    report.fork =
        verbs::DescribeForkSupport(sources.system.value()->fork_support);
  }
  report.usable = sources.environment.status();
  if (report.usable.ok()) {
    report.usable = Choose(sources, list, address, environment, report);
  }
  const bool pins = report.usable.ok()
                        ? report.used.front().pins_memory
                        : !report.devices.empty() && sources.environment.ok();
  report.memlock = ReportMemlock(sources, environment, pins);
  report.host_memory = ReportHostMemory(environment);
  if (report.usable.ok()) {
    report.usable = report.memlock.enough;
  }
  return report;
}

std::string AddressText(const ibv_gid& gid) {
  const std::string text = verbs::GidText(gid);
  constexpr std::string_view kMapped = "::ffff:";
  return text.starts_with(kMapped) && text.find('.') != std::string::npos
             ? text.substr(kMapped.size())
             : text;
}

}  // namespace ringpipe::info
