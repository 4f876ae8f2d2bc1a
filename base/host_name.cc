#include "base/host_name.h"

#include <unistd.h>

namespace ringpipe {

std::string HostName() {
  char name[256] = "unknown";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace ringpipe
