#include "verbs/device_list.h"

#include <cerrno>

namespace ringpipe::verbs {

DeviceList::DeviceList(const Result<std::shared_ptr<const Library>>& system) {
  if (!system.ok()) {
    absence_ = system.status().message();
    return;
  }
  library_ = system.value();
  absence_ = "libibverbs.so.1 lists none";
  // From here on nothing throws while there is a list.
  errno = 0;
  devices_ = library_->get_device_list(&count_);
  if (devices_ == nullptr && errno != 0) {
    error_ = errno;
    absence_ =
        ErrnoStatus(StatusCode::kUnavailable, "ibv_get_device_list", error_)
            .message();
  }
}

DeviceList::~DeviceList() {
  if (devices_ != nullptr) {
    library_->free_device_list(devices_);
  }
}

ibv_device* DeviceList::Find(const std::string& name) const {
  for (int i = 0; i < count_; ++i) {
    if (name == library_->get_device_name(devices_[i])) {
      return devices_[i];
    }
  }
  return nullptr;
}

}  // namespace ringpipe::verbs
