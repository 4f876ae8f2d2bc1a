// What this host calls itself.
#ifndef RINGPIPE_BASE_HOST_NAME_H_
#define RINGPIPE_BASE_HOST_NAME_H_

#include <string>

namespace ringpipe {

// For people: several hosts may have the same name. "unknown" where the system
// does not say.
std::string HostName();

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_HOST_NAME_H_
