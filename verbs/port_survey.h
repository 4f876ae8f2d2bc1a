// Which ports of which RDMA devices a machine has.
#ifndef RINGPIPE_VERBS_PORT_SURVEY_H_
#define RINGPIPE_VERBS_PORT_SURVEY_H_

#include <string>
#include <vector>

#include "verbs/device_choice.h"
#include "verbs/device_list.h"
#include "verbs/gid_choice.h"
#include "verbs/library.h"

namespace ringpipe::verbs {

// Of an ibv_port_state, as verbs and sysfs number it.
PortState ToPortState(int state);

// Of a device, and of the link layer of its port.
Transport ToTransport(bool iwarp, bool ethernet);

// Of ibv_port_attr's active_width and active_speed: what sysfs calls `rate`,
// the bits of data and of their encoding; 0 where either is not known.
double ToGigabitsPerSecond(int active_width, int active_speed);

// The ports below `sysfs_class` (usually /sys/class/infiniband) and those of
// the devices that the library lists, by name and number. sysfs is asked first,
// for it also knows devices that the library leaves out, such as those of a
// container without /dev/infiniband: these have an obstacle that says so. Only
// a listed device that sysfs does not know is opened for the purpose. An
// Ethernet port that has no address of the kind that is asked for, or is of no
// transport that ringpipe connects, has an obstacle too.
std::vector<PortView> SurveyPorts(const std::string& sysfs_class,
                                  const DeviceList& listed,
                                  const AddressRequest& address);

// The status of an ibv_open_device of `device` that set errno to `error`:
// kPermissionDenied, kResourceExhausted or kUnavailable, with advice.
Status OpenFailure(const std::string& device, int error);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_PORT_SURVEY_H_
