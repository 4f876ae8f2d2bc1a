// Every environment variable that ringpipe reads, in one place. To add one, add
// a member here, a line in the table in environment.cc, and a row in
// docs/reference.md, which also has the units and the limits.
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
  // RINGPIPE_DEVICE, else NCCL_IB_HCA: which RDMA devices are used. A list in
  // NCCL's syntax (base/name_filter.h; verbs/device_choice.h says what it
  // means), or "soft", which only RINGPIPE_DEVICE may be. Empty: chosen from
  // what the machine has.
  std::string device;
  // Which of these two variables `device` comes from; for messages.
  std::string device_variable = "RINGPIPE_DEVICE";
  // RINGPIPE_GID_INDEX, else NCCL_IB_GID_INDEX: the entry of a port's GID table
  // that is the address of this end, 0 to 255. Unset (in the variable also -1):
  // the best entry.
  std::optional<int> gid_index;
  std::string gid_index_variable = "RINGPIPE_GID_INDEX";
  // RINGPIPE_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME: the network interfaces
  // whose addresses ringpipe uses for TCP, in NCCL's syntax. Empty: any.
  std::string socket_interfaces;
  std::string socket_interfaces_variable = "RINGPIPE_SOCKET_IFNAME";
  // RINGPIPE_SERVICE_LEVEL: the service level of InfiniBand packets, and the
  // priority on RoCE; 0 to 15.
  int64_t service_level = 0;
  // RINGPIPE_TRAFFIC_CLASS: the traffic class in the GRH; on RoCE v2, the IP
  // type of service; 0 to 255.
  int64_t traffic_class = 0;
  // RINGPIPE_QP_TIMEOUT: n from 1 to 31. A queue pair waits 4.096 us * 2^n for
  // an acknowledgement before it sends again. Unset: the device's default.
  std::optional<int> qp_timeout;
  // RINGPIPE_QP_RETRY: how often it sends again before the peer counts as lost,
  // 0 to 7. Unset: the device's default.
  std::optional<int> qp_retry;
  // RINGPIPE_REGISTRATION: how a device sends from memory that the user did not
  // register. "always": each sub-chunk is registered for its send. "never": it
  // is copied into a slot. "auto": whichever is quicker.
  std::string registration = "auto";
  // RINGPIPE_HOST_MEMORY: whether ranks of one host exchange data through
  // shared memory. "auto": yes, unless RINGPIPE_DEVICE is "soft". "never".
  std::string host_memory = "auto";
  bool shares_host_memory() const {
    return host_memory == "auto" &&
           !(device == "soft" && device_variable == "RINGPIPE_DEVICE");
  }
  // RINGPIPE_HOST_ID: the name of this host. Ranks with equal names count as
  // ranks of one host. Empty: the boot id and the network namespace decide.
  std::string host_id;
  // RINGPIPE_RANK, RINGPIPE_SIZE: this process's place in the job.
  std::optional<int> rank;
  std::optional<int> size;
  // RINGPIPE_ROOT: where rank 0 listens: "HOST:PORT", "[IPv6]:PORT" or
  // "unix:@NAME" (an abstract unix socket, for one host only).
  std::string root;
  // RINGPIPE_JOB_ID: tells jobs apart that use the same address.
  std::string job_id;
  // RINGPIPE_SECRET: a secret that all ranks of a job share. Needed on several
  // hosts.
  std::string secret;
  // RINGPIPE_TIMEOUT_MS: the deadline of each call; -1: none.
  int64_t timeout_ms = 60'000;
  // RINGPIPE_JOIN_TIMEOUT_MS: the deadline for all ranks to join and connect.
  int64_t join_timeout_ms = 30'000;
  // RINGPIPE_TCP_TIMEOUT_MS: how long a host may acknowledge nothing of what it
  // was sent over TCP before it counts as dead, or out of reach.
  int64_t tcp_timeout_ms = 15'000;
  // RINGPIPE_SUBCHUNK_BYTES: the largest piece that moves through the pipeline
  // at once. A multiple of 64, from 256 to 16 MiB.
  int64_t subchunk_bytes = 128 * 1024;
  // RINGPIPE_DEPTH: how many sub-chunks of a chunk are in flight, 1 to 64.
  int64_t depth = 4;
  // RINGPIPE_ALGORITHM: the algorithms that collectives take, such as
  // "allreduce:rabenseifner,barrier:dissemination". The engine chooses for
  // collectives that are not named. Checked when a communicator is created.
  std::string algorithm;
  // RINGPIPE_SLOTS: how many slots a communicator has; 0: as many as the
  // schedules need for full speed.
  int64_t slots = 0;
  // RINGPIPE_GPU_REDUCE: who reduces in a call with memory of a GPU. "auto":
  // the GPU where an operand is in its memory, else the host. "host" or "gpu":
  // that one, and what is in the other's memory is copied into slots.
  std::string gpu_reduce = "auto";
  // RINGPIPE_SPIN_US: how long a wait spins before it sleeps.
  int64_t spin_us = 200;
  // RINGPIPE_SOFT_ADVERSARY: the seed of the software device's adversarial
  // mode; 0: off.
  int64_t soft_adversary_seed = 0;
  // RINGPIPE_SOFT_LINK_LAYER: how the software device is addressed: "ethernet"
  // (by GID) or "infiniband" (by LID).
  std::string soft_link_layer = "ethernet";
  // RINGPIPE_SOFT_PORTS: "FIRST-LAST", the TCP and UDP ports at which the
  // software device listens for other hosts; the same on all hosts. Each open
  // device uses one of them.
  int soft_first_port = 16384;
  int soft_last_port = 32767;
  // RINGPIPE_TRACE: the file to which a timeline of the calls is written when
  // the communicator is destroyed. Empty: none. All ranks or none.
  std::string trace;
  // RINGPIPE_LOG_LEVEL: error, warning, info or debug.
  LogLevel log_level = LogLevel::kWarning;

  // Reads a variable by name; nullopt if it is not set.
  using Getter =
      std::function<std::optional<std::string>(std::string_view name)>;

  // Reads all variables through `get`. One of NCCL's is asked for if ringpipe's
  // own is not set; ringpipe's own counts as set even if it is empty.
  // kInvalidArgument, with the variable, the value and what is allowed, for a
  // value that cannot be parsed or is out of range.
  static Result<Environment> Parse(const Getter& get);

  // The same from the process's environment. kInvalidArgument also for a
  // variable that begins with RINGPIPE_ and is unknown, because it may be
  // misspelt; but not for what Kubernetes sets for services, such as
  // RINGPIPE_SERVICE_HOST, nor for those of bindings, RINGPIPE_PYTHON_... and
  // RINGPIPE_TORCH_...
  static Result<Environment> FromProcess();

  // The names of all variables that Parse may ask for: ringpipe's, then NCCL's.
  // They live as long as the process.
  static std::vector<std::string_view> VariableNames();
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_ENVIRONMENT_H_
