#ifndef RINGPIPE_BASE_MAPPING_REGISTRY_H_
#define RINGPIPE_BASE_MAPPING_REGISTRY_H_

#include <sys/types.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace ringpipe {

// What is mapped in this process, by the identity of the files. Two users in
// one process that share memory have to use the same mapping, or
// ThreadSanitizer cannot see that one thread's atomic store and the other's
// load are of the same word (and caches of the processor would be the only
// thing to tell). So one of these is for the whole process, a global state that
// must be; it holds no strong reference. Thread-safe.
//
// A child of fork() inherits it, but not always the mappings: it starts anew.
template <typename Identity, typename Object>
class MappingRegistry {
 public:
  // nullptr: it is not mapped here.
  std::shared_ptr<Object> Find(const Identity& identity) {
    std::lock_guard lock(mutex_);
    const auto known = objects_.find(KeyOf(identity));
    return known != objects_.end() ? known->second.lock() : nullptr;
  }

  // Two threads may have mapped the same one: what the first has is for both.
  std::shared_ptr<Object> KeepFirst(const Identity& identity,
                                    const std::shared_ptr<Object>& object) {
    std::lock_guard lock(mutex_);
    std::weak_ptr<Object>& known = objects_[KeyOf(identity)];
    if (std::shared_ptr<Object> first = known.lock()) {
      return first;
    }
    known = object;
    return object;
  }

  // For the object's destructor.
  void Forget(const Identity& identity) {
    std::lock_guard lock(mutex_);
    const auto entry = objects_.find(KeyOf(identity));
    if (entry != objects_.end() && entry->second.expired()) {
      objects_.erase(entry);
    }
  }

 private:
  using Key = std::pair<pid_t, Identity>;

  static Key KeyOf(const Identity& identity) { return {getpid(), identity}; }

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<Object>> objects_;
};

}  // namespace ringpipe

#endif  // RINGPIPE_BASE_MAPPING_REGISTRY_H_
