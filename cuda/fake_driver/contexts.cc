#include "cuda/fake_driver/contexts.h"

#include <algorithm>

namespace fake_cuda {
namespace {

// A stack for each thread (CUDA Driver API, 6.8 Context Management).
std::vector<Context*>& Stack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

}  // namespace

Contexts::Contexts(int devices) {
  for (Device device = 0; device < devices; ++device) {
    primary_.push_back(std::make_unique<Context>(Context{device, true}));
  }
}

Context* Contexts::Retain(Device device) {
  const std::lock_guard lock(mutex_);
  Context* const context = primary_[static_cast<std::size_t>(device)].get();
  if (context->retained++ == 0) {
    alive_.push_back(context);
  }
  return context;
}

Context* Contexts::Release(Device device, Result* result) {
  const std::lock_guard lock(mutex_);
  Context* const context = primary_[static_cast<std::size_t>(device)].get();
  *result = context->retained == 0 ? kInvalidContext : kSuccess;
  if (*result != kSuccess || --context->retained > 0) {
    return nullptr;
  }
  std::erase(alive_, context);
  return context;
}

bool Contexts::Active(Device device) const {
  const std::lock_guard lock(mutex_);
  return primary_[static_cast<std::size_t>(device)]->retained > 0;
}

Context* Contexts::Create(Device device) {
  const std::lock_guard lock(mutex_);
  created_.push_back(std::make_unique<Context>(Context{device, false}));
  alive_.push_back(created_.back().get());
  return created_.back().get();
}

bool Contexts::Destroy(Context* context) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(alive_.begin(), alive_.end(), context);
  if (found == alive_.end() || context->primary) {
    return false;
  }
  alive_.erase(found);
  return true;
}

bool Contexts::Alive(const Context* context) const {
  const std::lock_guard lock(mutex_);
  return std::find(alive_.begin(), alive_.end(), context) != alive_.end();
}

Context* Contexts::Current() {
  return Stack().empty() ? nullptr : Stack().back();
}

void Contexts::Push(Context* context) { Stack().push_back(context); }

Context* Contexts::Pop() {
  if (Stack().empty()) {
    return nullptr;
  }
  Context* const context = Stack().back();
  Stack().pop_back();
  return context;
}

// "If hCtx is NULL then the CUDA context previously at the top of the stack is
// popped" (cuCtxSetCurrent); otherwise it is replaced.
void Contexts::Set(Context* context) {
  Pop();
  if (context != nullptr) {
    Push(context);
  }
}

}  // namespace fake_cuda
