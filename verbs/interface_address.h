// The IP address of an iWARP port, whose GIDs name nothing that IP could route.
#ifndef RINGPIPE_VERBS_INTERFACE_ADDRESS_H_
#define RINGPIPE_VERBS_INTERFACE_ADDRESS_H_

#include <string>

#include "base/status.h"
#include "verbs/library.h"

namespace ringpipe::verbs {

// An address of a network interface.
struct InterfaceAddress {
  std::string interface;  // "eth0"
  ibv_gid address = {};   // as a GID is: IPv4 is mapped into IPv6
};

// The address of the interface that carries an iWARP port: its first IPv4 one,
// else its first IPv6 one that is not link-local. The interface is the one that
// the kernel names beside the port's first GID; where it names none (before
// Linux 6.5), the one whose MAC address `first_gid` starts with; else that of
// the device's own PCI function. kUnavailable where there is no such interface
// or it has no address.
Result<InterfaceAddress> FindInterfaceAddress(const std::string& sysfs_class,
                                              const std::string& device,
                                              int port,
                                              const ibv_gid& first_gid);

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_INTERFACE_ADDRESS_H_
