#ifndef RINGPIPE_PIPELINE_HOST_PROCESS_MEMORY_H_
#define RINGPIPE_PIPELINE_HOST_PROCESS_MEMORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace ringpipe {

// The private memory of another process of this host, which the kernel copies
// from and to: process_vm_readv(2). Where it does not allow that (ptrace(2),
// "ptrace access mode checking"), nothing is copied. A value; any thread.
class ProcessMemory {
 public:
  ProcessMemory() = default;
  // `pidfd` guards each copy: the process's number may be another's once it is
  // dead. It outlives this object.
  ProcessMemory(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  bool is_dead() const;

  struct Piece {
    void* to;
    std::uint64_t address;
    std::size_t bytes;
  };

  // Return 0 where all was copied, else an errno: ESRCH where the process has
  // died, EFAULT where it has no such memory. Pieces, 2 at
  // most, are read in order.
  int Read(std::initializer_list<Piece> pieces) const;
  int Write(std::uint64_t address, const std::byte* from,
            std::size_t bytes) const;

 private:
  pid_t pid_ = 0;
  int pidfd_ = -1;
};

// Whether the kernel copies this memory of the own process, to judge by its
// first and last byte; it does not where memory is a device's, or secret.
bool KernelCopies(std::span<const std::byte> memory);

}  // namespace ringpipe

#endif  // RINGPIPE_PIPELINE_HOST_PROCESS_MEMORY_H_
