// An open RDMA device and the port of it that is used.
#ifndef RINGPIPE_VERBS_DEVICE_H_
#define RINGPIPE_VERBS_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "verbs/device_choice.h"
#include "verbs/library.h"

namespace ringpipe::verbs {

// What is true of a device as long as it is open.
struct DeviceInfo {
  std::string name;       // "mlx5_0", "soft0"
  bool software = false;  // ringpipe's own device
  bool ethernet = false;  // link layer: addressed by GID, else by LID
  int port = 1;
  int gid_index = 0;
  ibv_gid gid = {};
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  int max_qp_wr = 0;
  int max_cqe = 0;
  int max_sge = 0;
  std::uint64_t max_message_bytes = 0;
  // Whether registering memory pins its pages (and counts against memlock).
  bool pins_memory = true;
  // One sentence: why this device was chosen; for the log and for errors.
  std::string reason;
};

class Allocation;

// RAII over ibv_context. Children (protection domains, queues) keep it alive by
// shared_ptr, so destruction order is never the caller's problem. Thread-safe.
// Not for use in a child process after fork.
class Device : public std::enable_shared_from_this<Device> {
 public:
  // Chooses by `request` and DESIGN.md's rules and opens: no HCA, or only ports
  // that are physically down: the software device (info().reason names them).
  // An active port that cannot be opened or used, or a device asked for by
  // name: kUnavailable or kPermissionDenied, never a fallback.
  // `soft` is the software device's table; `system` the system's, or the
  // status of loading it. `sysfs_class` is where the kernel shows its RDMA
  // devices (other than the default in tests only).
  static Result<std::shared_ptr<Device>> Open(
      const DeviceRequest& request,
      const Result<std::shared_ptr<const Library>>& system,
      const std::shared_ptr<const Library>& soft,
      const std::string& sysfs_class = "/sys/class/infiniband");

  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  const Library& library() const { return *library_; }
  ibv_context* context() const { return context_; }

  // `bytes` (rounded up to pages, at least one) of zeroed memory that the
  // device likes: huge pages, or shareable on the software device. On a device
  // that pins, a child process does not inherit it. kResourceExhausted if there
  // is none. Slow path.
  Result<Allocation> Allocate(std::size_t bytes);

  // Takes and acknowledges the asynchronous events that are there; never
  // blocks. kDeviceError names the first after which communication cannot go on
  // (IBV_EVENT_QP_FATAL, IBV_EVENT_PORT_ERR of this port, the device removed,
  // this port's LID or GID no longer what info() says), with what to do. Each
  // other event (the port came up, ...) is described in `*notices`, for the
  // log, unless that is nullptr. An event is reported once: one reader a
  // device, which is the executor that owns it; and as each communicator opens
  // its devices for itself, an event reaches those that it concerns.
  Status CheckAsyncEvents(std::vector<std::string>* notices = nullptr);
  // Readable when CheckAsyncEvents has something to take; -1: never.
  int async_fd() const { return context_->async_fd; }

  // The status of a verbs call that failed with `error`, an errno value:
  // "mlx5_0: WHAT: Cannot allocate memory (ENOMEM)", with a code to match.
  Status CallFailed(const std::string& what, int error) const;

 private:
  Device(std::shared_ptr<const Library> library, ibv_context* context,
         DeviceInfo info);

  static Result<std::shared_ptr<Device>> OpenPort(
      std::shared_ptr<const Library> library, ibv_device* device,
      DeviceInfo info, const std::string& sysfs_class);

  std::shared_ptr<const Library> library_;
  ibv_context* context_;
  DeviceInfo info_;
};

// Memory from Device::Allocate; frees itself. Move-only; keeps the device open.
class Allocation {
 public:
  Allocation() = default;  // none: data() is nullptr
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;
  ~Allocation();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  friend class Device;
  Allocation(std::shared_ptr<Device> device, std::byte* data,
             std::size_t bytes);

  void Free();

  std::shared_ptr<Device> device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_DEVICE_H_
