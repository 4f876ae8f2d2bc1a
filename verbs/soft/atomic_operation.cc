#include "verbs/soft/atomic_operation.h"

#include <errno.h>
#include <sys/uio.h>

#include <atomic>

namespace ringpipe::verbs::soft {
namespace {

// About as long as somebody on another core holds the lock.
constexpr int kTries = 100;

std::uint64_t NewValue(const AtomicOperation& operation, std::uint64_t old) {
  if (operation.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    return old + operation.compare_add;
  }
  return old == operation.compare_add ? operation.swap : old;
}

std::uint64_t UpdateMapped(std::byte* address,
                           const AtomicOperation& operation) {
  const std::atomic_ref<std::uint64_t> word(
      *reinterpret_cast<std::uint64_t*>(address));
  std::uint64_t old = word.load();
  // The lock-free kind of loop: another try means that another got through.
  while (!word.compare_exchange_weak(old, NewValue(operation, old))) {
  }
  return old;
}

AtomicResult Failure(ssize_t copied) {
  if (copied >= 0 || errno == EFAULT || errno == ENOMEM) {
    return AtomicResult::kFaulted;
  }
  return errno == ESRCH ? AtomicResult::kGone : AtomicResult::kForbidden;
}

AtomicResult UpdatePrivate(pid_t pid, std::uint64_t address,
                           const AtomicOperation& operation,
                           std::uint64_t* old) {
  iovec local = {old, sizeof *old};
  const iovec remote = {reinterpret_cast<void*>(address), sizeof *old};
  ssize_t copied = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  if (copied != sizeof *old) {
    return Failure(copied);
  }
  std::uint64_t changed = NewValue(operation, *old);
  if (changed == *old) {
    return AtomicResult::kDone;
  }
  local.iov_base = &changed;
  copied = process_vm_writev(pid, &local, 1, &remote, 1, 0);
  return copied == sizeof changed ? AtomicResult::kDone : Failure(copied);
}

}  // namespace

bool TryAtomicLock(SharedLayout& layout, std::uint32_t holder) {
  std::uint32_t nobody = 0;
  return layout.atomic_lock.compare_exchange_strong(nobody, holder);
}

bool ReleaseAtomicLock(SharedLayout& layout) {
  layout.atomic_lock.store(0);
  return layout.atomic_lock_wanted.load() != 0 &&
         layout.atomic_lock_wanted.exchange(0) != 0;
}

void FreeAtomicLock(SharedLayout& layout, std::uint32_t holder) {
  layout.atomic_lock.compare_exchange_strong(holder, 0);
}

AtomicResult ExecuteAtomicAcross(const PeerLink& link, const RemoteRange& range,
                                 const AtomicOperation& operation,
                                 std::uint32_t holder, std::uint64_t* old,
                                 bool* wake_owner) {
  bool sane;
  std::byte* mapped = FindMapped(link, range, &sane);
  // The key's address is aligned; a peer's table may put it elsewhere, also
  // where nothing is mapped here.
  const bool shared = range.place.offset != kPrivateMemory;
  if (!sane || (shared && mapped == nullptr) ||
      reinterpret_cast<std::uintptr_t>(mapped) % sizeof(std::uint64_t) != 0) {
    return AtomicResult::kFaulted;
  }
  if (shared) {
    *old = UpdateMapped(mapped, operation);
    return AtomicResult::kDone;
  }
  SharedLayout& layout = link.segment()->shared();
  int tries = 0;
  while (!TryAtomicLock(layout, holder)) {
    if (++tries == kTries) {
      return AtomicResult::kBusy;
    }
  }
  AtomicResult result = AtomicResult::kDone;
  if (mapped != nullptr) {
    *old = UpdateMapped(mapped, operation);
  } else {
    result = UpdatePrivate(link.pid(), range.place.address, operation, old);
  }
  *wake_owner = ReleaseAtomicLock(layout);
  return result;
}

bool ExecuteAtomicAsOwner(SharedLayout& layout, const RegionPlace& place,
                          const AtomicOperation& operation,
                          std::uint64_t* old) {
  auto* const mapped = reinterpret_cast<std::byte*>(place.address);
  if (place.offset != kPrivateMemory) {
    *old = UpdateMapped(mapped, operation);
    return true;
  }
  if (!TryAtomicLock(layout, kAtomicLockOwner)) {
    // First the wish, then another look: either this look finds the lock free,
    // or its holder finds the wish.
    layout.atomic_lock_wanted.store(1);
    if (!TryAtomicLock(layout, kAtomicLockOwner)) {
      return false;
    }
  }
  *old = UpdateMapped(mapped, operation);
  // If the wish is still there it costs one needless wake-up.
  layout.atomic_lock.store(0);
  return true;
}

}  // namespace ringpipe::verbs::soft
