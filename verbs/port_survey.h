// Which ports of which RDMA devices a machine has.
#ifndef RINGPIPE_VERBS_PORT_SURVEY_H_
#define RINGPIPE_VERBS_PORT_SURVEY_H_

#include <string>
#include <vector>

#include "verbs/device_choice.h"
#include "verbs/library.h"

namespace ringpipe::verbs {

// Of an ibv_port_state, as verbs and sysfs number it.
PortState ToPortState(int state);

// The ports below `sysfs_class` (usually /sys/class/infiniband) and those of
// the devices that the library lists (`listed`, NULL-terminated, may be
// nullptr), by name and number. sysfs is asked first, for it also knows devices
// that the library leaves out, such as those of a container without
// /dev/infiniband: these have an obstacle that says so, naming `absence`. Only
// a listed device that sysfs does not know is opened for the purpose.
std::vector<PortView> SurveyPorts(const std::string& sysfs_class,
                                  const Library* library, ibv_device** listed,
                                  const std::string& absence);

// The status of an ibv_open_device of `device` that set errno to `error`:
// kPermissionDenied, kResourceExhausted or kUnavailable, with advice.
Status OpenFailure(const std::string& device, int error);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_PORT_SURVEY_H_
