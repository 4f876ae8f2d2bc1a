#include "pipeline/host/process_memory.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

namespace ringpipe {

bool ProcessMemory::is_dead() const {
  pollfd process = {pidfd_, POLLIN, 0};
  return pidfd_ >= 0 && poll(&process, 1, 0) == 1;
}

bool ProcessMemory::Read(std::byte* to, std::uint64_t address,
                         std::size_t bytes) const {
  const iovec local = {to, bytes};
  const iovec remote = {reinterpret_cast<void*>(address), bytes};
  return !is_dead() && process_vm_readv(pid_, &local, 1, &remote, 1, 0) ==
                           static_cast<ssize_t>(bytes);
}

bool ProcessMemory::Write(std::uint64_t address, const std::byte* from,
                          std::size_t bytes) const {
  const iovec local = {const_cast<std::byte*>(from), bytes};
  const iovec remote = {reinterpret_cast<void*>(address), bytes};
  return !is_dead() && process_vm_writev(pid_, &local, 1, &remote, 1, 0) ==
                           static_cast<ssize_t>(bytes);
}

bool KernelCopies(std::span<const std::byte> memory) {
  const ProcessMemory own(getpid(), -1);
  std::byte read;
  return memory.empty() ||
         (own.Read(&read, reinterpret_cast<std::uint64_t>(&memory.front()),
                   1) &&
          own.Read(&read, reinterpret_cast<std::uint64_t>(&memory.back()), 1));
}

}  // namespace ringpipe
