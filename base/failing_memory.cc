#include "base/failing_memory.h"

#include <cstdlib>
#include <new>

namespace ringpipe {
namespace {

// Of this thread.
struct Failure {
  long left = -1;  // allocations that succeed before one fails; -1: all do
  bool for_good = false;
  bool has_failed = false;
};
thread_local Failure failure;

bool (*also_fails)() = nullptr;

bool Fails() {
  if (failure.left > 0) {
    --failure.left;
  } else if (failure.left == 0) {
    failure.left = failure.for_good ? 0 : -1;
    failure.has_failed = true;
    return true;
  }
  return also_fails != nullptr && also_fails();
}

}  // namespace

void FailAllocation(long which, bool for_good) {
  failure = {.left = which, .for_good = for_good};
}

bool StopFailingAllocations() {
  const bool has_failed = failure.has_failed;
  failure = {};
  return has_failed;
}

void SetAllocationFailure(bool (*fails)()) { also_fails = fails; }

}  // namespace ringpipe

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return ringpipe::Fails() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}

void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) {
    return memory;
  }
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
