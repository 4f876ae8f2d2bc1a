#include "pipeline/host/process_memory.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>

namespace ringpipe {
namespace {

// Of a call of the kernel that was to copy so many bytes.
int ErrnoOf(ssize_t copied, std::size_t bytes) {
  return copied < 0                                 ? errno
         : static_cast<std::size_t>(copied) < bytes ? EFAULT
                                                    : 0;
}

}  // namespace

bool ProcessMemory::is_dead() const {
  pollfd process = {pidfd_, POLLIN, 0};
  return pidfd_ >= 0 && poll(&process, 1, 0) == 1;
}

int ProcessMemory::Read(std::initializer_list<Piece> pieces) const {
  std::array<iovec, 2> local = {};
  std::array<iovec, 2> remote = {};
  assert(pieces.size() <= local.size());
  std::size_t count = 0;
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) {
    local[count] = {piece.to, piece.bytes};
    remote[count++] = {reinterpret_cast<void*>(piece.address), piece.bytes};
    bytes += piece.bytes;
  }
  return is_dead() ? ESRCH
                   : ErrnoOf(process_vm_readv(pid_, local.data(), count,
                                              remote.data(), count, 0),
                             bytes);
}

int ProcessMemory::Write(std::uint64_t address, const std::byte* from,
                         std::size_t bytes) const {
  const iovec local = {const_cast<std::byte*>(from), bytes};
  const iovec remote = {reinterpret_cast<void*>(address), bytes};
  return is_dead() ? ESRCH
                   : ErrnoOf(process_vm_writev(pid_, &local, 1, &remote, 1, 0),
                             bytes);
}

bool KernelCopies(std::span<const std::byte> memory) {
  const ProcessMemory own(getpid(), -1);
  std::byte read;
  return memory.empty() ||
         own.Read({{&read, reinterpret_cast<std::uint64_t>(&memory.front()), 1},
                   {&read, reinterpret_cast<std::uint64_t>(&memory.back()),
                    1}}) == 0;
}

}  // namespace ringpipe
