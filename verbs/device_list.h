#ifndef RINGPIPE_VERBS_DEVICE_LIST_H_
#define RINGPIPE_VERBS_DEVICE_LIST_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "verbs/library.h"

namespace ringpipe::verbs {

// The devices that a library lists, for as long as they are looked at. They may
// be opened; contexts outlive it. One thread at a time.
class DeviceList {
 public:
  // Of the system's library, or of none where it could not be loaded.
  explicit DeviceList(const Result<std::shared_ptr<const Library>>& system);
  ~DeviceList();
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  // NULL-terminated; nullptr where there is no list.
  ibv_device** get() const { return devices_; }
  // nullptr where there is none.
  ibv_device* first() const { return count_ > 0 ? devices_[0] : nullptr; }
  ibv_device* Find(const std::string& name) const;
  // nullptr where it could not be loaded.
  const Library* library() const { return library_.get(); }

  // Why it may be empty: "libibverbs.so.1 lists none", the loader's message.
  const std::string& absence() const { return absence_; }
  int error() const { return error_; }  // errno of a list that failed, or 0

 private:
  std::shared_ptr<const Library> library_;
  ibv_device** devices_ = nullptr;
  int count_ = 0;
  int error_ = 0;
  std::string absence_;
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_DEVICE_LIST_H_
