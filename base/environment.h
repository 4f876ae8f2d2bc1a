// Every environment variable that ringpipe reads, in one place. To add one:
// a member here, a line in the table in environment.cc, a row in README.md.
#ifndef RINGPIPE_BASE_ENVIRONMENT_H_
#define RINGPIPE_BASE_ENVIRONMENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace ringpipe {

// ringpipe's own variables, parsed and checked. The variables of launchers
// (torchrun, Open MPI, MPICH, Slurm) are read in bootstrap/launcher.h.
struct Environment {
  // RINGPIPE_DEVICE, else NCCL_IB_HCA: a list of devices in NCCL's syntax
  // (base/name_filter.h; verbs/device_choice.h says what it asks for); of the
  // first "soft" too;
  // empty: chosen by what the machine has.
  std::string device;
  // Which of the two `device` came from; for messages.
  std::string device_variable = "RINGPIPE_DEVICE";
  // RINGPIPE_GID_INDEX, else NCCL_IB_GID_INDEX: the entry of a port's GID table
  // that names this end, 0 to 255; -1 in the variable and unset: the best one.
  std::optional<int> gid_index;
  std::string gid_index_variable = "RINGPIPE_GID_INDEX";
  // RINGPIPE_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME: the network interfaces
  // whose addresses ringpipe uses for TCP, in NCCL's syntax; empty: any.
  std::string socket_interfaces;
  std::string socket_interfaces_variable = "RINGPIPE_SOCKET_IFNAME";
  // RINGPIPE_SERVICE_LEVEL: of InfiniBand and of RoCE's priorities, 0 to 15.
  int64_t service_level = 0;
  // RINGPIPE_TRAFFIC_CLASS: of the GRH; RoCE v2's IP type of service, 0 to 255.
  int64_t traffic_class = 0;
  // RINGPIPE_QP_TIMEOUT: how long a queue pair waits for an acknowledgement
  // before it sends again, 4.096 us * 2^n for n from 1 to 31. Unset: by the
  // device.
  std::optional<int> qp_timeout;
  // RINGPIPE_QP_RETRY: how often it sends again before the peer is lost, 0 to
  // 7. Unset: by the device.
  std::optional<int> qp_retry;
  // RINGPIPE_REGISTRATION: whether sub-chunks of memory that the user did not
  // register are registered on the fly rather than copied: "auto" (where it
  // pays), "always", "never". Between ranks of one host: whether the kernel
  // copies long private memory, rather than slots.
  std::string registration = "auto";
  // RINGPIPE_HOST_MEMORY: whether ranks of one host reach each other through
  // memory that they share: "auto" (unless RINGPIPE_DEVICE is soft), "never".
  std::string host_memory = "auto";
  bool shares_host_memory() const {
    return host_memory == "auto" &&
           !(device == "soft" && device_variable == "RINGPIPE_DEVICE");
  }
  // RINGPIPE_HOST_ID: overrides (boot id, network namespace) in deciding which
  // ranks share a host.
  std::string host_id;
  // RINGPIPE_RANK, RINGPIPE_SIZE: this process's place in the job.
  std::optional<int> rank;
  std::optional<int> size;
  // RINGPIPE_ROOT: where rank 0 listens: "HOST:PORT", "[IPv6]:PORT" or
  // "unix:@NAME" (an abstract unix socket, one host only).
  std::string root;
  // RINGPIPE_JOB_ID: tells jobs apart that share an address.
  std::string job_id;
  // RINGPIPE_SECRET: shared by the ranks of a job; needed for several hosts.
  std::string secret;
  // RINGPIPE_TIMEOUT_MS: deadline of each operation; -1: none. Default 60,000.
  int64_t timeout_ms = 60'000;
  // RINGPIPE_JOIN_TIMEOUT_MS: for all ranks to find each other. Default 30,000.
  int64_t join_timeout_ms = 30'000;
  // RINGPIPE_SUBCHUNK_BYTES: what moves through the pipeline at once.
  // Multiple of 64, 256 to 16 MiB. Default 128 KiB.
  int64_t subchunk_bytes = 128 * 1024;
  // RINGPIPE_DEPTH: sub-chunks of a chunk in flight, 1 to 64. Default 4.
  int64_t depth = 4;
  // RINGPIPE_SLOTS: registered slots a communicator; 0: what the schedules
  // need for full speed.
  int64_t slots = 0;
  // RINGPIPE_SPIN_US: how long a wait spins before it sleeps. Default 200.
  int64_t spin_us = 200;
  // RINGPIPE_SOFT_ADVERSARY: seed of the software device's adversarial mode;
  // 0: off.
  int64_t soft_adversary_seed = 0;
  // RINGPIPE_SOFT_LINK_LAYER: what the software device says it is: "ethernet"
  // (addressed by GID) or "infiniband" (by LID). Default ethernet.
  std::string soft_link_layer = "ethernet";
  // RINGPIPE_SOFT_PORTS: the TCP and UDP ports at which the software device
  // listens for other hosts, "FIRST-LAST", the same on all. One is used by each
  // open device. Default 16384-32767.
  int soft_first_port = 16384;
  int soft_last_port = 32767;
  // RINGPIPE_LOG_LEVEL: error, warning, info, debug. Default warning.
  LogLevel log_level = LogLevel::kWarning;

  // Reads a variable by name; nullopt where it is not set.
  using Getter =
      std::function<std::optional<std::string>(std::string_view name)>;

  // From the process's environment (the default) or any other source, as tests
  // do. NCCL's variables are asked for through the same getter, each where
  // ringpipe's own is not set (one that is set and empty is set). A value that
  // cannot be parsed or is out of range is an error that names the variable,
  // the value and what is allowed; so is an unknown variable that starts with
  // RINGPIPE_ in the process's environment (a typo), unless it is one
  // that Kubernetes sets for services, such as RINGPIPE_SERVICE_HOST.
  static Result<Environment> Parse(const Getter& get);
  static Result<Environment> FromProcess();

  // Every name that Parse may ask for, NCCL's behind ringpipe's; static.
  static std::vector<std::string_view> VariableNames();
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_ENVIRONMENT_H_
