#include "cuda/fake_driver/calls.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace fake_cuda {

Calls::Calls(const std::string& fail) {
  std::istringstream list(fail);
  std::string item;
  while (std::getline(list, item, ',')) {
    std::istringstream parts(item);
    std::string name;
    int nth = -1;
    Result error = 0;
    char colon = 0;
    std::getline(parts, name, ':');
    parts >> nth >> colon >> error;
    if (parts.fail() || colon != ':' || nth < 0 || !Fail(name, nth, error)) {
      std::fprintf(stderr, "fake CUDA: FAKE_CUDA_FAIL: %s\n", item.c_str());
      std::abort();
    }
  }
}

Result Calls::Count(const char* name) {
  const std::lock_guard lock(mutex_);
  ++counts_[name];
  Result result = kSuccess;
  const auto [begin, end] = demands_.equal_range(name);
  for (auto demand = begin; demand != end;) {
    const bool now = demand->second.left <= 1;
    if (now && result == kSuccess) {
      result = demand->second.error;
    }
    if (now && demand->second.left == 1) {
      demand = demands_.erase(demand);
    } else {
      demand->second.left -= demand->second.left > 0 ? 1 : 0;
      ++demand;
    }
  }
  if (Sticks(result)) {
    Stick(result);
  }
  return result;
}

bool Calls::Fail(const std::string& name, int nth, Result error) {
  if (!IsEntryPoint(name)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  demands_.emplace(name, Demand{nth, error});
  return true;
}

long Calls::count(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(name);
  return found != counts_.end() ? found->second : IsEntryPoint(name) ? 0 : -1;
}

void Calls::Reset() {
  const std::lock_guard lock(mutex_);
  demands_.clear();
  sticky_ = kSuccess;
}

void Calls::Stick(Result error) {
  Result none = kSuccess;
  sticky_.compare_exchange_strong(none, error);
}

bool Calls::Sticks(Result error) {
  return error == kIllegalAddress || error == 702 || error == 710 ||
         (error >= 714 && error <= kLaunchFailed) || error == 214 ||
         error == 220;
}

}  // namespace fake_cuda
