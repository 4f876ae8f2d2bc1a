// A verbs library over a machine that a test scripts.
#ifndef RINGPIPE_VERBS_FAKE_LIBRARY_H_
#define RINGPIPE_VERBS_FAKE_LIBRARY_H_

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "verbs/library.h"

namespace ringpipe::verbs {

struct FakePort {
  ibv_port_state state = IBV_PORT_ACTIVE;
  bool ethernet = false;
  std::uint16_t lid = 1;
  ibv_mtu mtu = IBV_MTU_4096;
  double gigabits_per_second = 100;    // of 4 lanes
  std::vector<std::string> gids;       // as text; "": an empty entry
  std::vector<std::string> gid_types;  // as sysfs has them: "RoCE v2"
  std::vector<std::string> gid_ndevs;  // likewise: "eth0"
};

struct FakeDevice {
  std::string name;
  std::vector<FakePort> ports = {FakePort{}};
  ibv_transport_type transport = IBV_TRANSPORT_IB;
  int open_errno = 0;  // ibv_open_device fails with it
  bool listed = true;  // by ibv_get_device_list
  bool in_sysfs = true;
  int max_qp_wr = 1024;
  int max_inline_bytes = 64;  // ibv_create_qp fails with EINVAL above
  // Of all processes; ibv_create_qp and ibv_create_cq fail with limit_errno
  // above, as another process may have taken its share.
  int max_qp = 262144;
  int max_cq = 65536;
  int limit_errno = ENOMEM;
};

// The functions of a Library have no room for state: they find the machine in a
// variable, so that one exists at a time. Its objects count themselves: live()
// is what was not given back.
class FakeMachine {
 public:
  FakeMachine();
  ~FakeMachine();
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  // Also writes the device's part of sysfs.
  void Add(FakeDevice device);
  // Adds the devices that a copy of /sys/class/infiniband tells of, which is
  // sysfs_class() from now on: their ports, GIDs and transports.
  void AddRecorded(const std::string& sysfs_class);
  // Raises an asynchronous event on every open context.
  void Raise(ibv_async_event event) { events.push_back(event); }

  std::shared_ptr<const Library> library() const { return library_; }
  // library() as an older rdma-core has it: without what may be nullptr.
  std::shared_ptr<const Library> old_library() const { return old_library_; }
  // A library whose only device is "soft0".
  std::shared_ptr<const Library> soft() const { return soft_; }
  const std::string& sysfs_class() const { return sysfs_class_; }

  // For the functions, and for tests to look at.
  struct Modification {
    ibv_qp_attr attr;
    int mask;
  };
  std::vector<std::unique_ptr<FakeDevice>> devices;
  FakeDevice soft_device;
  std::vector<ibv_async_event> events;
  std::vector<Modification> modifications;
  int events_acknowledged = 0;
  int register_errno = 0;  // ibv_reg_mr fails with it
  int relaxed_errno = 0;   // ibv_reg_mr_iova2 fails with it, where there is one
  std::vector<unsigned> registered_access;  // of the regions, in order
  int connect_errno = 0;  // ibv_modify_qp to RTR fails with it
  int async_errno = 0;    // ibv_get_async_event after the last event; 0: EAGAIN
  int queue_pairs = 0;    // that live
  int completion_queues = 0;
  // What ibv_is_fork_initialized says, what ibv_fork_init returns, and how
  // often it was called.
  ibv_fork_status fork_status = IBV_FORK_DISABLED;
  int fork_init_result = 0;
  int fork_init_calls = 0;
  int live = 0;  // lists, contexts, domains, regions, channels, queues

 private:
  std::shared_ptr<const Library> library_;
  std::shared_ptr<const Library> old_library_;
  std::shared_ptr<const Library> soft_;
  const std::string folder_;  // its own
  std::string sysfs_class_;
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_FAKE_LIBRARY_H_
