// An open RDMA device and the port of it that is used.
#ifndef RINGPIPE_VERBS_DEVICE_H_
#define RINGPIPE_VERBS_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/memory_source.h"
#include "base/status.h"
#include "verbs/device_choice.h"
#include "verbs/gid_choice.h"
#include "verbs/library.h"

namespace ringpipe::verbs {

// What is true of a device and its port as long as it is open.
struct DeviceInfo {
  std::string name;       // "mlx5_0", "soft0"
  bool software = false;  // ringpipe's own device
  Transport transport = Transport::kInfiniBand;
  bool ethernet = false;  // link layer: addressed by GID, else by LID
  int port = 1;
  double gigabits_per_second = 0;  // 0: not known
  int gid_index = 0;
  // The address of this end. On iWARP no GID: the IP address of the port's
  // network interface, as a GID would have it (IPv4 is mapped into IPv6).
  ibv_gid gid = {};
  std::string gid_type;   // "RoCE v2"; "": not known
  std::string interface;  // network interface, "eth0"; "": not known
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  int max_qp = 0;
  int max_qp_wr = 0;
  int max_cq = 0;
  int max_cqe = 0;
  int max_mr = 0;
  int max_sge = 0;
  int max_qp_rd_atom = 0;  // RDMA READs in flight on each queue pair
  std::uint64_t max_message_bytes = 0;
  // Whether registering memory pins its pages (and counts against memlock).
  bool pins_memory = true;
  // One sentence: why this port was chosen; for the log and for errors.
  std::string reason;
  // The machine's other ports and why they are not used; "": there are none.
  std::string left_out;
};

// RAII over ibv_context; stands for one port of the device. Children
// (protection domains, queues) keep it alive by shared_ptr, so destruction
// order is never the caller's problem. Thread-safe. Not for use in a child
// process after fork.
class Device final : public MemorySource {
 public:
  // Chooses by `request` (ChooseDevices says how) and opens: each port is a
  // Device with a context of its own, the fastest first. No HCA, or only ports
  // that are physically down: the software device (info().reason names them).
  // An active port that cannot be opened or used, or a device asked for by
  // name: kUnavailable, kPermissionDenied or kInvalidArgument, never a
  // fallback. `address`: of each port; an index that NCCL's variable gives does
  // not count for the software device. `soft` is the software device's table;
  // `system` the system's, or the status of loading it. `sysfs_class` is where
  // the kernel shows its RDMA devices (other than the default in tests only).
  static Result<std::vector<std::shared_ptr<Device>>> Open(
      const DeviceRequest& request, const AddressRequest& address,
      const Result<std::shared_ptr<const Library>>& system,
      const std::shared_ptr<const Library>& soft,
      const std::string& sysfs_class = kSysfsClass);
  static constexpr char kSysfsClass[] = "/sys/class/infiniband";

  // The software device, whatever the machine has; `reason` is info().reason.
  // kUnavailable where no network interface that may be used is up;
  // kInvalidArgument where `address` asks for an entry that is empty.
  static Result<std::shared_ptr<Device>> OpenSoftware(
      const std::shared_ptr<const Library>& soft, std::string reason,
      const AddressRequest& address = {});

  ~Device() override;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  const Library& library() const { return *library_; }
  ibv_context* context() const { return context_; }

  // On the software device peers on this host can reach it; elsewhere it is in
  // huge pages where the system has them. On a device that pins memory, a child
  // process does not inherit it.
  Result<Allocation> Allocate(std::size_t bytes) override;

  // Takes and acknowledges the asynchronous events that are there; never
  // blocks. kDeviceError names one after which communication cannot go on
  // (IBV_EVENT_QP_FATAL, IBV_EVENT_PORT_ERR of this port, the device removed,
  // this port's LID or GID no longer what info() says), with what to do; those
  // behind it are the next call's. Each other event (the port came up, ...) is
  // described in `*notices`, for the log, unless that is nullptr. An event is
  // reported once: one reader a device, which is the executor that owns it; and
  // as each communicator opens its devices for itself, an event reaches those
  // that it concerns.
  // `*qp_number`: of the queue pair to which the error happened; 0: to all.
  Status CheckAsyncEvents(std::vector<std::string>* notices = nullptr,
                          std::uint32_t* qp_number = nullptr);
  // Readable when CheckAsyncEvents has something to take; -1: never.
  int async_fd() const { return context_->async_fd; }

  // The status of a verbs call that failed with `error`, an errno value:
  // "mlx5_0: WHAT: Cannot allocate memory (ENOMEM)", with a code to match.
  Status CallFailed(const std::string& what, int error) const;

 private:
  Device(std::shared_ptr<const Library> library, DeviceInfo info);

  static Result<std::shared_ptr<Device>> OpenPort(
      std::shared_ptr<const Library> library, ibv_device* device,
      DeviceInfo info, const AddressRequest& address,
      const std::string& sysfs_class);

  void Free(std::byte* data, std::size_t bytes) noexcept override;
  void Keep(std::byte* data, std::size_t bytes) noexcept override;

  std::shared_ptr<const Library> library_;
  ibv_context* context_ = nullptr;
  DeviceInfo info_;
  std::mutex kept_mutex_;
  std::vector<std::span<std::byte>> kept_;  // pages of ours
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_DEVICE_H_
