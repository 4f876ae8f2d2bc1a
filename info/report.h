// What a machine offers ringpipe, and what ringpipe would make of it.
#ifndef RINGPIPE_INFO_REPORT_H_
#define RINGPIPE_INFO_REPORT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "info/gpu_report.h"
#include "verbs/device.h"
#include "verbs/device_choice.h"
#include "verbs/gid_choice.h"
#include "verbs/library.h"
#include "verbs/memlock.h"

namespace ringpipe::info {

// Where a report takes its facts from: this machine, or what a test recorded.
struct Sources {
  Environment::Getter variable;     // reads an environment variable
  Result<Environment> environment;  // as parsed from them
  Result<std::shared_ptr<const verbs::Library>> system;
  std::shared_ptr<const verbs::Library> soft = nullptr;
  std::string sysfs_class = verbs::Device::kSysfsClass;
  std::uint64_t memlock_limit_bytes = 0;  // RLIM_INFINITY: none
  verbs::MemlockUse memlock_use = {};
  GpuReport gpus = {};

  // This machine and process, while that has one thread (AskAboutGpus). May
  // take half a minute, if the driver of its GPUs hangs.
  static Sources OfThisMachine();
};

struct PortReport {
  verbs::PortView view;
  // As sysfs or the device has them; "" or 0: neither says.
  std::string physical_state;  // "LinkUp"
  std::string rate;            // "100 Gb/sec (4X EDR)"
  int lid = 0;
  int active_mtu_bytes = 0;
  int max_mtu_bytes = 0;
  std::vector<verbs::GidEntry> gids;  // without empty ones
  bool used = false;
  std::optional<int> used_gid_index;  // none on iWARP and where not used
  std::string reason;                 // why it is used or left out
};

// Of ibv_device_attr.
struct Limits {
  int queue_pairs = 0;
  int queue_pair_work_requests = 0;
  int scatter_gather_entries = 0;
  int reads_outstanding = 0;  // a queue pair
  int completion_queues = 0;
  int completion_queue_entries = 0;
  int memory_regions = 0;
  std::uint64_t memory_region_bytes = 0;
};

struct DeviceReport {
  std::string name;
  verbs::Transport transport = verbs::Transport::kInfiniBand;
  std::string type;              // "MT4123"; "": sysfs does not say
  std::string firmware;          // "20.31.1014"; likewise
  Status opened;                 // whether it could be, to ask for the limits
  std::optional<Limits> limits;  // where it could
  std::vector<PortReport> ports;
};

struct MemlockReport {
  std::uint64_t limit_bytes = 0;  // RLIM_INFINITY: none
  std::uint64_t pinned_bytes = 0;
  bool exempt = false;  // CAP_IPC_LOCK
  // What a communicator pins at least, with the settings in force; 0 on the
  // software device.
  std::uint64_t needed_bytes = 0;
  Status enough;
};

// Whether ranks of one host would share memory instead of using devices.
struct HostMemoryReport {
  bool used = false;
  std::string reason;  // why not
};

struct VariableReport {
  std::string name;
  std::string value;  // "(set)" of the secret
};

struct Report {
  Status library;    // whether libibverbs is there
  std::string fork;  // what a child process may do; "": there is no device
  std::vector<DeviceReport> devices;
  MemlockReport memlock;
  HostMemoryReport host_memory;
  GpuReport gpus;
  std::vector<VariableReport> variables;  // those that are set
  // What a communicator would use, or the error that it would give.
  Status usable;
  std::vector<verbs::DeviceInfo> used;  // the fastest first

  // 0: a communicator could be opened; with or without GPUs.
  int exit_status() const { return usable.ok() ? 0 : 1; }
};

// Opens every device for a moment. Never fails: what is wrong is in the report.
Report MakeReport(const Sources& sources);

// "192.168.77.1", "fe80::1", "::ffff:c0a8:1" being told apart.
std::string AddressText(const ibv_gid& gid);

}  // namespace ringpipe::info

#endif  // RINGPIPE_INFO_REPORT_H_
