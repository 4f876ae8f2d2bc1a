#include "memory_pool/registration.h"

#include <utility>

namespace ringpipe {

Result<Registration> Registration::Create(ProtectionDomains domains,
                                          const void* address,
                                          std::size_t bytes, int access,
                                          bool relaxed) {
  Registration registration;
  for (std::size_t rail = 0; rail < domains.size(); ++rail) {
    RINGPIPE_ASSIGN_OR_RETURN(
        registration.regions_[rail],
        verbs::MemoryRegion::Register(domains[rail], address, bytes, access,
                                      relaxed));
    registration.lkeys_[rail] = registration.regions_[rail].lkey();
  }
  return registration;
}

Status Registration::Release() {
  Status first;
  for (verbs::MemoryRegion& region : regions_) {
    const Status status = region.Deregister();
    if (first.ok()) {
      first = status;
    }
  }
  return first;
}

void ReleaseRegistered(Registration registration, Allocation memory) {
  if (!registration.Release().ok()) {
    memory.Keep();
  }
}

}  // namespace ringpipe
