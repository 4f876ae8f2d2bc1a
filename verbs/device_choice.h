// Which RDMA device a communicator uses, and why.
#ifndef RINGPIPE_VERBS_DEVICE_CHOICE_H_
#define RINGPIPE_VERBS_DEVICE_CHOICE_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace ringpipe::verbs {

// RINGPIPE_DEVICE taken apart: "" (by what the machine has), "soft", "mlx5_0",
// "mlx5_0:1", "^mlx5_0".
struct DeviceRequest {
  enum class Kind { kAutomatic, kSoftware, kNamed, kExcluded };
  Kind kind = Kind::kAutomatic;
  // Of kNamed and kExcluded. "^soft" is kExcluded too: a real device or none.
  std::string name;
  int port = 0;  // of kNamed; 0: the first active one

  // kInvalidArgument, with the forms that are allowed, for anything else.
  static Result<DeviceRequest> Parse(const std::string& text);
};

// The state of a port, as far as the choice minds.
enum class PortState {
  kDown,      // no link: a cable is missing or the other end is off
  kNotReady,  // a link, but no subnet manager (or network) has configured it
  kActive,
};

// One port of one RDMA device of the machine.
struct PortView {
  std::string device;
  int port = 1;
  PortState state = PortState::kDown;
  // Why it cannot be used even if it is active; ok: nothing is known against
  // it.
  Status obstacle;
};

// What ChooseDevice chose.
struct DeviceChoice {
  bool software = false;
  std::string name;  // unless software
  int port = 1;      // unless software
  // One sentence on why, for the log and for errors.
  std::string reason;
};

// DESIGN.md's rules, as a pure function. `ports` is what the machine has, in
// order of preference; `absence` says why there may be none ("libibverbs.so.1:
// cannot open shared object file"). Automatic: the first active port without
// an obstacle; if there is no port, or all are down, the software device. An
// active port with an obstacle or a link that is not ready is otherwise an
// error, as is a named device that is not there or not active: kUnavailable, or
// the obstacle's own status.
Result<DeviceChoice> ChooseDevice(const DeviceRequest& request,
                                  const std::vector<PortView>& ports,
                                  const std::string& absence);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_DEVICE_CHOICE_H_
