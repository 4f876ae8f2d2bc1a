// Which ports of which RDMA devices a communicator uses, and why.
#ifndef RINGPIPE_VERBS_DEVICE_CHOICE_H_
#define RINGPIPE_VERBS_DEVICE_CHOICE_H_

#include <string>
#include <vector>

#include "base/name_filter.h"
#include "base/status.h"

namespace ringpipe::verbs {

// What is asked for: "" (by what the machine has), "soft" (the software
// device), or a list in NCCL's syntax (base/name_filter.h).
struct DeviceRequest {
  enum class Kind { kAutomatic, kSoftware, kNamed, kExcluded };
  Kind kind = Kind::kAutomatic;
  NameFilter filter;  // of kNamed and kExcluded
  // "^soft": a real device or none. "soft" in a list of NCCL's own variable is
  // a name like any other.
  bool software_excluded = false;
  // Where it came from, for messages: "RINGPIPE_DEVICE", "=mlx5_0".
  std::string variable = "RINGPIPE_DEVICE";
  std::string text;

  // kInvalidArgument, with the forms that are allowed, for anything else.
  static Result<DeviceRequest> Parse(
      const std::string& text, const std::string& variable = "RINGPIPE_DEVICE");

  // "RINGPIPE_DEVICE==mlx5_0".
  std::string ToString() const { return variable + "=" + text; }
};

// The state of a port, as far as the choice minds.
enum class PortState {
  kDown,      // no link: a cable is missing or the other end is off
  kNotReady,  // a link, but no subnet manager (or network) has configured it
  kActive,
};

// Ports of different ones cannot talk to each other.
enum class Transport { kInfiniBand, kRoce, kIwarp };

// "InfiniBand", "RoCE", "iWARP".
const char* TransportName(Transport transport);

// One port of one RDMA device of the machine.
struct PortView {
  std::string device;
  int port = 1;
  PortState state = PortState::kDown;
  // Why it cannot be used even if it is active; ok: nothing is known against
  // it.
  Status obstacle;
  Transport transport = Transport::kInfiniBand;
  double gigabits_per_second = 0;  // 0: not known
};

// A port, and why it is used or not.
struct PortReason {
  std::string device;
  int port = 1;
  std::string reason;
};

// "mlx5_0 port 1".
std::string PortName(const std::string& device, int port);
// "mlx5_0 port 1 is active (RoCE, 100 Gbit/s)".
std::string Describe(const PortView& port);

// What ChooseDevices chose.
struct DeviceChoice {
  bool software = false;
  // Unless software, at least one, the fastest first; all of one transport.
  std::vector<PortReason> ports;
  // The machine's other ports, in its order.
  std::vector<PortReason> left_out;
  // One sentence on why, for the log and for errors.
  std::string reason;

  // "mlx5_1 port 1: is down; ..."; "" where nothing is left out.
  std::string LeftOutText() const;
};

// The choice, as a pure function. `ports` is what the machine has, by
// name and number; `absence` says why there may be none ("libibverbs.so.1:
// cannot open shared object file").
//
// Automatic, and with exclusions: of the active ports without an obstacle, the
// fastest (the first of equals) decides the transport; it and all others of
// that transport are used. If there is no port, or all are down: the software
// device. Otherwise, a port that is active but has an obstacle, or a link that
// is not ready, is an error.
//
// Named: every active port without an obstacle that an entry matches, if they
// are of one transport; of several (a prefix matches more than was thought of)
// those of the fastest one's, as long as each entry still matches one. An entry
// that matches no port that can be used is an error, never a fallback.
//
// Errors: kUnavailable, kInvalidArgument (transports mixed), or the obstacle's
// own status.
Result<DeviceChoice> ChooseDevices(const DeviceRequest& request,
                                   const std::vector<PortView>& ports,
                                   const std::string& absence);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_DEVICE_CHOICE_H_
